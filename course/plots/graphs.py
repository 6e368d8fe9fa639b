"""Boxes and arrows: computational graphs, graphs of torch.fx, stages, and shared memory."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import torch
import tvm
from tvm import relax

from course.plots.figure import ARROW, EDGE, ORANGE, PALE, box, sheet, show, swatches, write
from course.words import Sentence, _, listed, told

_LETTER = 0.076  # inches of one letter, monospace of 9 points
_FONT = {"size": 8.5, "family": "monospace", "va": "center"}


def _places(graph: nx.DiGraph) -> dict[Any, tuple[float, int]]:
    """Return the place of each node: across its layer, centred on 0, and the layer's number.

    The longest chain begins in layer 0. Every node is in the last layer that comes before those of
    its successors. Within a layer, nodes have the order in which they were added.
    """
    layers = list(nx.topological_generations(graph.reverse(copy=False)))[::-1]
    order = {node: number for number, node in enumerate(graph)}
    return {node: (i - (len(layer) - 1) / 2, depth) for depth, layer in enumerate(layers)
            for i, node in enumerate(sorted(layer, key=lambda node: order[node]))}


def _labelled_box(axes: plt.Axes, x: float, y: float, size: tuple[float, float], colour: str,
                  name: str, kind: str) -> None:
    """Draw a box around (x, y) with a bold name and, below it, a kind of one or two lines."""
    box(axes, x - size[0] / 2, y - size[1] / 2, *size, colour, zorder=2)
    axes.text(x, y - 0.03, name, ha="center", va="bottom", size=9, weight="bold", zorder=3,
              family="monospace")
    axes.text(x, y + 0.03, kind, ha="center", va="top", size=7.5, color="#30363d", zorder=3)


# ---- Relax ---------------------------------------------------------------------------------

_INK = {"call_tir": PALE, "call_dps_packed": "#f7d9b0", "operator": "#e3efd9",
        "function": "#cfc9ea", "tuple": "#e8eaed", "direct call": "#f2c6c6",
        "call_packed": "#f2c6c6"}
_SAYS = {"call_tir": _("call_tir of a PrimFunc"),
         "call_dps_packed": _("call_dps_packed of a name"), "operator": _("operator of Relax"),
         "function": _("Relax function"), "tuple": _("tuple"),
         "direct call": _("direct call, without a result"),
         "call_packed": _("impure call, call_packed")}
_KINDS = {"operator": _("operator"), "function": _("function"), "tuple": _("tuple"),
          "direct call": _("direct call")}  # the others are names of Relax


def shape_text(item: relax.Expr) -> str:
    """Return a tensor's shape, such as "(1, 128)"; of a tuple, ""."""
    shape = getattr(item.ty, "shape", None)
    extents = getattr(shape, "values", shape)
    if extents is None:
        return ""
    texts = [str(getattr(extent, "value", extent)) for extent in extents]
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def _typed(name: str, item: relax.Expr) -> str:
    """Return a tensor's name and shape, such as "lv0 (1, 128)"; of a tuple, the name."""
    return f"{name} {shape_text(item)}".rstrip()


def operator(mod: tvm.IRModule, value: relax.Expr) -> tuple[str, str]:
    """Return the name and the kind of what a binding computes."""
    match value:
        case relax.TupleGetItem():
            return f"item {value.index}", "tuple"
        case relax.Tuple():
            return "tuple", "tuple"
        case relax.Call(op=tvm.ir.GlobalVar()):  # after lowering: a PrimFunc, without an output
            lowered = isinstance(mod[value.op], tvm.tirx.PrimFunc)
            return value.op.name_hint, "direct call" if lowered else "function"
        case relax.Call(op=relax.ExternFunc()):
            return value.op.global_symbol, "call_packed"
        case relax.Call():
            kind = value.op.name.removeprefix("relax.")
            if not kind.startswith("call_"):
                return kind.removeprefix("builtin."), "operator"
            callee = value.args[0]
            return getattr(callee, "name_hint", None) or callee.global_symbol, kind
    return type(value).__name__, "operator"


def _add(graph: nx.DiGraph, name: str, kind: str, block: int | None = None,
         after: Iterable[int] = ()) -> int:
    """Add a node to a graph, with arrows without a text from others; return its number."""
    node = len(graph)
    graph.add_node(node, name=name, kind=kind, block=block)
    graph.add_edges_from(((other, node) for other in after), text="")
    return node


def taken(value: relax.Expr) -> list[relax.Expr]:
    """Return the variables and the constant tensors in what a binding computes."""
    parts: list[relax.Expr] = []
    relax.analysis.post_order_visit(value, parts.append)
    return [part for part in parts if isinstance(part, relax.Var) or (
        isinstance(part, tvm.ir.GenericConst) and isinstance(part.ty, relax.TensorType))]


def _relax_graph(mod: tvm.IRModule, by_data: bool) -> nx.DiGraph:
    """Return the operators of a module's main as a graph.

    Nodes are numbers, with name, kind, and the number of their dataflow block. Parameters and
    constants are nodes of kind "input"; what is returned is "returned". Edges have the tensor as
    their text, or "" where only the order of the program counts: unless `by_data`, block after
    block, and line after line outside of dataflow blocks.
    """
    func, graph, constants = mod["main"], nx.DiGraph(), itertools.count()
    made = {param: _add(graph, _typed(param.name, param), "input") for param in func.params}
    first: dict[relax.Var, str] = {}  # by_data: a second name of memory is not another tensor
    before: list[int] = []
    for number, block in enumerate(func.body.blocks):
        pure = isinstance(block, relax.DataflowBlock)
        here: list[int] = []
        for var, value in ((binding.var, binding.value) for binding in block.bindings):
            if isinstance(value, relax.Var):  # a second name
                made[var] = made[value]
                if by_data:
                    first[var] = first.get(value, value.name)
                continue
            after = [] if by_data else before if pure else [*before, *here]
            node = _add(graph, *operator(mod, value), number if pure else None, after)
            for part in taken(value):
                if part in made:
                    graph.add_edge(made[part], node, text=_typed(first.get(part, part.name), part))
                elif not isinstance(part, relax.Var):
                    name = _("constant {number} {shape}").format(number=next(constants),
                                                                 shape=shape_text(part))
                    graph.add_edge(_add(graph, name, "input"), node, text="a constant")
            made[var] = node
            here.append(node)
        before = here or before
    _add_results(graph, func.body.body, made, first)
    return graph


def _add_results(graph: nx.DiGraph, result: relax.Expr, made: dict[relax.Var, int],
                 first: dict[relax.Var, str]) -> None:
    """Add to a function's graph what it returns; `made` and `first` as in _relax_graph."""
    ends = [node for node, kind in graph.nodes(data="kind")
            if kind != "input" and not graph.out_degree(node)]
    for var in result.fields if isinstance(result, relax.Tuple) else [result]:
        if var in made and graph.nodes[made[var]]["kind"] != "input":
            text = _typed(first.get(var, var.name), var)
            node = _add(graph, _("{tensor}, returned").format(tensor=text), "returned", after=ends)
            graph.add_edge(made[var], node, text=text)


def _draw_blocks(axes: plt.Axes, graph: nx.DiGraph, at: dict[int, tuple[float, float]]) -> None:
    """Draw a grey area behind the boxes of each dataflow block."""
    (left, right), blocks = axes.get_xlim(), sorted(
        {block for _, block in graph.nodes(data="block")} - {None})
    for number, block in enumerate(blocks):
        rows = [at[node][1] for node, its in graph.nodes(data="block") if its == block]
        box(axes, left + 0.03, min(rows) - 0.42, right - left - 0.06, max(rows) - min(rows) + 0.84,
            "#f3f4f6", lw=0.7, edgecolor="#8b949e", ls="--", zorder=0)
        label = _("dataflow block {number}").format(number=number) if len(blocks) > 1 \
            else _("dataflow block")
        axes.text(left + 0.11, max(rows) + 0.33, label, va="center", size=7.5, style="italic",
                  color=EDGE)


def _draw_inputs(axes: plt.Axes, x: float, y: float, wide: float, texts: list[str]) -> None:
    """Draw the inputs of the box around (x, y) on its left; in the top row, the first above."""
    if texts and not y:
        axes.annotate(texts[0], (x, y - 0.27), (x, y - 0.66), ha="center", arrowprops=ARROW,
                      **_FONT)
        texts = texts[1:]
    for place, text in enumerate(texts):
        shift = place - (len(texts) - 1) / 2
        axes.annotate(text, (x - wide / 2, y + 0.15 * shift),
                      (x - wide / 2 - 0.35, y + 0.27 * shift), ha="right", arrowprops=ARROW,
                      **_FONT)


def _inches(texts: Iterable[str]) -> float:
    """Return the width of the widest of some texts, in English; no Chinese is wider."""
    return max((len(told(text, "en")) for text in texts), default=0) * _LETTER


@dataclass
class _Layout:
    """The layout of a computational graph; all lengths are in inches."""

    at: dict[int, tuple[float, float]]  # the middle of each box, and of each text at the bottom
    wide: float  # a box
    lanes: dict[tuple[int, int, str], float]  # arrows that go around boxes: x of their long part
    limits: dict[str, tuple[float, float]]


def _laid_out(graph: nx.DiGraph, arrows: list[tuple[int, int, str]],
              most: int, aside: float) -> _Layout:
    """Lay out boxes and arrows; next to each box are up to `most` inputs, `aside` wide."""
    titles, places = dict(graph.nodes(data="name")), _places(graph)
    returned = [node for node, kind in graph.nodes(data="kind") if kind == "returned"]
    if len(returned) == 1:  # below the box that it comes from
        (source,) = [a for a, b, _ in arrows if b == returned[0]]
        places[returned[0]] = places[source][0], places[returned[0]][1]
    wide = max(1.7, _inches(titles[node] for node in graph if node not in returned) + 0.35)
    step = max(1.12, 0.3 * most + 0.5)
    at = {node: (x * (wide + aside + 0.25), y * step - 0.3 * (node in returned))
          for node, (x, y) in places.items()}
    around = [(a, b, text) for a, b, text in arrows if places[a][0] == places[b][0]
              and places[b][1] - places[a][1] > 1]  # boxes may be in their way
    across, down = zip(*(at.values() or [(0, 0)]), strict=True)
    lane = max(across) + wide / 2 + 0.2 + _inches(text for *_, text in around)
    left, right = min(across) - wide / 2 - aside, max(
        max(across) + 0.2 + max(wide / 2, _inches(text for *_, text in arrows)),
        lane + 0.22 * len(around))
    bottom = max(down) + (0.2 if returned else 0.45)
    return _Layout(at, wide, {arrow: lane + 0.22 * i for i, arrow in enumerate(around)},
                   {"xlim": (left, right), "ylim": (bottom, -0.8)})


def _draw_arrows(axes: plt.Axes, layout: _Layout, arrows: list[tuple[int, int, str]],
                 returned: dict[int, str]) -> None:
    """Draw arrows between boxes, with the tensor's text where it first leaves its box."""
    said, half = set(), layout.wide / 2
    for a, b, text in arrows:
        (x, y), (u, v) = layout.at[a], layout.at[b]
        label = {"x": x + 0.09, "y": (y + v) / 2, "ha": "left"}
        if lane := layout.lanes.get((a, b, text)):
            end = u + (_inches([returned[b]]) / 2 + 0.1 if b in returned else half)
            axes.plot([x + half, lane, lane], [y + 0.1, y + 0.1, v], lw=1.1, zorder=1,
                      color=ARROW["color"])
            axes.annotate("", (end, v), (lane, v), arrowprops=ARROW)
            label = {"x": x + half + 0.09, "y": y - 0.03, "ha": "left"}
        else:
            axes.annotate("", (u, v - (0.12 if b in returned else 0.27)), (x, y + 0.27),
                          arrowprops=ARROW)
            if x != u:  # its label is on it
                label |= {"x": (x + u) / 2, "ha": "center",
                          "bbox": {"facecolor": "white", "lw": 0, "pad": 1}}
        if b not in returned and (a, text) not in said:
            axes.text(**label, s=text, **_FONT)
        said.add((a, text))


def computational_graph(mod: tvm.IRModule, by_data: bool = False) -> None:
    """Draw a module's main as a graph, from its bindings: operators are boxes, tensors arrows.

    Parameters and constants are next to each box that takes them, the first one above. A dataflow
    block is a grey area. Outside of one, boxes are one below the other in the order of the program,
    unless `by_data`: then only which box takes which box's result counts.
    """
    graph = _relax_graph(mod, by_data)
    titles, kinds = dict(graph.nodes(data="name")), dict(graph.nodes(data="kind"))
    users = {titles[node]: list(graph.successors(node)) for node in graph if kinds[node] == "input"}
    returned = {node: titles[node] for node in graph if kinds[node] == "returned"}
    graph.remove_nodes_from([node for node in graph if kinds[node] == "input"])
    beside = {node: [text for text in users if node in users[text]] for node in graph}
    arrows = sorted(((a, b, text) for a, b, text in graph.edges(data="text") if text),
                    key=lambda arrow: arrow[1])
    layout = _laid_out(graph, arrows, max(map(len, beside.values()), default=0),
                       _inches(users) + 0.45)
    (left, right), (bottom, top) = layout.limits.values()
    figure = plt.figure(figsize=(right - left, bottom - top))
    axes = figure.add_axes((0, 0, 1, 1), **layout.limits)
    axes.axis("off")
    _draw_blocks(axes, graph, layout.at)
    for node, (x, y) in layout.at.items():
        if node in returned:
            axes.text(x, y, titles[node], ha="center", **_FONT)
        else:
            _labelled_box(axes, x, y, (layout.wide, 0.54), _INK.get(kinds[node], _INK["operator"]),
                          titles[node], _KINDS.get(kinds[node]) or kinds[node])
            _draw_inputs(axes, x, y, layout.wide, beside[node])
    _draw_arrows(axes, layout, arrows, returned)
    found = {kind: says for kind, says in _SAYS.items() if kind in kinds.values()}
    if len(found) > 1:
        axes.legend(handles=swatches(found, _INK), loc="upper left", bbox_to_anchor=(0, 0),
                    fontsize=7.5, frameon=False, ncols=len(found))
    show(figure, _("Computational graph of main: {says}.").format(
        says=_says(users, titles, arrows, returned)))


def _says(users: dict[str, list[int]], titles: dict[int, str], arrows: list[tuple[int, int, str]],
          returned: dict[int, str]) -> Sentence:
    """Say what a computational graph shows: which tensor goes from where to where."""
    says = [_("{tensor} goes to {users}").format(
        tensor=text, users=listed(titles[user] for user in takers))
        for text, takers in users.items() if takers]
    says += [_("{operator} gives {tensor}, which is returned").format(
        operator=titles[a], tensor=text) if b in returned else
        _("{operator} gives {tensor} to {user}").format(
            operator=titles[a], tensor=text, user=titles[b]) for a, b, text in arrows]
    return _("; ").join(says)


# ---- torch.fx ------------------------------------------------------------------------------

_FX_INK = {"placeholder": PALE, "get_attr": "#e3efd9", "call_function": "#f7d9b0",
           "call_module": "#cfc9ea", "call_method": "#f2c6c6", "output": "#d0d7de"}


def fx_graph(graph: torch.fx.Graph) -> None:
    """Draw a torch.fx graph from left to right: a box for each node, arrows for its arguments."""
    layers = nx.DiGraph()
    layers.add_nodes_from(graph.nodes)
    layers.add_edges_from((before, node) for node in graph.nodes for before in node.all_input_nodes)
    at = {node: (2.05 * layer, row) for node, (row, layer) in _places(layers).items()}
    wide, high = (max(place[i] for place in at.values()) for i in (0, 1))
    figure, axes = sheet(wide + 2.05, 1.9 * high + 1.3, xlim=(-0.85, wide + 0.85),
                         ylim=(high + 0.52, -high - 0.52))
    for node, (x, y) in at.items():
        target = getattr(node.target, "__name__", node.target)
        _labelled_box(axes, x, y, (1.5, 0.72), _FX_INK[node.op], f"%{node.name}",
                      node.op if node.op == "output" else f"{node.op}\n{target}")
        for before in node.all_input_nodes:
            axes.annotate("", (x - 0.77, y), (at[before][0] + 0.77, at[before][1]),
                          arrowprops=ARROW)
    says = [_("{node} from {others}").format(
        node=f"{node.name} ({node.op})", others=", ".join(map(str, node.all_input_nodes)))
        if node.all_input_nodes else f"{node.name} ({node.op})" for node in graph.nodes]
    show(figure, _("Graph of torch.fx: {nodes}.").format(nodes=_("; ").join(says)))


# ---- other boxes with arrows ---------------------------------------------------------------


def stages(*steps: tuple[str, str], arrows: list[str]) -> None:
    """Draw texts in boxes from left to right, with a labelled arrow from each to the next.

    A step is a title and its text, of one or more lines; `arrows` has one label fewer. In the
    Chinese edition, titles, labels and single lines that are in the catalogue are in Chinese.
    """
    wide = [max(map(len, [title, *text.splitlines()])) for title, text in steps]
    high = max(len(text.splitlines()) for _, text in steps)
    gap = max(map(len, arrows)) * 0.8 + 4
    figure, axes = plt.subplots(figsize=(10, 0.21 * high + 0.75))
    left, centre = 0.0, high / 2
    for number, ((title, text), width) in enumerate(zip(steps, wide, strict=True)):
        lines = text.splitlines()
        top = centre - len(lines) / 2
        box(axes, left, top - 0.5, width + 3, len(lines) + 1, "#eef3f8")
        write(axes, left + width / 2 + 1.5, top - 1.1, _(title), weight="bold")
        for row, line in enumerate(lines):
            axes.text(left + 1.5, top + row + 0.5, _(line), va="center", size=8, family="monospace")
        left += width + 3
        if number < len(arrows):
            axes.annotate("", (left + gap - 0.6, centre), (left + 0.6, centre),
                          arrowprops={"arrowstyle": "->", "lw": 1.3, "color": ORANGE})
            write(axes, left + gap / 2, centre - 0.7, _(arrows[number]), 8, style="italic",
                  color="#9a5412")
        left += gap
    axes.set(xlim=(-0.5, left - gap + 0.5), ylim=(high + 0.8, -1.9))
    axes.axis("off")
    says = [_("{title}: {text}.").format(
        title=_(title), text=_("; ").join(_(line.strip()) for line in text.splitlines()))
        for title, text in steps]
    between = [_("Arrow: {label}.").format(label=_(label)) for label in arrows]
    show(figure, Sentence(" ").join([_("Boxes joined by arrows."), *(
        said for pair in itertools.zip_longest(says, between) for said in pair if said)]))


def memory(**tensors) -> None:
    """Draw which tensors (TVM, NumPy, PyTorch) look at the same memory, and what is in it.

    The keywords are the names: memory(tensor=t, view=np.from_dlpack(t)). Addresses are compared,
    so the picture shows what is there, not what was meant.
    """
    blocks: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        address = tensor.ctypes.data if isinstance(tensor, np.ndarray) else tensor.data_ptr()
        blocks.setdefault(address, []).append(name)
    figure, axes = sheet(8.4, 0.62 * len(tensors) + 0.4, ylim=(len(tensors) - 0.4, -0.6))
    row, right, said = 0, 0, []
    for names in blocks.values():
        values = np.from_dlpack(tensors[names[0]]).ravel()
        right, middle = max(right, len(values)), row + (len(names) - 1) / 2
        for i, value in enumerate(values):
            box(axes, 5.6 + i, middle - 0.36, 1, 0.72, PALE)
            write(axes, 6.1 + i, middle, f"{value:g}")
        for name in names:
            tensor = tensors[name]
            kind = f"{type(tensor).__module__.partition('.')[0]} {type(tensor).__name__}"
            shape = ", ".join(str(int(n)) for n in tensor.shape)
            axes.text(0, row - 0.14, name, va="center", size=9, family="monospace", weight="bold")
            axes.text(0, row + 0.2, f"{kind} ({shape})", va="center", size=7.5, color=EDGE)
            axes.annotate("", (5.5, middle), (2.4, row), arrowprops=ARROW)
            row += 1
        said.append(_("{names}: {values}").format(
            names=", ".join(names), values=" ".join(f"{value:g}" for value in values)))
    axes.set(xlim=(-0.1, 5.8 + right))
    show(figure, _("Blocks of memory and the names that point to each. {blocks}.").format(
        blocks=_(". ").join(said)))
