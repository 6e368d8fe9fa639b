"""Code next to code, as HTML: corresponding lines have the same number and colour."""

import html
import inspect
import itertools
import textwrap
from collections.abc import Callable, Sequence

import tvm

import helpers
from course.words import _

_COLOURS = ("#cfe3f5", "#f7d9b0", "#e3efd9", "#cfc9ea", "#f2c6c6", "#fbe9a6", "#d5ece8", "#e8d8c3")
_FLEX = "display:flex;flex-wrap:wrap;gap:.3em 1.2em"
_HALF = "flex:1 1 24em;min-width:0"  # side by side; on a narrow page, one below the other
_CODE = "margin-top:.3em;font-family:monospace;font-size:90%;line-height:1.35"
_LINE = "flex:1;min-width:0;white-space:pre-wrap;overflow-wrap:anywhere"
_CIRCLE = ("display:inline-block;width:1.4em;border:1px solid #57606a;border-radius:1em;"
           "text-align:center;font:bold 85% sans-serif;user-select:none")


class SideBySide:
    """Two programs side by side; matching lines have the same colour and the same number.

    HTML for people, plain text for comparison. `pairs`: words that mark lines on the left, words
    that mark them on the right (several are separated by |), and what both mean. `scopes`: a
    colour continues in the lines that are indented below it.
    """

    def __init__(self, left: str, right: str, pairs: Sequence[tuple[str, str, str]],
                 titles: tuple[str, str], scopes: bool = False) -> None:
        self.says, self.scopes = [_(pair[2]) for pair in pairs], scopes
        self.halves = {}  # for each title the lines, each with the number of its pair, or 0
        for half, (title, program) in enumerate(zip(titles, (left, right), strict=True)):
            words = [pair[half].split("|") for pair in pairs]
            self.halves[_(title)] = [
                (next((number for number, marks in enumerate(words, start=1)
                       if any(mark in line for mark in marks)), 0), line)
                for line in program.strip("\n").splitlines()]

    def __repr__(self) -> str:
        parts = ["\n".join([title, *(f"{number or '':>2} | {line}" for number, line in lines)])
                 for title, lines in self.halves.items()]
        legend = "\n".join(f"{number:>2}: {says}" for number, says in enumerate(self.says, start=1))
        return "\n\n".join([*parts, legend])

    def _repr_html_(self) -> str:
        halves = []
        for title, lines in self.halves.items():
            rows: list[str] = []
            opened: list[tuple[int, str]] = []  # column and colour of those that continue
            for (before, _line), (number, line) in itertools.pairwise([(0, ""), *lines]):
                indent = len(line) - len(line.lstrip())
                opened = [scope for scope in opened if self.scopes and scope[0] < indent]
                if number:
                    opened.append((indent if self.scopes else 0, _colour(number)))
                label = _badge(number) if number not in (0, before) else ""
                hangs = f"padding-left:{indent + 8}ch;text-indent:-{indent + 8}ch"
                rows.append(f'<div style="display:flex"><span style="flex:0 0 2em">{label}</span>'
                            f'<span style="{_LINE};{hangs}{_painted(opened)}">{html.escape(line)}'
                            "</span></div>\n")
            halves.append(f'<div style="{_HALF}"><b>{html.escape(title)}</b>'
                          f'<div style="{_CODE}">{"".join(rows)}</div></div>')
        both = _("on both sides")
        legend = "".join(f'<div>{_badge(number)} {html.escape(says)}</div>'
                         for number, says in enumerate(self.says, start=1))
        return (f'<div style="background:#fff;color:#24292f;padding:.6em .8em">'
                f'<div style="{_FLEX}">{"".join(halves)}</div>'
                f'<div style="margin-top:.8em"><b>{both}</b>{legend}</div></div>')


def _colour(number: int) -> str:
    return _COLOURS[(number - 1) % len(_COLOURS)]


def _badge(number: int) -> str:
    """Return a number in a circle of its colour; it isn't copied with the code."""
    return f'<span style="{_CIRCLE};background:{_colour(number)}">{number}</span>'


def _painted(opened: list[tuple[int, str]]) -> str:
    """Return the CSS of a line's background: each colour from its column to the next one's."""
    if not opened:
        return ""
    columns, colours = zip(*opened, strict=True)
    stops = ",".join(f"{colour} 0 {end}ch" for colour, end in
                     zip(("#0000", *colours), (*columns, 999), strict=True))
    return f";background:linear-gradient(90deg,{stops})"


_CALLS = [  # in the builder's source, in the printed module, and what both mean
    ("with bb.function(", "def main(", _("the function")),
    ("with bb.dataflow(", "with R.dataflow(", _("the dataflow block")),
    ("bb.emit_te(", "R.call_tir(", _("one operator")),
    ("bb.emit_output(", "gv: |R.output(", _("what leaves the block")),
    ("bb.emit_func_output(", "return ", _("what the function returns")),
]


def builder_and_module(build: Callable[[], tvm.IRModule], mod: tvm.IRModule) -> SideBySide:
    """Show a function that builds a module next to the `main` it makes, its scopes as boxes.

    Each call of the builder has the number of what it made: of the calls of one kind, the first
    gets the first line that such calls make, and so on; the last gets all that are left.
    """
    programs = (textwrap.dedent(inspect.getsource(build)), helpers.show(mod, only="main").text)
    pairs = []
    for *marks, meaning in _CALLS:
        calls, made = ([line.strip() for line in program.splitlines()
                        if any(word in line for word in mark.split("|"))]
                       for program, mark in zip(programs, marks, strict=True))
        for number, call in enumerate(calls):
            lines = made[number:] if number == len(calls) - 1 else made[number:number + 1]
            pairs.append((call, "|".join(lines), meaning))
    return SideBySide(*programs, pairs, (_("the builder"), _("what it made")), scopes=True)
