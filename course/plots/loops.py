"""Loop nests as boxes in boxes, axes over data, the order of visits and of numbers in memory."""

import itertools
from collections import Counter
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import tvm

from course.plots.figure import (
    ARROW,
    BLUE,
    EDGE,
    ORANGE,
    PALE,
    box,
    ink,
    sheet,
    show,
    swatches,
    write,
)
from course.tir.loops import lives, nests, visit_steps
from course.tir.walk import Loop
from course.words import _

_INK = {"serial": "#d0d7de", "parallel": "#7cc4a4", "vectorized": "#f2b36b", "unrolled": "#a9a4e0"}
_SAYS = {"serial": _("serial: one after another"), "parallel": _("parallel: shared among threads"),
         "vectorized": _("vectorized: one instruction for all"),
         "unrolled": _("unrolled: written out, no loop left")}
_TALL = 40  # rows: from here on, loops with nothing between them share a row


@dataclass(eq=False)
class _Row:
    """A row of the picture: loops that begin in it, an sblock, or both."""

    depth: int
    loops: list[Loop]  # none, one, or those of one kind that share the row
    block: str = ""
    height: int = 1  # in rows, down to where the loops end

    @property
    def says(self) -> str:
        """What stands at the left."""
        kind = self.loops[0].kind
        loops = ", ".join(f"{loop.name} in {loop.extent}" for loop in self.loops)
        return loops if kind == "serial" else f"{loops}  {kind}"

    def has_room(self, block: str) -> bool:
        """Whether an sblock fits beside the loops: in a box's width are some 64 letters."""
        return len(self.says) + len(block) + 4 * self.depth <= 62


def _rows(func: tvm.tirx.PrimFunc, share: bool = False) -> list[_Row]:
    """Return the rows of a PrimFunc, one for each loop and one for each sblock.

    With `share`, loops of one kind around the same sblocks share a row, and an sblock is in the
    row of a loop that holds nothing else.
    """
    every = nests(func)
    held = Counter(loop for nest in every for loop in nest.loops)
    rows: list[_Row] = []
    opened: list[_Row] = []  # those whose loops are open
    for nest in every:
        groups = [list(loops) for _, loops in itertools.groupby(
            nest.loops, lambda loop: (loop.kind, held[loop]) if share else loop)]
        common = sum(itertools.takewhile(bool, (
            row.loops[0] == group[0] for row, group in zip(opened, groups, strict=False))))
        notes = [note for note, holds in [(_("reduces"), nest.reduces), ("T.init", nest.has_init)]
                 if holds]
        block = nest.block + _("  ({notes})").format(notes=_(", ").join(notes)) if notes \
            else nest.block
        new = [_Row(common + i, group) for i, group in enumerate(groups[common:])]
        opened[common:] = new
        if share and new and held[nest.loops[-1]] == 1 and new[-1].has_room(block):
            new[-1].block = block
        else:
            new = [*new, _Row(len(groups), [], "sblock " + block)]
        rows += new
        for row in opened:
            row.height = len(rows) - rows.index(row)
    return rows


def _title(title: str, func: tvm.tirx.PrimFunc) -> str:
    """Return a keyword as a title; the name of the function itself stays as it is."""
    own = func.attrs is not None and func.attrs.get("global_symbol") == title
    return title if own else _(title.replace("_", " "))


def loop_nests(**funcs: tvm.tirx.PrimFunc) -> None:
    """Draw the loops of PrimFuncs side by side as boxes in boxes, coloured by their kind.

    The keywords are the titles: loop_nests(before=func, after=sch.mod["main"]).
    """
    share = max(len(_rows(func)) for func in funcs.values()) > _TALL
    every = {title: _rows(func, share) for title, func in funcs.items()}
    high = max(map(len, every.values()))
    figure, all_axes = plt.subplots(1, len(every), figsize=(4.6 * len(every), 0.27 * high + 0.8),
                                    squeeze=False, layout="constrained")
    for axes, (title, rows) in zip(all_axes[0], every.items(), strict=True):
        for y, row in enumerate(rows):
            left, says = row.depth * 0.42 + 0.1, {"y": y + 0.5, "va": "center"}
            if row.loops:
                box(axes, left - 0.1, y + 0.06, 8.6 - row.depth * 0.52, row.height - 0.12,
                    _INK[row.loops[0].kind], lw=0.7)
                axes.text(left, s=row.says, size=8, family="monospace", **says)
            if row.block:
                side = {"x": 8.5 - row.depth * 0.1, "ha": "right"} if row.loops else {"x": left}
                axes.text(s=row.block, size=7.5, weight="bold", family="monospace", **side, **says)
        axes.set(xlim=(-0.1, 8.7), ylim=(high + 0.1, -0.1), title=_title(title, funcs[title]))
        axes.axis("off")
    kinds = {loop.kind for rows in every.values() for row in rows for loop in row.loops}
    handles = swatches({kind: _SAYS[kind] for kind in _INK if kind in kinds}, _INK)
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    said = [_("{title}: {nests}").format(title=title, nests=_(", ").join(
        _("{block} in {loops}").format(block=nest.block, loops=" > ".join(map(str, nest.loops)))
        for nest in nests(func))) for title, func in funcs.items()]
    show(figure, _("Loop nests as boxes in boxes. {says}").format(says=_("; ").join(said)))


def visit_order(shape: tuple[int, int], axes: tuple[int, int] = (0, 1),
                threads: int | None = None, **funcs: tvm.tirx.PrimFunc) -> None:
    """Draw the moment at which each element of an output is written; see tir.loops.visit_steps.

    The keywords are the titles, as in loop_nests.
    """
    names = ("i", "j") if axes == (0, 1) else ("y", "x")
    figure, panels = plt.subplots(1, len(funcs), figsize=(4.1 * len(funcs), 4.2), squeeze=False,
                                  layout="constrained")
    for panel, (title, func) in zip(panels[0], funcs.items(), strict=True):
        steps = visit_steps(func, shape, axes, threads)
        drawn = panel.imshow(steps, cmap="YlGnBu", vmin=0, vmax=steps.max() * 1.3 + 1)
        for (i, j), step in np.ndenumerate(steps):
            write(panel, j, i, step, 8, color=ink(drawn.to_rgba(step)))
        panel.set(title=_(title.replace("_", " ")), xlabel=names[1], ylabel=names[0],
                  xticks=range(shape[1]), yticks=range(shape[0]))
    show(figure, _("For each element of a {rows} by {columns} output, the moment at which it is "
                   "written: {titles}.").format(rows=shape[0], columns=shape[1],
                                                titles=_(", ").join(funcs)))


_LIVES = (BLUE, ORANGE, "#3f8f6b")


def lifetimes(**funcs: tvm.tirx.PrimFunc) -> None:
    """Draw how long each number of the buffers inside small PrimFuncs is kept.

    Time runs to the right, one iteration of an sblock at a time, as with one thread. The keywords
    are the titles, as in loop_nests.
    """
    figure, panels = plt.subplots(1, len(funcs), figsize=(4.6 * len(funcs), 3.4), squeeze=False,
                                  sharex=True, layout="constrained")
    said = []
    for panel, (title, func) in zip(panels[0], funcs.items(), strict=True):
        shelf, says, handles = 0, [], dict[str, str]()
        for life, colour in zip(lives(func), itertools.cycle(_LIVES), strict=False):
            panel.barh(shelf + life.places, life.last - life.first + 1, left=life.first, height=1,
                       align="edge", color=colour, lw=0)
            shelf += int(np.prod(life.buffer.shape))
            text = _("{buffer}: {count} numbers, at most {most} at a time").format(
                buffer=life.buffer.name, count=len(life.places), most=life.most)
            says.append(text)
            handles[text] = colour
        if not says:
            write(panel, 0.5, 0.5, _("no buffer inside"), transform=panel.transAxes)
            panel.axis("off")
        said.append(_("{title}: {nests}").format(
            title=title, nests=_(", ").join(says) or _("no buffer inside")))
        panel.set(title=_title(title, func), xlabel=_("moment"), ylim=(shelf or 1, 0),
                  ylabel=_("number, in the order of memory"))
        panel.legend(handles=swatches({text: text for text in handles}, handles), fontsize=8,
                     loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
    show(figure, _("A bar for each number of the buffers inside a program, from the moment at "
                   "which it is first written to that at which it is last used. {says}").format(
                       says=_("; ").join(said)))


def reduction(X: np.ndarray) -> None:
    """Draw a matrix and its sums of rows, Y: a colour for each element, axes vi and vk."""
    rows, columns = X.shape
    figure, axes = sheet(0.92 * columns + 3.6, 0.75 * rows + 1.2, xlim=(-1.2, columns + 5.6),
                         ylim=(rows + 0.55, -0.8))
    colours = [PALE, "#f7d9b0", "#e3efd9", "#cfc9ea"]
    for i, row in enumerate(X):
        colour, total = colours[i % len(colours)], columns + 1.5
        write(axes, -0.2, i + 0.5, f"vi = {i}", ha="right", family="monospace")
        for k, value in enumerate(row):
            box(axes, k + 0.04, i + 0.08, 0.92, 0.84, colour)
            write(axes, k + 0.5, i + 0.5, f"{value:g}", 11)
        axes.annotate("", (total - 0.05, i + 0.5), (columns + 0.05, i + 0.5), arrowprops=ARROW)
        box(axes, total, i + 0.08, 0.92, 0.84, colour, lw=1.6)
        write(axes, total + 0.46, i + 0.5, f"{row.sum():g}", 11, weight="bold")
        write(axes, total + 1.05, i + 0.5, f"Y[{i}] = 0 + " + " + ".join(f"{v:g}" for v in row),
              ha="left", family="monospace")
    for k in range(columns):
        write(axes, k + 0.5, -0.16, f"vk = {k}", family="monospace")
    for y, text in [(-0.55, _("vk is R: all of a row into one element")),
                    (rows + 0.3, _("vi is S: each row another element, in any order"))]:
        write(axes, columns / 2, y, text, weight="bold")
    says = [_("vi = {i}: {sum} = {total}, in Y[{i}]").format(
        i=i, sum=" + ".join(f"{v:g}" for v in row), total=f"{row.sum():g}")
        for i, row in enumerate(X)]
    show(figure, _("A matrix and its sums of rows. vi is spatial, vk a reduction: {sums}.").format(
        sums=_("; ").join(says)))


_COLUMNS = ("#cfe3f5", "#f6d5a8", "#bfe3cf", "#d9d4f2", "#f5c9cf")


def register_tile(outputs: int, images: int) -> None:
    """Draw a tile of a dense layer's sums in registers, and the vectors that each step loads."""
    figure, axes = sheet(0.9 * images + 3.2, 0.5 * outputs + 1.5, xlim=(-0.1, 1.5 + 1.2 * images),
                         ylim=(outputs + 1.4, 0))
    for j in range(outputs):
        box(axes, 0, j + 1.3, 1.1, 0.9, BLUE)
        write(axes, 0.55, j + 1.75, f"w{j}", color=ink(BLUE))
        for n in range(images):
            box(axes, 1.4 + n * 1.2, j + 1.3, 1.1, 0.9, PALE)
            write(axes, 1.95 + n * 1.2, j + 1.75, f"+= w{j} x{n}", 8)
    for n in range(images):
        box(axes, 1.4 + n * 1.2, 0.1, 1.1, 0.9, ORANGE)
        write(axes, 1.95 + n * 1.2, 0.55, f"x{n}", color=ink(ORANGE))
    says = {BLUE: _("weights: a vector for each output"),
            ORANGE: _("images: a vector for each image"), PALE: _("sums: stay in registers")}
    figure.legend(handles=swatches(says, {colour: colour for colour in says}), frameon=False,
                  loc="outside lower center", fontsize=8)
    show(figure, _("A tile of {outputs} outputs by {images} images: {sums} vectors of sums stay in "
                   "registers, each step over the inputs loads {outputs} vectors of weights and "
                   "{images} of images.").format(outputs=outputs, images=images,
                                                 sums=outputs * images))


def lanes(vector: int, **orders: list[tuple[int, int]]) -> None:
    """Draw numbers in the order of memory, as (channel, column), cut into vectors of `vector`.

    The colour shows the column, the text channel and column. The keywords are the titles.
    """
    longest = max(map(len, orders.values()))
    figure, all_axes = plt.subplots(len(orders), 1, figsize=(9, 0.95 * len(orders) + 0.3),
                                    squeeze=False, layout="constrained")
    columns = sorted({column for order in orders.values() for _, column in order})
    colours = dict(zip(columns, itertools.cycle(_COLUMNS)))  # neighbours differ
    for axes, (title, order) in zip(all_axes[:, 0], orders.items(), strict=True):
        for place, (channel, column) in enumerate(order):
            box(axes, place, 0, 1, 1, colours[column], edgecolor="white")
            write(axes, place + 0.5, 0.5, f"{channel}\n{column}", 7.5, color=ink(colours[column]))
        for start in range(0, len(order), vector):
            box(axes, start, -0.06, vector, 1.12, "none", lw=2, edgecolor=EDGE)
        axes.set(xlim=(-0.2, longest + 0.2), ylim=(-0.2, 1.2))
        axes.set_title(_(title.replace("_", " ")), size=9, loc="left")
        axes.axis("off")
    says = [_("{title}: {places}").format(title=title, places=_(", ").join(
        _("channel {channel} column {column}").format(channel=c, column=x)
        for c, x in order[:vector])) for title, order in orders.items()]
    show(figure, _("Numbers in the order of memory, in vectors of {vector}. {says}.").format(
        vector=vector, says=_("; ").join(says)))
