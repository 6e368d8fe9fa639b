"""What the course says to its readers, in the language of the notebook: English, or Chinese.

    _("shape {shape} for {input}").format(shape=shape, input=_("rows of very different size"))

This is gettext's way: the English is a template with named places, whose Chinese is in zh.po, which
`tools.messages` keeps up to date. A sentence is a str in the reader's language that remembers its
template and what fills the places, so `told` can say it in the other language too.
"""

from __future__ import annotations  # the doctor runs on old Pythons too, and says so

import functools
import json
import os
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CATALOGUE = Path(__file__).with_name("zh.po")
EDGE = re.compile(" ?(?:\0+ ?)+")  # between what fills a place and its neighbours
NESTED = re.compile("(（[^（）]*)（([^（）]*)）(?=[）；，。])")  # brackets in brackets
HAN, MARK = "[\u3400-\u9fff]", re.compile("[，。；：（）、？“”]")
_chosen = ""


def use(language: str) -> None:
    """Speak "en" or "zh" from here on."""
    global _chosen
    _chosen = language


def language() -> str:
    """Return what is spoken: by MLC_LANG, else by the folder in which the kernel was started."""
    if not _chosen:
        asked, here = os.environ.get("MLC_LANG", ""), Path.cwd()
        below = here.relative_to(ROOT).parts if ROOT in here.parents else ()
        use(asked if asked in ("en", "zh") else "zh" if "zh" in below else "en")
    return _chosen


@functools.cache
def _chinese() -> dict[str, str]:
    """Return the Chinese by the English, without what is fuzzy.

    There is none in an English handout, nor before polib is installed.
    """
    if not (CATALOGUE.is_file() and find_spec("polib")):
        return {}
    import polib
    return {one.msgid: one.msgstr for one in polib.pofile(str(CATALOGUE)).translated_entries()}


class CourseError(Exception):
    """An error whose message is meant for the reader: notebooks show it without a traceback."""

    def _render_traceback_(self) -> list[str]:  # IPython asks the exception for this
        return str(self).splitlines()


class Sentence(str):
    """A sentence in the reader's language; `told` says it in the other, `packed` is for JSON."""

    template: str
    places: dict[str, Any] | None

    def __new__(cls, template: str, places: dict[str, Any] | None = None) -> Sentence:
        self = super().__new__(cls, _told(template, places, language()))
        self.template, self.places = template, places
        return self

    def __str__(self) -> str:
        return self  # str(sentence), which Matplotlib calls, is still a sentence

    def format(self, **places: Any) -> Sentence:  # type: ignore[override]
        """Fill in its places with what JSON can hold: sentences, numbers, or else str() of it."""
        return Sentence(self.template, {
            name: value if type(value) in (Sentence, str, int, float, bool) else str(value)
            for name, value in places.items()})

    def join(self, parts: Iterable[str]) -> Sentence:
        """Put parts together, with this one between them."""
        every = [piece for part in parts for piece in (self, part)][1:]
        return Sentence("".join(f"{{p{number}}}" for number in range(len(every))),
                        {f"p{number}": part for number, part in enumerate(every)})

    def __add__(self, other: str) -> Sentence:
        return Sentence("").join([self, other]) if other else self

    def __radd__(self, other: str) -> Sentence:
        return Sentence("").join([other, self]) if other else self


def _told(template: str, places: dict[str, Any] | None, language: str) -> str:
    said = _chinese().get(template, template) if language == "zh" else template
    if places is None:
        return said
    filled = said.format(**{name: f"\0{told(value, language)}\0" for name, value in places.items()})
    if language == "zh":
        filled = NESTED.sub(r"\1，\2", EDGE.sub(_spaced, filled))
    return filled.replace("\0", "")


def _spaced(edge: re.Match) -> str:
    """Return what goes between a place and its neighbour: between Chinese and Latin a space."""
    before, after = edge.string[:edge.start()][-1:], edge.string[edge.end():][:1]
    if not (before and after) or "\n" in before + after:
        return edge[0]
    kinds = [re.match(HAN, one) is not None for one in (before, after)]
    if all(kinds) or MARK.match(before) or MARK.match(after):
        return ""
    return " " if any(kinds) else edge[0]


_ = Sentence  # of the catalogue; `.format(name=...)` fills in its places, {name}


def listed(names: Iterable[str]) -> str:
    """Return names with "and" before the last."""
    first, *others = names
    if len(others) > 1:
        return _("{these}, {more}").format(these=first, more=listed(others))
    return _("{these} and {more}").format(these=first, more=others[0]) if others else first


def told(value: Any, language: str) -> Any:
    """Return a sentence in "en" or "zh", and anything else as it is."""
    return _told(value.template, value.places, language) if isinstance(value, Sentence) else value


def packed(value: Any) -> Any:
    """Return a sentence, or what holds sentences, in a form that JSON keeps; see `unpacked`."""
    if isinstance(value, Sentence):
        return {"template": value.template, "places": packed(value.places)}
    if isinstance(value, dict):
        return {name: packed(one) for name, one in value.items()}
    return [packed(one) for one in value] if isinstance(value, (list, tuple)) else value


def unpacked(value: Any) -> Any:
    """Return what `packed` was given; tuples are lists."""
    return json.loads(json.dumps(value), object_hook=lambda found: Sentence(**found)
                      if found.keys() == {"template", "places"} else found)
