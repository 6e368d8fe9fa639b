"""Comparing what an answer gave with what is right, and with what the usual mistakes give."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from checks.saying import CheckFailed, where

# Measured on the course's model over its 1,000 images: correct programs add up in another order,
# and their logits near 0 differ by up to 2e-5. Probabilities are nearly one-hot: a wrong one of
# 1e-6 would pass with the tolerance for logits.
RTOL, ATOL, ATOL_PROBABILITIES = 1e-4, 1e-4, 1e-7

# Hints, each with a function that computes what comes of that mistake, of the check's inputs.
Mistakes = dict[str, Callable[..., Any]]


def to_numpy(value: Any) -> np.ndarray:
    """Return what a VirtualMachine gave, a tvm or torch tensor or a tuple of one, as an array."""
    if not hasattr(value, "numpy"):
        (value,) = value
    return value.numpy()


def cause(came: np.ndarray, mistakes: Mapping[str, Callable[..., Any]], *inputs: Any,
          atol: float = ATOL) -> str:
    """Return the hint of the first mistake that gives what came, computed of the inputs, or ""."""
    if not np.issubdtype(came.dtype, np.number) and came.dtype != np.bool_:
        return ""
    for hint, mistake in mistakes.items():
        with contextlib.suppress(ValueError, RuntimeError, IndexError), torch.no_grad(), \
                np.errstate(all="ignore"):  # with a mistake, shapes may not fit one another
            wrong = np.asarray(mistake(*inputs))
            if wrong.shape == came.shape and np.allclose(came, wrong, RTOL, atol, equal_nan=True):
                return hint
    return ""


def compare(came: Any, expected: np.ndarray, look_at: str,
            mistakes: Mapping[str, Callable[..., Any]], *inputs: Any, atol: float = ATOL) -> None:
    """Raise CheckFailed unless `came` equals `expected` in shape, dtype and value.

    The hint of a mistake is given only where that gives what came, else `look_at`; nothing of the
    mistakes is computed where `came` is right. `inputs` are what the mistakes are functions of.
    """
    if not isinstance(came, np.ndarray | np.generic):
        came = np.asarray(came)
    if came.shape == expected.shape:
        if came.dtype != expected.dtype:
            raise CheckFailed(f"{expected.dtype} values", f"{came.dtype}",
                              "the dtype of the result")
        wrong = ~np.isclose(came, expected, RTOL, atol, equal_nan=True)
        if not wrong.any():
            return
    hint = cause(came, mistakes, *inputs, atol=atol) or look_at
    if came.shape != expected.shape:
        raise CheckFailed(f"shape {expected.shape}", f"shape {came.shape}", hint)
    unwritten = np.isnan(came) & ~np.isnan(expected)
    if unwritten.any():
        raise CheckFailed("a number in every place", f"NaN or not written at {where(unwritten)}, "
                          f"{unwritten.mean():.0%} of all", hint)
    at = tuple(np.argwhere(wrong)[0])
    place = f" at {where(wrong)}" if expected.ndim else ""
    many = f" there; {wrong.mean():.0%} of the values differ" if expected.ndim else ""
    raise CheckFailed(f"{expected[at]:.4g}{place}", f"{came[at]:.4g}{many}", hint)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return float32 numbers in [-1, 1), the same ones every time."""
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype("float32")


class Tried(NamedTuple):
    """What an answer gave for one input and what is right; `inputs` are the mistakes' arguments."""

    came: Any
    expected: np.ndarray
    inputs: tuple[Any, ...]
    look_at: str


def compare_all(cases: Iterable[Tried], mistakes: Mapping[str, Callable[..., Any]],
                atol: float = ATOL) -> None:
    """Compare every case; name a mistake only if it gives what came in all, and no other does.

    `cases` may be a generator that runs the answer: where it raises, the cases before count first.
    """
    tried: list[Tried] = []
    raised: Exception | None = None
    try:
        for case in cases:
            tried.append(case)
    except Exception as error:  # the answer's, or what a check says of it
        raised = error
    fitting = {hint: mistake for hint, mistake in mistakes.items()
               if all(cause(np.asarray(case.came), {hint: mistake}, *case.inputs, atol=atol)
                      for case in tried)} if _any_wrong(tried, atol) else {}
    for case in tried:
        compare(case.came, case.expected, case.look_at, fitting if len(fitting) == 1 else {},
                *case.inputs, atol=atol)
    if raised:
        raise raised


def _any_wrong(tried: Iterable[Tried], atol: float) -> bool:
    return any(np.shape(case.came) != case.expected.shape or not np.allclose(
        case.came, case.expected, RTOL, atol, equal_nan=True) for case in tried)
