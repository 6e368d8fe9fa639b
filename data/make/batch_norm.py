"""Train the small model with batch normalisation of notebook 09, on the stand-in's test images.

    python -m data.make.batch_norm     writes data/batch_norm.npz, a few seconds

Notebook 09 compares programs of this model with one another: its weights have to be a trained
model's, and it need not be good at anything.
"""

from typing import Any

import numpy as np

from data.make.stand_in import draw_test_set, fit
from data.store import DATA

SEED, EPOCHS = 20261123, 8


def model() -> Any:
    """Return the model without trained weights: (n, 1, 28, 28) images to (n, 10) logits."""
    from torch import nn
    return nn.Sequential(nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 10))


def main() -> None:
    """Train the model and write its parameters and statistics, rounded to float16."""
    import torch
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    images, labels = draw_test_set()
    x, y = torch.from_numpy(images).float().unsqueeze(1) / 255, torch.from_numpy(labels).long()
    trained = model()
    fit("BATCH NORM", trained, x, y, EPOCHS)
    values = {name: value.numpy().astype(np.float16)
              for name, value in trained.eval().state_dict().items() if value.ndim}
    assert all(np.isfinite(value).all() for value in values.values())
    np.savez_compressed(DATA / "batch_norm.npz", allow_pickle=False, **values)
    right = int((trained(x).argmax(1) == y).sum())
    print(f"{right} of {len(y)} training images right")


if __name__ == "__main__":
    main()
