"""What the course says in Chinese, in the catalogue course/words/zh.po.

    python -m tools.messages           list the messages without Chinese, or with `fuzzy` Chinese

`make sync` takes the English from `_("...")` in the code, and from the cells that write words into
pictures; `python -m tools.sync check` compares. A message whose English changed becomes `fuzzy` and
is shown in English until a translator updates its Chinese. What the code no longer says goes.
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


# ---- what cells write into pictures: both editions have the same code ----------------------------

CODE = re.compile("=|:$")  # in a line of a picture: a program, not words


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
    # the functions of plots whose keywords are titles, and their other arguments
    titled = {func.name: {arg.arg for arg in (*func.args.args, *func.args.kwonlyargs)}
              for file in (ROOT / "course" / "plots").glob("*.py")
              for func in ast.parse(file.read_text()).body
              if isinstance(func, ast.FunctionDef) and func.args.kwarg and func.name != "memory"}
    found, taken = list[str](), set[str]()
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


def write(change: bool = True) -> list[Path]:
    """Bring course/words/zh.po up to date, if `change`; return it if it was not."""
    found = catalogue.merged(CATALOGUE, extracted())
    found.obsolete.clear()
    for one in found:  # Babel's guesses have another message's flags, and "2 % of" is no template
        one.flags &= {"fuzzy", "python-brace-format" if one.python_brace_format else ""}
    return catalogue.write(CATALOGUE, catalogue.text(found, width=100), change)


def _places(text: str) -> set[str | None] | None:
    """Return the names of a text's places, or None if str.format cannot read it."""
    try:
        return {name for _text, name, *_rest in string.Formatter().parse(text)} - {None}
    except ValueError:
        return None


def wrong() -> list[str]:
    """Return what is wrong with the Chinese of messages, a line each; what is fuzzy waits."""
    lines = []
    for one in read(CATALOGUE):
        english, chinese = forms(one.id), forms(one.string)[0]
        if english[0] and chinese and not one.fuzzy:
            if _places(chinese) not in map(_places, english):
                lines.append(f"{chinese!r} has other places than {english[0]!r}")
            lines += [f"the word {word} of {chinese!r} is not in {english[0]!r}"
                      for word in LATIN.findall(re.sub(r"\{\w+\}|(?<=docs/)zh/", "", chinese))
                      if word not in english[0]]
    return [f"{CATALOGUE.name}: {line}" for line in lines]


def missing() -> list[tuple[str, ...]]:
    """Return the forms of each message that has no Chinese, or whose Chinese is fuzzy."""
    return [forms(one.id) for one in read(CATALOGUE)
            if one.id and (one.fuzzy or not any(forms(one.string)))]


def summary() -> str:
    """Say how many messages have their Chinese."""
    every = len(read(CATALOGUE))
    return f"Messages: {every - len(missing())} of {every} in Chinese, the others are in English."


if __name__ == "__main__":
    print("\n".join([*(repr(every[0]) for every in missing()), summary()]))
