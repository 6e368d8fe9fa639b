"""The checks of notebook 12: attention as one kernel, and what it is made of."""

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from course.checks.compare.tolerance import random
from course.checks.exercises import gpus
from course.checks.exercises.programs import made_for, require_little
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.forms import Misuse
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Cases, Mistakes, Spec, check
from course.words import _

# ---- merge ---------------------------------------------------------------------------------

Part = tuple[float, float, np.ndarray]  # the largest score, the sum, the weighted values


def _part(scores: np.ndarray, values: np.ndarray) -> Part:
    """Return the partial softmax of scores (n,), with values (n, d); that of nothing for n = 0."""
    largest = float(scores.max(initial=-np.inf))
    powers = np.exp(scores.astype("float64") - (largest if np.isfinite(largest) else 0))
    return largest, float(powers.sum()), powers @ values


def _cut(scores: np.ndarray, values: np.ndarray, cuts: tuple[int, ...]) -> list[Part]:
    """Return the partial softmaxes of the pieces of a row; pieces may be empty."""
    ends = [0, *(min(cut, len(scores)) for cut in sorted(cuts)), len(scores)]
    return [_part(scores[a:b], values[a:b]) for a, b in itertools.pairwise(ends)]


def _as_parts(given: Inputs) -> Inputs:
    """Return a row that is cut as the parts that are merged, from the left, in a line each."""
    parts = [f"({largest:.4g}, {total:.4g}, [{', '.join(f'{value:.4g}' for value in weighted)}])"
             for largest, total, weighted in _cut(**given)]
    return dict(zip(("one", "other", "next"), parts, strict=False))


def _merged(answer: Callable) -> Callable[..., np.ndarray]:
    """Return what an answer makes of a row that is cut, from the left."""
    def merge(one: Part, other: Part) -> Part:
        given = one[2].copy(), other[2].copy()
        came = answer(one, other)
        shapes = [np.shape(each) for each in came] if isinstance(came, tuple) else []
        if shapes != [(), (), one[2].shape] or not isinstance(came[2], np.ndarray):
            raise CheckFailed(_("a tuple: a number, a number, an array {shape}").format(
                shape=one[2].shape), _("{value}, of type {type}").format(
                    value=repr(came)[:80], type=type(came).__name__))
        for name, kept, part in zip(("one[2]", "other[2]"), given, (one, other), strict=True):
            if not np.array_equal(kept, part[2], equal_nan=True):
                raise CheckFailed(_("{name} to stay as it was").format(name=name),
                                  _("other numbers in it"))
        return came

    def of(scores: np.ndarray, values: np.ndarray, cuts: tuple[int, ...]) -> np.ndarray:
        with np.errstate(all="ignore"):
            return _numbers(functools.reduce(merge, _cut(scores, values, cuts)))
    return of


def _numbers(part: Part) -> np.ndarray:
    return np.array([*part[:2], *part[2]])


def _cut_rows() -> Cases:
    """Yield every way to cut each row in two or three, parts of no score among them."""
    masked = random(5, seed=2)
    masked[[0, 1, 4]] = -np.inf
    for scores in (np.full(1, -np.inf), 3 * random(6), np.arange(0, 12, 3),
                   np.array([2, 1, 2, 2]), 900 * random(5, seed=1), random(1), masked,
                   np.full(3, -np.inf), -1000 - np.arange(7)):
        scores, values = scores.astype("float32"), random(len(scores), 3, seed=len(scores))
        values[:1] = 0  # a part may be worth nothing, and count
        for parts in (1, 2):
            for cuts in itertools.combinations_with_replacement(range(len(scores) + 1), parts):
                yield {"scores": scores, "values": values, "cuts": cuts}


_MERGE = Spec(_merged, lambda scores, values, cuts: _numbers(_part(scores, values)), _cut_rows,
              {"scores": "n", "values": "n d"}, least={"n": 1, "d": 1},
              fits=lambda given: all(cut >= 0 for cut in given["cuts"]), fault=CheckFailed,
              shown=_as_parts, result=_("largest, sum, values"), atol=1e-5)


@exercise("12.1", "merge(one, other)", seconds=10)
def exercise_12_1(merge: Callable) -> str:
    """the merge of two partial softmaxes."""
    return _("right for {count} ways to cut rows in two and in three, into parts of no score and "
             "of scores of -inf too").format(count=check(_MERGE, merge))


# ---- a running softmax ---------------------------------------------------------------------


def _attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray, divided: bool = True,
               powers: Callable = np.exp) -> np.ndarray:
    """Return attention of float32 (n, d), (m, d), (m, d); other arguments are mistakes."""
    scores = Q.astype("float64") @ K.T / (math.sqrt(Q.shape[1]) if divided else 1)
    weights = powers(scores - scores.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True) @ V).astype("float32")


_ATTENTIONS: Mistakes = {
    _("the scores: they are divided by the square root of d"):
        lambda Q, K, V: _attention(Q, K, V, divided=False),
    _("the exponential: these are powers of 2 of the scores, not of e"):
        lambda Q, K, V: _attention(Q, K, V, powers=np.exp2)}


def _attentions() -> Cases:
    for n, m, d in ((3, 5, 4), (1, 1, 2), (4, 9, 3), (2, 40, 8), (1, 1500, 1)):
        for scale in (2, 30):
            Q, K, V = scale * random(n, d), scale * random(m, d, seed=1), random(m, d, seed=2)
            yield {"Q": Q, "K": K, "V": V}
    for far in (np.arange(6), np.arange(6) - 306, 64 * np.arange(6) - 2**20):
        yield {"Q": np.ones((1, 2), "float32"),
               "K": np.stack([far, far], 1).astype("float32"), "V": random(6, 2, seed=3)}


def _running(answer: Callable) -> Callable[..., np.ndarray]:
    run = made_for(answer, lambda n, m, d: [(n, d), (m, d), (m, d), (n, d)])
    return lambda Q, K, V: run((*Q.shape[:1], *K.shape), Q, K, V)


_RUNNING = Spec(_running, _attention, _attentions, {"Q": "n d", "K": "m d", "V": "m d"},
                _ATTENTIONS, fault=Misuse, atol=1e-4)


@exercise("12.2", "running_attention(n, m, d)", seconds=30)
def exercise_12_2(running_attention: Callable) -> str:
    """attention with a running softmax, in loops."""
    count = check(_RUNNING, running_attention)
    n, d = 3, 4
    kept: float = math.inf
    # more keys than a tile has: no more numbers are kept for more of them. Tiles that divide m may
    # be as large for both
    for m in (2000, 42_200):  # K and V are read once a query
        kept = require_little(running_attention(n, m, d), kept, n * m * d, 1, 2,
                              sizes=f"n = {n}, m = {m}, d = {d}")
    return _("equal to three operators on {count} inputs, with {numbers} numbers kept for {m} "
             "keys").format(count=count, numbers=kept, m=m)


# ---- a polynomial --------------------------------------------------------------------------

_DEGREES = range(1, 8)


def _errors(coefficients: Sequence[float] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return places from -1/2 to 1/2, and there the relative error of a polynomial for 2**f."""
    f = np.linspace(-0.5, 0.5, 2001)
    return f, np.polynomial.polynomial.polyval(f, coefficients) / np.exp2(f) - 1


@functools.cache
def _through_chebyshevs_points(degree: int) -> tuple[float, ...]:
    through = np.polynomial.Chebyshev.interpolate(np.exp2, degree, domain=[-0.5, 0.5])
    return tuple(through.convert(kind=np.polynomial.Polynomial, domain=[-1, 1]).coef)


def _allowed(degree: int) -> float:
    """Return the largest relative error that is near enough, for a degree."""
    return 1.5 * float(np.abs(_errors(_through_chebyshevs_points(degree))[1]).max())


def _near(coefficients: np.ndarray, degree: int) -> bool:
    return bool(np.abs(_errors(coefficients)[1]).max() <= _allowed(degree))


def _why_far(came: Mapping[int, np.ndarray], degree: int) -> str:
    """Say what is proved of all degrees' coefficients where one's are not near enough, or ""."""
    def near_as(change: Callable[[np.ndarray], np.ndarray]) -> bool:
        return all(_near(change(came[degree]), degree) for degree in came)
    taylor = [math.log(2) ** k / math.factorial(k) for k in range(_DEGREES[-1] + 1)]
    if near_as(np.flip):
        return _("these coefficients, from the highest power to the lowest, are near enough")
    if near_as(lambda each: each * 2.0 ** np.arange(len(each))):
        return _("these coefficients are near enough as those of (2 f)**k")
    if all(np.allclose(each, taylor[:len(each)], 1e-6, 0) for each in came.values()):
        return _("Taylor's coefficients are exact at 0: fit the whole stretch")
    kind = came[degree].dtype
    if kind.kind == "f" and not _near(np.array(_through_chebyshevs_points(degree)).astype(kind),
                                      degree):
        return _("in {dtype} even Chebyshev's coefficients are off by more than this").format(
            dtype=kind)
    return ""


@exercise("12.3", "coefficients(degree)", seconds=5)
def exercise_12_3(coefficients: Callable) -> str:
    """a polynomial for the powers of two."""
    came = {}
    for degree in _DEGREES:
        given = coefficients(degree)
        came[degree] = np.asarray(given)
        if came[degree].shape != (degree + 1,) or came[degree].dtype.kind not in "fiu":
            raise CheckFailed(_("{count} coefficients in float64 for degree {degree}").format(
                count=degree + 1, degree=degree),
                f"{type(given).__name__}, {came[degree].dtype} {came[degree].shape}")
    for degree in _DEGREES:
        if not _near(came[degree], degree):
            f, error = _errors(came[degree])
            worst = int(np.argmax(np.abs(error)))  # of NaN the first
            raise CheckFailed(
                _("a relative error of at most {most}, degree {degree}").format(
                    most=f"{_allowed(degree):.6g}", degree=degree),
                _("{error} at f = {place}").format(error=f"{abs(error[worst]):.6g}",
                                                  place=f"{f[worst]:.4g}"),
                _why_far(came, degree))
    return _("near the best that a polynomial can do, for degrees {first} to {last}").format(
        first=_DEGREES[0], last=_DEGREES[-1])


# ---- many parts ----------------------------------------------------------------------------


def _all_at_once(M: np.ndarray, L: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return the merge of all parts."""
    powers = np.exp(M - M.max())
    return powers @ A / (powers @ L)


def _some_parts() -> Cases:
    grow, far = 3 * np.arange(5, dtype="float32"), np.array([0, 300], "float32")
    for M in (np.array([0, 1], "float32"), random(4), random(1), 500 * random(6), random(3) - 900,
              random(3) + 900, grow, grow[::-1].copy(), far, 40 * grow,
              40 * np.arange(12, dtype="float32")):
        for empty in ([], [0], [len(M) - 1], [0, 1])[:4 if len(M) == 4 else 3 if len(M) > 2 else 1]:
            M, L, A = M.copy(), 1 + random(len(M), seed=1) ** 2, random(len(M), 3, seed=2)
            M[empty], L[empty], A[empty] = -np.inf, 0, 0
            yield {"M": M, "L": L, "A": A}


def _are_parts(given: Inputs) -> bool:
    """Whether the parts are those of scores: one of the largest score adds 1 to its sum."""
    M, L, A = given.values()
    empty = np.isinf(M)
    return bool(not empty.all() and (L[~empty] >= 1).all() and abs(M[~empty]).max() < 1000
                and not L[empty].any() and not A[empty].any())


def _merging(answer: Callable) -> Callable[..., np.ndarray]:
    run = made_for(answer, lambda p, d: [(p,), (p,), (p, d), (d,)])
    return lambda M, L, A: run(A.shape, M, L, A)


_MERGE_PARTS = Spec(_merging, _all_at_once, _some_parts, {"M": "p", "L": "p", "A": "p d"},
                    fits=_are_parts, fault=Misuse)


@exercise("12.4", "merge_parts(parts, d)", seconds=20)
def exercise_12_4(merge_parts: Callable) -> str:
    """the merge of many parts, in one PrimFunc."""
    return _("equal for {count} inputs, with empty parts too").format(
        count=check(_MERGE_PARTS, merge_parts))


# ---- on a GPU ------------------------------------------------------------------------------

_ON_GPU, _SIDE = [(64, 12), (32, 16), (992, 1)], 32


def _of_sizes(n: int, d: int) -> str:
    return f"n = {n}, d = {d}"


@exercise("12.5", "attention_on_gpu(n, d)", seconds=60)
def exercise_12_5(attention_on_gpu: Callable) -> str:
    """attention as one kernel on a GPU."""
    made = functools.cache(attention_on_gpu)
    for n, d in _ON_GPU:  # a block for 32 queries
        gpus.require_launch(made, (n, d), _of_sizes(n, d), (n // _SIDE, 1, 1), barriers=False)
    n, d = _ON_GPU[0]
    first = [np.ones((n, d), "float32"), np.eye(n, 1, dtype="float32").repeat(d, 1),
             gpus.alone(1, (0, 0), n, d)]
    gpus.ran_right(made, (n, d), first, _attention, _(
        "Q {shape}, all 1; K zeros but ones in row 0; V zeros but 1 at [0, 0]").format(
            shape=(n, d)), barriers=False, least=_SIDE)
    for n, d in _ON_GPU:
        title, blocks = _of_sizes(n, d), n // _SIDE
        Q, K, V = 9 * random(n, d), 9 * random(n, d, seed=1), random(n, d, seed=2)
        Q[5], K[:, 0] = 0, -1 - np.abs(K[:, 0])
        Q[5, 0] = 1e5  # all scores of this query are far below 0
        launch = gpus.ran_right(made, (n, d), [Q, K, V], _attention, title,
                                gpus.SIMPLE, barriers=False, least=_SIDE)
        _q, k, v, y = launch.params
        gpus.require_few(launch.loads, (k, v), 2 * blocks * n * d, _("loads of K and V"), title)
        gpus.require_few(launch.transactions, (k, v), 2 * blocks * n * d // _SIDE,
                         _("transactions of K and V"), title)
        gpus.require_few(launch.stores, (y,), n * d, _("stores of the result"), title)
        gpus.require_no_conflicts(launch, title)
        if others := set(launch.transactions) - set(launch.params):
            raise CheckFailed(_("nothing else in global memory; {title}").format(title=title),
                              ", ".join(sorted(others)))
    return _("equal, without a race, each key and value loaded once a block, for {count} "
             "sizes").format(count=len(_ON_GPU))
