"""What checks say, in the language of the notebook that they stand in: English, or Chinese.

Checks find their words in English. What is shown of them is looked up in a catalogue of gettext's
form, zh.po, as a whole sentence with places for what varies: "the result's shape: axis {} has {}
places". A sentence that is not in it is shown in English. So are names, numbers, and messages of
TVM and Python, which stand in the places.
"""

import functools
import re
import string
from dataclasses import dataclass
from pathlib import Path

from data.store import ROOT

CATALOGUE = Path(__file__).parent / "zh.po"
WORDS = re.compile(r"[a-z]{2,}[ ,;:]+[a-z]{2,}")  # two English words: a place that holds a sentence
SURE = 2  # English words of a sentence that make it known, whatever stands in its places
AHEAD, BEHIND = " ,:;", " "  # a sentence that begins, or ends, so is a part of a longer one

_chosen = ""


def of_folder(folder: Path) -> str:
    """Return the language of notebooks in a folder: a folder zh below the course's is Chinese."""
    return "zh" if folder.name == "zh" and ROOT in folder.parents else "en"


def use(language: str) -> None:
    """Let checks speak "en" or "zh" from here on."""
    global _chosen
    _chosen = language


def language() -> str:
    """Return what checks speak: by the folder in which the kernel was started, unless told."""
    if not _chosen:
        use(of_folder(Path.cwd()))
    return _chosen


@dataclass
class Sentence:
    """A sentence with places: a pattern of the English, the Chinese, how many words are fixed.

    A part of a sentence has one more place, before or behind it. `code`: places that are shown as
    they are, {1:code} in the Chinese.
    """

    pattern: re.Pattern[str]
    chinese: str
    fixed: int
    before: bool
    behind: bool
    code: set[int]

    @classmethod
    def of(cls, english: str, chinese: str) -> "Sentence":
        """Make one of a message of the catalogue."""
        parts = list(string.Formatter().parse(english))
        text = "".join(re.escape(literal) + ("(.*?)" if place is not None else "")
                       for literal, place, *_ in parts)
        words = re.findall(r"[A-Za-z]{2,}", " ".join(literal for literal, *_ in parts))
        before, behind = english[0] in AHEAD, english[-1] in BEHIND
        code = {int(place) + before for place in re.findall(r"\{(\d+):code\}", chinese)}
        return cls(re.compile("(.+?)" * before + text + "(.+)" * behind, re.DOTALL),
                   chinese.replace(":code}", "}"), len(words), before, behind, code)

    @property
    def sure(self) -> bool:
        """Whether it is known by its own words, though one of its places holds unknown ones."""
        return self.fixed >= SURE and not self.before and not self.behind

    def say(self, places: list[str]) -> str:
        """Return the Chinese with these texts in the places."""
        own = places[self.before:len(places) - self.behind]
        return "".join([*places[:self.before], self.chinese.format(*own),
                        *places[len(places) - self.behind:]])


class Catalogue:
    """A catalogue's sentences: those that are whole by their English, and those with places."""

    def __init__(self, path: Path) -> None:
        self.whole: dict[str, str] = {}
        self.places: list[Sentence] = []
        if not path.is_file():  # in an English handout
            return
        from babel.messages import pofile
        with path.open("rb") as file:
            for message in pofile.read_po(file):
                if not message.id or not message.string:
                    continue
                english, chinese = str(message.id), str(message.string)
                one = Sentence.of(english, chinese)
                if "{" in english or one.before or one.behind:
                    self.places.append(one)
                else:
                    self.whole[english] = chinese
        self.places.sort(key=lambda one: (-one.fixed, -len(one.pattern.pattern)))

    def known(self, text: str) -> str | None:
        """Return a text in Chinese if every sentence in it is known, else None."""
        if text in self.whole:
            return self.whole[text]
        for sentence in self.places:
            if found := sentence.pattern.fullmatch(text):
                places = [given if number in sentence.code else self._place(given)
                          for number, given in enumerate(found.groups())]
                said = [place for place in places if place is not None]
                if len(said) == len(places):
                    return sentence.say(said)
        for joint in re.finditer("; ", text):
            halves = text[:joint.start()], text[joint.end():]
            before, after = map(self._place, halves)
            if before is not None and after is not None and (before, after) != halves:
                return f"{before}；{after}"
        return None

    def _place(self, text: str) -> str | None:
        """Return what a place holds, in Chinese if it is known, or None: it is a sentence."""
        known = self.known(text)
        return text if known is None and not WORDS.search(text) else known

    def partly(self, text: str) -> str:
        """Return a text in Chinese as far as it is known."""
        if (known := self.known(text)) is not None:
            return known
        for joint in re.finditer("; ", text):
            before, after = text[:joint.start()], text[joint.end():]
            if (said := self.known(before)) is not None:
                return f"{said}；{self.partly(after)}"
        for sentence in self.places:
            if sentence.sure and (found := sentence.pattern.fullmatch(text)):
                return sentence.say([given if number in sentence.code else self.partly(given)
                                     for number, given in enumerate(found.groups())])
        return text


@functools.cache
def _catalogue() -> Catalogue:
    return Catalogue(CATALOGUE)


def say(text: str) -> str:
    """Return what is to be shown of a text that a check found, in its language."""
    if language() == "en" or not text:
        return text
    return _catalogue().partly(text)

