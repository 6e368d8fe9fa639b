"""Which thread writes which element, and which addresses the threads of a warp reach at once."""

from collections.abc import Mapping, Sequence

import numpy as np

from course.plots.figure import BLUE, GREY, PALE, box, sheet, show, write
from course.tir.threads import SEGMENT, Launch
from course.words import _

_BLOCKS = (PALE, "#f7d9b0", "#d8ead3", "#ead5e6")
_EACH = SEGMENT // 4  # float32 numbers of one transaction


def threads(launch: Launch, name: str, shape: tuple[int, int]) -> None:
    """Draw a matrix that a kernel wrote: a colour for each block, and in each element its thread.

    Threads are x or (x, y), as counted in their block. "-": no thread wrote it.
    """
    rows, columns = shape
    figure, axes = sheet(0.42 * columns + 0.4, 0.42 * rows + 0.3, xlim=(-0.1, columns + 0.1),
                         ylim=(rows + 0.1, -0.1), aspect="equal")
    for (i, j), lane in np.ndenumerate(launch.writer[name].reshape(shape)):
        block, thread = launch.names(lane) if lane >= 0 else ((0, 0, 0), ())
        number = sum(place * step for place, step in zip(
            block, (1, launch.grid[0] + launch.grid[0] % 2 + 1, 1), strict=True))
        box(axes, j, i, 1, 1, _BLOCKS[number % len(_BLOCKS)] if lane >= 0 else "white")
        used = thread[:2] if launch.block[1] > 1 else thread[:1]
        write(axes, j + 0.5, i + 0.5, ",".join(map(str, used)) or "-", 6.5, family="monospace")
    blocks = int(np.prod(launch.grid))
    show(figure, _("Which thread writes which element of {name}, {rows} by {columns}: {blocks} "
                   "blocks of {threads} threads, thread x = 0 of a block at the left.").format(
        name=name, rows=rows, columns=columns, blocks=blocks, threads=launch.threads))


def addresses(touched: Mapping[str, Sequence[int]]) -> None:
    """Draw which float32 elements the threads of a warp reach at once, a row for each title.

    A box is a stretch of 128 bytes that is fetched as a whole; boxes in between are left out.
    """
    brought = {title: sorted({int(element) // _EACH for element in elements})
               for title, elements in touched.items()}
    most = max(map(len, brought.values()))
    figure, axes = sheet(10, 0.75 * len(touched) + 0.2, xlim=(-9, most * 1.15 * 32 / most + 9),
                         ylim=(len(touched), 0))
    wide = 32 / most
    says = []
    for row, (title, elements) in enumerate(touched.items()):
        write(axes, -0.4, row + 0.5, _(title), ha="right")
        for place, segment in enumerate(brought[title]):
            left = place * wide * 1.15
            box(axes, left, row + 0.2, wide, 0.6, "white", edgecolor=GREY)
            for element in {int(e) for e in elements if int(e) // _EACH == segment}:
                box(axes, left + wide * (element % _EACH) / _EACH, row + 0.2,
                    max(wide / _EACH, 0.1), 0.6, BLUE, lw=0)  # wide enough for the eye
        count = len(brought[title])
        said = _("{count} transaction") if count == 1 else _("{count} transactions")
        said = said.format(count=count)
        write(axes, count * wide * 1.15 + 0.3, row + 0.5, said, ha="left")
        says.append(_("{title}: {said}").format(title=_(title), said=said))
    show(figure, _("What the 32 threads of a warp reach at once, in boxes of 128 bytes. "
                   "{says}.").format(says=_("; ").join(says)))
