"""The checks of notebook 10: programs for a GPU. They are run by tir.threads, and need no GPU."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tvm
from tvm import te, topi

from course.checks.compare.tolerance import random
from course.checks.exercises import gpus
from course.checks.exercises.softmax import softmax_of
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed
from course.checks.spec.forms import number
from course.checks.spec.spec import Spec, check
from course.tir.threads import Launch, thread_name
from course.words import _

# ---- a thread for each pixel ---------------------------------------------------------------

_PIXELS, _SIDE = [(33, 7), (16, 16), (5, 100), (20, 40), (48, 64)], 16


def _brighter(rows: int, columns: int) -> tvm.tirx.PrimFunc:
    X = te.placeholder((rows, columns), name="X")
    return te.create_prim_func([X, te.compute(
        (rows, columns), lambda i, j: X[i, j] * 0.5 + 0.25, name="Y")])


@exercise("10.1", "thread_for_each_pixel(func)")
def exercise_10_1(thread_for_each_pixel: Callable) -> str:
    """a thread for each pixel."""
    for rows, columns in _PIXELS:
        title = f"X {(rows, columns)}"
        grid, given = (-(-columns // _SIDE), -(-rows // _SIDE), 1), (_brighter(rows, columns),)
        gpus.require_launch(thread_for_each_pixel, given, title, grid, (_SIDE, _SIDE, 1))
        launch = gpus.ran_right(thread_for_each_pixel, given, [gpus.numbers(rows, columns)],
                                lambda X: X * 0.5 + 0.25, title, gpus.SIMPLE)
        i, j = np.indices((rows, columns))
        owner = ((i // _SIDE) * grid[0] + j // _SIDE) * _SIDE**2 + i % _SIDE * _SIDE + j % _SIDE
        writer = launch.writer[launch.params[-1]].reshape(rows, columns)
        if (writer != owner).any():
            at = tuple(int(place) for place in np.argwhere(writer != owner)[0])
            raise CheckFailed(_("; ").join([_("row {row}, column {column}: {thread}").format(
                row=at[0], column=at[1], thread=thread_name(*launch.names(owner[at]))), title]),
                thread_name(*launch.names(writer[at])))
    return _("blocks of 16 by 16 threads, as few as cover each of {count} images, and one thread "
             "for each pixel").format(count=len(_PIXELS))


# ---- transactions --------------------------------------------------------------------------

_LOADS = [(0, 1), (0, 2), (8, 1), (31, 1), (32, 1), (0, 3), (5, 3), (0, 8), (0, 2**26), (7, 16),
          (0, 31), (0, 32), (1, 32), (0, 33), (0, 100), (17, 5), (992, 1), (4064, 1), (1024, 7),
          (2**24, 1)]  # in float32 some of these are one


_OF_A_WARP = Spec(
    number, lambda first, step: float(len({4 * (first + step * t) // 128 for t in range(32)})),
    lambda: ({"first": first, "step": step} for first, step in _LOADS),
    fits=lambda load: load["first"] >= 0 and load["step"] > 0, atol=0)


@exercise("10.2", "transactions(first, step)", seconds=5)
def exercise_10_2(transactions: Callable) -> str:
    """the transactions of a warp."""
    check(_OF_A_WARP, transactions)
    return _("right for {count} ways to load, from one transaction to 32").format(
        count=len(_LOADS))


# ---- tiles in shared memory ----------------------------------------------------------------

_DENSE = [(64, 96, 64), (32, 64, 96), (96, 32, 32)]
_LONG = (32, 224, 32)  # whole rows do not fit the shared memory


def _dense(n: int, k: int, m: int) -> tvm.tirx.PrimFunc:
    X, W = te.placeholder((n, k), name="X"), te.placeholder((m, k), name="W")
    over = te.reduce_axis((0, k), name="over")
    return te.create_prim_func([X, W, te.compute(
        (n, m), lambda i, j: te.sum(X[i, over] * W[j, over], over), name="Y")])


def _of_sizes(n: int, k: int, m: int) -> str:
    return f"X {(n, k)}, W {(m, k)}"


def _of_dense(answer: Callable, sizes: Sequence[tuple[int, int, int]] = _DENSE
              ) -> Iterator[tuple[str, int, Launch]]:
    """Yield what an answer did for dense layers of several sizes, with a title and n * m * k.

    Raises CheckFailed where the result is wrong, or what each of these exercises asks is not met.
    """
    for n, k, m in sizes:
        title = _of_sizes(n, k, m)
        launch = gpus.ran_right(answer, (_dense(n, k, m),),
                                [gpus.numbers(n, k), random(m, k, seed=1)],
                                lambda X, W: X @ W.T, title, (np.ones,), least=16)
        gpus.require_at_most(gpus.MOST_SHARED, launch.shared_bytes,
                             _("bytes of shared memory a block"), title)
        gpus.require_few(launch.stores, launch.params[2:], n * m, _("stores of Y"), title)
        yield title, n * m * k, launch


@exercise("10.3", "dense_in_tiles(func)", seconds=20)
def exercise_10_3(dense_in_tiles: Callable) -> str:
    """a dense layer with tiles in shared memory."""
    sizes = [*_DENSE, _LONG]
    for title, products, launch in _of_dense(dense_in_tiles, sizes):
        given = launch.params[:2]
        gpus.require_few(launch.loads, given, products // 8, _("loads of X and W"), title)
        gpus.require_few(launch.transactions, given, products // 128, _("transactions of X and W"),
                         title, gpus.at_once(launch, given))
    return _("equal, without a race, at most a sixteenth of the loads, in a sixteenth as many "
             "transactions, for {count} sizes").format(count=len(sizes))


# ---- barriers ------------------------------------------------------------------------------

_BARRIERS, _STEPS, _WIDTH = 6, 3, 32


def _smoothed(X: np.ndarray) -> np.ndarray:
    held = X.reshape(-1, _WIDTH).copy()
    for _step in range(_STEPS):
        held[:, 1:] = (held[:, 1:] + held[:, :-1]) * np.float32(0.5)
    return held.reshape(-1)


@exercise("10.4", "with_barriers()")
def exercise_10_4(with_barriers: Callable) -> str:
    """barriers where they belong."""
    gpus.require_launch(with_barriers, (), "X (128,)", (128 // _WIDTH, 1, 1), (_WIDTH, 1, 1),
                        barriers=False)
    for title, X in gpus.inputs([gpus.alone(1, (0,), 128)], gpus.numbers(128)):
        launch = gpus.ran_right(with_barriers, (), [X], _smoothed, title, barriers=False)
    gpus.require_few(launch.loads, launch.params[:1], X.size, _("loads of X"), title)
    gpus.require_at_most(_BARRIERS, launch.barriers, _("barriers for each thread"), title)
    return _("no race, and at most {count} barriers for each thread").format(count=launch.barriers)


# ---- sums across threads -------------------------------------------------------------------

_ROWS = [(5, 96), (3, 32), (4, 320)]


def _row_sums(n: int, k: int) -> tvm.tirx.PrimFunc:
    X = te.placeholder((n, k), name="X")
    over = te.reduce_axis((0, k), name="over")
    return te.create_prim_func([X, te.compute(
        (n,), lambda i: te.sum(X[i, over], over), name="Y")])


@exercise("10.5", "block_for_each_row(func)")
def exercise_10_5(block_for_each_row: Callable) -> str:
    """sums of rows, each by the threads of a block."""
    for n, k in _ROWS:
        gpus.require_launch(block_for_each_row, (_row_sums(n, k),), f"X {(n, k)}", (n, 1, 1),
                            (32, 1, 1))
        for title, X in gpus.inputs([gpus.alone(1, (0, k - 1), n, k), gpus.alone(-1, (0, 0), n, k)],
                                    gpus.numbers(n, k)):
            launch = gpus.ran_right(block_for_each_row, (_row_sums(n, k),), [X],
                                    lambda X: X.sum(axis=1), title)
        gpus.require_few(launch.transactions, launch.params[:1], n * k // 32,
                         _("transactions of X"), title, gpus.at_once(launch, launch.params[:1]))
    return _("a block of 32 threads for each row, and a transaction for each 32 numbers")


# ---- softmax in one kernel -----------------------------------------------------------------

def _softmax(n: int, k: int) -> tvm.tirx.PrimFunc:
    X = te.placeholder((n, k), name="X")
    return te.create_prim_func([X, topi.nn.softmax(X)])


@exercise("10.6", "softmax_in_one_kernel(func)")
def exercise_10_6(softmax_in_one_kernel: Callable) -> str:
    """a softmax in one kernel, a block for each row."""
    for n, k in _ROWS:
        gpus.require_launch(softmax_in_one_kernel, (_softmax(n, k),), f"X {(n, k)}", (n, 1, 1),
                            (32, 1, 1))
        drawn = random(n, k, seed=k) * 3
        drawn[1], drawn[2] = drawn[1] + 200, drawn[2] - 200  # without the maximum: inf / inf, 0 / 0
        drawn[0, 7 * k // 11] += 200  # and with another number than the maximum of all the row
        each = [*(np.full((n, k), number, "float32") for number in (1, -200, 200)),
                gpus.alone(200, (0, k - 1), n, k)]
        for title, X in gpus.inputs(each, drawn):
            launch = gpus.ran_right(softmax_in_one_kernel, (_softmax(n, k),), [X], softmax_of,
                                    title)
        given = launch.params[:1]
        gpus.require_few(launch.loads, given, 2 * n * k, _("loads of X"), title)
        gpus.require_few(launch.transactions, given, 2 * n * k // 32, _("transactions of X"),
                         title, gpus.at_once(launch, given))
        gpus.require_few(launch.transactions, launch.transactions, 3 * n * k // 32,
                         _("transactions"), title)
    return _("one kernel, a block of 32 threads for each row, X read at most twice")


# ---- a tile for each thread ----------------------------------------------------------------


@exercise("10.7", "tile_for_each_thread(func)", seconds=20)
def exercise_10_7(tile_for_each_thread: Callable) -> str:
    """a dense layer with a tile of results in the registers of each thread."""
    for title, products, launch in _of_dense(tile_for_each_thread):
        shared = list(launch.rounds)
        gpus.require_few(launch.loads, shared, products // 2, _("reads of shared memory"), title)
        gpus.require_no_conflicts(launch, title)
        gpus.require_few(launch.loads, launch.params[:2], products // 16, _("loads of X and W"),
                         title)
    # to run it would take as long again
    gpus.require_shared(tile_for_each_thread, [_dense(*_LONG)], _of_sizes(*_LONG))
    return _("equal, without a race, half a read of shared memory for each multiply-add, without "
             "bank conflicts, for {count} sizes").format(count=len(_DENSE))


# ---- a window with its halo ----------------------------------------------------------------

_TAPS, _OF_ONE_BLOCK = 5, 32


@exercise("10.8", "window_of_five(n)", seconds=10)
def exercise_10_8(window_of_five: Callable) -> str:
    """a window that slides over a signal, its numbers in shared memory, written by hand."""
    sizes = (7, 33, 40, 61, 64)
    for n in sizes:
        title = f"n = {n}"
        gpus.require_launch(window_of_five, (n,), title, (-(-n // _OF_ONE_BLOCK), 1, 1),
                            (_OF_ONE_BLOCK, 1, 1), barriers=False)
        launch = gpus.ran_right(
            window_of_five, (n,), [gpus.numbers(n + _TAPS - 1), random(_TAPS, seed=n)],
            lambda X, W: np.convolve(X, W[::-1], "valid"), title, gpus.SIMPLE, barriers=False)
        most = sum(min(_OF_ONE_BLOCK, n - first) + _TAPS - 1
                   for first in range(0, n, _OF_ONE_BLOCK))
        gpus.require_few(launch.loads, launch.params[:1], most, _("loads of X"), title)
        if (put := sum(launch.stores[name] for name in launch.rounds)) < most:
            raise CheckFailed(_("at least {least} stores into shared memory; {title}").format(
                least=most, title=title), f"{put}")
        gpus.require_few(launch.stores, launch.params[2:], n, _("stores of Y"), title)
    return _("equal, without a race, each number of X loaded once in a block, for {count} "
             "sizes").format(count=len(sizes))
