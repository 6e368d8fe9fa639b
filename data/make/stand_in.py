"""Draw the stand-in data set and train the stand-in models.

The course works on Fashion-MNIST. Where there is no network, it works on this *stand-in*: a small
data set in the same ten classes and the same file format, but DRAWN by this script. No pixel and
no label order of the genuine Fashion-MNIST is in it, and an accuracy measured on it says nothing
about the genuine data.

    python -m data.make.stand_in                # images and weights (about a minute on one core)
    python -m data.make.stand_in --images-only  # only the images (seconds, needs no torch)

It writes, beside itself:

    stand_in/FashionMNIST/raw/t10k-images-idx3-ubyte   1,000 test images, 28 x 28, uint8
    stand_in/FashionMNIST/raw/t10k-labels-idx1-ubyte   their labels
    stand_in/FashionMNIST/raw/train-*-ubyte            empty: torchvision wants them to exist
    stand_in/models/cnn.npz, stand_in/models/mlp.npz   weights, float16

The same seed gives the same image bytes (on the same versions of numpy and Pillow).

How a drawing is made: a class's function picks random proportions and paints a few polygons and
lines on a canvas of 4 x 4 subpixels a pixel; the canvas is tilted, shifted, and averaged down.
Coordinates are in pixels, x from -14 (left) to 14 (right), y from 0 (top) to 28 (bottom).
"""

import argparse
import itertools
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from data.store import CLASS_NAMES, DATA, WEIGHTS

SIZE = 28  # pixels a side
SUB = 4  # subpixels a pixel, each way
TEST_SEED = 20240
TRAIN_SEED = 777
TEST_IMAGES = 1000
TRAIN_IMAGES = 12000
FIRST_BOOT = 9  # which of the ankle boots becomes test image 0 (a clear one, chosen by eye)

OUT = DATA / "stand_in"

Point = tuple[float, float]
Points = Sequence[Point]

# The middle of every subpixel, in the coordinates of the drawings.
_STEPS = (np.arange(SIZE * SUB) + 0.5) / SUB
YY, XX = np.meshgrid(_STEPS, _STEPS - SIZE / 2, indexing="ij")


# --- The canvas ----------------------------------------------------------------------------------


class Canvas:
    """A grey canvas with its own small tilt, shift and scale."""

    def __init__(self, rng: np.random.Generator) -> None:
        """Start black, with a random placing."""
        self.grey = np.zeros((SIZE * SUB, SIZE * SUB))
        tilt = math.radians(rng.normal(0.0, 2.5))
        self.cos, self.sin = math.cos(tilt), math.sin(tilt)
        self.scale_x, self.scale_y = rng.uniform(0.93, 1.02, size=2)
        self.shift_x, self.shift_y = rng.uniform(-1.1, 1.1, size=2)

    def _mask(self, shape: str, points: Points, **style: Any) -> np.ndarray:
        """Return the subpixels, bool (112, 112), of a shape that Pillow draws through points."""
        x, y = np.array(points).T
        u, v = x * self.scale_x, (y - SIZE / 2) * self.scale_y
        column = (u * self.cos - v * self.sin + self.shift_x + SIZE / 2) * SUB
        row = (u * self.sin + v * self.cos + self.shift_y + SIZE / 2) * SUB
        mask = Image.new("1", self.grey.shape[::-1])
        placed = np.rint([column, row]).astype(int).T.ravel().tolist()
        getattr(ImageDraw.Draw(mask), shape)(placed, fill=1, **style)
        return np.asarray(mask)

    def area(self, points: Points, smooth: int = 0) -> np.ndarray:
        """Return the subpixels inside a polygon, its corners cut `smooth` times."""
        return self._mask("polygon", cut_corners(points, smooth))

    def band(self, points: Points, width: float) -> np.ndarray:
        """Return the subpixels of a line, `width` pixels thick."""
        return self._mask("line", points, width=max(1, round(width * SUB)), joint="curve")

    def bands(self, points: Points, width: float) -> np.ndarray:
        """Return the subpixels of a line and of its mirror image."""
        return self.band(points, width) | self.band(mirror(points), width)

    def fill(self, area: np.ndarray, cloth: np.ndarray | float) -> None:
        """Paint an area with a cloth (a grey value for each subpixel, or one for all)."""
        self.grey = np.where(area, cloth, self.grey)

    def shade(self, area: np.ndarray, factor: float) -> None:
        """Make what is painted in an area lighter or darker."""
        self.fill(area, self.grey * factor)

    def finish(self, rng: np.random.Generator) -> np.ndarray:
        """Average the subpixels, add noise on the garment, and round to uint8 (28, 28)."""
        image = self.grey.reshape(SIZE, SUB, SIZE, SUB).mean(axis=(1, 3))
        image *= 1.0 + rng.normal(0.0, rng.uniform(0.01, 0.05), size=image.shape)
        return np.clip(np.rint(image), 0, 255).astype(np.uint8)


def _cut(edges: Iterable[tuple[Point, Point]]) -> list[Point]:
    """Return the points at a quarter and at three quarters of each edge."""
    return [(a * x0 + b * x1, a * y0 + b * y1) for (x0, y0), (x1, y1) in edges
            for a, b in ((0.75, 0.25), (0.25, 0.75))]


def cut_corners(points: Points, times: int) -> Points:
    """Chaikin's corner cutting: every corner of a closed polygon becomes two flatter ones."""
    for _ in range(times):
        points = _cut(zip(points, [*points[1:], points[0]], strict=True))
    return points


def bend(points: Points) -> Points:
    """Chaikin's corner cutting for an open line, three times; the two ends stay."""
    for _ in range(3):
        points = [points[0], *_cut(itertools.pairwise(points)), points[-1]]
    return points


def arc(x: float, y: float, rx: float, ry: float, start: float = 0.0,
        stop: float = 360.0) -> list[Point]:
    """Return the points of an elliptic arc; degrees, 0 is right and 90 is down."""
    angles = (math.radians(start + (stop - start) * i / 16) for i in range(17))
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


def mirror(points: Points) -> list[Point]:
    """Return the same points on the other side of the garment's middle."""
    return [(-x, y) for x, y in points]


def box(x0: float, y0: float, x1: float, y1: float) -> list[Point]:
    """Return the corners of a rectangle."""
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def chance(rng: np.random.Generator, probability: float) -> bool:
    """Return True with the given probability."""
    return bool(rng.random() < probability)


def either(rng: np.random.Generator, *ranges: tuple[float, float]) -> float:
    """Return a random number from one of several ranges, each as likely."""
    return float(rng.choice([rng.uniform(*ends) for ends in ranges]))


# --- Cloth ---------------------------------------------------------------------------------------


def make_cloth(rng: np.random.Generator, patterned: float = 0.3, low: float = 70.0,
               high: float = 235.0) -> np.ndarray:
    """Return a grey value for every subpixel: base brightness, folds, and sometimes a pattern."""
    cloth = np.full(XX.shape, rng.uniform(low, high))
    for _ in range(2):  # soft folds
        fx, fy, phase = rng.uniform(0.05, 0.16), rng.uniform(-0.08, 0.08), rng.uniform(0.0, 6.28)
        cloth *= 1.0 + rng.uniform(0.02, 0.09) * np.sin(6.28 * (fx * XX + fy * YY) + phase)
    if chance(rng, patterned):
        depth = rng.uniform(0.2, 0.65)
        period, phase, share = rng.uniform(2.5, 6.0), rng.uniform(0.0, 6.0), rng.uniform(0.3, 0.6)
        across, down = ((along + phase) % period < share * period for along in (YY, XX + 28))
        kind = rng.choice(["across", "down", "check", "dots"], p=[0.45, 0.2, 0.2, 0.15])
        cloth *= {"across": 1.0 - across * depth, "down": 1.0 - down * depth,
                  "check": (1.0 - across * depth / 2) * (1.0 - down * depth / 2),
                  "dots": 1.0 - (across & down) * depth}[kind]
    return np.clip(cloth, 20.0, 255.0)


# --- Tops: T-shirt, pullover, coat, shirt --------------------------------------------------------


@dataclass
class Top:
    """The proportions of a garment with a body and (perhaps) two sleeves, in pixels."""

    shoulder: float  # half width
    chest: float  # half width
    waist: float  # half width
    hem: float  # half width
    neck: float  # half width
    neck_depth: float
    top: float  # y
    bottom: float  # y
    sleeve: float  # length, 0 for none
    angle: float  # of the sleeve from straight down, degrees
    sleeve_width: float
    cuff_width: float


def random_top(rng: np.random.Generator) -> Top:
    """Return proportions of a top with long sleeves; the classes change what they need."""
    chest = rng.uniform(5.6, 7.4)
    return Top(shoulder=chest + rng.uniform(-0.3, 0.6), chest=chest,
               waist=chest - rng.uniform(-0.1, 0.8), hem=chest + rng.uniform(-0.4, 0.7),
               neck=rng.uniform(2.0, 3.2), neck_depth=rng.uniform(0.8, 2.2),
               top=rng.uniform(1.8, 3.6), bottom=rng.uniform(24.0, 26.8),
               sleeve=rng.uniform(16.5, 20.5), angle=rng.uniform(8.0, 19.0),
               sleeve_width=rng.uniform(3.8, 4.8), cuff_width=rng.uniform(2.4, 3.3))


def shorten_sleeves(rng: np.random.Generator, top: Top, low: float, high: float) -> None:
    """Give a top short, wide sleeves that stand away from the body."""
    top.sleeve = rng.uniform(low, high)
    top.angle = rng.uniform(24.0, 46.0)
    top.sleeve_width = rng.uniform(4.6, 5.8)
    top.cuff_width = top.sleeve_width - rng.uniform(0.2, 1.2)


def paint_top(rng: np.random.Generator, canvas: Canvas, top: Top, cloth: np.ndarray) -> np.ndarray:
    """Paint sleeves and body; return the area of the body, bool (112, 112)."""
    arm_y = top.top + 1.4 + top.sleeve_width
    shoulder = (top.shoulder, top.top + 1.5)
    armpit = (top.chest - 0.2, arm_y + 0.8)
    if top.sleeve > 0:
        angle = math.radians(top.angle)
        along = (math.sin(angle), math.cos(angle))
        out = (math.cos(angle), -math.sin(angle))
        middle = (shoulder[0] - 0.35 * top.sleeve_width, shoulder[1] + 0.9)
        wrist = (middle[0] + along[0] * top.sleeve, middle[1] + along[1] * top.sleeve)
        half = top.cuff_width / 2
        outer = (wrist[0] + out[0] * half, wrist[1] + out[1] * half)
        inner = (wrist[0] - out[0] * half, wrist[1] - out[1] * half)
        elbow = (shoulder[0] + 0.35 * out[0] + along[0] * 0.3 * top.sleeve,
                 shoulder[1] + 0.35 * out[1] + along[1] * 0.3 * top.sleeve)
        sleeve = [(1.5, top.top + 0.8), shoulder, elbow, outer, inner, armpit, (1.5, arm_y)]
        tone, inside = rng.uniform(0.8, 1.0), rng.uniform(0.3, 0.8)
        fold = [armpit, (inner[0] - 0.2, inner[1])]
        for points, line in ((sleeve, fold), (mirror(sleeve), mirror(fold))):
            canvas.fill(canvas.area(points), cloth * tone)
            if top.sleeve > 10:  # the side of the arm that lies in the body's shadow
                canvas.shade(canvas.band(line, 1.6), inside)
    right = [(top.neck, top.top), shoulder, armpit,
             (top.waist, 0.45 * arm_y + 0.55 * top.bottom), (top.hem, top.bottom - 0.3),
             (top.hem * 0.6, top.bottom)]
    body = canvas.area(right + mirror(right[::-1]))
    canvas.fill(body, cloth)
    if top.sleeve > 0:
        seam = [(shoulder[0] - 0.3, shoulder[1]),
                (top.chest - 0.9, 0.5 * (shoulder[1] + arm_y)), armpit]
        canvas.shade(canvas.bands(seam, 0.6), rng.uniform(0.55, 0.9))
    return body


def cut_neck(rng: np.random.Generator, canvas: Canvas, top: Top, pointed: bool) -> None:
    """Cut the neck opening out of the body, with the inside of the back showing a little."""
    line = arc(0.0, top.top - 0.6, top.neck, top.neck_depth + 0.6, 0.0, 180.0)
    if pointed:
        line = [(-top.neck, top.top - 0.6), (0.0, top.top + top.neck_depth),
                (top.neck, top.top - 0.6)]
    inside = canvas.area(line)
    canvas.shade(inside, rng.uniform(0.0, 0.5))
    canvas.fill(canvas.area(arc(0.0, top.top - 0.8, top.neck, 1.2, 0.0, 180.0)), 0.0)
    canvas.shade(canvas.band(line, 0.7) & ~inside, rng.uniform(0.65, 1.15))


def paint_collar(canvas: Canvas, top: Top, cloth: np.ndarray, tone: float, length: float) -> None:
    """Two collar wings that fall from the neck towards the middle."""
    wing = [(top.neck - 0.2, top.top - 0.9), (top.neck + 1.0, top.top + 0.6),
            (0.42 * top.neck + 0.8, top.top + length), (0.2, top.top + 0.55 * length + 0.3)]
    for points in (wing, mirror(wing)):
        canvas.fill(canvas.area(points), cloth * tone)
        canvas.shade(canvas.band(points[1:], 0.45), 0.6)


def paint_front(rng: np.random.Generator, canvas: Canvas, top: Top, body: np.ndarray,
                strength: float) -> None:
    """The line down the front, with buttons or without."""
    x = rng.uniform(-0.4, 0.4)
    line = canvas.band([(x, top.top + 1.5), (x, top.bottom + 1.0)], rng.uniform(0.5, 1.0))
    canvas.shade(line & body, 1.0 - strength)
    if chance(rng, 0.6):
        gap = rng.uniform(2.8, 4.2)
        y = top.top + 3.5
        while y < top.bottom - 1.0:
            canvas.shade(canvas.area(arc(x + 0.9, y, 0.55, 0.55)) & body, 1.0 - 0.8 * strength)
            y += gap


def draw_t_shirt(rng: np.random.Generator, canvas: Canvas) -> None:
    """Short sleeves or none, an open neck, often a print."""
    top = random_top(rng)
    shorten_sleeves(rng, top, 3.8, 8.0)
    top.neck = rng.uniform(2.4, 3.9)
    top.neck_depth = rng.uniform(1.2, 3.6)
    if chance(rng, 0.12):  # a sleeveless top
        top.sleeve = 0.0
        top.shoulder = top.neck + rng.uniform(1.0, 2.2)
        top.neck_depth += 1.0
    elif chance(rng, 0.14):  # long sleeves
        top.sleeve, top.angle = rng.uniform(15.0, 19.0), rng.uniform(7.0, 15.0)
        top.cuff_width = rng.uniform(2.4, 3.2)
    cloth = make_cloth(rng)
    body = paint_top(rng, canvas, top, cloth)
    cut_neck(rng, canvas, top, pointed=chance(rng, 0.25))
    if chance(rng, 0.15):  # a polo collar
        paint_collar(canvas, top, cloth, rng.uniform(0.9, 1.2), rng.uniform(2.0, 3.2))
    if chance(rng, 0.4):  # a print on the chest
        width, height = rng.uniform(1.5, 4.2), rng.uniform(1.0, 3.4)
        middle = rng.uniform(10.5, 14.5)
        shape = arc(0.0, middle, width, height)
        if chance(rng, 0.5):
            shape = box(-width, middle - height, width, middle + height)
        canvas.shade(canvas.area(shape) & body, either(rng, (0.3, 0.7), (1.2, 1.6)))


def draw_pullover(rng: np.random.Generator, canvas: Canvas) -> None:
    """Long sleeves, a closed front, ribbed hem and cuffs."""
    top = random_top(rng)
    top.sleeve_width += 0.4
    top.cuff_width += 0.2
    top.bottom -= rng.uniform(0.0, 1.5)
    cloth = make_cloth(rng)
    body = paint_top(rng, canvas, top, cloth)
    style = rng.random()
    if style < 0.18:  # a roll neck
        canvas.fill(canvas.area(box(-top.neck, top.top - 2.0, top.neck, top.top + 0.8), 1), cloth)
        canvas.shade(canvas.band([(-top.neck, top.top + 0.8), (top.neck, top.top + 0.8)], 0.5), 0.7)
    else:
        top.neck_depth = rng.uniform(0.8, 2.0) if style < 0.78 else rng.uniform(3.0, 5.5)
        cut_neck(rng, canvas, top, pointed=style >= 0.78)
    if chance(rng, 0.75):
        rib = canvas.area(box(-9.0, top.bottom - 1.8, 9.0, top.bottom + 1.0)) & body
        canvas.shade(rib, rng.uniform(0.65, 0.95))
    if chance(rng, 0.15):  # a short button tab, as on some shirts
        tab = canvas.band([(0.0, top.top + 1.0), (0.0, top.top + rng.uniform(5.0, 8.0))], 0.6)
        canvas.shade(tab & body, rng.uniform(0.5, 0.8))
    if chance(rng, 0.2):  # a cardigan
        paint_front(rng, canvas, top, body, strength=rng.uniform(0.12, 0.5))
    if chance(rng, 0.2):  # a pattern knitted across the chest
        y = rng.uniform(8.0, 15.0)
        yoke = canvas.area(box(-14.0, y, 14.0, y + rng.uniform(1.5, 4.0))) & (canvas.grey > 0)
        canvas.shade(yoke, either(rng, (0.45, 0.75), (1.2, 1.4)))


def draw_coat(rng: np.random.Generator, canvas: Canvas) -> None:
    """Long sleeves, a long and straight body that opens down the front, lapels, pockets."""
    top = random_top(rng)
    top.sleeve_width += 0.6
    top.cuff_width += 0.5
    top.bottom = rng.uniform(24.8, 27.4)
    top.angle = rng.uniform(7.0, 15.0)
    top.sleeve = rng.uniform(17.5, 21.0)
    top.hem += rng.uniform(0.0, 0.8)
    cloth = make_cloth(rng, patterned=0.12, low=50.0, high=215.0)
    body = paint_top(rng, canvas, top, cloth)
    top.neck_depth = rng.uniform(1.0, 3.0)
    cut_neck(rng, canvas, top, pointed=True)
    paint_front(rng, canvas, top, body, strength=rng.uniform(0.1, 0.85))
    if chance(rng, 0.6):
        paint_collar(canvas, top, cloth, rng.uniform(0.75, 1.2), rng.uniform(3.0, 7.5))
    elif chance(rng, 0.5):  # a hood, or a collar that stands
        hood = box(-top.neck - 0.8, top.top - 1.8, top.neck + 0.8, top.top + 1.6)
        canvas.fill(canvas.area(hood, 2), cloth * rng.uniform(0.7, 0.95))
    if chance(rng, 0.45):
        y = rng.uniform(16.0, 19.0)
        canvas.shade(canvas.bands([(2.4, y + 0.7), (5.0, y)], 0.7), 0.6)
    if chance(rng, 0.15):  # a belt
        y = rng.uniform(14.5, 17.0)
        canvas.shade(canvas.area(box(-9.0, y, 9.0, y + 1.3)) & body, 0.6)


def draw_shirt(rng: np.random.Generator, canvas: Canvas) -> None:
    """Between the others: long or short sleeves, mostly a collar and a button front."""
    top = random_top(rng)
    top.cuff_width -= 0.2
    if chance(rng, 0.3):
        shorten_sleeves(rng, top, 5.5, 9.5)
    cloth = make_cloth(rng, patterned=0.45, low=85.0, high=245.0)
    body = paint_top(rng, canvas, top, cloth)
    top.neck_depth = rng.uniform(1.2, 3.2)
    cut_neck(rng, canvas, top, pointed=chance(rng, 0.6))
    if chance(rng, 0.7):
        paint_front(rng, canvas, top, body, strength=rng.uniform(0.1, 0.5))
    if chance(rng, 0.6):
        paint_collar(canvas, top, cloth, rng.uniform(0.9, 1.25), rng.uniform(2.4, 4.0))
    if chance(rng, 0.25):  # a breast pocket
        canvas.shade(canvas.area(box(1.8, 9.5, 4.6, 12.5)), rng.uniform(0.75, 0.92))


# --- Trouser and dress ---------------------------------------------------------------------------


def draw_trouser(rng: np.random.Generator, canvas: Canvas) -> None:
    """Two legs, a waistband, a gap or a dark line between the legs."""
    top, bottom = rng.uniform(0.8, 2.0), rng.uniform(26.0, 27.4)
    waist, hip = rng.uniform(3.8, 5.2), rng.uniform(4.8, 6.6)
    crotch = rng.uniform(8.5, 12.0)
    gap = rng.uniform(0.3, 1.6)
    leg = rng.uniform(2.4, 4.6)
    spread = rng.uniform(-0.2, 1.2)
    if chance(rng, 0.06):  # shorts
        bottom, leg = rng.uniform(19.0, 22.0), rng.uniform(4.8, 5.8)
        top += 4.0
        crotch += 4.0
    cloth = make_cloth(rng, patterned=0.12)
    knee = 0.5 * (crotch + bottom)
    right = [(0.0, top + 0.3), (waist, top), (hip, crotch - 2.5),
             (gap + leg + 0.4 + 0.5 * spread, knee), (gap + leg + spread, bottom),
             (gap + spread, bottom), (gap * 0.7 + 0.3 * spread, knee), (0.0, crotch)]
    canvas.fill(canvas.area(right), cloth)
    canvas.fill(canvas.area(mirror(right)), cloth * rng.uniform(0.85, 1.0))
    painted = canvas.grey > 0
    waistband = canvas.area(box(-8.0, top - 2.0, 8.0, top + 1.8)) & painted
    canvas.shade(waistband, rng.uniform(0.65, 1.1))
    canvas.shade(canvas.band([(0.0, top), (0.0, crotch + 1.0)], 0.5), rng.uniform(0.5, 0.85))
    if chance(rng, 0.5):  # creases, or light knees
        x = gap + 0.5 * leg
        crease = [(x, crotch), (x + 0.7 * spread, bottom - 1.0)]
        canvas.shade(canvas.bands(crease, 1.2) & painted, rng.uniform(0.85, 1.2))
    if chance(rng, 0.5):
        pocket = [(waist - 1.8, top + 1.8), (waist + 0.2, top + 4.5)]
        canvas.shade(canvas.bands(pocket, 0.5), 0.65)


def draw_dress(rng: np.random.Generator, canvas: Canvas) -> None:
    """A narrow bodice over a longer skirt; straps, short sleeves or long ones."""
    chest = rng.uniform(3.4, 5.6)
    waist = chest - rng.uniform(0.2, 1.1)
    hem = waist + rng.uniform(0.8, 5.0)
    top = Top(shoulder=chest + rng.uniform(-0.6, 0.3), chest=chest, waist=waist, hem=hem,
              neck=rng.uniform(1.5, 2.6), neck_depth=rng.uniform(1.0, 3.5),
              top=rng.uniform(0.8, 2.2), bottom=rng.uniform(25.5, 27.4),
              sleeve=0.0, angle=rng.uniform(7.0, 14.0),
              sleeve_width=rng.uniform(3.0, 3.8), cuff_width=rng.uniform(2.0, 2.7))
    style = rng.random()
    if style < 0.35:
        top.sleeve = rng.uniform(3.0, 6.0)
        top.angle = rng.uniform(15.0, 35.0)
        top.cuff_width = top.sleeve_width - rng.uniform(0.0, 0.6)
    elif style < 0.58:
        top.sleeve = rng.uniform(11.0, 17.0)
    elif style < 0.8:  # straps
        top.shoulder = top.neck + rng.uniform(0.7, 1.4)
        top.neck_depth += 1.5
    cloth = make_cloth(rng)
    paint_top(rng, canvas, top, cloth)
    belt_y = rng.uniform(10.0, 12.5)
    right = [(waist, belt_y), (0.45 * waist + 0.55 * hem, 0.5 * (belt_y + top.bottom)),
             (hem, top.bottom - 0.4), (0.0, top.bottom + 0.3)]
    skirt = canvas.area(right + mirror(right[::-1]))
    canvas.fill(skirt, cloth)
    if hem - waist > 2.5:  # the folds of a wide skirt
        for x in (-0.55, 0.0, 0.55):
            fold = [(x * waist * 0.8, belt_y + 1.0), (x * hem, top.bottom)]
            canvas.shade(canvas.band(fold, 0.7) & skirt, rng.uniform(0.7, 0.95))
    cut_neck(rng, canvas, top, pointed=chance(rng, 0.4))
    if chance(rng, 0.5):
        belt = canvas.area(box(-9.0, belt_y - 0.6, 9.0, belt_y + 0.6)) & (canvas.grey > 0)
        canvas.shade(belt & (np.abs(XX) < waist + 0.8), either(rng, (0.35, 0.75), (1.15, 1.4)))


# --- Shoes: all toes point left ------------------------------------------------------------------


def draw_sandal(rng: np.random.Generator, canvas: Canvas) -> None:
    """A sole and straps, with air between them; flat, on a wedge or on a high heel."""
    tone = rng.uniform(90.0, 240.0)
    straps = tone * rng.uniform(0.75, 1.15)
    style = rng.choice(["flat", "wedge", "heel"], p=[0.45, 0.2, 0.35])
    width = rng.uniform(1.0, 2.1)
    if style == "flat":
        floor, rise, thick = rng.uniform((18.5, 0.0, 1.3), (21.5, 1.2, 2.6))
    else:
        floor, rise, thick = rng.uniform((23.0, 4.0, 1.0), (25.5, 9.0, 1.8))

    def foot(x: float) -> float:
        """Return the height of the upper side of the sole at x."""
        share = min(max((x + 6.0) / 14.0, 0.0), 1.0)
        return floor - rise * share * share * (3.0 - 2.0 * share)

    upper = [(x, foot(x)) for x in (-13.0 + 26.0 * i / 20 for i in range(21))]
    lower = [(x, y + thick) for x, y in reversed(upper)]
    if style == "wedge":
        lower = [(12.6, floor + thick), (-12.6, floor + thick)]
    if style == "heel":
        slim = rng.uniform(0.5, 1.6)
        heel = [(12.8, foot(12.8)), (12.4, floor + thick), (12.4 - slim, floor + thick)]
        canvas.fill(canvas.area([*heel, (8.5, foot(8.5) + 0.5)]), 0.85 * tone)
    canvas.fill(canvas.area(upper + lower), tone * rng.uniform(0.8, 1.0))
    canvas.shade(canvas.band(upper, 0.6), rng.uniform(0.7, 1.2))
    if style == "flat" and chance(rng, 0.15):  # nearly a shoe: closed but for a few slits
        side = [(-12.5, floor), (-9.0, floor - 3.5), (2.0, floor - 8.0), (12.5, floor - 8.5)]
        area = canvas.area([*side, (12.8, floor)], 1)
        canvas.fill(area, straps)
        for x in (-6.0, -2.5, 1.0, 6.0):
            slit = [(x, floor - 1.5), (x + 1.5, floor - rng.uniform(3.0, 5.5))]
            canvas.shade(canvas.band(slit, 1.2) & area, rng.uniform(0.1, 0.7))
    # The straps over the toes are arches, one behind the other.
    x = rng.uniform(-11.5, -9.5)
    for _ in range(int(rng.integers(1, 4))):
        reach, height = rng.uniform(3.5, 5.5), rng.uniform(3.5, 6.5)
        end = x + reach
        arch = bend([(x, foot(x) + 0.4), (x + 0.3, foot(x) - 0.8 * height),
                     (end, foot(end) - height), (end + 0.8, foot(end) + 0.4)])
        area = canvas.band(arch, width)
        if chance(rng, 0.25):  # a closed front
            area = area | canvas.area(arch)
        canvas.fill(area, straps * rng.uniform(0.8, 1.1))
        x += reach * rng.uniform(0.7, 1.2)
    # A strap up the heel and around the ankle, and one that leads forward and down from it.
    if chance(rng, 0.85):
        ankle = foot(11.0) - rng.uniform(5.5, 9.0)
        front = rng.uniform(2.0, 5.0)
        heel_strap = [(12.2, foot(12.2) + 0.4), (12.6, ankle - 0.3), (9.5, ankle - 0.2)]
        around = [(11.8, ankle + 0.4), (0.5 * (front + 11.8), ankle - 0.9), (front, ankle + 0.9)]
        canvas.fill(canvas.band(bend(heel_strap), width), straps)
        canvas.fill(canvas.band(bend(around), 0.8 * width), straps)
        if chance(rng, 0.4):  # a piece of leather around the heel
            counter = [(12.4, foot(12.4)), (12.3, ankle), (9.8, ankle + 1.5), (7.5, foot(7.5))]
            canvas.fill(canvas.area(counter, 1), 0.9 * straps)
        if chance(rng, 0.7):
            down = [(front, ankle + 0.8), (front - 0.5, ankle + 3.5),
                    (front - 3.0, foot(front - 3.0))]
            canvas.fill(canvas.band(bend(down), 0.8 * width), 0.9 * straps)
        if chance(rng, 0.4):  # a buckle
            canvas.fill(canvas.area(arc(0.5 * (front + 11.0), ankle + 0.2, 0.9, 0.9)), 250.0)


def draw_sneaker(rng: np.random.Generator, canvas: Canvas) -> None:
    """A low shoe with a band of sole, laces, and often a stripe on the side."""
    floor = rng.uniform(18.5, 21.0)
    high = rng.uniform(0.85, 1.3)
    if chance(rng, 0.12):  # it reaches up to the ankle
        high, floor = rng.uniform(1.45, 1.85), floor + 2.5
    opening = rng.uniform(3.0, 5.0)
    upper = [(x, floor - y * high) for x, y in (
        (13.0, 0.0), (13.2, 5.0), (12.2, 9.2), (10.8, 9.0), (8.5, 7.0), (opening + 1.0, 7.6),
        (opening - 0.6, 9.6), (opening - 2.2, 8.8), (-5.0, 5.2), (-9.5, 3.8), (-13.2, 2.4),
        (-13.4, 0.0))]
    cloth = make_cloth(rng, patterned=0.08, low=70.0, high=225.0)
    area = canvas.area(upper, 2)
    canvas.fill(area, cloth)
    if chance(rng, 0.5):
        tone = either(rng, (0.6, 0.85), (1.15, 1.4))
        toe_cap = [(-14.0, floor), (-14.0, 5.0), (-9.0, 5.0), (-7.5, floor)]
        heel_piece = [(14.0, floor), (14.0, 5.0), (10.5, 5.0), (9.5, floor)]
        for part in (toe_cap, heel_piece):
            canvas.shade(canvas.area(part) & area, tone)
    if chance(rng, 0.75):
        tone = either(rng, (0.3, 0.6), (1.4, 1.9))
        for i in range(int(rng.integers(1, 4))):
            x = rng.uniform(0.0, 2.0) + 2.4 * i
            stripe = [(x - 2.5, floor - 0.8), (x + 1.0, floor - 6.0 * high)]
            canvas.shade(canvas.band(stripe, rng.uniform(0.8, 1.4)) & area, tone)
    lace = either(rng, (0.35, 0.65), (1.3, 1.7))
    for i in range(int(rng.integers(2, 5))):
        x = opening - 3.2 - 1.9 * i
        y = floor - 8.6 * high + (0.35 + 0.62 * i) * 1.4 * high
        canvas.shade(canvas.band([(x, y - 1.2), (x + 1.6, y + 1.6)], 0.7) & area, lace)
    collar = [(11.6, floor - 8.6 * high), (8.5, floor - 6.8 * high), (opening, floor - 7.8 * high)]
    canvas.shade(canvas.band(collar, 0.8) & area, rng.uniform(0.5, 0.8))
    thick = rng.uniform(1.2, 2.6)
    sole = [(-13.2, floor - 0.9), (13.2, floor - 0.6), (13.0, floor + thick),
            (-12.0, floor + thick)]
    canvas.fill(canvas.area(sole, 1), either(rng, (190.0, 250.0), (45.0, 110.0)))


def draw_ankle_boot(rng: np.random.Generator, canvas: Canvas) -> None:
    """A shaft at the right above a foot that points left; flat or with a heel."""
    floor = rng.uniform(23.8, 25.2)
    top = rng.uniform(1.6, 6.5)
    if chance(rng, 0.14):  # a low one
        top = rng.uniform(8.0, 12.0)
    front = rng.uniform(0.5, 3.2)
    rise = rng.uniform(0.0, 0.8)
    heel = rng.uniform(2.0, 4.5) if chance(rng, 0.45) else 0.0
    lean = rng.uniform(-0.6, 1.0)
    toe = rng.uniform(3.0, 4.6)
    ankle = floor - rng.uniform(9.5, 11.0)
    outline = [(front + lean, top + rise), (12.0 + lean, top), (11.4, ankle - 0.5),
               (12.6, floor - 4.5), (12.6, floor - 0.7 * heel), (5.0, floor - 0.7 * heel),
               (-1.0, floor), (-13.2, floor), (-13.4, floor - 0.55 * toe), (-11.0, floor - toe),
               (-4.0, floor - toe - 2.4), (front - 1.6, ankle + 1.2), (front - 0.2, ankle - 2.0)]
    cloth = make_cloth(rng, patterned=0.03, low=55.0, high=215.0)
    area = canvas.area(outline, 1)
    canvas.fill(area, cloth)
    tone = either(rng, (30.0, 90.0), (120.0, 220.0))
    if heel > 0:
        slim = rng.uniform(3.0, 6.5)
        block = [(12.5, floor - heel), (12.3, floor + 1.4), (12.3 - slim, floor + 1.4),
                 (11.0 - slim, floor - 0.7 * heel)]
        canvas.fill(canvas.area(block), tone)
        sole = [(-13.0, floor - 0.3), (-1.0, floor - 0.3), (-1.0, floor + 1.0),
                (-12.4, floor + 1.0)]
    else:
        thick = rng.uniform(0.9, 2.2)
        sole = [(-13.2, floor - 0.5), (12.7, floor - 0.5), (12.7, floor + thick),
                (-12.6, floor + thick)]
    canvas.fill(canvas.area(sole), tone)
    style = rng.random()
    if style < 0.3:  # laces
        for i in range(int(rng.integers(4, 7))):
            y = top + 2.2 + 2.3 * i
            x = front + lean if y < ankle else front - 1.2 * (y - ankle)
            lace = canvas.band([(x, y), (x + 2.8, y + 0.9)], 0.7)
            canvas.shade(lace & area, rng.choice([0.5, 1.5]))
    elif style < 0.55:  # an elastic panel
        x = 0.5 * (front + 12.0)
        panel = [(x - 2.2, top + 0.5), (x + 2.2, top + 0.5), (x + 1.0, ankle + 3.0),
                 (x - 1.0, ankle + 3.0)]
        canvas.shade(canvas.area(panel) & area, rng.uniform(0.45, 0.7))
    elif style < 0.75:  # a strap with a buckle
        y = rng.uniform(ankle - 1.5, ankle + 1.5)
        strap = canvas.band([(front - 3.0, y + 2.0), (12.5, y)], 1.4)
        canvas.shade(strap & area, rng.uniform(0.5, 0.75))
        canvas.fill(canvas.area(box(8.0, y - 0.6, 9.6, y + 1.2)) & area, 235.0)
    elif style < 0.9:  # a zip
        zipper = [(9.0 + lean, top), (8.5, floor - 4.0)]
        canvas.shade(canvas.band(zipper, 0.7) & area, rng.choice([0.5, 1.5]))
    if chance(rng, 0.5):  # a cuff
        cuff = canvas.area(box(-2.0, top - 2.0, 14.0, top + rng.uniform(1.6, 3.0))) & area
        canvas.shade(cuff, either(rng, (0.55, 0.85), (1.15, 1.4)))
    if chance(rng, 0.4):  # a toe cap
        cap = canvas.area([(-14.0, 12.0), (-8.0, 12.0), (-7.0, floor), (-14.0, floor)]) & area
        canvas.shade(cap, rng.uniform(0.75, 1.25))


# --- Bag -----------------------------------------------------------------------------------------


def draw_bag(rng: np.random.Generator, canvas: Canvas) -> None:
    """A box or a trapezium with a handle, a strap, or neither; a flap, a clasp, pockets."""
    style = rng.choice(["handle", "strap", "clutch"], p=[0.6, 0.25, 0.15])
    bottom = rng.uniform(23.0, 26.5)
    top = rng.uniform(9.0, 13.0)
    wide = rng.uniform(9.5, 13.2)
    if style == "clutch":
        top, bottom = rng.uniform(7.0, 9.5), rng.uniform(19.0, 22.5)
    narrow = wide - rng.uniform(-0.8, 3.0)
    cloth = make_cloth(rng, patterned=0.22)
    tone = float(cloth.mean()) * rng.uniform(0.65, 1.15)
    if style == "handle":
        reach, height = rng.uniform(3.5, 7.0), rng.uniform(5.0, 8.5)
        thick = rng.uniform(0.9, 1.8)
        canvas.fill(canvas.band(arc(0.0, top + 0.6, reach, height, 180.0), thick), tone)
        if chance(rng, 0.3):  # a second handle behind the first
            second = arc(1.0, top + 0.6, reach, height - 1.5, 180.0)
            canvas.fill(canvas.band(second, 0.8), 0.7 * tone)
    elif style == "strap":
        peak = rng.uniform(1.0, 3.0)
        x = rng.uniform(-4.0, 4.0)
        strap = [(-narrow + 0.8, top + 1.0), (x - 3, peak), (x + 3, peak),
                 (narrow - 0.8, top + 1.0)]
        canvas.fill(canvas.band(bend(strap), rng.uniform(0.7, 1.3)), tone)
    outline = [(-narrow, top), (narrow, top), (wide, bottom - 1.0), (wide - 0.6, bottom),
               (-wide + 0.6, bottom), (-wide, bottom - 1.0)]
    area = canvas.area(outline, int(rng.integers(0, 3)))
    canvas.fill(area, cloth)
    if chance(rng, 0.55):  # a flap
        drop = top + (bottom - top) * rng.uniform(0.3, 0.65)
        flap = [(-narrow, top), (narrow, top), (narrow - 0.3, drop - 1.5), (0.0, drop + 1.0),
                (-narrow + 0.3, drop - 1.5)]
        canvas.shade(canvas.area(flap) & area, rng.uniform(0.8, 1.2))
        canvas.shade(canvas.band(flap[2:], 0.6) & area, 0.55)
        if chance(rng, 0.7):  # a clasp
            canvas.fill(canvas.area(box(-0.9, drop - 0.6, 0.9, drop + 1.2)), 245.0)
    elif chance(rng, 0.6):  # a zip along the top, a pocket
        canvas.shade(canvas.band([(-narrow, top + 1.8), (narrow, top + 1.8)], 0.6) & area, 0.55)
        if chance(rng, 0.6):
            y = rng.uniform(0.45, 0.6) * (top + bottom)
            pocket = box(-0.6 * narrow, y, 0.6 * narrow, bottom - 1.5)
            canvas.shade(canvas.area(pocket) & area, rng.uniform(0.75, 1.2))
    if chance(rng, 0.4):
        for x in (-0.55, 0.55):
            belt = canvas.band([(x * narrow, top), (x * wide, bottom)], 1.0)
            canvas.shade(belt & area, rng.uniform(0.5, 0.8))
    canvas.shade(canvas.area(box(-14.0, bottom - 1.2, 14.0, bottom + 1.0)) & area, 0.8)


# --- Sets of drawings ----------------------------------------------------------------------------

# in the order of the classes' numbers
DRAW = (draw_t_shirt, draw_trouser, draw_pullover, draw_dress, draw_coat, draw_sandal, draw_shirt,
        draw_sneaker, draw_bag, draw_ankle_boot)


def draw_image(seed: int, label: int, number: int) -> np.ndarray:
    """Draw garment `number` of a class: (28, 28), uint8, white on black."""
    rng = np.random.default_rng([seed, label, number])
    canvas = Canvas(rng)
    DRAW[label](rng, canvas)
    return canvas.finish(rng)


def draw_set(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw images (count, 28, 28), equally many a class, shuffled; labels (count,); both uint8."""
    order = np.random.default_rng(seed).permutation(count)
    numbers, labels = np.divmod(order, len(DRAW))
    images = np.stack([draw_image(seed, int(label), int(number))
                       for label, number in zip(labels, numbers, strict=True)])
    return images, labels.astype(np.uint8)


def draw_test_set(seed: int = TEST_SEED) -> tuple[np.ndarray, np.ndarray]:
    """Draw the test set: images (1000, 28, 28) and labels (1000,), both uint8.

    Image 0 is an ankle boot: boot number FIRST_BOOT changes places with whatever came first.
    """
    images, labels = draw_set(seed, TEST_IMAGES)
    place = int(np.flatnonzero(labels == DRAW.index(draw_ankle_boot))[FIRST_BOOT])
    images[[0, place]] = images[[place, 0]]
    labels[[0, place]] = labels[[place, 0]]
    return images, labels


def write_images(images: np.ndarray, labels: np.ndarray) -> None:
    """Write the test set as IDX files (big-endian headers) where torchvision looks for them."""
    raw = OUT / "FashionMNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for what, array in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
        header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)  # 8: uint8
        (raw / f"t10k-{what}").write_bytes(header + array.tobytes())
        (raw / f"train-{what}").write_bytes(b"")


# --- The two models ------------------------------------------------------------------------------


def models() -> dict[str, Any]:
    """Return the CNN and the MLP, torch.nn.Sequential without weights of ours.

    They take images float32 (n, 1, 28, 28) to logits (n, 10); the course puts a Softmax behind.
    """
    from torch import nn
    return {"cnn": nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                 nn.Linear(5408, 100), nn.ReLU(), nn.Linear(100, 10)),
            "mlp": nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(),
                                 nn.Linear(128, 10))}


def fit(name: str, model: Any, x: Any, y: Any, epochs: int) -> None:
    """Minimise the cross-entropy with Adam, the step size falling to nothing.

    x: tensor float32 (n, 1, 28, 28); y: its labels, int64 (n,).
    """
    import torch
    batch = 100
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, epochs * len(x) // batch)
    for epoch in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(x)).split(batch):
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
            adam.zero_grad()
            loss.backward()
            adam.step()
            schedule.step()
            total += loss.item() * len(rows)
        print(f"{name}, epoch {epoch + 1}: training loss {total / len(x):.3f}", flush=True)


def train_models() -> dict[str, Any]:
    """Return the CNN and the MLP, trained on fresh drawings, their weights rounded to float16."""
    import torch
    torch.manual_seed(TRAIN_SEED)
    torch.set_num_threads(1)
    images, labels = draw_set(TRAIN_SEED, TRAIN_IMAGES)
    x, y = torch.from_numpy(images).float().unsqueeze(1) / 255, torch.from_numpy(labels).long()
    trained = models()
    for name, epochs in (("cnn", 6), ("mlp", 15)):
        fit(name.upper(), trained[name], x, y, epochs)
        trained[name].half().float()
    return trained


def write_weights(name: str, model: Any) -> None:
    """Write a model's parameters as float16, under the names that the course uses."""
    values = [parameter.detach().numpy().astype(np.float16) for parameter in model.parameters()]
    assert all(np.isfinite(value).all() for value in values)
    (OUT / "models").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(OUT / "models" / f"{name}.npz", allow_pickle=False,
                        **dict(zip(WEIGHTS[name].shapes, values, strict=True)))


def report(name: str, model: Any, images: np.ndarray, labels: np.ndarray) -> None:
    """Print how a model does on the test set."""
    import torch
    x = torch.from_numpy(images).float().unsqueeze(1) / 255
    probabilities = model(x).softmax(dim=1).detach().numpy()
    ordered = np.sort(probabilities, axis=1)
    gaps = ordered[:, -1] - ordered[:, -2]
    right = probabilities.argmax(axis=1) == labels
    print(f"{name}: {right.sum()} of {len(labels)} right")
    print(f"  image 0 is {CLASS_NAMES[labels[0]]}: probability {probabilities[0, labels[0]]:.4f}")
    print(f"  smallest gap between best and second best: {gaps.min():.6f}")
    for label, title in enumerate(CLASS_NAMES):
        print(f"  {title:12s} {right[labels == label].sum():3d} of {(labels == label).sum()}")


def main() -> None:
    """Write the images and, unless told otherwise, train and write the models."""
    parser = argparse.ArgumentParser(description="Draw the stand-in data set, train its models.")
    parser.add_argument("--images-only", action="store_true", help="do not train, only draw")
    arguments = parser.parse_args()

    images, labels = draw_test_set()
    write_images(images, labels)
    print(f"{len(images)} test images in {OUT / 'FashionMNIST' / 'raw'}")
    for name, model in ({} if arguments.images_only else train_models()).items():
        write_weights(name, model)
        report(name.upper(), model, images, labels)


if __name__ == "__main__":
    main()
