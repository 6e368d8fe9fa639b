"""An example: inputs, what is expected and what came, as text and as tables in a notebook.

It is made of arrays where an answer runs, and shown where the reader is: between the two it is
plain data, for it leaves a process as JSON does.
"""

import html
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from course.words import _, language, told

MOST_IN_TEXT, MOST_IN_TABLES, MOST_IN_ROW = 24, 64, 16  # numbers of an array
MOST_SAID = 4  # places of a large one
DIGITS = (4, 6, 8, 12, 17)

# Of the lab's theme, and what stands for it where there is none. The red lets both themes through.
_PART = "margin:0 2em .6em 0"
_NAME = "color:var(--jp-content-font-color2,inherit);margin-bottom:.2em"
_TABLE = ("border-collapse:collapse;margin:0 0 .4em 0;font-size:inherit;"
          "font-family:var(--jp-code-font-family,monospace)")
_CELL = ("border:1px solid var(--jp-border-color1,#9e9e9e);padding:.1em .5em;text-align:right;"
         "background:transparent")
_WRONG = "background:rgba(229,57,53,.25);font-weight:bold"


class Part(NamedTuple):
    """One value: its label ("input x:"), its text, and its tables, outer axes one below another.

    A table is a list of rows, a row one of cells: a number's text, and whether it is wrong.
    """

    label: str
    text: str
    tables: list[list[list[tuple[str, bool]]]]


class Example(NamedTuple):
    """Its parts: the inputs, what is expected, what came."""

    parts: list[Part]

    @classmethod
    def of(cls, inputs: Mapping[str, Any], right: Any, came: Any, rtol: float = 1e-4,
           atol: float = 1e-6, result: str = "") -> "Example":
        """Return an example of arrays and numbers; a text is shown as it is.

        What differs by more than the tolerances is marked. `result` says what the last two are.
        """
        wrong = _wrong(right, came, rtol, atol)
        digits = _digits(right, came, wrong)
        kinds = "", ""
        if isinstance(right, np.ndarray) and isinstance(came, np.ndarray):
            kinds = (f"{right.dtype} ", f"{came.dtype} ") if right.dtype != came.dtype \
                else ("", "")
        shapes = isinstance(came, np.ndarray) and np.shape(right) != came.shape
        return cls([
            *(_part(_("input {name}:").format(name=name), value, digits=digits)
              for name, value in inputs.items()),
            _part(_("expected, {what}:").format(what=result) if result else _("expected:"),
                  right, None, digits, kinds[0], shapes, wrong),
            _part(_("got:"), came, wrong, digits, kinds[1], shapes, wrong)])

    @classmethod
    def again(cls, data: Sequence[Any]) -> "Example":
        """Return an example of its plain data: lists in the place of tuples."""
        return cls([Part(*part) for part in data[0]])

    def lines(self) -> list[tuple[str, str]]:
        """Return label and text of each part."""
        return [(part.label, part.text) for part in self.parts]

    def _repr_html_(self) -> str:
        """Return the parts side by side, in the reader's language."""
        def table(rows: Sequence[Sequence[Sequence[Any]]]) -> str:
            return f"<table style='{_TABLE}'>" + "".join("<tr>" + "".join(
                f"<td style='{_CELL}{';' + _WRONG if wrong else ''}'>{html.escape(text)}</td>"
                for text, wrong in row) + "</tr>" for row in rows) + "</table>"

        def shown(part: Part) -> str:
            inside = "".join(map(table, part.tables)) \
                or html.escape(told(part.text, language())).replace("\n", "<br>")
            label = html.escape(told(part.label, language()).rstrip(":："))
            return f"<div style='{_PART}'><div style='{_NAME}'>{label}</div>{inside}</div>"
        return ("<div style='display:flex;flex-wrap:wrap;align-items:flex-start'>"
                + "".join(map(shown, self.parts)) + "</div>")


def shown(value: Any) -> str:
    """Return how a value is shown in words: of a large array what is usual in it, and the rest."""
    return _part("", value).text


def differ(came: np.ndarray, right: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    """Return a mask of the numbers that are not right: whole ones have to be right exactly."""
    if came.dtype.kind in "iub" and right.dtype.kind in "iub":
        return np.asarray(came != right)
    return np.asarray(~np.isclose(came, right, rtol, atol, equal_nan=True))


def _wrong(right: Any, came: Any, rtol: float, atol: float) -> np.ndarray | None:
    """Return a mask of the numbers that differ; None where they cannot be compared one by one."""
    if not isinstance(came, np.ndarray) or np.shape(right) != came.shape \
            or came.dtype.kind not in "fiub":
        return None
    return differ(came, np.asarray(right), rtol, atol)


def _digits(right: Any, came: Any, wrong: np.ndarray | None) -> int:
    """Return how many digits tell what came from what is right, to a tenth of the difference."""
    if wrong is None or not wrong.any():
        return DIGITS[0]
    right, came = np.asarray(right)[wrong], came[wrong]
    pairs = list(zip(right.tolist(), came.tolist(), strict=True))
    apart = next((n for n in DIGITS if all(f"{a:.{n}g}" != f"{b:.{n}g}" for a, b in pairs)),
                 DIGITS[-1])
    a, b = (value.astype("float64") for value in (right, came))
    with np.errstate(all="ignore"):
        off = np.abs(a - b) / np.maximum(np.abs(a), np.abs(b))
    largest = off[np.isfinite(off)].max(initial=0) or 1  # NaN and infinity need no digits
    return max(apart, next((n for n in DIGITS[:3] if 10.0 ** (1 - n) / 2 <= largest / 10),
                           DIGITS[2]))


def _number(number: Any, digits: int = DIGITS[0]) -> str:
    number = number.item() if isinstance(number, np.generic) else number
    if isinstance(number, float):
        return f"{number + 0.0:.{digits}g}"  # -0 is 0
    return str(number)


def _part(label: str, value: Any, wrong: np.ndarray | None = None, digits: int = DIGITS[0],
          kind: str = "", shapes: bool = False, first: np.ndarray | None = None) -> Part:
    """Return a value as it is shown; of a large array the places of the mask `first` come first."""
    if not isinstance(value, np.ndarray):
        return Part(label, value if isinstance(value, str) else _number(value, digits), [])
    if value.dtype.kind not in "fiub":
        return Part(label, repr(value)[:200], [])
    shape = " x ".join(map(str, value.shape))
    if wrong is None:
        wrong = np.zeros(value.shape, bool)
    if value.size > MOST_IN_TEXT:
        text: str = kind + _sparse(value, wrong, digits, shape, wrong if first is None else first)
    else:
        text = kind + _nested(value, wrong & ~wrong.all(), digits)
        if shapes or value.ndim > 2:
            text = _("{numbers}, shape {shape}").format(numbers=_inner(text, value.ndim),
                                                        shape=tuple(value.shape))
    small = 0 < value.size <= MOST_IN_TABLES and value.shape[-1:] <= (MOST_IN_ROW,)
    return Part(label, text, _tables(value, wrong, digits) if small else [])


def _nested(value: np.ndarray, wrong: np.ndarray, digits: int) -> str:
    if value.ndim:
        inside = (_nested(*both, digits) for both in zip(value, wrong, strict=True))
        return f"[{', '.join(inside)}]"
    number = _number(value.item(), digits)
    return f"*{number}*" if wrong else number


def _inner(text: str, axes: int) -> str:
    """Return the text of an array of many axes without the brackets that say nothing."""
    while axes > 2 and text.startswith("[[[") and text.endswith("]]]") \
            and text.count("[[[") == 1:
        text, axes = text[1:-1], axes - 1
    return text


def _sparse(value: np.ndarray, wrong: np.ndarray, digits: int, shape: str, first: np.ndarray
            ) -> str:
    """Say of a large array what most of it is, and where it is something else: `first` first."""
    values, counts = np.unique(value if wrong.all() else value[~wrong], return_counts=True)
    usual = values[counts.argmax()]
    if usual == 0:
        whole = _("{shape} zeros").format(shape=shape)
    else:
        whole = _("{shape} numbers, all {number}").format(
            shape=shape, number=_number(usual.item(), digits))
    same = np.isclose(value, usual, equal_nan=True)
    other = ~same
    if not wrong.all() or other.sum() > value.size // 2:  # else most of it says it
        other |= wrong
    if many := other.sum() > value.size // 2:
        other[...] = True  # what is usual is not said then
    at = np.concatenate([np.argwhere(other & first), np.argwhere(other & ~first)])
    if not len(at):
        return whole
    mixed = usual != 0 and bool((other & same).any())  # all 1 but 1 at ... would be nonsense
    def text(place: np.ndarray) -> str:
        number = _number(value[tuple(place)].item(), digits)
        return f"*{number}*" if wrong[tuple(place)] and not wrong.all() else number
    for axis in range(value.ndim):
        places = np.unique(at[:, axis])
        slab = value.take(places, axis)
        if len(places) == 1 and slab.size == len(at) > 1 \
                and (slab == slab.flat[0]).all() | np.isnan(slab).all():
            index = ", ".join(str(places[0]) if one == axis else ":" for one in range(value.ndim))
            there = _("{number} at {place}").format(number=text(at[0]), place=f"[{index}]")
            return _("{shape} numbers: {places}").format(shape=shape, places=there) if mixed \
                else _("{whole} but {places}").format(whole=whole, places=there)
    some = _(", ").join([_("{number} at {place}").format(
        number=text(place), place=[int(n) for n in place]) for place in at[:MOST_SAID]])
    if (more := len(at) - MOST_SAID) > 0:  # if `many`, what does not differ is among them
        some = _("{some}, ...").format(some=some) if many \
            else _("{some} and {count} more").format(some=some, count=more)
    if many or mixed:
        return _("{shape} numbers: {places}").format(shape=shape, places=some)
    return _("{whole} but {places}").format(whole=whole, places=some)


def _tables(value: np.ndarray, wrong: np.ndarray, digits: int
            ) -> list[list[list[tuple[str, bool]]]]:
    if value.ndim > 2:
        return [table for both in zip(value, wrong, strict=True)
                for table in _tables(*both, digits)]
    return [[[(_number(number.item(), digits), bool(bad)) for number, bad in
              zip(*row, strict=True)]
             for row in zip(np.atleast_2d(value), np.atleast_2d(wrong), strict=True)]]
