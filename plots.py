"""Pictures: images and predictions, loop nests, the order of visits, times."""

import matplotlib.pyplot as plt
import numpy as np
import tvm
from IPython.display import display

import helpers


def show(figure: plt.Figure, alt: str) -> None:
    """Display a figure once, with a text for readers who cannot see it."""
    display(figure, metadata={"image/png": {"alt": alt}})
    plt.close(figure)


# ---- loop nests and the order of visits ----------------------------------------------------

_INK = {"serial": "#d0d7de", "parallel": "#7cc4a4", "vectorized": "#f2b36b", "unrolled": "#a9a4e0"}
_SAYS = {"serial": "one after another", "parallel": "shared among threads",
         "vectorized": "one instruction for all", "unrolled": "written out, no loop left"}


def _tree(func: tvm.tirx.PrimFunc) -> list:
    """Return the loops of a PrimFunc as a tree: [loop, [children]] and sblocks as leaves."""
    roots: list = []
    for nest in helpers.nests(func):
        level = roots
        for loop in nest.loops:
            if not (level and isinstance(level[-1], list) and level[-1][0].node.same_as(loop.node)):
                level.append([loop, []])
            level = level[-1][1]
        notes = [note for note, holds in [("reduces", nest.reduces), ("T.init", nest.has_init)]
                 if holds]
        level.append(f"sblock {nest.block}" + (f"  ({', '.join(notes)})" if notes else ""))
    return roots


def _rows(tree: list) -> int:
    return sum(1 + _rows(item[1]) if isinstance(item, list) else 1 for item in tree)


def _draw(axes: plt.Axes, tree: list, row: float, depth: int, right: float) -> float:
    """Draw loops as nested boxes from `row` down; return the row below."""
    for item in tree:
        if isinstance(item, str):
            axes.text(depth * 0.42 + 0.1, row + 0.5, item, va="center", size=7.5, weight="bold",
                      family="monospace")
            row += 1
            continue
        loop, inner = item
        height = 1 + _rows(inner)
        corner, width = (depth * 0.42, row + 0.06), right - depth * 0.47
        axes.add_patch(plt.Rectangle(corner, width, height - 0.12, facecolor=_INK[loop.kind],
                                     edgecolor="#57606a", lw=0.7))
        kind = "" if loop.kind == "serial" else f"  {loop.kind}"
        axes.text(depth * 0.42 + 0.1, row + 0.5, f"{loop.name} in {loop.extent}{kind}", va="center",
                  size=8, family="monospace")
        _draw(axes, inner, row + 1, depth + 1, right - 0.05)
        row += height
    return row


def loop_nests(**funcs: tvm.tirx.PrimFunc) -> None:
    """Draw the loops of PrimFuncs side by side as boxes in boxes, coloured by their kind.

    The keywords are the titles: loop_nests(before=func, after=sch.mod["main"]).
    """
    trees = {title: _tree(func) for title, func in funcs.items()}
    rows = max(map(_rows, trees.values()))
    figure, all_axes = plt.subplots(1, len(trees), figsize=(4.6 * len(trees), 0.27 * rows + 0.8),
                                    squeeze=False, layout="constrained")
    kinds = set()
    for axes, (title, tree) in zip(all_axes[0], trees.items(), strict=True):
        _draw(axes, tree, 0, 0, 8.6)
        axes.set(xlim=(-0.1, 8.7), ylim=(rows + 0.1, -0.1), title=title.replace("_", " "))
        axes.axis("off")
        kinds |= {loop.kind for nest in helpers.nests(funcs[title]) for loop in nest.loops}
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=_INK[kind], edgecolor="#57606a",
                             label=f"{kind}: {_SAYS[kind]}") for kind in _INK if kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    show(figure, "Loop nests as boxes in boxes. " + "; ".join(
        f"{title}: " + ", ".join(f"{nest.block} in {' > '.join(map(str, nest.loops))}"
                                 for nest in helpers.nests(func)) for title, func in funcs.items()))


def index_value(expression, loops: dict) -> np.ndarray:
    """Evaluate an index expression for all iterations at once."""
    match type(expression).__name__:
        case "Var":
            return loops[expression.name]
        case "IntImm":
            return np.int64(expression.value)
        case "Cast":
            return index_value(expression.value, loops)
        case name:
            left, right = index_value(expression.a, loops), index_value(expression.b, loops)
            return {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply,
                    "FloorDiv": np.floor_divide, "FloorMod": np.mod}[name](left, right)


def visit_steps(func: tvm.tirx.PrimFunc, shape: tuple[int, int], axes: tuple[int, int] = (0, 1),
                threads: int | None = None) -> np.ndarray:
    """Return the moment at which a PrimFunc first writes each element of its output.

    The last sblock that writes the output counts. Only the first `shape` elements along the two
    `axes` are looked at; along other axes, the first. Lanes of a vectorised loop share a moment.
    So do the iterations of a parallel loop, as with a thread for each, unless `threads` is 1.
    """
    nest = [nest for nest in helpers.nests(func) if nest.buffer == func.params[-1].name][-1]
    grid = np.indices([loop.extent for loop in nest.loops]).reshape(len(nest.loops), -1)
    loops = {loop.name: grid[i] for i, loop in enumerate(nest.loops)}
    at_once = {"vectorized"} if threads == 1 else {"vectorized", "parallel"}
    step = np.zeros(grid.shape[1], dtype=np.int64)
    for i, loop in enumerate(nest.loops):
        if loop.kind not in at_once:
            step = step * loop.extent + grid[i]
    output = len(nest.realize.block.writes[0].region)  # the other block axes are reductions
    places = np.stack([np.broadcast_to(index_value(value, loops), step.shape)
                       for value in list(nest.realize.iter_values)[:output]])
    limits = np.ones((output, 1), dtype=np.int64)
    limits[list(axes), 0] = shape
    seen = (places < limits).all(axis=0)
    steps = np.full(shape, step.max() + 1)
    np.minimum.at(steps, tuple(places[list(axes)][:, seen]), step[seen])
    return steps


def visit_order(shape: tuple[int, int], axes: tuple[int, int] = (0, 1),
                threads: int | None = None, **funcs: tvm.tirx.PrimFunc) -> None:
    """Draw the moment at which each element of an output is written; see visit_steps."""
    names = ("i", "j") if axes == (0, 1) else ("y", "x")
    figure, panels = plt.subplots(1, len(funcs), figsize=(4.1 * len(funcs), 4.2), squeeze=False,
                                  layout="constrained")
    for panel, (title, func) in zip(panels[0], funcs.items(), strict=True):
        steps = visit_steps(func, shape, axes, threads)
        panel.imshow(steps, cmap="YlGnBu", vmin=0, vmax=steps.max() * 1.3 + 1)
        for (i, j), step in np.ndenumerate(steps):
            panel.text(j, i, step, ha="center", va="center", size=7)
        panel.set(title=title.replace("_", " "), xlabel=names[1], ylabel=names[0],
                  xticks=range(shape[1]), yticks=range(shape[0]))
    show(figure, f"For each element of a {shape[0]} by {shape[1]} output, the moment at which it "
         f"is written: {', '.join(funcs)}.")


def times(timings: dict[str, helpers.Timing]) -> None:
    """Draw median times as bars, with the quartiles as whiskers."""
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(timings) + 0.8), layout="constrained")
    medians = [timing.median for timing in timings.values()]
    spread = [[t.median - t.low for t in timings.values()], [t.high - t.median
                                                            for t in timings.values()]]
    axes.barh(list(timings), medians, xerr=spread, color="#7cc4a4", ecolor="#57606a", capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="microseconds for one call (median, quartiles)")
    show(figure, "Bars: " + ", ".join(f"{name} {timing.median:.0f} microseconds"
                                      for name, timing in timings.items()) + ".")


# ---- images and predictions ----------------------------------------------------------------

_BLUE, _ORANGE, _GREY = "#4878a8", "#d9822b", "#c3cad1"


def image_grid(images: np.ndarray, captions: list[str], columns: int = 5) -> None:
    """Draw images (n, 1, 28, 28) with values in [0, 1] as they are: 0 is black, 1 is white."""
    rows = -(-len(images) // columns)
    figure, all_axes = plt.subplots(rows, columns, figsize=(1.7 * columns, 1.95 * rows),
                                    squeeze=False, layout="constrained")
    for axes in all_axes.flat:
        axes.axis("off")
    for axes, image, caption in zip(all_axes.flat, images, captions, strict=False):
        axes.imshow(np.asarray(image).reshape(28, 28), cmap="gray", vmin=0, vmax=1)
        axes.set_title(caption, size=9)
    show(figure, "Images with their captions: " + "; ".join(captions).replace("\n", " ") + ".")


def class_bars(names: tuple[str, ...], values: np.ndarray, title: str, image: np.ndarray = None,
               label: int | None = None) -> None:
    """Draw one bar for each class, from 0 to 1; beside the image they belong to, if it is given.

    The bar of the class `label` is orange. NaN is written, not drawn.
    """
    width = 2 if image is not None else 1
    figure, all_axes = plt.subplots(1, width, figsize=(5.2 + 2.6 * (width - 1), 3), squeeze=False,
                                    width_ratios=[1, 2][2 - width:], layout="constrained")
    if image is not None:
        all_axes[0, 0].imshow(np.asarray(image).reshape(28, 28), cmap="gray", vmin=0, vmax=1)
        all_axes[0, 0].axis("off")
        all_axes[0, 0].set_title(f"label: {names[label]}" if label is not None else "", size=10)
    axes = all_axes[0, -1]
    values = np.asarray(values)
    colours = [_ORANGE if i == label else _BLUE for i in range(len(names))]
    axes.barh(names, np.nan_to_num(values), color=colours)
    for i, value in enumerate(values):
        axes.text(np.nan_to_num(value) + 0.015, i, f"{value:.3f}", va="center", size=8)
    axes.set(xlim=(0, 1.15), title=title)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    show(figure, f"{title}: " + ", ".join(f"{name} {value:.3f}" for name, value in
                                          zip(names, values, strict=True)) + ".")


def confusion_matrix(confusion: np.ndarray, names: tuple[str, ...]) -> None:
    """Draw a confusion matrix: rows are labels, columns are predictions, dark is many."""
    figure, axes = plt.subplots(figsize=(6, 5.2), layout="constrained")
    axes.imshow(np.sqrt(confusion), cmap="Blues")  # the root: 3 among 100 stays visible
    for (i, j), count in np.ndenumerate(confusion):
        if count:
            ink = "white" if count > confusion.max() / 3 else "black"
            axes.text(j, i, count, ha="center", va="center", size=9, color=ink,
                      weight="bold" if i == j else "normal")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="prediction", ylabel="label")
    rows = "; ".join(f"{name}: {', '.join(map(str, row))}"
                     for name, row in zip(names, confusion, strict=True))
    show(figure, f"Confusion matrix, a row for each label. {rows}.")


def network(layers: list[str], shapes: list[tuple[int, ...]]) -> None:
    """Draw the tensors between the layers of a network, for one image.

    `shapes` (without the batch axis) has the input's first, then one for each layer: maps as a
    stack of squares with their side to scale, vectors as bars whose height is logarithmic.
    """
    figure, axes = plt.subplots(figsize=(11, 2.7), layout="constrained")
    for i, shape in enumerate(shapes):
        x, count = 1.55 * i, min(shape[0], 4) if len(shape) == 3 else 1
        width, height = (shape[-1] / 35,) * 2 if len(shape) == 3 else (0.14, np.log10(shape[0]) / 3)
        shift = 0.07
        for back in reversed(range(count)):
            left = x - width / 2 + (back - (count - 1) / 2) * shift
            axes.add_patch(plt.Rectangle((left, -height / 2 + (back - (count - 1) / 2) * shift),
                                         width, height, facecolor="#dbe7f3", edgecolor=_BLUE))
        axes.text(x, -0.85, "×".join(map(str, shape)), ha="center", size=9)
        if i:
            axes.annotate("", (x - 0.56, 0), (x - 0.99, 0), arrowprops={"arrowstyle": "->"})
            axes.text(x - 0.775, 0.78, layers[i - 1], ha="center", size=9, weight="bold")
    axes.set(xlim=(-0.7, 1.55 * (len(shapes) - 1) + 0.6), ylim=(-1, 1), aspect="equal")
    axes.axis("off")
    show(figure, "The network as tensors joined by arrows: input " + str(shapes[0]) + "".join(
        f", after {layer} {shape}" for layer, shape in zip(layers, shapes[1:], strict=True)) + ".")


def shares(names: list[str], **amounts: list[float]) -> None:
    """Draw how a few totals (two or three keywords) are shared among the named parts."""
    figure, axes = plt.subplots(figsize=(7, 0.45 * len(names) + 1), layout="constrained")
    thick = 0.8 / len(amounts)
    says = []
    colours = (_BLUE, _ORANGE, _GREY)
    for k, (what, values) in enumerate(amounts.items()):
        percent = 100 * np.asarray(values) / np.sum(values)
        rows = np.arange(len(names)) + (k - (len(amounts) - 1) / 2) * thick
        axes.barh(rows, percent, thick, color=colours[k], label=f"share of the {what}")
        for row, value in zip(rows, percent, strict=True):
            axes.text(value + 0.8, row, f"{value:.1f} %", va="center", size=8)
        says.append(f"{what}: " + ", ".join(f"{name} {value:.1f} %" for name, value in
                                            zip(names, percent, strict=True)))
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 100), xlabel="per cent")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    show(figure, "Shares. " + "; ".join(says) + ".")


# ---- memory --------------------------------------------------------------------------------


def _address(tensor) -> int:
    """Return the address of a tensor's first element: TVM, PyTorch or NumPy."""
    return tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr()


def memory(**tensors) -> None:
    """Draw which tensors (TVM, NumPy, PyTorch) look at the same memory, and what is in it.

    The keywords are the names: memory(tensor=t, view=np.from_dlpack(t)). Addresses are compared,
    so the picture shows what is there and not what was meant.
    """
    blocks: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        blocks.setdefault(_address(tensor), []).append(name)
    figure, axes = plt.subplots(figsize=(8.4, 0.62 * len(tensors) + 0.4), layout="constrained")
    row, right, said = 0, 0, []
    for names in blocks.values():
        values = np.from_dlpack(tensors[names[0]]).ravel()
        right, middle = max(right, len(values)), row + (len(names) - 1) / 2
        for i, value in enumerate(values):
            axes.add_patch(plt.Rectangle((5.6 + i, middle - 0.36), 1, 0.72, facecolor="#cfe3f5",
                                         edgecolor="#57606a", lw=0.8))
            axes.text(6.1 + i, middle, f"{value:g}", ha="center", va="center", size=9)
        for name in names:
            tensor = tensors[name]
            kind = f"{type(tensor).__module__.partition('.')[0]} {type(tensor).__name__}"
            shape = ", ".join(str(int(n)) for n in tensor.shape)
            axes.text(0, row - 0.14, name, va="center", size=9, family="monospace", weight="bold")
            axes.text(0, row + 0.2, f"{kind} ({shape})", va="center", size=7.5, color="#57606a")
            axes.annotate("", (5.5, middle), (2.4, row), arrowprops={"arrowstyle": "->", "lw": 1})
            row += 1
        said.append(f"{', '.join(names)}: {' '.join(f'{value:g}' for value in values)}")
    axes.set(xlim=(-0.1, 5.8 + right), ylim=(row - 0.4, -0.6))
    axes.axis("off")
    show(figure, "Blocks of memory and the names that point to each. " + ". ".join(said) + ".")
