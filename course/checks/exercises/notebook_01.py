"""The checks of notebook 01: model preparation."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from course.checks.compare.tolerance import random
from course.checks.observe.spies import require_numpy_only
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.forms import array, number
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Cases, Spec, check
from course.words import _


def _counted(seed: int, absent: int = -1, never: int = -1) -> np.ndarray:
    """Return a confusion matrix of 500 images.

    No image has the label `absent`, and no prediction is the class `never`.
    """
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 10, 500)
    labels = labels[labels != absent]
    guesses = draw.integers(0, 10, len(labels))
    predictions = np.where(draw.random(len(labels)) < 0.6, labels, guesses)
    predictions[predictions == never] = (never + 1) % 10
    confusion = np.zeros((10, 10), dtype=np.int64)
    np.add.at(confusion, (labels, predictions), 1)
    return confusion


def _confusions() -> Cases:
    large = 1000 * _counted(1)
    large[4, 4] = 1  # a recall that no rounding leaves as it is
    yield {"confusion": large}
    for absent, never in ((-1, 6), (3, -1), (9, 0), (3, 3), (0, 9)):
        yield {"confusion": _counted(1, absent, never)}
    yield {"confusion": np.diag(np.arange(10))}  # all right, and a single image in class 1


_OF_CLASSES = Spec(
    array, lambda confusion: np.diag(confusion) / confusion.sum(1), _confusions,
    {"confusion": "c c"}, least={"c": 2}, fits=lambda given: given["confusion"].min() >= 0,
    atol=1e-9)


@exercise("1.1", "per_class_recall(confusion)")
def exercise_1_1(per_class_recall: Callable) -> str:
    """the recall of each class: the diagonal of the confusion matrix, each by the sum of its row.

    As scikit-learn's recall_score with average=None and zero_division=nan.
    """
    return _("{count} confusion matrices; NaN for a class without images, 0 for one never "
             "predicted").format(count=check(_OF_CLASSES, per_class_recall))


def _batches() -> Cases:
    """Yield batches: logits (n, c) of float32, and labels (n,)."""
    mixed = np.array([[1000], [-1000], [0], [500], [1000], [-1000]])
    lost = np.eye(10)[[2, 2, 3, 4, 5, 9]] * 1000  # the first row's label, 2, wins; others lose
    won = np.eye(10)[[2, 1, 0, 2, 1, 2]] * 1000  # every label wins: the loss is 0
    cases = [((6, 10), 0), ((1, 7), 0), ((5, 3), 0), ((2, 17), 0), ((4, 1), 0), ((40, 70), 0),
             ((6, 10), 47 * np.sign(random(6, 10, seed=5))), ((6, 10), won / 80), ((6, 10), 1000),
             ((6, 10), -1000), ((6, 10), mixed), ((6, 10), lost / 5), ((6, 10), lost),
             ((6, 10), won), ((6, 10), -lost)]
    for seed, ((n, c), offset) in enumerate(cases):
        labels = np.resize([2, 1, 0, 2, 1, 2], n) % c
        if (n, c) == (2, 17):
            labels = np.array([16, 0])  # the last class and the first
        yield {"logits": (3 * random(n, c, seed=seed) + offset).astype("float32"),
               "labels": labels}


def _mean_loss(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return F.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(labels)).numpy()


def _with_numpy(cross_entropy: Callable) -> Callable[..., Any]:
    def run(logits: np.ndarray, labels: np.ndarray) -> Any:
        with np.errstate(all="ignore"), \
                require_numpy_only(_("NumPy alone")):
            return number(cross_entropy)(logits=logits, labels=labels)
    return run


def _labels_fit(given: Inputs) -> bool:
    """Whether the labels are classes; no 100, where exponentials are hardly 0: 1000 shows more."""
    logits, labels = given.values()
    return 0 <= labels.min() <= labels.max() < logits.shape[1] and not (abs(logits) == 100).any()


_CROSS_ENTROPY = Spec(
    _with_numpy, _mean_loss, _batches, {"logits": "n c", "labels": "n"}, least={"n": 2, "c": 2},
    fits=_labels_fit, atol=lambda given: 1e-3 if abs(given["logits"]).max() > 40 else 1e-5)


@exercise("1.2", "cross_entropy(logits, labels)")
def exercise_1_2(cross_entropy: Callable) -> str:
    """the cross-entropy from logits.

    The formula: https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    return _("{count} batches, with logits up to 1000 and down to -1000: every loss finite").format(
        count=check(_CROSS_ENTROPY, cross_entropy))


def _of_pytorch(batch: int, in_channels: int, out_channels: int, size: int, kernel: int,
                stride: int, padding: int) -> np.ndarray:
    """Return parameters, FLOPs and bytes of a layer, by the windows that PyTorch finds."""
    # PyTorch's windows of a line; its layer on a device without data loads SymPy for 0.3 seconds
    side = len(torch.empty(size + 2 * padding).unfold(0, kernel, stride))
    image, weight, output = ((batch, in_channels, size, size), (in_channels, kernel, kernel),
                             (batch, out_channels, side, side))
    counts = [math.prod(image), out_channels * math.prod(weight) + out_channels, math.prod(output)]
    return np.array([counts[1], 2 * math.prod(weight + output), 4 * sum(counts)])


def _three_ints(conv2d_cost: Callable) -> Callable[..., np.ndarray]:
    def run(**given: int) -> np.ndarray:
        came = conv2d_cost(*given.values())
        if isinstance(came, np.ndarray):
            came = came.tolist()
        if not isinstance(came, tuple | list) or len(came) != 3 or not all(
                isinstance(number, int | np.integer) for number in came):
            raise CheckFailed(_("a tuple of three ints: parameters, FLOPs, bytes"),
                              repr(came)[:80])
        return np.array(came)
    return run


def _convolutions() -> Cases:
    for case in ((4, 1, 32, 28, 3, 1, 0), (3, 4, 6, 10, 3, 2, 0), (5, 6, 7, 9, 1, 1, 0),
                 (2, 8, 4, 11, 4, 3, 1), (1, 1, 1, 1, 1, 1, 0), (3, 2, 5, 8, 8, 1, 0),
                 (7, 5, 2, 13, 2, 4, 0), (2, 3, 4, 6, 3, 5, 2), (3, 5, 4, 12, 4, 3, 2),
                 (3, 4, 5, 8, 1, 3, 2), (2, 3, 8, 32, 5, 1, 2), (2, 3, 64, 224, 7, 2, 3),
                 (2, 1030, 4099, 57, 3, 1, 1)):  # these costs are more than float32 can tell apart
        yield dict(zip(("batch", "in_channels", "out_channels", "size", "kernel", "stride",
                        "padding"), case, strict=True))


def _window_fits(given: Inputs) -> bool:
    *least, padding = given.values()
    return padding >= 0 and min(least) > 0 and given["size"] + 2 * padding >= given["kernel"]


_COST = Spec(_three_ints, _of_pytorch, _convolutions, fits=_window_fits)


@exercise("1.3", "conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding)")
def exercise_1_3(conv2d_cost: Callable) -> str:
    """what a convolution costs.

    The output's size: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html.
    Two FLOPs a multiply-add, as in torch.utils.flop_counter, which leaves out the bias; with it K
    products, K - 1 additions and the bias make 2 K.
    """
    return _("{count} convolutions with stride 1 to 5 and padding 0 to 3, every number "
             "exact").format(count=check(_COST, conv2d_cost))
