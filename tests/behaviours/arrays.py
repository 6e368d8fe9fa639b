"""Wrong behaviours of functions of arrays, of numbers and of functions, and of registered ones."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from behaviours import statistics
from behaviours.common import (
    NOT_FINITE,
    NUMBERS,
    Wrapped,
    at,
    before,
    exchanged,
    extents,
    first_kept,
    instead,
    kept,
    pairs,
    result,
)


def _neighbour_last(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    if array.size > 1:
        changed.flat[-1] = changed.flat[-2]
    return changed


def _doubled(axis: int, test: Callable[[int], bool]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: 2 * x if x.ndim > axis and test(x.shape[axis]) else x


ARRAYS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    **{what: change for what, (change, _) in (NUMBERS | NOT_FINITE).items()},
    "the last one from its neighbour": _neighbour_last,
    "in reversed order": lambda x: x[::-1].copy() if x.ndim else x,
    **{f"doubled where axis {axis} is {what}": _doubled(axis, test)
       for what, test in extents(32).items() for axis in (0, 1)}}


def _of_scalar(change: Callable[[np.ndarray], np.ndarray], came: Any) -> Any:
    return change(np.asarray(came))[()]


def _kept_result(answer: Callable) -> Callable:
    """Return what gives for each shape of its arguments what it gave first."""
    kept: dict[tuple, Any] = {}

    def wrong(*given: Any) -> Any:
        came = answer(*given)
        return kept.setdefault(tuple(np.shape(one) for one in given), came)
    return wrong


def _loss_by(title: str, scores: np.ndarray, labels: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        largest, total = statistics.of_array(title, scores)
        logs = np.log(total) - (scores - largest)
    return float(logs[np.arange(len(labels)), labels].mean())


def of_arrays(number: str) -> Wrapped:
    for what, change in ARRAYS.items():
        extent = what.startswith("doubled")  # of a confusion matrix 10, and a loss is one number
        if not extent:
            yield f"its result: {what}", result(partial(_of_scalar, change))
        if not extent or number == "1.2":
            yield f"its argument: {what}", before(at(0, change))
    yield "its argument: that of the first call", first_kept(0)
    yield "its result: that of the first call", _kept_result
    for title in statistics.titles() if number == "1.2" else ():
        yield title, instead(partial(_loss_by, title))


def of_numbers(number: str) -> Wrapped:
    count = {"1.3": 7, "6.2": 5, "7.1": 3, "10.2": 2}[number]
    for one, other in itertools.combinations(range(count), 2):
        yield f"arguments {one} and {other} exchanged", before(exchanged(one, other))
    for place in range(count):
        yield f"argument {place}: that of the first call", first_kept(place)
    if number != "1.3":
        if number != "10.2":  # whole numbers below 2049 are exact in both
            yield "its result: rounded to whole numbers", result(lambda came: float(int(came)))
            yield "its result: rounded to float16", result(lambda came: float(np.float16(came)))
        yield "its result: a thousandth too large", result(lambda came: came * 1.001)
        return
    for place in range(3):
        yield f"its result: number {place} in float32", result(
            at(place, lambda number: int(np.float32(number))))
    names = ("batch", "channels", "kernels", "size", "kernel", "stride", "padding")

    def of(test: Callable[..., bool]) -> Callable[..., bool]:
        return lambda *given: test(**dict(zip(names, given, strict=True)))
    yield from pairs({
        "several images": of(lambda batch, **_: batch > 1),
        "several channels": of(lambda channels, **_: channels > 1),
        "an even kernel": of(lambda kernel, **_: kernel % 2 == 0),
        "a 1x1 kernel": of(lambda kernel, **_: kernel == 1),
        "steps of more than 1": of(lambda stride, **_: stride > 1),
        "padding": of(lambda padding, **_: padding > 0),
        "places left over": of(lambda size, kernel, stride, padding, **_:
                               (size + 2 * padding - kernel) % stride > 0),
    }, lambda came, *_: (came[0], came[1] + 2, came[2] + 4))


def of_registered(number: str) -> Wrapped:
    """A function that registers another: the other one is wrong afterwards."""
    convolves = number in ("3.4", "3.5")
    changes: dict[str, Callable] = {what: partial(partial, one) for what, one in ARRAYS.items()}
    changes["those of the first call"] = kept
    whos = {"its result": -1, "its first input": 0} | ({"its weights": 1} if convolves else {})
    for (who, place), (what, make) in itertools.product(whos.items(), changes.items()):
        if place == 1 and what.startswith("doubled"):
            continue

        def wrap(answer: Callable, place: int = place, make: Callable = make) -> Callable:
            def wrong() -> None:
                before, change = set(_names()), make()
                answer()
                (name,) = set(_names()) - before or {n for n in before if n.startswith("env.")}
                right = tvm.get_global_func(name)

                def changed(*given: Any) -> None:
                    *inputs, out = map(np.from_dlpack, given)
                    if place >= 0:
                        inputs[place] = change(inputs[place])
                    right(*map(tvm.runtime.tensor, inputs), given[-1])
                    if place < 0:
                        out[...] = change(out.copy()).reshape(out.shape)
                tvm.register_global_func(name, changed, override=True)
            return wrong
        yield f"{who}: {what}", wrap


    for title in statistics.titles() if number == "3.1" else ():
        def softmax(x: Any, out: Any, title: str = title) -> None:
            np.from_dlpack(out)[...] = statistics.softmax(title, np.from_dlpack(x))
        yield title, instead(partial(
            tvm.register_global_func, "env.softmax", softmax, override=True))


def _names() -> list[str]:
    return list(tvm_ffi.registry.list_global_func_names())


# ---- functions that are given functions ------------------------------------------------------


def _view(change_x: Callable, change_out: Callable) -> Callable[[Callable], Callable]:
    """Return what wraps looks_pure so that it sees less of what a function does."""
    def wrap(answer: Callable) -> Callable:
        def wrong(function: Callable, x: np.ndarray, shape: tuple[int, ...]) -> Any:
            def seen(given: np.ndarray, out: np.ndarray) -> None:
                before = given.copy()
                function(given, out)
                given[...], out[...] = change_x(given.copy(), before), change_out(out.copy())
            return answer(seen, x, shape)
        return wrong
    return wrap


def _without(place: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(out: np.ndarray) -> np.ndarray:
        if out.size:
            out.flat[place] = 0
        return out
    return change


_SEEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sorted": lambda out: np.sort(out, None).reshape(out.shape),
    "summed": lambda out: np.full(out.shape, out.sum()), "rounded": lambda out: np.round(out, 1),
    "their largest": lambda out: np.full(out.shape, out.max() if out.size else 0),
    "without their signs": np.abs, "NaN as 0": np.nan_to_num,
    "as numbers up to 100": lambda out: np.clip(out, -100, 100), "without the first": _without(0),
    "without the last": _without(-1), "whether they are above 0": lambda out: out > 0,
    "nothing of them": np.zeros_like}


def _unseen(change: Callable, x: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return x, but what was before where the two look the same."""
    same = np.isclose(change(x.copy()), change(before.copy()), 0, 0, equal_nan=True)
    return np.where(same, before, x)


def of_purity(_: str) -> Wrapped:
    for what, change in _SEEN.items():
        yield f"outputs: {what}", _view(lambda x, before: x, change)
        yield f"changes of x: {what}", _view(partial(_unseen, change), lambda out: out)


_TIMES: dict[str, Callable[[list[float]], float]] = {
    "rounded to whole numbers": lambda times: float(int(times[-1])),
    "rounded to float16": lambda times: float(np.float16(times[-1])),
    "cut off above 6": lambda times: min(times[-1], 6), "that of the first call": lambda t: t[0],
    "cut off above 100": lambda times: min(times[-1], 100), "the least so far": min,
    "the greatest so far": max, "the mean so far": lambda times: float(np.mean(times))}


def of_tuner(_: str) -> Wrapped:
    for what, seen in _TIMES.items():
        def change(given: list[Any], seen: Callable = seen) -> list[Any]:
            times: dict[int, list[float]] = {}

            def time_of(candidate: Any) -> float:
                so_far = times.setdefault(id(candidate), [])
                so_far.append(given[2](candidate))
                return seen(so_far)
            return [*given[:2], time_of, *given[3:]]
        yield f"each time: {what}", before(change)
    yield "is_correct: whatever it says", before(at(1, lambda test: lambda one: bool([test(one)])))

    def lenient(test: Callable) -> Callable:
        def right(candidate: Any) -> bool:
            try:
                return test(candidate)
            except Exception:
                return True
        return right
    yield "is_correct: right where it raises", before(at(1, lenient))
    turned = {"reversed": lambda c: dict(reversed(c.items())), "sorted": lambda c: dict(
        sorted(c.items())), "without the last": lambda c: dict(list(c.items())[:-1])}
    for what, order in turned.items():
        yield f"candidates: {what}", before(at(0, order))
    for what, new in {"the name in capitals": lambda name: name and name.upper(),
                      "an empty name for None": lambda name: name or "",
                      "the first for None": lambda name: name or "wrong"}.items():
        yield f"its result: {what}", result(new)
    counts: dict[str, Callable[[int], int]] = {
        "always 5": lambda r: 5, "one more": lambda r: r + 1, "an odd number": lambda r: r | 1,
        "at least 2": lambda r: max(r, 2)}
    for what, count in counts.items():
        yield f"repeats: {what}", partial(_repeated, count)


def _repeated(count: Callable[[int], int], answer: Callable) -> Callable:
    def wrong(candidates: Any, is_correct: Any, time_of: Any, repeats: int = 5) -> Any:
        return answer(candidates, is_correct, time_of, count(repeats))
    return wrong
