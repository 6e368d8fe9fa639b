"""A drawing for a phone: its panels one below the other, cut out of the same drawing.

The letters of a drawing shrink with it. A figure of several axes is split where nothing is drawn
between them; what can't be split is scrolled instead (docs/site/_static/course.css).
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from matplotlib.transforms import Bbox

WIDTH = 388  # CSS pixels for a picture on a screen of 390
LEAST = 9  # CSS pixels: the height of the smallest letters
EDGE = 1  # points around a panel
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
FIGURE = re.compile(r'\n <g id="figure_1">.*?\n </g>', re.DOTALL)
_box = Bbox.from_extents  # left, top, right, bottom, in points; y goes down


def smallest(svg: str) -> float:
    """Return the size of a drawing's smallest letters, in points; infinite if it has none."""
    return min((100 * float(size) for size in re.findall(r"scale\(([\d.]+) -", svg)),
               default=float("inf"))


def _letters(group: ElementTree.Element) -> Bbox | None:
    """Return the place of a text, if a group is one: letters as outlines, each at its place."""
    moved = re.match(r"translate\(([\d.-]+) ([\d.-]+)\)(?: rotate\(([\d.-]+)\))? scale\(([\d.]+) -",
                     group.get("transform", ""))
    if not moved:
        return None
    x, y, turn, scale = (float(part or 0) for part in moved.groups())
    ends = [float(place) for use in group.iter(f"{SVG}use")
            for place in re.findall(r"translate\(([\d.]+)", use.get("transform", "")) or ["0"]]
    long, high = scale * (max(ends, default=0) + 70), 100 * scale
    if abs(turn) == 90:
        return _box(x - high, y - long, x + high / 4, y) if turn < 0 else \
            _box(x - high / 4, y, x + high, y + long)
    return _box(x, y - high, x + long, y + high / 4)


def _path(path: ElementTree.Element) -> Bbox | None:
    numbers = [float(one) for one in re.findall(r"-?[\d.]+(?:e-?\d+)?", path.get("d", ""))]
    if not numbers:
        return None
    return _box(min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2]))


def _drawn(node: ElementTree.Element, clips: dict[str, Bbox]) -> Iterator[Bbox]:
    """Yield where the parts of a group are drawn."""
    if node.tag == f"{SVG}defs":
        return
    if letters := _letters(node):
        yield letters
        return
    clip = clips.get(node.get("clip-path", "")[5:-1])
    if node.tag == f"{SVG}path" and (box := _path(node)):
        if seen := Bbox.intersection(box, clip) if clip else box:
            yield seen
    elif node.tag == f"{SVG}use" and node.get("x"):
        x, y = float(node.get("x", 0)), float(node.get("y", 0))
        yield _box(x, y, x, y)
    elif node.tag == f"{SVG}g" and clip:
        yield clip
    for child in node:
        yield from _drawn(child, clips)


def _merged(boxes: list[Bbox], side: int) -> list[list[Bbox]]:
    """Return boxes in groups that do not overlap, from left to right (side 0) or downwards (1)."""
    found: list[list[Bbox]] = []
    end = float("-inf")
    for box in sorted(boxes, key=lambda box: box.min[side]):
        if box.min[side] < end:
            found[-1].append(box)
        else:
            found.append([box])
        end = max(end, box.max[side])
    return found


def _one_scale(figure: ElementTree.Element) -> bool:
    """Whether only one of several axes names the places of an axis that they share."""
    named = [any(child.tag == f"{SVG}g" and _letters(child) for child in axis.iter())
             for axis in figure.iter(f"{SVG}g") if axis.get("id", "").startswith("matplotlib.axis")
             and int(axis.get("id", "0_0").rpartition("_")[2]) % 2 == 0]
    return any(named) and not all(named)


def panels(svg: str) -> list[Bbox]:
    """Return the parts of Matplotlib's drawing that can be separated, in reading order."""
    root = ElementTree.fromstring(svg)
    figure = next(node for node in root.iter(f"{SVG}g") if node.get("id") == "figure_1")
    clips = {clip.get("id", ""): _box(x, y, x + float(rect.get("width", 0)),
                                      y + float(rect.get("height", 0)))
             for clip in root.iter(f"{SVG}clipPath") for rect in clip.iter(f"{SVG}rect")
             for x, y in [(float(rect.get("x", 0)), float(rect.get("y", 0)))]}
    parts = [boxes for node in figure if node.get("id") != "patch_1"
             if (boxes := list(_drawn(node, clips)))]
    if len(parts) < 2 or _one_scale(figure):
        return []
    return [Bbox.union(column) for band in _merged(list(map(Bbox.union, parts)), 1)
            for column in _merged(band, 0)]


def narrow(svg: str) -> str | None:
    """Return a drawing with its wide rows of panels broken; None if that gains nothing."""
    most = WIDTH * smallest(svg) / LEAST
    found = panels(svg)
    whole = [float(part) for part in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]]
    rows: list[list[Bbox]] = []
    for box in (box.padded(EDGE) for box in found):
        if rows and sum(b.width for b in [*rows[-1], box]) <= most:
            rows[-1].append(box)
        else:
            rows.append([box])
    width = max((sum(b.width for b in row) for row in rows), default=whole[0])
    if whole[0] <= most or width > 0.8 * whole[0]:
        return None
    views, y = [], 0.0
    for row in rows:
        x = (width - sum(b.width for b in row)) / 2
        for b in row:
            size = f'width="{b.width:.2f}" height="{b.height:.2f}"'
            views.append(f'<svg x="{x:.2f}" y="{y:.2f}" {size} viewBox="{b.x0:.2f} '
                         f'{b.y0:.2f} {b.width:.2f} {b.height:.2f}">'
                         '<use xlink:href="#figure_1"/></svg>')
            x += b.width
        y += max(b.height for b in row)
    svg = FIGURE.sub(r"\n <defs>\g<0>\n </defs>" + "".join(views), svg, count=1)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt" viewBox="[^"]*"',
                  f'width="{width:.2f}pt" height="{y:.2f}pt" viewBox="0 0 {width:.2f} {y:.2f}"',
                  svg, count=1)
