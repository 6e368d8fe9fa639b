"""Whether what a check says of a wrong answer is true: each cause that it names, by a short name.

A comment in course/checks/ gives a cause its name, in the line above it: the sentence itself may be
worded anew. A wrong behaviour (tests/behaviours) says in its title what it does: that is the truth,
and TRUE has for each name the titles of which it is true. A cause without a name, which stands in a
table of causes, is true of none: a new one is judged as soon as a check names it. Other sentences
without a name say where to look, and are not judged. A wrong answer of tests/candidates/ has in its
heading the words that it must get; a cause in none of these words is false.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course.words import Sentence

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = re.compile(r" *# (?:cause|form): ([a-z0-9-]+)")

# By the cause's name: a pattern of the exercise and the title.
TRUE = {
    "constant": "_(weight|bias): (one number|a thousandth|rounded)",
}

# What a check wants of an answer's form, and the behaviours that lack it by what they do: the
# schedule, the export or the struct of other arguments does not come about.
FORMS = {
    "no-loops": "(?!)",
    "does-not-run":
        "^(4|6|7|8|10).. (bind|cache_write|compute_inline|draw|split): |^1.3 arguments 5 and 6"
        "|^11.1 (the|its result: the)|^11.2 its arguments|^11.4 argument [01]: ",
    "no-gpu-program":
        "^10.. (split|bind|cache_read|compute_at|set_scope|the program|that of)|^10.5 its result: ",
}


def named(value: Any) -> Iterator[Sentence]:
    """Yield the sentences in the last line of a message, from the whole to its parts."""
    if isinstance(value, Sentence):
        yield value
        for part in (value.places or {}).values():
            yield from named(part)


def _true(pattern: str, number: str, title: str) -> bool:
    """Whether a cause is true of an exercise's wrong behaviour, by its pattern."""
    return re.search(pattern, f"{number} {title}") is not None


def false_causes(number: str, title: str, look_at: Any) -> list[str]:
    """Return which causes in a message's last line are not true of a wrong behaviour."""
    return [sentence for sentence in named(look_at)
            if (name := names().get(sentence.template)) or sentence.template in causes()
            if not _true(TRUE.get(name or "", "(?!)"), number, title)]


def untried(number: str, title: str, wanted: Any) -> list[str]:
    """Return what was wanted, where that is a form: a wrong behaviour is refused for what it does.

    One that is refused for the way in which it is wrapped around an answer is not tried at all.
    """
    return [sentence for sentence in named(wanted)
            if (name := names().get(sentence.template)) in FORMS
            and not _true(FORMS[name], number, title)]


# ---- what exists ---------------------------------------------------------------------------


def _english(node: ast.AST | None) -> Iterator[str]:
    """Yield the template of `_("...")`, also where its places are filled in."""
    match node:
        case ast.Call(func=ast.Name("_"), args=args):
            yield from (str(arg.value) for arg in args if isinstance(arg, ast.Constant))
        case ast.Call(func=ast.Attribute(value=inner, attr="format")):
            yield from _english(inner)


@functools.cache
def _sources() -> dict[Path, tuple[list[str], list[ast.AST]]]:
    """Return the lines and the nodes of the checks' modules."""
    texts = {path: path.read_text(encoding="utf-8")
             for path in (ROOT / "course" / "checks").rglob("*.py")}
    return {path: (text.splitlines(), list(ast.walk(ast.parse(text))))
            for path, text in texts.items()}


@functools.cache
def names() -> dict[str, str]:
    """Return the names of causes and forms, by their templates."""
    return {template: name[1] for lines, nodes in _sources().values() for node in nodes
            if isinstance(node, ast.Call) and (name := NAME.fullmatch(lines[node.lineno - 2]))
            for template in _english(node)}


@functools.cache
def causes() -> frozenset[str]:
    """Return the causes that checks can name: the keys of their tables."""
    found: set[str] = set()
    for _lines, nodes in _sources().values():
        for node in nodes:
            if isinstance(node, ast.Dict):
                found |= {text for key in node.keys for text in _english(key)}
    return frozenset(found)


# ---- the words of a heading ------------------------------------------------------------------

def _words(text: str) -> list[str]:
    return re.findall(r"[^\s,;:?!`'\"]*[^\s,;:?!`'\".]", text.lower())


def has(line: str, part: str) -> bool:
    """Whether a line has the words of a heading's part in their order, with others between them."""
    words = iter(_words(line))
    return part in line or all(word in words for word in _words(part))


def unexpected_causes(look_at: Any, words: str) -> list[str]:
    """Return which causes in a message's last line are not in the words that it must have."""
    return [sentence for sentence in named(look_at) if sentence.template in causes()
            and not any(has(sentence, part) or has(part, sentence) for part in words.split(" | "))]
