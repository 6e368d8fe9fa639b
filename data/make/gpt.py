"""Train the small transformer of notebook 11 on the course's own text.

    python -m data.make.gpt     writes data/gpt.npz, some minutes

It learns which letter follows which in the notebooks' English. Notebook 11 compares programs of
this model with one another; what it writes need not make sense.
"""

import re

import numpy as np

from data.store import DATA

SEED, STEPS, BATCH = 20261123, 3000, 32


def text() -> str:
    """Return the prose of notebooks 01 to 05 as one line of printable ASCII."""
    found = []
    for path in sorted((DATA.parent / "paired_md").glob("0[1-5]*.md")):
        whole = path.read_text(encoding="utf-8").split("\n---\n", 1)[1]
        found.append(re.sub(r"```.*?```|<[^>]*>|[#>|*`]", "", whole, flags=re.DOTALL))
    return re.sub(r"\s+", " ", re.sub(r"[^\x20-\x7e\s]", "", " ".join(found)))


def main() -> None:
    """Train the model and write its parameters, rounded to float16."""
    import torch

    from data import gpt
    torch.manual_seed(SEED)
    tokens = torch.from_numpy(gpt.tokens_of(text()))[0]
    model = gpt.GPT()
    steps = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    slower = torch.optim.lr_scheduler.OneCycleLR(steps, 3e-3, STEPS)
    for step in range(STEPS):
        first = torch.randint(len(tokens) - gpt.LONGEST - 1, (BATCH, 1))
        seen = tokens[first + torch.arange(gpt.LONGEST + 1)]
        loss = torch.nn.functional.cross_entropy(model(seen[:, :-1]).flatten(0, 1),
                                                 seen[:, 1:].flatten())
        steps.zero_grad()
        loss.backward()
        steps.step()
        slower.step()
        if step % 500 == 499:
            print(f"step {step + 1}: loss {loss.item():.2f}", flush=True)
    np.savez_compressed(DATA / "gpt.npz", allow_pickle=False, **{
        name: value.numpy().astype(np.float16) for name, value in model.state_dict().items()})


if __name__ == "__main__":
    main()
