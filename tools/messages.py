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
from polib import POEntry

from course.words import CATALOGUE, ROOT
from tools import catalogue

SOURCES = ("*.py", "data/**/*.py", "course/**/*.py", "tools/**/*.py")
LATIN = re.compile(r"[A-Za-z]{2,}")


def _said(path: Path) -> Iterator[str]:
    """Yield what a module says, in its order."""
    calls = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call)]
    for node in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        match node:
            case ast.Call(func=ast.Name("_"), args=[ast.Constant(value=str(text))]):
                yield text


def extracted() -> list[POEntry]:
    """Return what the code says, and where."""
    found = dict[str, POEntry]()
    modules = sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))
    for path in [*modules, *sorted((ROOT / "notebooks").glob("*.ipynb"))]:
        place = path.relative_to(ROOT).as_posix(), ""
        for text in _said(path) if path.suffix == ".py" else of_pictures(path):
            entry = found.setdefault(text, POEntry(
                msgid=text, flags=["python-brace-format"] * bool(_places(text))))
            entry.occurrences += [place] * (place not in entry.occurrences)
    return list(found.values())


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
            case ast.Assign(targets=[ast.Name(name)], value=ast.Dict() as named) | ast.Assign(
                    targets=[ast.Subscript(value=ast.Name(name), slice=named)]) if name in taken:
                found += _labels(named)
    return found


def write(change: bool = True) -> list[Path]:
    """Bring course/words/zh.po up to date, if `change`; return it if it was not."""
    found = catalogue.merged(CATALOGUE, extracted(), width=100)
    found[:] = [one for one in found if not one.obsolete]
    return catalogue.write(CATALOGUE, str(found), change)


def _places(text: str) -> set[str | None] | None:
    """Return the names of a text's places, or None if str.format cannot read it."""
    try:
        return {name for _text, name, *_rest in string.Formatter().parse(text)} - {None}
    except ValueError:
        return None


def wrong() -> list[str]:
    """Return what is wrong with the Chinese of messages, a line each; what is fuzzy waits."""
    lines = []
    for one in catalogue.read(CATALOGUE).translated_entries():
        if _places(one.msgstr) != _places(one.msgid):
            lines.append(f"{one.msgstr!r} has other places than {one.msgid!r}")
        lines += [f"the word {word} of {one.msgstr!r} is not in {one.msgid!r}"
                  for word in LATIN.findall(re.sub(r"\{\w+\}|(?<=docs/)zh/", "", one.msgstr))
                  if word not in one.msgid]
    return [f"{CATALOGUE.name}: {line}" for line in lines]


def missing() -> list[str]:
    """Return each message that has no Chinese, or whose Chinese is fuzzy."""
    return [one.msgid for one in catalogue.read(CATALOGUE) if not one.translated()]


def summary() -> str:
    """Say how many messages have their Chinese."""
    every = catalogue.read(CATALOGUE)
    return f"Messages: {len(every.translated_entries())} of {len(every)} in Chinese, " \
        "the others are in English."


if __name__ == "__main__":
    print("\n".join([*map(repr, missing()), summary()]))
