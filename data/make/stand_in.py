"""Draw the stand-in data set and train the stand-in models.

Without a network, the course works on this *stand-in* for Fashion-MNIST: a small data set with the
same ten classes and file format, but DRAWN by this script. It has no pixel and no label order of
the real Fashion-MNIST, and no figure measured on it says anything about the real one.

    python -m data.make.stand_in     writes data/stand_in/, a minute or two

A garment is a few randomised polygons and lines; torchvision's transforms tilt, bend and blur it.
A seed gives the same images again (with the same versions of NumPy, Pillow, torch and torchvision):
what other processors round differently in float64 is lost when pixels become bytes.
"""

import struct
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from data import versions
from data.store import CLASS_NAMES, DATA, WEIGHTS

OUT = DATA / "stand_in"
TEST_SEED, TRAIN_SEED = 20260, 777
SIZE, SUB = 28, 4  # pixels a side; subpixels a pixel, each way, while it is drawn


class Part(NamedTuple):
    """A polygon or a line of a garment."""

    points: str  # as in SVG; in pixels, x to the right from the middle, y down from the top
    tone: tuple[float, float] = (1.0, 1.0)  # from, to: times the garment's brightness
    chance: float = 1.0  # how often it is there
    style: tuple[float, float] = (0.0, 1.0)  # in which styles: each garment has one, from 0 to 1
    width: float = 0.0  # of a line, in pixels; 0 for a polygon


DARK, LIGHT, ANY, SHADE = (0.4, 0.8), (1.2, 1.6), (0.5, 1.5), (0.75, 1.0)
FLAT, HEEL = (0.0, 0.55), (0.55, 1.0)
BODY = Part("0,3.8 2.6,2.5 6.8,4 6.4,10 6.1,17 6.6,25.5 0,26")
SEAM = Part("6.7,4.5 6.1,10 6.3,13", DARK, width=0.6)
NECK = Part("0,2 0,5.2 1.6,4.6 2.7,2", (0.2, 0.7))
SHORT = "4,3 7.2,4.2 11.8,9.6 8.6,12.4 5.8,9.5"
LONG = "4,3 7.4,4.4 9.8,10 12.2,22.6 9.4,23.8 7.4,15 5.8,10"
COLLAR, FRONT = "0.2,5.4 1.8,1.8 4,3.4 2.6,6.4", "0,4 0,26"
GARMENTS = {
    "T-shirt/top": [
        Part(SHORT, SHADE, style=(0, 0.8)), Part(LONG, SHADE, style=(0.8, 0.9)), BODY, SEAM, NECK,
        Part("0,11 3.4,11 3.4,15 0,15", ANY, 0.35), Part(COLLAR, ANY, 0.1)],
    "Trouser": [
        Part("0,1.4 4.4,1 5.6,8 5.4,17 4.8,26.8 1.2,26.8 0.8,16 0,10"),
        Part("0,2 4.4,2", DARK, 0.5, width=1.6), Part("3,10 3,25", LIGHT, 0.4, width=1.4)],
    "Pullover": [
        Part(LONG, SHADE), BODY, SEAM, NECK, Part("0,24.8 6.4,24.8", DARK, 0.7, width=2),
        Part("0,2.8 2.4,2.8", SHADE, 0.2, width=4), Part(FRONT, (0.5, 0.9), 0.15, width=0.7)],
    "Dress": [
        Part("0,6 1.6,5.4 1.9,1 2.9,1 3.8,6 3.2,11 5.6,26.6 0,27"),
        Part("0,3.4 1.8,1.6 4,2.2 6.4,6.6 4.4,8 3,6 0,8", SHADE, style=(0, 0.35)),
        Part("0,3.4 1.8,1.6 4,2.2 6,9 7.4,17 5.6,17.8 3.4,9 0,9", SHADE, style=(0.35, 0.6)),
        Part("0,11 3,11", ANY, 0.5, width=1.4), Part("1.4,12.5 2.6,26", DARK, 0.5, width=0.7)],
    "Coat": [
        Part(LONG, SHADE), Part("0,3.4 2.6,2 7.4,3.8 7,10 6.8,17 7.6,27 0,27.3"), SEAM, NECK,
        Part("0,12 1.6,1.6 4.4,3.2 3.4,7.5", ANY, 0.6), Part(FRONT, (0.2, 0.8), width=0.8),
        Part("2.6,18.6 5.4,17.8", DARK, 0.5, width=0.7), Part("0,16 7,16", DARK, 0.2, width=1)],
    "Sandal": [
        Part("-13,20 13,20", style=FLAT, width=2), Part("-9,19 -7,14 -3,14 0,19", ANY, 1, FLAT, 2),
        Part("-5,19 -2.6,14.6 1.4,13.4 4.4,19", ANY, 0.6, FLAT, 1.4),
        Part("4.6,19 7.6,12.6 12.2,12 12.5,19", ANY, 0.7, FLAT, 1.4),
        Part("-13,23.4 -4,23 4.6,16.6 12.6,13.4 12.6,15.2 6,18.2 -3,25 -12.6,25", style=HEEL),
        Part("12.6,13.6 12.3,25 11,25 9.4,15", SHADE, style=HEEL),
        Part("-11,23.4 -8.6,18.4 -4.6,18 -2,22.4", ANY, 1, HEEL, 1.7),
        Part("12.4,14 12.4,7 7.6,6.6 4,8.4 2,17", ANY, 0.8, HEEL, 1.2)],
    "Shirt": [
        Part(SHORT, SHADE, style=(0, 0.3)), Part(LONG, SHADE, style=(0.3, 1)), BODY, SEAM, NECK,
        Part(COLLAR, LIGHT, 0.45), Part(FRONT, DARK, 0.65, width=0.7)],
    "Sneaker": [
        Part("13,19.5 13,12 11.4,9.8 8.6,11.2 5.6,11 3.4,9 -4,13.6 -9.5,15.4 -13,17.4 -13.2,19.5"),
        Part("12.6,14 12.3,6 4.6,6.6 3,10", style=(0.88, 1)), Part("-13,20 13,20", ANY, width=3),
        Part("-3.4,13.4 -1,16.4", ANY, width=0.8), Part("-1,11.8 1.4,14.8", ANY, width=0.8),
        Part("3.6,18.6 8.4,12.4", ANY, 0.5, width=1.4), Part("7,18.6 11,12.4", ANY, 0.5, width=1)],
    "Bag": [
        Part("0,4 3.5,5 5,8 5.4,11.6", SHADE, style=(0, 0.6), width=1.3),
        Part("0,1.6 5,4 9.6,11.6", SHADE, style=(0.6, 0.9), width=1),
        Part("0,11 10.6,11 11.8,25.4 0,26"), Part("0,11 10.6,11 10,17 0,19", ANY, 0.6),
        Part("0,17 1.2,17 1.2,19.6 0,19.6", ANY, 0.7), Part("0,25 11.8,25", DARK, 0.5, width=1.6)],
    "Ankle boot": [
        Part("11.6,2.6 2,3.2 1.5,11 2,14 12,14", style=(0.1, 1)),
        Part("11.6,9.4 1.5,10 -2,14.6 -9,17 -12.4,19 -13.2,23 -12.6,25 12.2,25 11.8,14"),
        Part("-13,24 12.4,24", ANY, 1, FLAT, 2.2), Part("-3,27 0,23 6,22 6,27", (0, 0), 1, HEEL),
        Part("2,4 11.6,3.6", ANY, 0.5, (0.1, 1), 2), Part("7,5 7,14", DARK, 0.3, (0.1, 1), 2.4),
        Part("1.6,8 4.4,9", ANY, 0.5, width=0.7), Part("1.2,11.4 4,12.4", ANY, 0.5, width=0.7)],
}
SHOES = {"Sandal", "Sneaker", "Ankle boot"}  # they point left; the others are symmetrical


def outline(name: str, rng: np.random.Generator) -> np.ndarray:
    """Return a randomised drawing of a garment, float64 (1, SIZE * SUB, SIZE * SUB) in [0, 1]."""
    image = Image.new("L", (SIZE * SUB, SIZE * SUB))
    draw = ImageDraw.Draw(image)
    sides, wide = ((1,), 1.0) if name in SHOES else ((1, -1), rng.uniform(0.85, 1.08))
    style, grey = rng.uniform(), rng.uniform(60, 240)
    for part in GARMENTS[name]:
        if not part.style[0] <= style < part.style[1] or rng.uniform() > part.chance:
            continue
        points = np.array([point.split(",") for point in part.points.split()], float)
        points += rng.normal(0, 0.3, points.shape) * (points != 0)  # two halves meet at 0
        fill = min(round(grey * rng.uniform(*part.tone)), 255)
        for side in sides:
            placed = ((points * [side * wide, 1] + [SIZE / 2, 0]) * SUB).ravel().tolist()
            if part.width:
                draw.line(placed, fill, round(part.width * SUB), "curve")
            else:
                draw.polygon(placed, fill)
    cloth = np.asarray(image)[None] / 255
    if name not in SHOES and rng.uniform() < 0.3:
        stripes = np.arange(SIZE * SUB) / SUB % rng.uniform(2.5, 6) < rng.uniform(1, 2.5)
        cloth *= 1 - rng.uniform(0.2, 0.6) * (stripes if rng.uniform() < 0.4 else stripes[:, None])
    return cloth


def draw_set(seed: int = TEST_SEED, count: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Draw images (count, 28, 28) and labels (count,), both uint8, the same number of each class.

    Each group of ten garments, one of each class, is bent in the same way; then all are shuffled.
    Image 0 is a boot.
    """
    versions.allow_torchvision()
    from torchvision.transforms import InterpolationMode, v2
    change = v2.Compose([
        v2.RandomAffine(3, (0.03, 0.03), (0.9, 1.0), 3, InterpolationMode.BILINEAR),
        v2.Resize(SIZE), v2.ElasticTransform(25.0, 4.0), v2.GaussianBlur(3, (0.1, 0.3))])
    rng = np.random.default_rng(seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            drawn = torch.cat([
                change(torch.from_numpy(np.stack([outline(name, rng) for name in CLASS_NAMES])))
                for _ in range(count // len(CLASS_NAMES))])
            drawn *= v2.GaussianNoise(1.0, 0.05, clip=False)(torch.zeros_like(drawn))
    finally:
        torch.set_default_dtype(before)
    order = rng.permutation(count)
    order = (order - order[0] - 1) % count  # the first is now count - 1, a boot
    images = (drawn[order, 0].clip(0, 1) * 255).round().to(torch.uint8).numpy()
    return images, (order % len(CLASS_NAMES)).astype(np.uint8)


def write_images(images: np.ndarray, labels: np.ndarray) -> None:
    """Write the test set as IDX files (big-endian headers) where torchvision looks for them."""
    raw = OUT / "FashionMNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for what, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)  # 8: uint8
        (raw / f"t10k-{what}").write_bytes(header + array.tobytes())
        (raw / f"train-{what}").write_bytes(b"")  # torchvision wants it to exist


def fit(name: str, model: nn.Module, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Train a model, float32 (n, 1, 28, 28) to logits, on images, uint8 (n, 28, 28), and labels."""
    x = torch.from_numpy(images).float().unsqueeze(1) / 255
    y = torch.from_numpy(labels).long()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, epochs * len(x) // 100)
    for epoch in range(epochs):
        for rows in torch.randperm(len(x)).split(100):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()
            schedule.step()
        print(f"{name}, epoch {epoch + 1}: loss {loss.item():.3f} in the last batch", flush=True)


def main() -> None:
    """Draw and write the images; train the two models on other drawings and write their weights."""
    torch.set_num_threads(1)
    images, labels = draw_set()
    write_images(images, labels)
    x = torch.from_numpy(images).float().unsqueeze(1) / 255
    drawn = draw_set(TRAIN_SEED, 12000)
    torch.manual_seed(TRAIN_SEED)
    models = {"cnn": nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                   nn.Linear(5408, 100), nn.ReLU(), nn.Linear(100, 10)),
              "mlp": nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(),
                                   nn.Linear(128, 10))}  # the course adds a Softmax
    (OUT / "models").mkdir(exist_ok=True)
    for (name, model), epochs in zip(models.items(), (6, 15), strict=True):
        fit(name, model, *drawn, epochs)
        values = [value.detach().numpy() for value in model.half().parameters()]
        np.savez_compressed(OUT / "models" / f"{name}.npz", allow_pickle=False,
                            **dict(zip(WEIGHTS[name].shapes, values, strict=True)))
        right = model.float()(x).argmax(1).numpy() == labels
        print(f"{name}: {right.sum()} of {len(x)} right, by class {np.bincount(labels[right])}")


if __name__ == "__main__":
    main()
