"""A small transformer that writes text, letter by letter: the model of notebook 11."""

import numpy as np
import torch
from torch import nn

from data.store import DATA

LETTERS = [chr(number) for number in range(32, 127)]  # token 0 is the space
WIDTH, HEADS, LAYERS, LONGEST = 64, 4, 2, 64


class Block(nn.Module):
    """Attention, then a multi-layer perceptron, each added to what came in: (b, t, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return queries, keys and values of normed x, each (b, HEADS, t, WIDTH / HEADS)."""
        batch, length, _ = x.shape
        split = self.qkv(self.norm1(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        return split.permute(2, 0, 3, 1, 4).unbind(0)

    def rest(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return what follows the attention: attended (b, HEADS, t, WIDTH / HEADS)."""
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.heads(x)
        return self.rest(x, nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True))  # no letter sees those after it


class GPT(nn.Module):
    """Tokens (b, t), int64 below 95, t at most LONGEST, to logits (b, t, 95) of the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(95, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 95, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def load() -> GPT:
    """Return the trained model; its weights are data/gpt.npz, made by data/make/gpt.py."""
    model = GPT()
    with np.load(DATA / "gpt.npz", allow_pickle=False) as stored:
        model.load_state_dict({name: torch.from_numpy(stored[name].astype("float32"))
                               for name in stored.files})
    return model.eval()


def tokens_of(text: str) -> np.ndarray:
    """Return the tokens (1, len(text)) of printable ASCII; raises ValueError for other letters."""
    return np.array([[LETTERS.index(letter) for letter in text]], "int64")


def text_of(tokens: np.ndarray) -> str:
    """Return the text of tokens (n,)."""
    return "".join(LETTERS[token] for token in tokens)
