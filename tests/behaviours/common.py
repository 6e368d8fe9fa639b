"""What wrong behaviours are made of: numbers that change, arguments, results, pairs of features."""

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from tvm import te

Wrapped = Iterator[tuple[str, Callable[[Callable], Callable]]]

# what may become of a number: of an array, and of an element of a tensor expression
NUMBERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[Any], Any]]] = {
    "rounded to float16": (lambda x: x.astype("float16").astype("float32"),
                           lambda e: e.astype("float16").astype("float32")),
    "rounded to whole numbers": (lambda x: np.trunc(x).astype("float32"),
                                 lambda e: e.astype("int32").astype("float32")),
    "rounded to int8, in eighths": (
        lambda x: np.clip(np.floor(x * 8 + 0.5), -128, 127).astype("float32") / 8,
        lambda e: te.max(te.min(te.floor(e * 8.0 + 0.5), 127.0), -128.0) * 0.125),
    "cut off above 3": (lambda x: np.minimum(x, np.float32(3)), lambda e: te.min(e, 3.0)),
    "cut off above 6": (lambda x: np.minimum(x, np.float32(6)), lambda e: te.min(e, 6.0)),
    "cut off above 100": (lambda x: np.minimum(x, np.float32(100)), lambda e: te.min(e, 100.0)),
    "cut off below -6": (lambda x: np.maximum(x, np.float32(-6)), lambda e: te.max(e, -6.0)),
    "without their signs": (np.abs, te.abs),
    "a thousandth too large": (lambda x: x * np.float32(1.001), lambda e: e * 1.001),
}
# an infinity of either sign, and what is no number at all
NOT_FINITE: dict[str, tuple[Callable[[np.ndarray], np.ndarray], Callable[[Any], Any]]] = {
    f"{what} as 0": (partial(lambda x, test: np.where(test(x), np.zeros_like(x), x), test=of_array),
                     partial(lambda e, test: te.if_then_else(test(e), 0.0, e), test=of_element))
    for what, of_array, of_element in (("infinity", np.isinf, te.isinf),
                                       ("NaN", np.isnan, te.isnan))}
# what is below 0 becomes 0 in nearly every layer's output
FEW = ("rounded to float16", "rounded to int8, in eighths", "cut off above 6",
       "a thousandth too large")


def before(change: Callable[[list[Any]], Sequence[Any]]) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that its arguments are changed."""
    return lambda answer: lambda *given, **more: answer(*change(list(given)), **more)


def after(change: Callable[..., Any]) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that its result is changed, by means of its arguments."""
    return lambda answer: lambda *given, **more: change(answer(*given, **more), *given)


def at(place: int, change: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    """Return a function of arguments that changes one of them."""
    return lambda given: [change(one) if at == place else one for at, one in enumerate(given)]


def exchanged(one: int, other: int) -> Callable[[list[Any]], list[Any]]:
    """Return a function of arguments that exchanges two of them."""
    def change(given: list[Any]) -> list[Any]:
        given[one], given[other] = given[other], given[one]
        return given
    return change


def kept() -> Callable[[Any], Any]:
    """Return a function that gives what it was given first, of an array's shape."""
    kept: dict[Any, Any] = {}
    return lambda x: kept.setdefault(getattr(x, "shape", None), copy.deepcopy(x))


def result(change: Callable[[Any], Any]) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that its result is changed."""
    return after(lambda came, *_: change(came))


def instead(other: Callable) -> Callable[[Callable], Callable]:
    """Return what takes another function in the place of an answer."""
    return lambda _answer: other


def extents(most: int) -> dict[str, Callable[[Any], Any]]:
    """Return extents for which a program may be wrong; `most` is the notebook's."""
    return {"1 long": lambda n: n == 1, "no multiple of 4": lambda n: n % 4 != 0,
            f"above {most}": lambda n: n > most}


def elements(array: Any, changes: Sequence[Callable[[np.ndarray], np.ndarray]]
             ) -> list[tuple[tuple[int, ...], Any]]:
    """Return the places of an array, and what changes make of its elements there."""
    came = np.array(array, "float32", subok=False)
    for change in changes:
        came = change(came)
    return list(np.ndenumerate(came))


def first_kept(place: int) -> Callable[[Callable], Callable]:
    """Return what wraps an answer so that it gets an argument of its first call, of that shape."""
    return lambda answer: before(at(place, kept()))(answer)


def pairs(features: Mapping[str, Callable[..., Any]], spoil: Callable[..., Any]) -> Wrapped:
    """Yield, for each pair of features of the arguments, what is wrong where both are there."""
    def both(has: Callable, too: Callable) -> Callable[[Callable], Callable]:
        def wrap(answer: Callable) -> Callable:
            def wrong(*given: Any, **more: Any) -> Any:
                spoils = has(*given, **more) and too(*given, **more)
                came = answer(*given, **more)
                return spoil(came, *given) if spoils else came
            return wrong
        return wrap
    for (one, has), (other, too) in itertools.combinations(features.items(), 2):
        yield f"wrong where there are {one} and {other}", both(has, too)


# ---- tensors -------------------------------------------------------------------------------


def each(tensor: Any, change: Callable[[Any], Any]) -> Any:
    """Return a tensor of changed elements."""
    return te.compute(tensor.shape, lambda *at: change(tensor(*at)), name="changed")


def neighbour(tensor: Any, axis: int) -> Any:
    """Return a tensor whose last place along an axis is the one before it."""
    extent = tensor.shape[axis]
    return te.compute(tensor.shape, lambda *at: tensor(*(
        te.max(te.min(i, extent - 2), 0) if place == axis else i for place, i in enumerate(at))),
        name="neighbour")


def doubled_where(tensor: Any, axis: int, test: Callable[[Any], Any] = lambda n: n == 1) -> Any:
    """Return a tensor that is twice what it should be for some extents of an axis."""
    return each(tensor, lambda e: te.if_then_else(test(tensor.shape[axis]), 2.0 * e, e))


VALUE: dict[str, Callable[[Any], Any]] = {
    **{what: partial(each, change=NUMBERS[what][1]) for what in FEW},
    "the last row from its neighbour": partial(neighbour, axis=0),
    "doubled where axis 0 is 1 long": partial(doubled_where, axis=0)}
