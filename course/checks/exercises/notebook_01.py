"""The checks of notebook 01: model preparation."""

import functools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course.checks.compare.tolerance import random
from course.checks.observe.spies import require_numpy_only
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.spec import Cases, Spec, check
from course.checks.spec.trials import Mistakes
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


# Functions of the confusion matrix and of the right recall.
_RECALL: Mistakes = {
    _("the sums: rows are labels; the column sums give the precision, not the recall"):
        lambda confusion, _: np.diag(confusion) / confusion.sum(0),
    _("the sums: one for each row, not one for the whole matrix"):
        lambda confusion, _: np.diag(confusion) / confusion.sum(),
    # cause: unknown-recall
    _("a class without images: its recall is not 0 but unknown, NaN"):
        lambda _, recall: np.nan_to_num(recall),
    _("this is the F1 score: only the row's sum counts"): lambda confusion, _: 2 * np.diag(
        confusion) / (confusion.sum(1) + confusion.sum(0)),
    # cause: reversed-classes
    _("the classes are in reversed order"): lambda _, recall: recall[::-1],
    # cause: floor
    _("the numbers are rounded down to whole ones, as // does"): (
        lambda _, recall: np.floor(recall), lambda _, recall: np.nan_to_num(np.floor(recall)))}


def _recall(confusion: np.ndarray) -> np.ndarray:
    return np.diag(confusion) / confusion.sum(1)


def _ten_numbers(per_class_recall: Callable) -> Callable[..., np.ndarray]:
    def run(confusion: np.ndarray) -> np.ndarray:
        came = per_class_recall(confusion)
        if type(came) is not np.ndarray or came.dtype == object:
            raise CheckFailed(_("an array of ten numbers"), f"{type(came).__name__}")
        return came
    return run


def _confusions() -> Cases:
    yield "", {"confusion": 1000 * _counted(1)}  # of a large test set
    for absent, never in ((-1, 6), (3, -1), (9, 0), (3, 3), (0, 9)):
        yield "", {"confusion": _counted(1, absent, never)}
    yield "", {"confusion": np.diag(np.arange(10))}  # all right, and a single image in class 1


_OF_CLASSES = Spec(_ten_numbers, _recall, _confusions, {"confusion": "c c"}, _RECALL,
                   least={"c": 2}, fits=lambda given: given["confusion"].min() >= 0,
                   formula=lambda given: (given["confusion"], _recall(**given)), atol=1e-6)


@exercise("1.1", "per_class_recall(confusion)")
def exercise_1_1(per_class_recall: Callable) -> str:
    """the recall of each class: the diagonal of the confusion matrix, each by the sum of its row.

    As scikit-learn's recall_score with average=None and zero_division=nan.
    """
    return _("{count} confusion matrices; NaN for a class without images, 0 for one never "
             "predicted").format(count=check(_OF_CLASSES, per_class_recall))


def _of_labels(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the value of each row's label."""
    return values[np.arange(len(labels)), labels]


def _largest(scores: np.ndarray, _: Any = None) -> np.ndarray:
    """Return each row's largest logit, (n, 1)."""
    return scores.max(1, keepdims=True)


def _forms(form: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return a mistake in float32 and in float64, with inf for what is not finite.

    An overflow gives inf in one way of writing and NaN in another.
    """
    def in_dtype(dtype: Any) -> Callable[..., Any]:
        def wrong(scores: np.ndarray, labels: np.ndarray, _: np.ndarray) -> Any:
            came = np.asarray(form(scores.astype(dtype), labels), np.float64)
            return np.where(np.isfinite(came), came, np.inf)
        return wrong
    return in_dtype(np.float32), in_dtype(np.float64)


def _taken_apart(shift: Callable[[np.ndarray, np.ndarray], Any]) -> tuple[Callable[..., Any], ...]:
    """Return the loss with the logarithm taken apart, of scores less `shift(scores, labels)`."""
    def form(scores: np.ndarray, labels: np.ndarray) -> float:
        z = scores - shift(scores, labels)
        return (np.log(np.exp(z).sum(1)) - _of_labels(z, labels)).mean()
    return _forms(form)


def _by_softmax(shift: Callable[[np.ndarray, np.ndarray], Any],
                kept: Callable[[np.ndarray], np.ndarray] = lambda p: p) -> tuple:
    """Return the loss by a softmax, as it is defined, of scores less `shift(scores, labels)`.

    `kept` is applied to the labels' probabilities before the logarithm.
    """
    def form(scores: np.ndarray, labels: np.ndarray) -> float:
        e = np.exp(scores - shift(scores, labels))
        return -np.log(kept(_of_labels(e / e.sum(1, keepdims=True), labels))).mean()
    return _forms(form)


def _with_epsilon(epsilon: float) -> tuple[Callable[..., Any], ...]:
    return _by_softmax(_largest, lambda p: p + epsilon) \
        + _by_softmax(_largest, lambda p: np.maximum(p, epsilon))


def _rounded(digits: int, *given: np.ndarray) -> float:
    return round(given[-1].mean(), digits)


# Functions of the logits as float64, the labels and each image's right loss.
_LOSS: Mistakes = {
    _("log(probability + {e}): the {e} caps the loss; take the logarithm apart instead").format(
        e=f"{e:g}"):
        _with_epsilon(e)
    for e in [10.0 ** -k for k in range(5, 17)] + [float(np.finfo("float32").eps)]} | {
    _("the result is rounded to {k} digits").format(k=k):
        functools.partial(_rounded, k) for k in range(4)} | {
    _("exp(1000) is inf, and exp(-1000) is 0: subtract the largest logit of a row from that row"):
        _taken_apart(lambda *_: 0) + _by_softmax(lambda *_: 0),
    _("the probability has become 0, its logarithm -inf: simplify log(softmax) first"):
        _by_softmax(_largest),
    # cause: max-of-others
    _("the largest logit has to be each row's own, not that of another row or of the whole batch"):
        _taken_apart(lambda scores, _: scores.max()) + _by_softmax(lambda scores, _: scores.max()),
    _("the label's own logit is subtracted, and exp overflows where another class is far ahead; "
      "subtract the row's largest"):
        _taken_apart(lambda scores, labels: _of_labels(scores, labels)[:, None]),
    _("the row's mean is subtracted, and exp overflows where a class is far above it; subtract "
      "the row's largest"):
        _taken_apart(lambda scores, _: scores.mean(1, keepdims=True)),
    _("the mean over the images, not their sum"): lambda scores, labels, losses: losses.sum(),
    _("the label's logit is left out: this is the logarithm of the sum alone"):
        lambda scores, labels, losses: (_of_labels(scores, labels) + losses).mean()}


def _one_number(answer: Any) -> Any:
    """Return an answer's result as float64; raise CheckFailed if it is no number and no array."""
    number = isinstance(answer, int | float | np.number) and not isinstance(answer, bool)
    if not number and not (isinstance(answer, np.ndarray) and answer.dtype.kind in "fiu"):
        kind = _("a {type}").format(type=type(answer).__name__)
        if answer is not None:
            kind = _("a {type}, {value}").format(type=type(answer).__name__,
                                                 value=repr(answer)[:80])
        raise CheckFailed(_("one number, the mean loss"), kind)
    came = np.asarray(answer, dtype=np.float64)
    return np.where(np.isfinite(came), came, np.inf)


def _batches() -> Cases:
    """Yield batches: logits (n, c) of float32, and labels (n,)."""
    mixed = np.array([[1000], [-1000], [0], [500], [1000], [-1000]])
    lost = np.eye(10)[[2, 2, 3, 4, 5, 9]] * 1000  # the first row's label, 2, wins; others lose
    won = np.eye(10)[[2, 1, 0, 2, 1, 2]] * 1000  # every label wins: the loss is 0
    cases = [((6, 10), 0), ((1, 7), 0), ((5, 3), 0), ((2, 17), 0), ((4, 1), 0), ((40, 35), 0),
             ((6, 10), 47 * np.sign(random(6, 10, seed=5))), ((6, 10), 500), ((6, 10), 1000),
             ((6, 10), -1000), ((6, 10), mixed), ((6, 10), lost / 5), ((6, 10), lost),
             ((6, 10), won), ((6, 10), -lost)]
    for number, ((n, c), offset) in enumerate(cases):
        labels = np.resize([2, 1, 0, 2, 1, 2], n) % c
        if (n, c) == (2, 17):
            labels = np.array([16, 0])  # the last class and the first
        yield "", {"logits": (3 * random(n, c, seed=number) + offset).astype("float32"),
                   "labels": labels}


def _losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return F.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(labels),
                           reduction="none").numpy()


def _with_numpy(cross_entropy: Callable) -> Callable[..., Any]:
    def run(logits: np.ndarray, labels: np.ndarray) -> Any:
        with np.errstate(all="ignore"), \
                require_numpy_only(_("NumPy alone"), _("np.exp, np.log and sums along axis 1")):
            return _one_number(cross_entropy(logits, labels))
    return run


_CROSS_ENTROPY = Spec(
    _with_numpy, lambda **given: _losses(**given).mean(), _batches,
    {"logits": "n c", "labels": "n"}, _LOSS, least={"n": 2, "c": 2},
    fits=lambda given: 0 <= given["labels"].min() <= given["labels"].max() < len(
        given["logits"].T),
    formula=lambda given: (given["logits"].astype(np.float64), given["labels"], _losses(**given)),
    atol=lambda given: 1e-3 if abs(given["logits"]).max() > 40 else 1e-5)


@exercise("1.2", "cross_entropy(logits, labels)")
def exercise_1_2(cross_entropy: Callable) -> str:
    """the cross-entropy from logits.

    The formula: https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    return _("{count} batches, with logits up to 1000 and down to -1000: every loss finite").format(
        count=check(_CROSS_ENTROPY, cross_entropy))


@dataclass(frozen=True)
class _Conv2d:
    """A convolution, and what it costs."""

    batch: int
    in_channels: int
    out_channels: int
    size: int
    kernel: int
    stride: int
    padding: int

    @property
    def window(self) -> int:
        return self.in_channels * self.kernel**2

    @property
    def padded(self) -> int:
        return self.size + 2 * self.padding

    @property
    def side(self) -> int:
        return (self.padded - self.kernel) // self.stride + 1

    def costs(self, side: int | None = None, **wrong: int) -> tuple[int, int, int]:
        """Return parameters, FLOPs and bytes; `side` of the output and other numbers are mistakes.

        `weights` and `bias` are parameters, `per_place` FLOPs, `image` and `output` numbers.
        """
        places = self.batch * self.out_channels * (self.side if side is None else side)**2
        weights = wrong.get("weights", self.out_channels * self.window)
        bias = wrong.get("bias", self.out_channels)
        moved = wrong.get("image", self.batch * self.in_channels * self.size**2) \
            + wrong.get("output", places)
        return (weights + bias, wrong.get("per_place", 2 * self.window) * places,
                wrong.get("float32", 4) * (moved + weights + bias))


def _wrong(change: Callable[[_Conv2d], dict[str, int]], *places: tuple[int, ...]) -> tuple:
    """Return a mistake in some of the three costs, one form for each choice of `places`."""
    def form(which: tuple[int, ...]) -> Callable[[_Conv2d], tuple[int, ...]]:
        return lambda conv: tuple(
            wrong if place in which else right for place, (right, wrong) in enumerate(
                zip(conv.costs(), conv.costs(**change(conv)), strict=True)))
    return tuple(form(which) for which in places)


def _of_side(side: Callable[[_Conv2d], int]) -> tuple:
    return _wrong(lambda conv: {"side": side(conv)}, (1, 2), (1,), (2,))


def _of_parameters(change: Callable[[_Conv2d], dict[str, int]]) -> tuple:
    return _wrong(change, (0, 2), (0,))


_COSTS: Mistakes = {
    # cause: size-without-padding
    _("the padding is left out of the output's size"):
        _of_side(lambda c: (c.size - c.kernel) // c.stride + 1),
    _("the padding is added on both sides of the image"):
        _of_side(lambda c: (c.size + c.padding - c.kernel) // c.stride + 1),
    _("the output's size is rounded down: a place that sticks out is left out"):
        _of_side(lambda c: -(-(c.padded - c.kernel) // c.stride) + 1),
    # cause: size-without-stride
    _("the stride is left out of the output's size"):
        _of_side(lambda c: c.padded - c.kernel + 1),
    # cause: bias-of-outputs
    _("the bias has one number for each output channel, not for each input channel"):
        _of_parameters(lambda c: {"bias": c.in_channels}),
    # cause: kernels
    _("every output channel has a kernel for each input channel"):
        _of_parameters(lambda c: {"weights": c.out_channels * c.kernel**2}),
    _("one multiplication and one addition are two FLOPs, not one"):
        _wrong(lambda c: {"per_place": c.window}, (1,)),
    _("a float32 has 4 bytes"): _wrong(lambda c: {"float32": 1}, (2,))}


def _of_pytorch(**given: int) -> np.ndarray:
    """Return parameters, FLOPs and bytes of the layer that PyTorch makes."""
    conv = _Conv2d(**given)
    layer = nn.Conv2d(conv.in_channels, conv.out_channels, conv.kernel, conv.stride, conv.padding,
                      device="meta")  # shapes, no data
    image = torch.empty(conv.batch, conv.in_channels, conv.size, conv.size, device="meta")
    outputs = layer(image).numel()
    parameters = sum(parameter.numel() for parameter in layer.parameters())
    return np.array([parameters, 2 * conv.window * outputs,
                     4 * (image.numel() + parameters + outputs)])


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
    for case in ((4, 1, 32, 28, 3, 1, 0), (2, 3, 8, 32, 5, 1, 2), (2, 3, 64, 224, 7, 2, 3),
                 (3, 4, 6, 10, 3, 2, 0), (5, 6, 7, 9, 1, 1, 0), (2, 8, 4, 11, 4, 3, 1),
                 (1, 1, 1, 1, 1, 1, 0), (3, 2, 5, 8, 8, 1, 0), (7, 5, 2, 13, 2, 4, 0),
                 (2, 3, 4, 6, 3, 5, 2), (3, 5, 4, 12, 4, 3, 2), (3, 4, 5, 8, 1, 3, 2),
                 (2, 1030, 4099, 57, 3, 1, 1)):  # these costs are more than float32 can tell apart
        yield "", asdict(_Conv2d(*case))


def _fits(given: dict[str, Any]) -> bool:
    conv = _Conv2d(**given)
    return conv.padding >= 0 and min(conv.batch, conv.in_channels, conv.out_channels, conv.size,
                                     conv.kernel, conv.stride) > 0 and conv.side > 0


_COST = Spec(_three_ints, _of_pytorch, _convolutions, named=_COSTS, fits=_fits,
             formula=lambda given: (_Conv2d(**given),))


@exercise("1.3", "conv2d_cost(batch, in_channels, out_channels, size, kernel, stride, padding)")
def exercise_1_3(conv2d_cost: Callable) -> str:
    """what a convolution costs.

    The output's size: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html.
    Two FLOPs a multiply-add, as in torch.utils.flop_counter, which leaves out the bias; with it K
    products, K - 1 additions and the bias make 2 K.
    """
    return _("{count} convolutions with stride 1 to 5 and padding 0 to 3, every number "
             "exact").format(count=check(_COST, conv2d_cost))
