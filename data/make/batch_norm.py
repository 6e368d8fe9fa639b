"""Train the small model with batch normalisation of notebook 09, on the stand-in's test images.

    python -m data.make.batch_norm     writes data/batch_norm.npz, a few seconds

Notebook 09 compares programs of this model with one another: its weights have to be a trained
model's, but it need not be accurate. So data/batch_norm.npz was kept when the stand-in was redrawn:
it was trained on the earlier images, and running this writes a different one.
"""

import numpy as np
import torch
from torch import nn

from data.make.stand_in import draw_set, fit
from data.store import DATA

SEED, EPOCHS = 20261123, 8


def model() -> nn.Sequential:
    """Return the model without trained weights: (n, 1, 28, 28) images to (n, 10) logits."""
    return nn.Sequential(nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 10))


def main() -> None:
    """Train the model and write its parameters and statistics, rounded to float16."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    images, labels = draw_set()
    trained = model()
    fit("batch norm", trained, images, labels, EPOCHS)
    values = {name: value.numpy().astype(np.float16)
              for name, value in trained.eval().state_dict().items() if value.ndim}
    assert all(np.isfinite(value).all() for value in values.values())
    np.savez_compressed(DATA / "batch_norm.npz", allow_pickle=False, **values)
    x = torch.from_numpy(images).float().unsqueeze(1) / 255
    right = int((trained(x).argmax(1).numpy() == labels).sum())
    print(f"{right} of {len(labels)} training images right")


if __name__ == "__main__":
    main()
