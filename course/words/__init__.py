"""What the course says to its readers, in the language of the notebook: English, or Chinese.

    _("shape {shape} for {input}").format(shape=shape, input=_("rows of very different size"))

That is gettext's way: the English as a template with named places, looked up in the catalogue,
zh.po. A sentence is a str in the reader's language, and knows its template and what stands in its
places: so it can be said in the other language too. `tools.messages` keeps the catalogue.
"""

from __future__ import annotations  # the doctor runs on old Pythons too, and says so

import functools
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Path(__file__).with_name("zh.po")
EDGE = re.compile(" ?(?:\0+ ?)+")  # of what fills a place
NESTED = re.compile("(（[^（）]*)（([^（）]*)）(?=[）；，。])")  # brackets in brackets
HAN, MARK = re.compile("[\u3400-\u9fff]"), re.compile("[，。；：（）、？“”]")
_chosen = ""


def of_folder(folder: Path) -> str:
    """Return the language of notebooks in a folder: Chinese in or below a folder zh."""
    below = folder.relative_to(ROOT).parts if ROOT in folder.parents else ()
    return "zh" if "zh" in below else "en"


def use(language: str) -> None:
    """Speak "en" or "zh" from here on."""
    global _chosen
    _chosen = language


def language() -> str:
    """Return what is spoken: by MLC_LANG, else by the folder in which the kernel was started."""
    if not _chosen:
        asked = os.environ.get("MLC_LANG", "")
        use(asked if asked in ("en", "zh") else of_folder(Path.cwd()))
    return _chosen


@functools.cache
def _chinese() -> dict[str, str]:
    """Return the Chinese by the English; what is fuzzy, or not in a handout, is none.

    Nor is there any where Babel is missing: before the packages are installed.
    """
    try:
        from babel.messages import pofile
    except ImportError:
        return {}
    if not CATALOGUE.is_file():  # in an English handout
        return {}
    with CATALOGUE.open("rb") as file:
        return {english: one.string[0] if one.pluralizable else str(one.string)
                for one in pofile.read_po(file) if one.id and one.string and not one.fuzzy
                for english in (one.id if one.pluralizable else (str(one.id),))}


class CourseError(Exception):
    """An error whose message is meant for the reader: notebooks show it without a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks the exception for this
        return str(self).splitlines()


class Sentence(str):
    """A sentence in the reader's language; `told` says it in another, `packed` is for JSON."""

    template: str
    places: dict[str, Any] | None

    def __new__(cls, template: str, places: dict[str, Any] | None = None) -> Self:
        self = super().__new__(cls, _told(template, places, language()))
        self.template, self.places = template, places
        return self

    def __str__(self) -> str:
        return self  # what makes a str of its text, as Matplotlib does, keeps the sentence

    def told(self, language: str) -> str:
        """Return it in "en" or "zh"."""
        return _told(self.template, self.places, language)

    def format(self, **places: Any) -> Sentence:  # type: ignore[override]
        """Fill in its places: with sentences, numbers, or what str() makes of something."""
        return Sentence(self.template, {name: _kept(value) for name, value in places.items()})

    def join(self, parts: Iterable[str]) -> Sentence:
        """Put parts together, with this one between them."""
        every = [piece for part in parts for piece in (self, part)][1:]
        return Sentence("".join(f"{{p{number}}}" for number in range(len(every))),
                        {f"p{number}": part for number, part in enumerate(every)})

    def __add__(self, other: str) -> Sentence:
        return Sentence("").join([self, other]) if other else self

    def __radd__(self, other: str) -> Sentence:
        return Sentence("").join([other, self]) if other else self

    def __reduce__(self) -> tuple:
        return Sentence, (self.template, self.places)


def _kept(value: Any) -> Any:
    """Return what stands in a place, as something that JSON can hold."""
    if isinstance(value, Sentence) or type(value) in (str, int, float, bool):
        return value
    return str(value)


def _told(template: str, places: dict[str, Any] | None, language: str) -> str:
    said = _chinese().get(template, template) if language == "zh" else template
    if places is None:
        return said
    filled = said.format(**{name: f"\0{told(value, language)}\0" for name, value in places.items()})
    if language == "zh":
        filled = NESTED.sub(r"\1，\2", EDGE.sub(_spaced, filled))
    return filled.replace("\0", "")


def _spaced(edge: re.Match) -> str:
    """Return what stands between a place and its neighbour: between Chinese and Latin a space."""
    before, after = edge.string[:edge.start()][-1:], edge.string[edge.end():][:1]
    if not (before and after) or "\n" in before + after:
        return edge[0]
    kinds = [HAN.match(one) is not None for one in (before, after)]
    if all(kinds) or MARK.match(before) or MARK.match(after):
        return ""
    return " " if any(kinds) else edge[0]


def _(english: str) -> Sentence:
    """Return a sentence of the catalogue; `.format(name=...)` fills in its places, {name}."""
    return Sentence(english)


def ngettext(one: str, more: str, number: int) -> Sentence:
    """Return a sentence about one thing, or about more; in Chinese they are the same."""
    return Sentence(one if number == 1 else more)


def listed(names: Iterable[str]) -> str:
    """Return names with "and" before the last."""
    *most, last = names
    if not most:
        return last
    these = functools.reduce(
        lambda these, more: _("{these}, {more}").format(these=these, more=more), most)
    return _("{these} and {more}").format(these=these, more=last)


def told(value: Any, language: str) -> Any:
    """Return a sentence in "en" or "zh", and anything else as it is."""
    return value.told(language) if isinstance(value, Sentence) else value


def packed(value: Any) -> Any:
    """Return a sentence, or what holds sentences, in a form that JSON keeps; see `unpacked`."""
    if isinstance(value, Sentence):
        return {"template": value.template, "places": packed(value.places)}
    if isinstance(value, dict):
        return {name: packed(one) for name, one in value.items()}
    return [packed(one) for one in value] if isinstance(value, (list, tuple)) else value


def unpacked(value: Any) -> Any:
    """Return what `packed` was given; tuples are lists."""
    if isinstance(value, dict):
        if {"template", "places"} <= value.keys():
            return Sentence(value["template"], unpacked(value["places"]))
        return {name: unpacked(one) for name, one in value.items()}
    return [unpacked(one) for one in value] if isinstance(value, list) else value
