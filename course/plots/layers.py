"""What layers do, with small numbers: windows that are summed or searched, a bias and its axis."""

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import tvm
from tvm import relax

from course.plots.figure import ARROW, ORANGE, PALE, box, sheet, show, write
from course.plots.graphs import operator, shape_text, taken
from course.words import _, listed

_WINDOWS = ["#cfe3f5", "#f7d9b0", "#e3efd9", "#cfc9ea", "#f2c6c6", "#d7ecec"]
_WEIGHTS = "#7a4a2b"


def _grid(axes: plt.Axes, left: float, values: np.ndarray, title: str,
          colour: Callable[[int, int], str], bold: Sequence[tuple[int, int]] = ()) -> float:
    """Draw a matrix of numbers, centred on the height 0; return where its right edge is."""
    rows, columns = values.shape
    for (i, j), value in np.ndenumerate(values):
        edge = {"lw": 2.2, "edgecolor": ORANGE, "zorder": 2} if (i, j) in bold else {"lw": 0.8}
        box(axes, left + j, i - rows / 2, 1, 1, colour(i, j), **edge)
        write(axes, left + j + 0.5, i - rows / 2 + 0.5, f"{value:g}", 12, zorder=3)
    write(axes, left + columns / 2, -rows / 2 - 0.35, title, weight="bold")
    return left + columns


def _canvas(width: float, height: float) -> tuple[plt.Figure, plt.Axes]:
    """Return a sheet with half an inch for each unit; the height is centred on 0."""
    return sheet(0.5 * width, 0.5 * height, xlim=(-0.1, width - 0.1),
                 ylim=(height / 2, -height / 2), aspect="equal")


def _text(values: np.ndarray) -> str:
    """Return the numbers of a matrix row by row, such as "1 2; 3 4"."""
    return "; ".join(" ".join(f"{value:g}" for value in row) for row in values)


def convolution(x: np.ndarray, w: np.ndarray, at: tuple[int, int] = (0, 0)) -> None:
    """Draw one step of a convolution of a matrix x (h, w) by a kernel (kh, kw), no padding.

    The window that gives the element `at` is marked, and its sum written out.
    """
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape)
    y, window = (windows * w).sum((2, 3)), windows[at]
    held = [(at[0] + p, at[1] + q) for p, q in np.ndindex(w.shape)]
    sum_ = " + ".join(f"{a:g}·{b:g}" for a, b in zip(window.flat, w.flat, strict=True))
    says = f"{sum_} = {y[at]:g}"
    figure, axes = _canvas(x.shape[1] + w.shape[1] + y.shape[1] + 4.2, x.shape[0] + 2.4)
    right = _grid(axes, 0, x, _("input x"), lambda i, j: PALE if (i, j) in held else "white", held)
    write(axes, right + 0.9, 0, "*", 16)
    right = _grid(axes, right + 1.8, w, _("kernel w"), lambda i, j: PALE)
    axes.annotate("", (right + 1.7, 0), (right + 0.5, 0), arrowprops=ARROW)
    _grid(axes, right + 2.2, y, _("output y"), lambda i, j: PALE if (i, j) == at else "white", [at])
    axes.text(0, x.shape[0] / 2 + 0.6, f"y[{at[0]}, {at[1]}] = {says}", size=11, va="center",
              family="monospace")
    show(figure, _("A convolution. Input, row by row: {input}. Kernel: {kernel}. Output: {output}. "
                   "The window marked gives element {at}: {says}.").format(
        input=_text(x), kernel=_text(w), output=_text(y), at=at, says=says))


def pooling(x: np.ndarray) -> None:
    """Draw max pooling of a matrix with even sides by 2x2 windows; each window has a colour."""
    windows = x.reshape(x.shape[0] // 2, 2, -1, 2).swapaxes(1, 2)
    y = windows.max((2, 3))

    def colour(i: int, j: int) -> str:
        return _WINDOWS[(i * y.shape[1] + j) % len(_WINDOWS)]

    largest = [(2 * i + p, 2 * j + q) for (i, j), most in np.ndenumerate(y)
               for p, q in np.argwhere(windows[i, j] == most).tolist()]
    figure, axes = _canvas(x.shape[1] + y.shape[1] + 2.4, x.shape[0] + 1.4)
    right = _grid(axes, 0, x, _("input"), lambda i, j: colour(i // 2, j // 2), largest)
    axes.annotate("", (right + 1.6, 0), (right + 0.5, 0), arrowprops=ARROW)
    _grid(axes, right + 2.1, y, _("largest of each window"), colour)
    show(figure, _("Max pooling with 2 by 2 windows. Input, row by row: {input}. Output: {output}."
                   ).format(input=_text(x), output=_text(y)))


def bias_along(**biases: np.ndarray) -> None:
    """Draw where the numbers of a bias go: each is broadcast to (channels, rows, columns).

    The keywords are titles. Each array has a number for every place along one of the three axes,
    such as (3, 1, 1) for one per channel. The picture has the largest extents, and 2 rows.
    """
    extents = np.broadcast_shapes(*(array.shape for array in biases.values()), (1, 2, 1))
    figure, axes = _canvas(3.9 + extents[0] * (extents[2] + 0.8), 3.9 * len(biases))
    says = []
    for number, (title, array) in enumerate(biases.items()):
        top, said = 3.9 * (number - len(biases) / 2), {
            "title": _(title.replace("_", " ")), "shape": array.shape}
        axes.text(0, top + 2.2, _("{title}\nbias {shape}").format(**said), size=10, va="center")
        colours = dict(zip(np.unique(array), _WINDOWS, strict=False))
        for channel, values in enumerate(np.broadcast_to(array, extents)):
            left = 3.9 + channel * (extents[2] + 0.8)
            write(axes, left + extents[2] / 2, top + 0.75,
                  _("channel {number}").format(number=channel))
            for (i, j), value in np.ndenumerate(values):
                box(axes, left + j, top + 1.2 + i, 1, 1, colours[value])
                write(axes, left + j + 0.5, top + 1.7 + i, f"{value:g}", 11)
        says.append(_("{title}, bias {shape}: {channels}").format(**said, channels=_(", ").join(
            _("channel {number}: {values}").format(number=channel, values=_text(values))
            for channel, values in enumerate(np.broadcast_to(array, extents)))))
    show(figure, _("The number that is added to each element. {says}.").format(
        says=_(". ").join(says)))


def calls(mod: tvm.IRModule, across: int = 4) -> None:
    """Draw the calls of a module's main, `across` a row; above each its constants, in brown.

    For a main in which each call takes the result of the one before; computational_graph draws any.
    """
    bindings = [binding for block in mod["main"].body.blocks for binding in block.bindings
                if isinstance(binding.value, relax.Call)]
    rows = -(-len(bindings) // across)
    figure, axes = sheet(2.55 * across, 1.2 * rows, xlim=(-0.8, 2.55 * across - 0.7),
                         ylim=(1.25 * rows - 0.4, -0.35))
    says = [_("input {shape}").format(shape=shape_text(mod["main"].params[0]))]
    for number, binding in enumerate(bindings):
        row, column = 1.25 * (number // across), number % across
        left, call = 2.55 * column, binding.value
        name = operator(mod, call)[0]
        weights = [shape_text(item) for item in taken(call) if not isinstance(item, relax.Var)]
        box(axes, left, row, 1.6, 0.44, PALE)
        for high, text, size, style in [(0.22, name, 10, {"weight": "bold"}),
                                        (-0.14, " ".join(weights), 8, {"color": _WEIGHTS}),
                                        (0.6, shape_text(binding.var), 8.5, {})]:
            write(axes, left + 0.8, row + high, text, size, family="monospace", **style)
        start = left - (0.9 if column else 0.5)  # from its left neighbour, or the row above
        axes.annotate("", (left, row + 0.22), (start, row + 0.22), arrowprops=ARROW)
        result = shape_text(binding.var)
        says.append(_("{operator} with {constants} gives {shape}").format(
            operator=name, constants=listed(weights), shape=result) if weights else
            _("{operator} gives {shape}").format(operator=name, shape=result))
    show(figure, _("The calls of main: {says}.").format(says=_("; ").join(says)))
