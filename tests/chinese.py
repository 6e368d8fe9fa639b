"""Is the Chinese of a message its English? Looked at sentence by sentence.

Sentences know their templates, so that nothing has to be guessed: what stands in a place is a
sentence, a number or a name, or else it was said by TVM, by Python or in the answer itself.
"""

import functools
import re
from collections import Counter
from typing import Any

import pytest

from course.words import HAN, Sentence, told
from tools import messages

PUNCTUATION = "，。；：（）、？！“”"
# two English words with nothing between but a space: nobody's name, but a phrase
PHRASE = re.compile(r"(?<![\w.`'\"(\[=])[a-z]{2,} [a-z]{2,}\b")
# what an exception says begins with its name; a program has a line with def, or is a loop
RAISED = re.compile(r"[A-Z]\w+: |(?:.*\n)?def \w+\(|for \w+.* in .*:")
# places in which stand lines of the answer, and what others said
FOREIGN = {"source", "reason"}
CODE = re.compile(r"[A-Za-z]\w*(?:[._]\w+)+|\[[^\]]*\]|\b[A-Z]\w*[A-Z]\w*|`[^`]+`")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
SPACING = (
    (re.compile(r"^ | $|\S  +\S"), "a space too many"),
    (re.compile(f" [{PUNCTUATION}]|[{PUNCTUATION}] "), "a space beside Chinese punctuation"),
    (re.compile(f"{HAN}[A-Za-z0-9]|[A-Za-z0-9%]{HAN}"), "no space between Chinese and Latin"))


@functools.cache
def waiting() -> frozenset[str]:
    """Return the messages that have no Chinese yet."""
    return frozenset(messages.missing())


# for tests that quote the Chinese: who words an English sentence anew need not know any
quoted = pytest.mark.xfail("chinese.waiting()", strict=False, reason="messages wait for their "
                           "Chinese, `python -m tools.messages` lists them")


def _own(found: Any, foreign: bool = False) -> tuple[str, list[str]]:
    """Return a message in Chinese without what others said, and its phrases in English."""
    if not isinstance(found, Sentence):
        text = str(found)
        if foreign or RAISED.match(text):
            return "X", []
        return text, [phrase[0] for phrase in PHRASE.finditer(text)]
    parts = {name: _own(value, name in FOREIGN) for name, value in (found.places or {}).items()}
    said, bare = (told(Sentence(found.template, found.places and places), "zh") for places in
                  ({name: text for name, (text, _phrases) in parts.items()},
                   dict.fromkeys(parts, "X")))
    phrases = [phrase for _text, inside in parts.values() for phrase in inside]
    return said, phrases + [phrase[0] for phrase in PHRASE.finditer(bare)
                            if phrase[0] not in found.template]


def faults(found: Any) -> list[str]:
    """Return what is wrong with the Chinese of a part of a message, a line each."""
    english, chinese = told(found, "en"), told(found, "zh")
    own, phrases = _own(found)
    lines = [f"English: {phrase!r}" for phrase in phrases]
    for what, pattern in (("number", NUMBER), ("code", CODE)):
        wanted, have = (Counter(pattern.findall(text)) for text in (english, chinese))
        lines += [f"the {what} {one} is missing" for one in wanted - have
                  if one.strip("[]`").removesuffix("s") not in chinese]
    lines += [f"{says}: {own[max(0, at.start() - 6):at.end() + 6]!r}" for pattern, says in SPACING
              for at in list(pattern.finditer(own))[:1]]
    if re.search(r"[a-z]{3,} [a-z]{3,}", english) and not re.search(HAN, chinese) and own != "X":
        lines.append("no Chinese")
    return [f"{line}\n      {english!r}\n      {chinese!r}" for line in lines]
