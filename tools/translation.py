"""The Chinese of notebooks and documents: catalogues in po/zh/, and the Markdown made of them.

    python -m tools.translation check            does each paragraph hold what its English has?
    python -m tools.translation check 02 docs/rosetta.md    some; tools.translation_lint says how
    python -m tools.translation status           how many paragraphs of each file are in Chinese

A paragraph is a message of gettext: po/zh/02_emit_te_ingestion.po, po/zh/docs/rosetta.po. `make
sync` merges the catalogues with the English (tools.catalogue), and writes paired_md/zh/, docs/zh/
and x.zh.md from them. Where a paragraph has no Chinese, or one that is `fuzzy` because the English
changed, its readers get the English; `make sync ACCEPT=02` says that the Chinese is still right.
The docstring of an exercise is a paragraph too: the 思路, of the context "docstring".
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from babel.messages import Catalog
from jupytext.config import load_jupytext_config

from tools import catalogue, translation_lint
from tools.catalogue import TranslationError

ROOT = Path(__file__).resolve().parent.parent
HEADER = """# The Chinese of {name}. Write the msgstr, and take `fuzzy` away where
# it is right; `make sync` does the rest, and writes {chinese}.
#"""
COUNTED = "<!-- counted by make sync -->"  # up to the next comment
ROW = r"(?m)^(\| \[{} [^|]*\|[^|]*)\|.*$"  # of a notebook in README's table, up to what is counted
WEEK = r"(?m)^(\| \d+ \| {} \|.*\|) \d+ \|$"  # of a notebook in the instructors' plan: its points
EXERCISES = "<!-- counted by make sync: exercises -->"  # up to the next comment
# of other commands and folders than the English: of these the gate sees only the Chinese
ADAPTED = ("README.md", "instructor/student_README.md")


@dataclass(eq=False)
class Unit:
    """A paragraph in English, and in Chinese if it has one that is up to date."""

    english: str
    cell: int  # the number of its Markdown cell
    docstring: bool
    text: str = ""
    shown: str = ""  # what readers of the Chinese edition get: a docstring stands in its code
    line: int = 0  # of its catalogue

    @property
    def key(self) -> tuple[str, str | None]:
        """Its msgid and msgctxt."""
        return normal(self.english), "docstring" if self.docstring else None


class File(NamedTuple):
    """A notebook or document: in English, its catalogue, and what is made of them."""

    source: Path
    catalogue: Path
    chinese: Path


def normal(text: str) -> str:
    """Return a paragraph without what `make sync` counts, and the address of a clone."""
    text = re.sub(r"(<!-- counted.*?-->).*?<!--", r"\1<!--", text, flags=re.DOTALL)
    text = re.sub(ROW.format(r"\d\d"), r"\1| | | |", text)
    text = re.sub(WEEK.format(r"\d\d"), r"\1 0 |", text)
    return re.sub(r"(?m)^git clone .* mlc-course.*$", "git clone ADDRESS mlc-course", text)


def masters() -> list[Path]:
    """Return the English notebooks."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def files(names: Collection[str] = ()) -> dict[str, File]:
    """Return all files by name, or some: a notebook's is "02", a document's its English path."""
    found, po = {}, ROOT / "po" / "zh"
    notebooks = {po / f"{path.stem}.po": path for path in masters()}
    for path in sorted({*po.rglob("*.po"), *notebooks}, key=lambda path: (path in notebooks, path)):
        if master := notebooks.get(path):
            found[path.name[:2]] = File(master, path, ROOT / "paired_md/zh" / f"{path.stem}.md")
        else:
            source = ROOT / path.relative_to(po).with_suffix(".md")
            own = source.with_suffix(".zh.md")
            found[source.relative_to(ROOT).as_posix()] = File(
                source, path, source.parent / "zh" / source.name if source.parent.name == "docs"
                else own)
    if unknown := set(names) - found.keys():
        raise TranslationError(f"Nothing Chinese is called {min(unknown)}: there are "
                               f"{', '.join(found)}.")
    for name, file in found.items():
        if not file.source.exists():
            raise TranslationError(f"{file.catalogue.relative_to(ROOT)} is the Chinese of nothing: "
                                   f"there is no {name}. Rename or delete it.")
    return {name: file for name, file in found.items() if name in names or not names}


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of English Markdown.

    What has no words stays with a neighbour: fences, formulas and closing tags with what is above,
    <details> with what is below. The items of a list are one paragraph.
    """
    found, listed = [""], re.compile(r"(?:[-*]|\d+\.) ")
    for gap, piece in re.findall(r"(\A|\n(?:[ \t]*\n)+)(.+?)(?=\n[ \t]*\n|\Z)", text.strip(), re.S):
        above = found[-1]
        if (not above or above.endswith("</summary>") or re.match(r"</|```|\$\$|[ \t]", piece)
                or len(re.findall("^ *```", above, re.MULTILINE)) % 2
                or listed.match(piece) and listed.match(above)):
            found[-1] += gap + piece
        else:
            found.append(piece)
    return found


def english(source: Path) -> tuple[list[Unit], nbformat.NotebookNode]:
    """Return the paragraphs of a notebook or document, and the notebook (of none, an empty one).

    The docstring of an exercise stands where its Chinese does, in front of the hints.
    """
    if source.suffix == ".md":
        found = [(text, 0, False) for text in paragraphs(source.read_text(encoding="utf-8"))]
        notebook = nbformat.v4.new_notebook()
    else:
        notebook, found, number = nbformat.read(source, as_version=4), [], -1
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                number += 1
                found += [(text, number, False) for text in paragraphs(cell.source)]
            elif cell.metadata.get("nbgrader", {}).get("solution"):
                at = next((at for at, one in enumerate(found) if one[1] == number and
                           one[0].startswith("<details><summary>Hint")), len(found))
                found[at:at] = [(inspect.cleandoc(text), number, True) for text in
                                re.findall('"""(.*?)"""', cell.source, re.DOTALL)[:1]]
    return [Unit(*one) for one in found], notebook


def as_markdown(notebook: nbformat.NotebookNode) -> str:
    """Return the Markdown that belongs to a notebook, by the repository's jupytext settings."""
    config = load_jupytext_config(str(ROOT / "notebooks" / "x.ipynb"))
    return jupytext.writes(notebook, "md:markdown", config=config)


def current(name: str) -> tuple[list[Unit], str, nbformat.NotebookNode]:
    """Return the paragraphs of one of `files`, the text of its Chinese, and the Chinese notebook.

    The notebook has the master's code cells, outputs, ids and metadata; a document's is empty.
    """
    (file,) = files([name]).values()
    (units, notebook), have = english(file.source), catalogue.read(file.catalogue)
    # English is seen from one folder further below
    link = r"\]\((?=\.\./)" if notebook.cells else r"\]\((?![a-z]+:|#)"
    up = "](../" if file.chinese.parent.name == "zh" else "]("
    for unit in units:
        one = have.get(*unit.key)
        if one and one.string and not one.fuzzy:
            unit.text, unit.line = str(one.string), one.lineno or 0
        unit.shown = unit.text or "" if unit.docstring else \
            unit.text or re.sub(link, up, unit.english)
    if not notebook.cells:
        return units, "\n\n".join(unit.shown for unit in units) + "\n", notebook
    cells = (cell for cell in notebook.cells if cell.cell_type == "markdown")
    for cell, (_, group) in zip(cells, groupby(units, lambda unit: unit.cell), strict=True):
        cell.source = "\n\n".join(unit.shown for unit in group if unit.shown)
    text = as_markdown(notebook)
    notebook.metadata["lang"] = "zh"
    return units, text, notebook


def notebook(master: Path) -> nbformat.NotebookNode:
    """Return the Chinese notebook; a paragraph that waits for its Chinese is in English."""
    return current(master.name[:2])[2]


def _edited(file: File) -> str:
    """Return a line of Chinese that somebody has written into what is made of the catalogue."""
    if not file.chinese.exists() or (file.catalogue.exists() and file.chinese.stat().st_mtime_ns
                                     <= file.catalogue.stat().st_mtime_ns):
        return ""
    have = catalogue.read(file.catalogue)
    known = normal("\n".join(str(one.string) for one in [*have, *have.obsolete.values()]))
    code = file.source.read_text(encoding="utf-8")
    return next((line for line in normal(file.chinese.read_text(encoding="utf-8")).splitlines()
                 if re.search(translation_lint.HAN, line) and line not in known
                 and line.strip() not in code), "")


def write(path: Path, text: str, change: bool) -> list[str]:
    """Write a file that is not so, if `change`; return its name if it was not."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return []
    if change:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [path.relative_to(ROOT).as_posix()]


def merge(change: bool = True, accept: Collection[str] = ()) -> list[str]:
    """Bring the catalogues up to date with the English, and return which were not.

    With `change=False` nothing is written. Raises TranslationError.
    """
    every, behind = files(), []
    for file in every.values():
        if line := _edited(file):
            made, po = (path.relative_to(ROOT) for path in (file.chinese, file.catalogue))
            raise TranslationError(f"{made} is made by `make sync`, and {line.strip()[:60]!r} is "
                                   f"not in {po}: write it there, then `touch {po}`.")
    for name, file in every.items():
        wanted = Catalog("zh")
        for unit in english(file.source)[0]:
            wanted.add(unit.key[0], context=unit.key[1])
        found = catalogue.merged(file.catalogue, wanted)
        for one in found:
            one.flags &= {"fuzzy"}  # Babel takes a brace or a per cent for a template
            if one.fuzzy and name in accept and one.id:
                print(f"{name}: still right for {str(one.id)[:70]!r}")
                catalogue.accept(one)
        own = file.chinese.relative_to(ROOT).as_posix()
        header = HEADER.format(name=file.source.relative_to(ROOT).as_posix(), chinese=own)
        behind += write(file.catalogue, catalogue.written(found, header), change)
    return behind


def render(change: bool = True, fill: Callable[[str, str], str] = lambda name, text: text
           ) -> list[str]:
    """Write the Chinese from the catalogues, each text through `fill`; return which was not so."""
    return [behind for name, file in files().items() for behind in write(
        file.chinese, fill(file.chinese.relative_to(ROOT).as_posix(), current(name)[1]), change)]


def check(names: Collection[str]) -> list[str]:
    """Return what Chinese paragraphs lack, or do wrong, a line each, with file and line."""
    found = []
    for name, file in files(names).items():
        folder = file.chinese.parent.relative_to(ROOT)
        above = folder.parent if folder.name == "zh" else folder
        if adapted := name in ADAPTED:
            folder = Path()  # students get theirs on top of a handout
        units, _, notebook = current(name)
        code = json.dumps([cell for cell in notebook.cells if cell.cell_type == "code"],
                          ensure_ascii=False)
        for unit in units:
            if unit.text and not unit.text.startswith("[English]("):
                lines = translation_lint.differences(
                    "" if unit.docstring or adapted else unit.key[0], unit.text,
                    folders=(above, folder))
                if notebook.cells:
                    lines += translation_lint.misquoted(unit.text, code)
                found += [f"{file.catalogue.relative_to(ROOT)}:{unit.line}: {line}"
                          for line in lines]
    return found


def counted(names: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return for each file how many paragraphs wait for their Chinese, and of how many."""
    return {name: (sum(not unit.text for unit in made), len(made))
            for name in files(names) for made, _, _ in [current(name)]}


def summary(counts: dict[str, tuple[int, int]], language: str = "en") -> str:
    """Say, in "en" or "zh", how far the translation is."""
    left, total = (sum(count[at] for count in counts.values()) for at in (0, 1))
    where = ", ".join(f"{name}: {waiting}" for name, (waiting, _) in counts.items() if waiting)
    if left:
        return (f"{total} 个段落中有 {left} 个待译或待更新（{where}）" if language == "zh" else
                f"{left} of {total} paragraphs wait for Chinese, or for newer Chinese ({where})")
    return (f"{total} 个段落全部译好，没有一个比英文旧" if language == "zh" else
            f"all {total} paragraphs are in Chinese, and none is older than its English")


def main(task: str = "", *names: str) -> None:
    """Do what the module's text says; exit with what is wrong, a line each."""
    if task not in ("check", "status"):
        sys.exit(__doc__)
    try:
        counts, found = counted(names), check(names) if task == "check" else []
    except TranslationError as error:
        sys.exit(str(error))
    for name, (waiting, total) in counts.items() if task == "status" else ():
        print(f"{name}: {total - waiting} of {total} paragraphs in Chinese")
    print(f"Chinese edition: {summary(counts)}.")
    if found:
        sys.exit("\n".join([*found, f"{len(found)} things in the Chinese edition are to be mended; "
                            "the words stand in docs/glossary.md."]))


if __name__ == "__main__":
    main(*sys.argv[1:])
