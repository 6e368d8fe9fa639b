"""The landing page: the beginning of README, the ways in, and the notebooks as a map.

The map is README's table of notebooks, in which `make sync` writes minutes and prerequisites.
"""

import html
import re
from dataclasses import dataclass, replace
from pathlib import Path

from tools.site.words import Words
from tools.translation import paragraphs

# a row: the notebook, its subject, minutes, the number of exercises, prerequisites
ROW = re.compile(r"^\| \[(\d\d) ([^\]]+)\]\(([^)]+)\) \| [^|]+ \| (\d+) \| \d+ \|([^|]*)\|$",
                 re.MULTILINE)


@dataclass(frozen=True)
class Stop:
    """A notebook on the map: its row and column, and its prerequisites."""

    number: str
    title: str
    page: str  # without suffix
    minutes: int
    needs: tuple[str, ...]
    row: int = 0
    column: float = 0  # its middle, as a share of the width
    width: float = 1


def stops(readme: str) -> list[Stop]:
    """Return the notebooks of README's table in its order, each below all that it needs.

    Those of one row share its width. Raises KeyError if a notebook needs one that comes later.
    """
    found: dict[str, Stop] = {}
    for number, title, file, minutes, needs in ROW.findall(readme):
        before = tuple(re.findall(r"\b\d\d\b", needs))
        row = max((found[name].row + 1 for name in before), default=0)
        found[number] = Stop(number, title, Path(file).stem, int(minutes), before, row)
    rows = [[stop for stop in found.values() if stop.row == row]
            for row in range(max(stop.row for stop in found.values()) + 1)]
    places = {stop.number: (place, len(row)) for row in rows for place, stop in enumerate(row)}
    return [replace(stop, column=(place + .5) / many, width=1 / many)
            for stop in found.values() for place, many in [places[stop.number]]]


def arrows(course: list[Stop]) -> list[tuple[Stop, Stop]]:
    """Return the pairs (first, then) between which the map has an arrow.

    There is none if another path leads there: 08 needs 04, but 06 is between them.
    """
    known = {stop.number: stop for stop in course}

    def before(number: str) -> set[str]:
        return set(known[number].needs).union(*map(before, known[number].needs))

    return [(known[name], stop) for stop in course for name in stop.needs
            if not any(name in before(other) for other in stop.needs)]


def plan(course: list[Stop], exercises: dict[str, list[str]], words: Words) -> str:
    """Return the map as HTML: a list of links, and the arrows as a drawing behind it.

    Each box has a place for what is solved: docs/site/_static/solved.js.
    """
    rows = 1 + max(stop.row for stop in course)
    lines = []
    for first, then in arrows(course):  # from below one box to above the other, in the gap
        left, right = f"{100 * first.column:.1f}", f"{100 * then.column:.1f}"
        top, foot = 10 * first.row + 8.5, 10 * then.row + 1
        lines.append(f'<path d="M{left} {top} V{foot - 1.2} C{left} {foot} {right} {foot - 2} '
                     f'{right} {foot}"/>')
    items = []
    for stop in course:
        here = exercises[stop.number]
        told = [words.minutes.format(stop.minutes), words.exercises.format(len(here))]
        if stop.needs:
            told.append(words.after.format(words.comma.join(stop.needs)))
        columns = min(round(12 * stop.width), 6)
        start = round(12 * stop.column - columns / 2) + 1
        items.append(
            f'<li{" class=after" if stop.needs else ""} '
            f'style="grid-area: {stop.row + 1} / {start} / auto / span {columns}">'
            f'<a href="{stop.page}.html"><strong>{stop.number} {html.escape(stop.title)}</strong>'
            f"<span>{html.escape(words.lines[stop.number])}</span>"
            f'<small>{" · ".join(told)}</small></a>'
            f'<label class="solved" hidden data-exercises="{" ".join(here)}">'
            '<input type="checkbox"> <span></span></label></li>')
    return (f'<nav class="course-map" aria-label="{words.map}" data-solved="{words.solved_of}">'
            f'<svg viewBox="0 0 100 {10 * rows}" '
            f'preserveAspectRatio="none" aria-hidden="true">{"".join(lines)}</svg>'
            f'<ol>{"".join(items)}</ol></nav>')


def beginning(readme: str) -> list[str]:
    """Return the beginning of README, below its title and links, in Markdown.

    What you do here, what you can do at the end, the picture's caption, the exercises with the
    message of a check, and what you need.
    """
    _title, _links, does, can, _picture, caption, exercises, needs = paragraphs(
        readme.partition("\n## ")[0])
    return [does, can, caption, exercises, needs]


def about(readme: str) -> str:
    """Return the whole sentences of README's first paragraph, in one line."""
    whole = re.match(r".*[.。]", " ".join(beginning(readme)[0].split()))
    return whole[0] if whole else ""


def page(readme: str, exercises: dict[str, list[str]], words: Words, ways: dict[str, str],
         picture: str) -> str:
    """Return the source of the page.

    `exercises`: their numbers, by the notebook's. `ways`: the address of each available way in, by
    its name in words.ways; "clone" is the repository's. `picture`: as HTML.
    """
    course = stops(readme)
    buttons = " ".join(
        f'<a class="way" href="{html.escape(ways[name])}"'
        f'{" lang=" + words.other + " hreflang=" + words.other if name == "other" else ""}>'
        f'{said}</a>' for name, said in words.ways.items() if name in ways)
    does, can, caption, checked, needs = beginning(readme)
    get = ""
    if clone := ways.get("clone"):
        folder = clone.rpartition("/")[2]
        get = (f"{words.get}\n\n```bash\ngit clone {clone}\ncd {folder}\n{words.lab}\n```\n\n"
               f"{words.got.format(ways['here'])}\n\n")
    return (f"# {words.title}\n\n"
            f'{does}\n\n{can}\n\n<p class="ways">{buttons}</p>\n\n{get}'
            f"{picture}\n\n{caption}\n\n{checked}\n\n{needs}\n\n"
            f'<p><span class="arrows">{words.map_arrows}</span>{words.map_about}</p>\n\n'
            f'{plan(course, exercises, words)}\n\n'
            f'<p class="solved" hidden>{words.solved_about} <button type="button">'
            f'{words.solved_forget}</button></p>\n\n'
            f'<div class="try"><p>{words.try_live.format(ways["live"])}</p>'
            f'<iframe title="{words.live}" loading="lazy" src="{ways["loops"]}"></iframe></div>\n')
