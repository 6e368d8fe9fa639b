"""The checks of notebook 01: model preparation."""

import functools
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from checks.answers import exercise
from checks.comparing import Mistakes, compare, random
from checks.saying import CheckFailed
from checks.watching import numpy_only


def _counted(seed: int, absent: int = -1, never: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """Return a confusion matrix, and each class's recall as counted from labels and predictions.

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mean of nothing is NaN
        recall = [np.mean(predictions[labels == i] == i) for i in range(10)]
    return confusion, np.array(recall)


# Functions of the confusion matrix and of the right recall.
_RECALL: Mistakes = {
    "the sums: rows are labels; the column sums give the precision, not the recall":
        lambda confusion, _: np.diag(confusion) / confusion.sum(0),
    "the sums: one for each row, not one for the whole matrix":
        lambda confusion, _: np.diag(confusion) / confusion.sum(),
    "a class without images: its recall is not 0 but unknown, NaN":
        lambda _, recall: np.nan_to_num(recall),
    "a class that is never predicted has recall 0; NaN is for a row of zeros only":
        lambda confusion, recall: np.where(confusion.sum(0) == 0, np.nan, recall),
    "the largest number of a row need not be the one on the diagonal":
        lambda confusion, _: confusion.max(1) / confusion.sum(1),
    "a share between 0 and 1 is wanted, not per cent": lambda _, recall: 100 * recall,
    "this is the share that is missed, 1 - recall": lambda _, recall: 1 - recall,
    "the whole matrix is divided; take its diagonal":
        lambda confusion, _: confusion / confusion.sum(1)[:, None],
    "keepdims makes the sums a column, so that all pairs are divided":
        lambda confusion, _: np.diag(confusion) / confusion.sum(1)[:, None]}


@exercise("1.1")
def exercise_1_1(per_class_recall: Callable) -> str:
    """the recall of each class: the diagonal of the confusion matrix, each by the sum of its row.

    As scikit-learn's recall_score with average=None and zero_division=nan.
    """
    for options in ({}, {"never": 6}, {"absent": 3}, {"absent": 9, "never": 0},
                    {"absent": 3, "never": 3}):
        confusion, expected = _counted(1, **options)
        look_at = "the diagonal has the right answers of each class, its row all its images"
        if not confusion.sum(1).all():
            look_at += "; a row of zeros: NaN"
        came = per_class_recall(confusion.copy())
        if type(came) is not np.ndarray or came.dtype == object:
            raise CheckFailed("an array of ten numbers", f"{type(came).__name__}",
                              "the return statement; np.array makes an array of a list of numbers")
        compare(came, expected, look_at, _RECALL, confusion, expected, atol=1e-6)
    return "5 confusion matrices; NaN for a class without images, 0 for one never predicted"


def _log_softmax(scores: np.ndarray, axis: int = 1) -> np.ndarray:
    return torch.from_numpy(scores).log_softmax(axis).numpy()


def _of_labels(values: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the value of each row's label."""
    return values[np.arange(len(labels)), labels]


def _with_epsilon(epsilon: float, scores: np.ndarray, labels: np.ndarray, loss: float) -> float:
    return -np.log(np.exp(_of_labels(_log_softmax(scores), labels)) + epsilon).mean()


# Functions of the logits as float64, the labels and the right loss.
_LOSS: Mistakes = {
    f"log(probability + {e:g}): the {e:g} caps the loss; take the logarithm apart instead":
        functools.partial(_with_epsilon, e)
    for e in [10.0 ** -k for k in range(5, 17)] + [float(np.finfo("float32").eps)]} | {
    "the mean over the images, not their sum": lambda scores, labels, loss: len(labels) * loss,
    "the mean is over the n images, not over all n * c logits":
        lambda scores, labels, loss: loss / scores.shape[1],
    "the mean over the images is left out":
        lambda scores, labels, loss: -_of_labels(_log_softmax(scores), labels),
    "the sign: the loss is minus the logarithm": lambda scores, labels, loss: -loss,
    "the logarithm is left out (this is what F.nll_loss made of probabilities)":
        lambda scores, labels, loss: -np.exp(_of_labels(_log_softmax(scores), labels)).mean(),
    "the softmax runs over the classes, axis 1":
        lambda scores, labels, loss: -_of_labels(_log_softmax(scores, 0), labels).mean(),
    "[:, labels] takes every label in every row; wanted is one logit of each row":
        lambda scores, labels, loss: -_log_softmax(scores)[:, labels].mean(),
    "the logarithm of the sum of exponentials is left out":
        lambda scores, labels, loss: -_of_labels(scores, labels).mean(),
    "the logarithm to base e (np.log)": lambda scores, labels, loss: loss / np.log(2)}


@exercise("1.2")
def exercise_1_2(cross_entropy: Callable) -> str:
    """the cross-entropy from logits.

    The formula: https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html
    """
    general = "minus the logit of the label plus the logarithm of the sum of exponentials, averaged"
    shift = "subtract the largest logit of a row from that row first: the loss stays the same"
    mixed = np.array([[1000], [-1000], [0], [500], [1000], [-1000]])
    lost = np.eye(10)[[2, 2, 3, 4, 5, 9]] * 1000  # the first row's label, 2, wins; others lose
    cases = [("", (6, 10), 0, general), ("", (1, 7), 0, general), ("", (5, 3), 0, general),
             (" around 1000", (6, 10), 1000, f"exp(1000) is inf: {shift}"),
             (" around -1000", (6, 10), -1000, f"exp(-1000) is 0, and log(0) is -inf: {shift}"),
             (" around 1000 in some rows, -1000 in others", (6, 10), mixed,
              "the largest logit has to be each row's own, not that of the whole batch"),
             (" where a wrong class is 1000 ahead", (6, 10), lost,
              "the probability has become 0, its logarithm -inf: simplify log(softmax) first")]
    for number, (words, (n, c), offset, hint) in enumerate(cases):
        logits = (3 * random(n, c, seed=number) + offset).astype("float32")
        labels = np.array([2, 1, 0, 2, 1, 2])[:n]
        loss = F.cross_entropy(torch.from_numpy(logits).double(), torch.from_numpy(labels)).item()
        with np.errstate(all="ignore"), \
                numpy_only("NumPy alone", "np.exp, np.log and sums along axis 1"):
            answer = cross_entropy(logits, labels)  # overflow shows in the result
        what = f"logits of shape {(n, c)}{words}"
        came = np.asarray(answer, dtype=np.float64)
        if came.ndim == 0 and not np.isfinite(came):
            raise CheckFailed(f"{loss:.4g} for {what}", str(answer),
                              "the return statement" if answer is None else hint)
        try:
            compare(came, np.asarray(loss), hint, _LOSS, logits.astype(np.float64), labels, loss,
                    atol=1e-3 if words else 1e-5)
        except CheckFailed as failed:
            raise CheckFailed(f"{failed.parts[0]} for {what}", *failed.parts[1:]) from None
    return f"{len(cases)} batches, with logits up to 1000 and down to -1000: every loss finite"


def _conv2d_mistakes(b: int, i: int, o: int, s: int, k: int, stride: int, p: int,
                     side: int) -> list[dict[str, int]]:
    """What comes of the usual mistakes in a conv2d's parameters, FLOPs and bytes, with hints."""
    one, parameters, out, taken = i * k * k, o * (i * k * k + 1), b * o * side**2, b * i * s * s
    sides = {"the padding is left out of the output's size": (s - k) // stride + 1,
             "the padding is added on both sides of the image": (s + p - k) // stride + 1,
             "the output's size: the kernel's first place counts too (+ 1)":
                 (s + 2 * p - k) // stride,
             "the output's size is rounded down: a place that sticks out is left out":
                 -(-(s + 2 * p - k) // stride) + 1,
             "the stride is left out of the output's size": s + 2 * p - k + 1}
    return [{"the bias is left out: one number for each output channel": o * one,
             "the bias has one number for each output channel, not a single one": o * one + 1,
             "every output channel has a kernel for each input channel": o * (k * k + 1),
             "the kernel has kernel * kernel numbers": o * (i * k + 1)},
            {"one multiplication and one addition are two FLOPs, not one": one * out,
             "the addition of the bias is left out: K multiplications, K - 1 + 1 additions":
                 (2 * one - 1) * out,
             "K - 1 additions join K products; the bias is one more: 2K": (2 * one + 1) * out,
             "K counts the numbers of every input channel, not of one": 2 * k * k * out,
             "every image of the batch is convolved": 2 * one * out // b,
             "the output has size * size places": 2 * one * b * o * side}
            | {hint: 2 * one * b * o * wrong**2 for hint, wrong in sides.items()},
            {"a float32 has 4 bytes": taken + parameters + out,
             "the padding is not in memory: count the image as it is":
                 4 * (b * i * (s + 2 * p)**2 + parameters + out),
             "the output is left out: it has to be written": 4 * (taken + parameters),
             "the input is left out": 4 * (parameters + out),
             "the parameters are left out": 4 * (taken + out),
             "the images of a batch share one set of parameters":
                 4 * (taken + b * parameters + out),
             "the input has a batch of images": 4 * (taken // b + parameters + out)}
            | {hint: 4 * (taken + parameters + b * o * wrong**2) for hint, wrong in sides.items()}]


@exercise("1.3")
def exercise_1_3(conv2d_cost: Callable) -> str:
    """what a convolution costs.

    The output's size: https://docs.pytorch.org/docs/stable/generated/torch.nn.Conv2d.html.
    Two FLOPs a multiply-add, as in torch.utils.flop_counter, which leaves out the bias; with it K
    products, K - 1 additions and the bias make 2 K.
    """
    names = ("batch", "in_channels", "out_channels", "size", "kernel", "stride", "padding")
    cases = [(4, 1, 32, 28, 3, 1, 0), (2, 3, 8, 32, 5, 1, 2), (2, 3, 64, 224, 7, 2, 3),
             (3, 4, 6, 10, 3, 2, 0), (5, 6, 7, 9, 1, 1, 0), (2, 8, 4, 11, 4, 3, 1)]
    for case in cases:
        batch, inner, outer, size, kernel, stride, padding = case
        layer = nn.Conv2d(inner, outer, kernel, stride, padding, device="meta")  # shapes, no data
        outputs = layer(torch.empty(batch, inner, size, size, device="meta"))
        numbers = sum(parameter.numel() for parameter in layer.parameters())
        expected = (numbers, 2 * inner * kernel**2 * outputs.numel(),
                    4 * (batch * inner * size**2 + numbers + outputs.numel()))
        came = conv2d_cost(*case)
        if not isinstance(came, tuple | list) or len(came) != 3:
            raise CheckFailed("a tuple of three ints: parameters, FLOPs, bytes", repr(came)[:80],
                              "the return statement")
        if tuple(came) != expected and all(isinstance(value, int | np.integer) for value in came) \
                and sorted(came) == sorted(expected):
            raise CheckFailed("(parameters, FLOPs, bytes)", str(tuple(came)),
                              "the order of the three")
        mistakes = _conv2d_mistakes(*case, side=outputs.shape[-1])
        for what, value, right, known in zip(("parameters", "FLOPs", "bytes"), came, expected,
                                             mistakes, strict=True):
            if not isinstance(value, int | np.integer):
                raise CheckFailed(f"an int for {what}", f"{value!r}, a {type(value).__name__}",
                                  "division: / gives a float, // an int")
            if value != right:
                hint = next((text for text, wrong in known.items() if wrong == value),
                            f"what this sum for the {what} leaves out or counts twice")
                given = ", ".join(f"{n}={v}" for n, v in zip(names, case, strict=True))
                raise CheckFailed(f"{right:,} {what} for {given}", f"{value:,}", hint)
    return f"{len(cases)} convolutions with stride 1 to 3 and padding 0 to 3, every number exact"
