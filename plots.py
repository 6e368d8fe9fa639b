"""Pictures: images and predictions, loop nests, the order of visits, times."""

import inspect
import re
import textwrap

import matplotlib.pyplot as plt
import numpy as np
import tvm
from IPython.display import display

import helpers
from loops import nests, visit_steps


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
    for nest in nests(func):
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
        kinds |= {loop.kind for nest in nests(funcs[title]) for loop in nest.loops}
    handles = [plt.Rectangle((0, 0), 1, 1, facecolor=_INK[kind], edgecolor="#57606a",
                             label=f"{kind}: {_SAYS[kind]}") for kind in _INK if kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    show(figure, "Loop nests as boxes in boxes. " + "; ".join(
        f"{title}: " + ", ".join(f"{nest.block} in {' > '.join(map(str, nest.loops))}"
                                 for nest in nests(func)) for title, func in funcs.items()))


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


def times(timings: dict[str, helpers.Timing], floor: float | None = None) -> None:
    """Draw median times as bars, with the quartiles as whiskers.

    With a `floor`, the least possible time in microseconds, the axis is logarithmic and a line
    stands at the floor.
    """
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(timings) + 0.8), layout="constrained")
    medians = [timing.median for timing in timings.values()]
    spread = [[t.median - t.low for t in timings.values()], [t.high - t.median
                                                            for t in timings.values()]]
    axes.barh(list(timings), medians, xerr=spread, color="#7cc4a4", ecolor="#57606a", capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="microseconds for one call (median, quartiles)")
    if floor is not None:
        axes.axvline(floor, color="#57606a", linestyle="--", linewidth=1)
        axes.annotate("floor", (floor, 1), (3, 2), xycoords=("data", "axes fraction"),
                      textcoords="offset points", size=8)
        axes.set(xscale="log", xlim=(min(floor, *medians) * 0.7, max(medians) * 1.8))
        for row, timing in enumerate(timings.values()):
            axes.text(timing.high * 1.08, row, f"{timing.median:.0f}", va="center", size=8)
    show(figure, "Bars: " + ", ".join(f"{name} {timing.median:.0f} microseconds"
                                      for name, timing in timings.items()) + ".")


def roofline(peak: float, bandwidth: float,
             trails: dict[str, list[tuple[float, float, float]]]) -> None:
    """Draw what was reached against what the machine allows: a roofline, both axes logarithmic.

    peak in GFLOP/s, bandwidth in GB/s. A trail is what an operator went through, each point
    (floating-point operations, bytes moved at least, microseconds); the last is drawn bold.
    """
    figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
    spots = {name: [(flops / moved, flops / us / 1e3) for flops, moved, us in trail]
             for name, trail in trails.items()}
    reached = [spot for trail in spots.values() for spot in trail]
    intensity = np.geomspace(min(x for x, _ in reached) / 2, max(x for x, _ in reached) * 4, 99)
    axes.plot(intensity, np.minimum(peak, bandwidth * intensity), color="#57606a")
    axes.fill_between(intensity, np.minimum(peak, bandwidth * intensity), peak * 3,
                      color="#d0d7de", alpha=0.4, linewidth=0)
    for name, trail in spots.items():
        x, y = zip(*trail, strict=True)
        line, = axes.plot(x, y, linestyle=":", marker="o", markersize=4, alpha=0.6)
        axes.plot(x[-1], y[-1], marker="o", markersize=9, color=line.get_color())
        axes.annotate(name, (x[-1], y[-1]), (8, -3), textcoords="offset points", size=9,
                      color=line.get_color())
    axes.set(xscale="log", yscale="log", xlim=(intensity[0], intensity[-1]),
             ylim=(min(y for _, y in reached) / 2, peak * 3),
             xlabel="floating-point operations for each byte moved", ylabel="GFLOP/s")
    axes.annotate("beyond the roof", (0.02, 0.93), xycoords="axes fraction", size=9,
                  color="#57606a")
    show(figure, f"Roofline, peak {peak:.0f} GFLOP/s, bandwidth {bandwidth:.0f} GB/s. " + "; ".join(
        f"{name} at " + " then ".join(f"{y:.1f}" for _, y in trail) + " GFLOP/s"
        for name, trail in spots.items()) + ".")


def lanes(vector: int, **orders: list[tuple[int, int]]) -> None:
    """Draw numbers in the order of memory, as (channel, column), cut into vectors of `vector`.

    The colour tells the column, the text the channel.
    """
    longest = max(map(len, orders.values()))
    figure, all_axes = plt.subplots(len(orders), 1, figsize=(9, 0.95 * len(orders) + 0.3),
                                    squeeze=False, layout="constrained")
    columns = sorted({column for order in orders.values() for _, column in order})
    ink = plt.get_cmap("viridis")(np.linspace(0.5, 1, len(columns)))
    for axes, (title, order) in zip(all_axes[:, 0], orders.items(), strict=True):
        for place, (channel, column) in enumerate(order):
            axes.add_patch(plt.Rectangle((place, 0), 1, 1, facecolor=ink[columns.index(column)],
                                         edgecolor="white"))
            axes.text(place + 0.5, 0.5, channel, ha="center", va="center", size=7)
        for start in range(0, len(order), vector):
            axes.add_patch(plt.Rectangle((start, -0.06), vector, 1.12, fill=False, linewidth=2,
                                         edgecolor="#57606a"))
        axes.set(xlim=(-0.2, longest + 0.2), ylim=(-0.2, 1.2))
        axes.set_title(title.replace("_", " "), size=9, loc="left")
        axes.axis("off")
    show(figure, f"Numbers in the order of memory, in vectors of {vector}. " + "; ".join(
        f"{title}: " + ", ".join(f"channel {c} column {x}" for c, x in order[:vector])
        for title, order in orders.items()) + ".")


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


# ---- notebook 05: a builder beside its module, and graphs of torch.fx --------------------------

_SCOPES = {  # what begins a line: in the builder's source, in the printed module; its colour
    "function": (r"with bb\.function\(", r"def main\(", "#dbe7f3"),
    "dataflow": (r"with bb\.dataflow\(", r"with R\.dataflow\(", "#e3efd9"),
    "emit": (r".*bb\.emit_te\(", r".*R\.call_tir\(", "#f7d9b0"),
    "output": (r".*bb\.emit_output\(", r"gv: |R\.output\(", "#cfc9ea"),
    "end": (r"bb\.emit_func_output\(", r"return ", "#f2c6c6"),
}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _listing(axes: plt.Axes, lines: list[str], left: float, side: int,
             right: float) -> dict[str, list[int]]:
    """Draw lines of code with their scopes as boxes; return the rows of each kind of line."""
    rows: dict[str, list[int]] = {kind: [] for kind in _SCOPES}
    for row, line in enumerate(lines):
        for kind, marks in _SCOPES.items():
            if re.match(marks[side], line.strip()):
                rows[kind].append(row)
                last = next((r for r in range(row + 1, len(lines))
                             if _indent(lines[r]) <= _indent(line)), len(lines))
                start = left + _indent(line)
                axes.add_patch(plt.Rectangle((start - 0.7, row - 0.46), right - start + 0.7,
                                             last - row - 0.08 if last - row > 1 else 0.92,
                                             facecolor=marks[2], edgecolor="#8b949e", lw=0.6))
        axes.text(left, row, line, va="center", size=7, family="monospace", clip_on=True)
    return rows


def builder_and_module(build, mod: tvm.IRModule, most: int = 84) -> None:
    """Draw a function that builds a module beside the `main` it makes, with the same colours.

    Arrows go from each call of the builder to the line that it made, found by the words in them.
    """
    source = textwrap.dedent(inspect.getsource(build)).rstrip().splitlines()
    printed = helpers.show(mod, only="main").text.splitlines()
    printed = [line if len(line) <= most else line[:most - 2] + " …" for line in printed]
    wide = max(map(len, source))
    start, total = wide + 14, wide + 14 + max(map(len, printed)) + 2
    high = max(len(source), len(printed))
    figure = plt.figure(figsize=(total * 0.0605, high * 0.185))
    axes = figure.add_axes((0, 0, 1, 1))
    from_rows = _listing(axes, source, 1, 0, wide + 2)
    to_rows = _listing(axes, printed, start, 1, total)
    pairs = [(source[a].strip(), printed[b].strip()) for kind in _SCOPES
             for a, b in zip(from_rows[kind], to_rows[kind], strict=False)]
    for kind in _SCOPES:
        for a, b in zip(from_rows[kind], to_rows[kind], strict=False):
            end = start + _indent(printed[b]) - 1
            axes.annotate("", (end, b), (wide + 2.2, a),
                          arrowprops={"arrowstyle": "->", "lw": 0.9, "color": "#57606a"})
    axes.set(xlim=(0, total), ylim=(high - 0.2, -0.8))
    axes.axis("off")
    show(figure, "The builder's lines, each with the printed line that it made. " + "; ".join(
        f"{a} makes {b}" for a, b in pairs) + ".")


_FX_INK = {"placeholder": "#cfe3f5", "get_attr": "#e3efd9", "call_function": "#f7d9b0",
           "call_module": "#cfc9ea", "call_method": "#f2c6c6", "output": "#d0d7de"}


def fx_graph(graph) -> None:
    """Draw a torch.fx graph from left to right: a box for each node, arrows for its arguments."""
    depth, columns = {}, {}
    for node in graph.nodes:
        depth[node] = max((depth[before] + 1 for before in node.all_input_nodes), default=0)
        columns.setdefault(depth[node], []).append(node)
    high, wide = max(map(len, columns.values())), len(columns)
    figure, axes = plt.subplots(figsize=(2.05 * wide, 0.95 * high + 0.35), layout="constrained")
    place = {node: (2.05 * column, row - (len(nodes) - 1) / 2)
             for column, nodes in columns.items() for row, node in enumerate(nodes)}
    for node, (x, y) in place.items():
        axes.add_patch(plt.Rectangle((x - 0.75, y - 0.36), 1.5, 0.72, facecolor=_FX_INK[node.op],
                                     edgecolor="#57606a", lw=0.8))
        target = getattr(node.target, "__name__", node.target)
        axes.text(x, y - 0.13, f"%{node.name}", ha="center", va="center", size=9.5,
                  weight="bold", family="monospace")
        axes.text(x, y + 0.16, node.op if node.op == "output" else f"{node.op}\n{target}",
                  ha="center", va="center", size=7.5, color="#30363d")
        for before in node.all_input_nodes:
            a, b = place[before]
            axes.annotate("", (x - 0.77, y), (a + 0.77, b), arrowprops={"arrowstyle": "->"})
    axes.set(xlim=(-0.85, 2.05 * (wide - 1) + 0.85), ylim=(high / 2 + 0.02, -high / 2 - 0.02))
    axes.axis("off")
    show(figure, "Graph of torch.fx: " + "; ".join(
        f"{node.name} ({node.op})" + (" from " + ", ".join(n.name for n in node.all_input_nodes)
                                      if node.all_input_nodes else "")
        for node in graph.nodes) + ".")


# ---- notebook 00: stages, two texts side by side, the computational graph --------------------


def stages(*steps: tuple[str, str], arrows: list[str]) -> None:
    """Draw texts in boxes from left to right, with a labelled arrow from each to the next.

    A step is a title and its text, of one or more lines; `arrows` has one label fewer.
    """
    wide = [max(map(len, [title, *text.splitlines()])) for title, text in steps]
    high = max(len(text.splitlines()) for _, text in steps)
    gap = max(map(len, arrows)) * 0.8 + 4
    figure, axes = plt.subplots(figsize=(10, 0.21 * high + 0.75))
    left, centre = 0.0, high / 2
    for number, ((title, text), width) in enumerate(zip(steps, wide, strict=True)):
        lines = text.splitlines()
        top = centre - len(lines) / 2
        axes.add_patch(plt.Rectangle((left, top - 0.5), width + 3, len(lines) + 1,
                                     facecolor="#eef3f8", edgecolor="#57606a", lw=0.8))
        axes.text(left + width / 2 + 1.5, top - 1.1, title, ha="center", va="center", size=9,
                  weight="bold")
        for row, line in enumerate(lines):
            axes.text(left + 1.5, top + row + 0.5, line, va="center", size=8, family="monospace")
        left += width + 3
        if number < len(arrows):
            axes.annotate("", (left + gap - 0.6, centre), (left + 0.6, centre),
                          arrowprops={"arrowstyle": "->", "lw": 1.3, "color": _ORANGE})
            axes.text(left + gap / 2, centre - 0.7, arrows[number], ha="center", va="center",
                      size=8, style="italic", color="#9a5412")
        left += gap
    axes.set(xlim=(-0.5, left - gap + 0.5), ylim=(high + 0.8, -1.9))
    axes.axis("off")
    show(figure, "Boxes joined by arrows. " + " ".join(
        f"{title}: {'; '.join(line.strip() for line in text.splitlines())}."
        + (f" Arrow: {arrows[i]}." if i < len(arrows) else "")
        for i, (title, text) in enumerate(steps)))


_MARKS = ["#cfe3f5", "#f7d9b0", "#e3efd9", "#cfc9ea", "#f2c6c6", "#fbe9a6", "#d5ece8", "#e8d8c3"]


def _broken(line: str, most: int = 68) -> list[str]:
    """Break a long line of a program at the commas between the outermost arguments."""
    if len(line) <= most:
        return [line]
    depth, parts, start, closed = 0, [], 0, False
    for position, letter in enumerate(line):
        depth += (letter in "([") - (letter in ")]")
        closed = closed or (letter == ")" and depth == 0)
        if letter == "," and depth == 1 and not closed or line[position + 1:].startswith(" -> "):
            parts.append(line[start:position + 1])
            start = position + 1
    parts.append(line[start:])
    indent = " " * (len(line) - len(line.lstrip()) + 8)
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) <= most:
            lines[-1] += part
        else:
            lines.append(indent + part.strip())
    return lines


def side_by_side(left: str, right: str, pairs: list[tuple[str, str, str]],
                 titles: tuple[str, str]) -> None:
    """Draw two programs side by side; matching lines have the same colour and the same number.

    `pairs`: words that mark lines on the left, words that do on the right (several are separated
    by |), and what both mean. Long lines are broken.
    """
    sources = [[(piece, line) for line in text.strip("\n").splitlines() for piece in _broken(line)]
               for text in (left, right)]
    high = max(map(len, sources))
    wide = [max(len(piece) for piece, _ in lines) for lines in sources]
    start, total = (0, wide[0] + 7), sum(wide) + 12
    figure = plt.figure(figsize=(10, 10 / total * 2.2 * (high + 2.0 + len(pairs) / 2)))
    size, axes = min(9, 1150 / total), figure.add_axes((0, 0, 1, 1))

    def circle(x: float, y: float, number: int) -> None:
        axes.text(x, y, number + 1, size=size * 0.9, ha="center", va="center", weight="bold",
                  bbox={"boxstyle": "circle,pad=0.12", "lw": 0.6, "facecolor": _MARKS[number]})

    for half in (0, 1):
        axes.text(start[half] + 2.6, -1, titles[half], size=size + 1, weight="bold", va="center")
        for row, (piece, _) in enumerate(sources[half]):
            axes.text(start[half] + 2.6, row, piece, size=size, family="monospace", va="center")
    for number, pair in enumerate(pairs):
        for half in (0, 1):
            rows = [row for row, (_, line) in enumerate(sources[half])
                    if any(words in line for words in pair[half].split("|"))]
            if not rows:
                raise ValueError(f"no line with {pair[half]!r} in {titles[half]}")
            for row in rows:
                axes.add_patch(plt.Rectangle((start[half] + 2.2, row - 0.5), wide[half] + 1, 1,
                                             facecolor=_MARKS[number], zorder=0))
                if row - 1 not in rows:
                    circle(start[half] + 0.9, row, number)
        place = start[number % 2], high + 0.9 + number // 2 * 1.1
        circle(place[0] + 0.9, place[1], number)
        axes.text(place[0] + 2.6, place[1], pair[2], size=size, va="center")
    axes.set(xlim=(-0.5, total), ylim=(high + 1.2 + (len(pairs) + 1) // 2 * 1.1, -1.7))
    axes.axis("off")
    show(figure, f"{titles[0]} and {titles[1]}, matching lines with the same number. " + " ".join(
        f"{number}, {pair[2]}: {' and '.join(pair[:2]).replace('|', ', ')}."
        for number, pair in enumerate(pairs, start=1)))


def _is_constant(item) -> bool:
    """Whether an argument is a constant tensor; strings and dtypes are constants too."""
    return isinstance(item, tvm.ir.GenericConst) and isinstance(item.ty, tvm.relax.TensorType)


class _Graph:
    """The operators of a Relax function as rows of boxes, and the tensors between them."""

    def __init__(self, mod: tvm.IRModule, name: str, by_data: bool) -> None:
        func = mod[name]
        self.names: list[str] = []             # of the boxes: the operator's name and its kind
        self.kinds: list[str] = []
        self.depth: list[int] = []
        self.blocks: list[list[int]] = []      # the boxes of each dataflow block
        self.edges: list[tuple[int, int, str]] = []   # from box to box
        self.inputs: list[tuple[str, list[int]]] = []  # a parameter or constant, and its users
        self.made: dict = {}                   # variable: the box that computes it, or an input
        self.output: list[tuple[int, str]] = []
        constants = 0
        for param in func.params:
            self.made[param] = ("input", len(self.inputs))
            self.inputs.append((f"{param.name} {self._shape(param)}", []))
        least = 0
        for block in func.body.blocks:
            pure = isinstance(block, tvm.relax.DataflowBlock)
            here = []
            for binding in block.bindings:
                value, var = binding.value, binding.var
                if isinstance(value, tvm.relax.Var):
                    self.made[var] = self.made[value]  # a second name
                    continue
                box = len(self.names)
                name, kind, arguments = self._operator(mod, value)
                self.names.append(name)
                self.kinds.append(kind)
                level = least
                for argument in arguments:
                    if _is_constant(argument):
                        text = f"constant {constants} {self._shape(argument)}"
                        self.inputs.append((text, [box]))
                        constants += 1
                        continue
                    what, which = self.made[argument]
                    if what == "input":
                        if box not in self.inputs[which][1]:
                            self.inputs[which][1].append(box)
                    else:
                        text = f"{argument.name} {self._shape(argument)}".strip()
                        self.edges.append((which, box, text))
                        level = max(level, self.depth[which] + 1)
                if not pure and not by_data:
                    level = max([level, *(self.depth[other] + 1 for other in here)])
                self.depth.append(level)
                self.made[var] = ("box", box)
                here.append(box)
            if pure and here:
                self.blocks.append(here)
            for box in here if pure or by_data else []:  # what takes no box's result stands late
                users = [self.depth[b] for a, b, _ in self.edges if a == box]
                if users and not any(b == box for _, b, _ in self.edges):
                    self.depth[box] = min(users) - 1
            if self.depth and not by_data:
                least = max(self.depth) + 1
        result = func.body.body
        for var in result.fields if isinstance(result, tvm.relax.Tuple) else [result]:
            what, which = self.made.get(var, ("", 0))
            if what == "box":
                self.output.append((which, f"{var.name} {self._shape(var)}"))

    @staticmethod
    def _shape(item) -> str:
        shape = getattr(item.ty, "shape", None)
        values = getattr(shape, "values", shape)
        if values is None:
            return ""
        extents = [str(extent.value if hasattr(extent, "value") else extent) for extent in values]
        return f"({', '.join(extents)}{',' * (len(extents) == 1)})"

    @staticmethod
    def _operator(mod: tvm.IRModule, value) -> tuple[str, str, list]:
        """Return the name, the kind and the tensor arguments of what a binding computes."""
        tensors: list = []

        def collect(item) -> None:
            if isinstance(item, tvm.relax.Tuple):
                for field in item.fields:
                    collect(field)
            elif isinstance(item, tvm.relax.Var) or _is_constant(item):
                tensors.append(item)

        if isinstance(value, tvm.relax.TupleGetItem):
            return f"item {value.index}", "tuple", [value.tuple_value]
        if isinstance(value, tvm.relax.Tuple):
            collect(value)
            return "tuple", "tuple", tensors
        if not isinstance(value, tvm.relax.Call):
            return type(value).__name__, "operator", tensors
        for argument in value.args:
            collect(argument)
        if isinstance(value.op, tvm.ir.GlobalVar):  # after lowering: a PrimFunc, without an output
            low_level = isinstance(mod[value.op], tvm.tirx.PrimFunc)
            return value.op.name_hint, "direct call" if low_level else "function", tensors
        if isinstance(value.op, tvm.relax.ExternFunc):
            return value.op.global_symbol, "call_packed", tensors
        kind = value.op.name.removeprefix("relax.")
        if not kind.startswith("call_"):
            return kind.removeprefix("builtin."), "operator", tensors
        callee = value.args[0]
        return (getattr(callee, "name_hint", None) or callee.global_symbol), kind, tensors


_BOXES = {"call_tir": "#cfe3f5", "call_dps_packed": "#f7d9b0", "operator": "#e3efd9",
          "function": "#cfc9ea", "tuple": "#e8eaed", "call_packed": "#f2c6c6",
          "direct call": "#f2c6c6"}
_BOX_SAYS = {"call_tir": "call_tir of a PrimFunc",
             "call_dps_packed": "call_dps_packed of a name", "operator": "operator of Relax",
             "function": "Relax function", "tuple": "tuple",
             "direct call": "call without a result",
             "call_packed": "impure call, call_packed"}


def _columns(graph: _Graph, rows: dict[int, list[int]]) -> dict[int, int]:
    """Give each box a column: that of the box it takes its tensor from, or the next free one."""
    column: dict[int, int] = {}
    for depth in sorted(rows):
        taken: set[int] = set()
        before = {box: [column[a] for a, b, _ in graph.edges if b == box] for box in rows[depth]}
        for box in sorted(rows[depth], key=lambda box: not before[box]):  # sources go last
            place = min(before[box], default=0)
            while place in taken:
                place += 1
            column[box] = place
            taken.add(place)
    return column


def computational_graph(mod: tvm.IRModule, name: str = "main", by_data: bool = False) -> None:
    """Draw a Relax function as a graph, from its bindings: operators are boxes, tensors arrows.

    Parameters and constants stand beside each box that takes them, the first one above. A
    dataflow block is a grey area. Outside of one, boxes stand one below the other in the order of
    the program, unless `by_data`: then nothing counts but which box takes which box's result.
    """
    graph = _Graph(mod, name, by_data)
    rows: dict[int, list[int]] = {}
    for box, depth in enumerate(graph.depth):
        rows.setdefault(depth, []).append(box)
    column = _columns(graph, rows)
    fed = {target for _, target, _ in graph.edges}
    above: dict[int, str] = {}
    beside: dict[int, list[str]] = {box: [] for box in column}
    for text, users in graph.inputs:
        for box in users:
            if box not in fed and box not in above and graph.depth[box] == 0:
                above[box] = text
            else:
                beside[box].append(text)
    # where the boxes stand
    letter, wide = 0.092, max([1.7, *(len(text) * 0.092 + 0.35 for text in graph.names)])
    left, edge = {}, 0.1
    for number in range(max(column.values(), default=0) + 1):
        texts = [text for box, place in column.items() if place == number for text in beside[box]]
        edge += max((len(text) * letter * 0.95 + 0.5 for text in texts),
                    default=0.25 * (number > 0))
        left[number] = edge
        edge += wide + 0.25
    step = max(1.12, 0.3 * max(map(len, beside.values()), default=0) + 0.5)
    top = 0.8 if above else 0.4
    place = {box: (left[column[box]] + wide / 2, graph.depth[box] * step + top) for box in column}
    bottom = max(graph.depth, default=0) * step + top
    passing = [(a, b) for a, b, _ in graph.edges
               if any(column[c] == column[b] and graph.depth[a] < graph.depth[c] < graph.depth[b]
                      for c in column)]
    late = [box for box, _ in graph.output
            if any(column[c] == column[box] and graph.depth[c] > graph.depth[box] for c in column)]
    labels = max((len(text) for _, _, text in graph.edges), default=0) * letter
    lanes = edge + 0.2 + max([0.0, *(len(text) * letter for a, b, text in graph.edges
                                     if (a, b) in passing)])  # arrows that pass boxes run here
    width = max(lanes + 0.22 * (len(passing) + len(late)), edge - wide / 2 + labels) + 0.1
    end = bottom + (0.72 + 0.28 * len(graph.output) if graph.output else 0.45)
    kinds = [kind for kind in _BOX_SAYS if kind in graph.kinds]
    scale = min(1, 10 / width)
    figure = plt.figure(figsize=(width * scale, (end + 0.3 * (len(kinds) > 1)) * scale))
    axes = figure.add_axes((0, 0, 1, 1))
    font = {"size": 8.5 * scale, "family": "monospace"}
    line = {"lw": 1.1, "color": "#30363d", "shrinkA": 0, "shrinkB": 0}
    for number, boxes in enumerate(graph.blocks):
        low, high = (f(place[box][1] for box in boxes) for f in (min, max))
        axes.add_patch(plt.Rectangle((0.03, low - 0.42), width - 0.1, high - low + 0.84, lw=0.7,
                                     facecolor="#f3f4f6", edgecolor="#8b949e", ls="--", zorder=0))
        label = "dataflow block" + (f" {number}" if len(graph.blocks) > 1 else "")
        axes.text(0.11, high + 0.31, label, va="center", size=7.5 * scale, style="italic",
                  color="#57606a")
    for box, (x, y) in place.items():
        axes.add_patch(plt.Rectangle((x - wide / 2, y - 0.27), wide, 0.54, lw=0.9, zorder=2,
                                     facecolor=_BOXES.get(graph.kinds[box], "#e3efd9"),
                                     edgecolor="#57606a"))
        axes.text(x, y - 0.07, graph.names[box], ha="center", va="center", weight="bold", zorder=3,
                  family="monospace", size=9 * scale)
        axes.text(x, y + 0.14, graph.kinds[box], ha="center", va="center", size=7 * scale, zorder=3,
                  color="#30363d")
        for position, text in enumerate(beside[box]):
            shift = position - (len(beside[box]) - 1) / 2
            axes.text(x - wide / 2 - 0.37, y + 0.27 * shift, text, ha="right", va="center", **font)
            axes.annotate("", (x - wide / 2, y + 0.15 * shift),
                          (x - wide / 2 - 0.33, y + 0.27 * shift), arrowprops={"arrowstyle": "->",
                                                                              **line})
        if box in above:
            axes.text(x, y - 0.66, above[box], ha="center", va="center", **font)
            axes.annotate("", (x, y - 0.27), (x, y - 0.57), arrowprops={"arrowstyle": "->", **line})

    def around(box: int, stop: tuple[float, float], text: str = "") -> None:
        """Draw an arrow that passes other boxes on the right."""
        nonlocal lanes
        x, y = place[box]
        axes.text(x + wide / 2 + 0.09, y - 0.02, text, va="center", **font)
        turn = (lanes, stop[1])
        axes.plot([x + wide / 2, lanes, turn[0]], [y + 0.1, y + 0.1, turn[1]], lw=1.1,
                  color="#30363d", zorder=1)
        axes.annotate("", stop, turn, arrowprops={"arrowstyle": "->", **line})
        lanes += 0.22

    labelled: set[tuple[int, str]] = set()
    for source, target, text in graph.edges:
        (x, y), (a, b) = place[source], place[target]
        said = (source, text.split()[0]) in labelled
        labelled.add((source, text.split()[0]))
        if (source, target) in passing:
            around(source, (a + wide / 2, b - 0.1), "" if said else text)
            continue
        axes.annotate("", (a, b - 0.27), (x, y + 0.27), arrowprops={"arrowstyle": "->", **line})
        rightward = any(place[other][0] > x for box, other, _ in graph.edges
                        if box == source and (box, other) not in passing)
        if a > x:
            spot, side = (a - 0.62, b - 0.34), "right"
        elif rightward:
            spot, side = (x - 0.09, y + 0.5), "right"
        else:
            spot, side = (x + 0.09, y + 0.27 + (0.2 if a == x else 0.12)), "left"
        if not said:
            axes.text(*spot, text, ha=side, va="center", **font)
    row = bottom + 0.82
    for source, text in sorted(graph.output, key=lambda item: item[0] in late):
        x, y = place[source]
        if source in late:
            around(source, (x + len(text) * letter / 2 + 0.5, row))
        else:
            axes.annotate("", (x, row - 0.12), (x, y + 0.27),
                          arrowprops={"arrowstyle": "->", **line})
        axes.text(x, row, f"{text}, returned", ha="center", va="center", **font)
        row += 0.28
    if len(kinds) > 1:
        handles = [plt.Rectangle((0, 0), 1, 1, facecolor=_BOXES[kind], edgecolor="#57606a",
                                 label=_BOX_SAYS[kind]) for kind in kinds]
        axes.legend(handles=handles, loc="lower left", fontsize=7.5 * scale, frameon=False,
                    bbox_to_anchor=(0, 0), borderpad=0, ncols=len(kinds))
        end += 0.3
    axes.set(xlim=(0, width), ylim=(end, 0))
    axes.axis("off")
    says = [f"{text} goes to {' and '.join(graph.names[user] for user in users)}"
            for text, users in graph.inputs if users]
    says += [f"{graph.names[a]} gives {text} to {graph.names[b]}" for a, b, text in graph.edges]
    says += [f"{graph.names[box]} gives {text}, which is returned" for box, text in graph.output]
    show(figure, f"Computational graph of {name}: " + "; ".join(says) + ".")
