"""The catalogue of what the course says in Chinese, course/words/zh.po: kept up to date by Babel.

    python -m tools.messages           list the messages that have no Chinese, or an old one

`make sync` takes the English from the code, where it stands in `_("...")`, and from the notebooks'
cells what they write into pictures; `python -m tools.sync check` compares. Where a message changed
its Chinese is marked `fuzzy`, as gettext does, and English is shown until somebody has mended it
and taken the mark away. What is no more said goes.
"""

import ast
import re
import string
from collections.abc import Iterator
from pathlib import Path

import nbformat
from babel.messages import Catalog
from babel.messages.extract import extract_from_file

from course.words import CATALOGUE, ROOT
from tools import catalogue
from tools.catalogue import forms, read

SOURCES = ("*.py", "data/**/*.py", "course/**/*.py", "tools/**/*.py")
LATIN = re.compile(r"[A-Za-z]{2,}")
HEADER = """# What the course says beside its texts, in Chinese. The English is in the code:
# `make sync` takes it from there. Write the msgstr, and take `fuzzy` away where it is right.
#"""


def extracted() -> Catalog:
    """Return what the code says, and where."""
    found = Catalog("zh")
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        for _line, message, _comments, _context in extract_from_file(
                "python", path, keywords={"_": None, "ngettext": (1, 2)}):
            found.add(message, locations=[(name, 0)])
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for label in of_pictures(path):
            found.add(label, locations=[(path.relative_to(ROOT).as_posix(), 0)])
    return found


# ---- what cells write into pictures: their code is the same in both editions --------------------

CODE = re.compile("=|:$")  # in a line of a picture: a program, not words


def _titled() -> dict[str, set[str]]:
    """Return the functions of plots that take titles as keywords, and their other arguments."""
    return {func.name: {arg.arg for arg in (*func.args.args, *func.args.kwonlyargs)}
            for path in (ROOT / "course" / "plots").glob("*.py")
            for func in ast.parse(path.read_text()).body
            if isinstance(func, ast.FunctionDef) and func.args.kwarg and func.name != "memory"}


def _labels(node: ast.expr | None) -> Iterator[str]:
    """Yield the words in an argument of a picture, line by line."""
    match node:
        case ast.Constant(value=str(text)):
            yield from (line for line in text.splitlines() if not CODE.search(line))
        case ast.Tuple(elts=[_left, _right, meaning]):  # of plots.side_by_side
            yield from _labels(meaning)
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(keys=parts):
            for part in parts:
                yield from _labels(part)


def of_pictures(path: Path) -> list[str]:
    """Return the words in a notebook's calls of plots, and in the variables that these take."""
    nodes = [node for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
             for node in ast.walk(ast.parse(cell.source))]
    titled, found, taken = _titled(), list[str](), set[str]()
    for node in nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("plots"), attr=name), args=args):
                taken |= {arg.id for arg in args if isinstance(arg, ast.Name)}
                found += [word.arg.replace("_", " ") for word in node.keywords
                          if word.arg and name in titled and word.arg not in titled[name]]
                found += [label for arg in (*args, *(word.value for word in node.keywords))
                          for label in _labels(arg)]
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name(name), args=[first, *_rest]) if name == "climb":
                found += _labels(first)
            case ast.Assign(targets=[ast.Name(name)], value=ast.Dict() as value) if name in taken:
                found += _labels(value)
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(name), slice=place)]) \
                    if name in taken:
                found += _labels(place)
    return found


def up_to_date() -> str:
    """Return the text of course/words/zh.po as it should be."""
    found = catalogue.merged(CATALOGUE, extracted())
    found.obsolete.clear()
    for one in found:  # what Babel guessed comes with the flags of where it came from
        if not one.python_brace_format:
            one.flags.discard("python-brace-format")
    return catalogue.written(found, HEADER, width=100)


def _places(text: str) -> set[str] | None:
    """Return the names of a text's places, or None: it is not written as it should be."""
    try:
        return {name for _text, name, *_rest in string.Formatter().parse(text) if name is not None}
    except ValueError:
        return None


def wrong() -> list[str]:
    """Return what is wrong with the Chinese of messages, a line each; what is fuzzy waits."""
    lines = []
    for one in read(CATALOGUE):
        english, chinese = forms(one.id), forms(one.string or "")[0]
        if english[0] and chinese and not one.fuzzy:
            if "{" in "".join(english) and _places(chinese) not in map(_places, english):
                lines.append(f"{CATALOGUE.name}: {chinese!r} has other places than {english[0]!r}")
            lines += [f"{CATALOGUE.name}: the word {word} of {chinese!r} is not in {english[0]!r}"
                      for word in LATIN.findall(re.sub(r"\{\w+\}|(?<=docs/)zh/", "", chinese))
                      if word not in english[0]]
    return lines


def missing() -> list[tuple[str, ...]]:
    """Return the forms of each message that has no Chinese, or whose Chinese is fuzzy."""
    return [forms(one.id) for one in read(CATALOGUE)
            if one.id and (one.fuzzy or not any(forms(one.string)))]


def summary() -> str:
    """Say how many messages have their Chinese."""
    every = len(read(CATALOGUE))
    return f"Messages: {every - len(missing())} of {every} in Chinese, the others come in English."


def write(change: bool = True) -> bool:
    """Bring course/words/zh.po up to date; return whether it was not."""
    text = up_to_date()
    behind = not CATALOGUE.exists() or CATALOGUE.read_text(encoding="utf-8") != text
    if behind and change:
        CATALOGUE.write_text(text, encoding="utf-8")
    return behind


if __name__ == "__main__":
    print("\n".join([*(repr(every[0]) for every in missing()), summary()]))
