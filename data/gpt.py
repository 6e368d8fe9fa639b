"""A small transformer that writes text, letter by letter: the model of notebook 11."""

import numpy as np
import torch
from torch import nn

from data.store import DATA

LETTERS = [chr(number) for number in range(32, 127)]  # token 0 is the space
WIDTH, HEADS, LAYERS, LONGEST = 64, 4, 2, 64


class Block(nn.Module):
    """Attention, then a multi-layer perceptron, each added to what came in: (b, t, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return queries, keys and values of normed x, each (b, HEADS, t, width / HEADS)."""
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).reshape(batch, length, 3, HEADS, width // HEADS)
        return split.permute(2, 0, 3, 1, 4).unbind(0)

    def rest(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return what follows the attention: attended (b, HEADS, t, width / HEADS)."""
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.heads(x)
        return self.rest(x, nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True))  # no letter sees those after it


class GPT(nn.Module):
    """Tokens (b, t), int64 below 95, t at most LONGEST, to logits (b, t, 95) of the next token."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(95, width), nn.Embedding(LONGEST, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 95, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class OneLetter(nn.Module):
    """A model for one letter (b, 1) of a text, at a place (1,), with a cache of LONGEST places.

    Keys and values are (LAYERS, b, HEADS, LONGEST, width / HEADS); the letter's own are written at
    its place. Returns its logits (b, 1, 95), the keys and the values.
    """

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, letter: torch.Tensor, place: torch.Tensor, *caches: torch.Tensor) -> tuple:
        x, after = self.model.token(letter) + self.model.place(place), []
        places = torch.arange(LONGEST)
        for number, block in enumerate(self.model.blocks):
            query, *new = block.heads(x)
            both = [torch.where((places == place)[:, None], one, cache[number])
                    for one, cache in zip(new, caches, strict=True)]
            x = block.rest(x, nn.functional.scaled_dot_product_attention(
                query, *both, attn_mask=(places <= place)[None]))
            after.append(torch.stack(both))
        return self.model.head(self.model.norm(x)), *torch.stack(after, 1).unbind()


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
