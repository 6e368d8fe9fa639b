"""The Chinese of notebooks and documents: catalogues in po/zh/, and the Markdown made of them.

    python -m tools.translation                      check all, and count what waits for Chinese
    python -m tools.translation 02 docs/rosetta.md   check some; tools.translation_lint says how

A paragraph is a message of gettext, in po/zh/02_emit_te_ingestion.po or po/zh/docs/rosetta.po. An
exercise's docstring is one too, in the context "docstring". `make sync` merges the catalogues with
the English (tools.catalogue) and writes paired_md/zh/, docs/zh/ and x.zh.md from them. Readers get
the English of a paragraph without Chinese, and of one that is `fuzzy` because its English changed;
`make sync ACCEPT=02` accepts the Chinese as it is.
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
from jupytext.config import load_jupytext_config
from polib import POEntry

from course.words import HAN, ROOT, Sentence, _
from tools import catalogue, translation_lint
from tools.catalogue import TranslationError

COUNTED = "<!-- counted by make sync -->"  # up to the next comment
ROW = r"(?m)^(\| \[{} [^|]*\|[^|]*)\|.*$"  # of a notebook in README's table, up to what is counted
WEEK = r"(?m)^(\| \d+ \| {} \|.*\|) \d+ \|$"  # of a notebook in the instructors' plan: its points
EXERCISES = "<!-- counted by make sync: exercises -->"  # up to the next comment
# their commands and folders differ from the English, so the gate reads the Chinese alone
ADAPTED = ("README.md", "instructor/student_README.md")


@dataclass(eq=False)
class Unit:
    """A paragraph in English, and in Chinese where that is up to date."""

    english: str
    cell: int  # the number of its Markdown cell
    docstring: bool
    text: str = ""  # the Chinese
    shown: str = ""  # what the Chinese edition shows; a docstring is in the code already
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
    for path in sorted({*po.rglob("*.po"), *(po / f"{path.stem}.po" for path in masters())}):
        source = ROOT / path.relative_to(po).with_suffix(".md")
        name, zh = source.relative_to(ROOT).as_posix(), source.parent / "zh" / source.name
        if re.match(r"\d\d_", name):
            name, zh = name[:2], ROOT / "paired_md" / "zh" / source.name
            source = ROOT / "notebooks" / f"{path.stem}.ipynb"
        elif source.parent.name != "docs":
            zh = source.with_suffix(".zh.md")
        if not source.exists():
            raise TranslationError(f"{path.relative_to(ROOT)} is the Chinese of nothing: there is "
                                   f"no {source.relative_to(ROOT)}. Rename or delete it.")
        found[name] = File(source, path, zh)
    if unknown := set(names) - found.keys():
        raise TranslationError(f"There is no Chinese of {min(unknown)}, only of "
                               f"{', '.join(found)}.")
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

    An exercise's docstring comes where its Chinese is shown, before the hints.
    """
    if source.suffix == ".md":
        text = source.read_text(encoding="utf-8")
        return [Unit(one, 0, False) for one in paragraphs(text)], nbformat.v4.new_notebook()
    notebook, found, number = nbformat.read(source, as_version=4), list[Unit](), -1
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            number += 1
            found += [Unit(text, number, False) for text in paragraphs(cell.source)]
        elif cell.metadata.get("nbgrader", {}).get("solution"):
            at = next((at for at, one in enumerate(found) if one.cell == number and
                       one.english.startswith("<details><summary>Hint")), len(found))
            found[at:at] = [Unit(inspect.cleandoc(text), number, True) for text in
                            re.findall('"""(.*?)"""', cell.source, re.DOTALL)[:1]]
    return found, notebook


def as_markdown(notebook: nbformat.NotebookNode) -> str:
    """Return the Markdown that belongs to a notebook, by the repository's jupytext settings."""
    config = load_jupytext_config(str(ROOT / "notebooks" / "x.ipynb"))
    return jupytext.writes(notebook, "md:markdown", config=config)


def current(name: str) -> tuple[list[Unit], str, nbformat.NotebookNode]:
    """Return the paragraphs of one of `files`, the text of its Chinese, and the Chinese notebook.

    The notebook has the master's code cells, outputs, ids and metadata; a document's is empty.
    """
    (file,) = files([name]).values()
    units, notebook = english(file.source)
    have = {(one.msgid, one.msgctxt): one for one in catalogue.read(file.catalogue)
            if one.translated()}
    # the Chinese file is in a folder below the English one
    link = r"\]\((?=\.\./)" if notebook.cells else r"\]\((?![a-z]+:|#)"
    up = "](../" if file.chinese.parent.name == "zh" else "]("
    for unit in units:
        if one := have.get(unit.key):
            unit.text, unit.line = one.msgstr, one.linenum
        unit.shown = unit.text or ("" if unit.docstring else re.sub(link, up, unit.english))
    if not notebook.cells:
        return units, "\n\n".join(unit.shown for unit in units) + "\n", notebook
    cells = (cell for cell in notebook.cells if cell.cell_type == "markdown")
    for cell, (_cell, group) in zip(cells, groupby(units, lambda unit: unit.cell), strict=True):
        cell.source = "\n\n".join(unit.shown for unit in group if unit.shown)
    text = as_markdown(notebook)
    notebook.metadata["lang"] = "zh"
    return units, text, notebook


def _refuse_edits(file: File) -> None:
    """Raise TranslationError where the newer Chinese file has a line that its catalogue lacks."""
    made, po = file.chinese, file.catalogue
    if not made.exists() or po.exists() and made.stat().st_mtime_ns <= po.stat().st_mtime_ns:
        return
    known = normal("\n".join(one.msgstr for one in catalogue.read(file.catalogue)))
    code = file.source.read_text(encoding="utf-8")
    made, po = made.relative_to(ROOT), po.relative_to(ROOT)
    for line in normal(file.chinese.read_text(encoding="utf-8")).splitlines():
        if re.search(HAN, line) and line not in known and line.strip() not in code:
            raise TranslationError(f"{made} is made by `make sync`, and {line.strip()[:60]!r} is "
                                   f"not in {po}: write it there, then `touch {po}`.")


def merge(change: bool = True, accept: Collection[str] = ()) -> list[Path]:
    """Bring the catalogues up to date with the English, and return which were not.

    With `change=False` nothing is written. Raises TranslationError.
    """
    every, behind = files(), list[Path]()
    for file in every.values():
        _refuse_edits(file)
    for name, file in every.items():
        keys = dict.fromkeys(unit.key for unit in english(file.source)[0])
        found = catalogue.merged(file.catalogue, [
            POEntry(msgid=text, msgctxt=context) for text, context in keys])
        for one in found:
            if one.fuzzy and name in accept:
                print(f"{name}: still right for {one.msgid[:70]!r}")
                one.flags, one.previous_msgid = [], None
        behind += catalogue.write(file.catalogue, str(found), change)
    return behind


def render(change: bool, fill: Callable[[str, str], str]) -> list[Path]:
    """Write the Chinese from the catalogues, each text through `fill`; return what was old."""
    return [behind for name, file in files().items() for behind in catalogue.write(
        file.chinese, fill(file.chinese.relative_to(ROOT).as_posix(), current(name)[1]), change)]


def check(names: Collection[str]) -> list[str]:
    """Return what Chinese paragraphs lack or do wrong, a line each, with file and line."""
    found = []
    for name, file in files(names).items():
        folders = [path.parent.relative_to(ROOT) for path in (file.source, file.chinese)]
        units, _text, notebook = current(name)
        code = json.dumps([cell for cell in notebook.cells if cell.cell_type == "code"],
                          ensure_ascii=False)
        for unit in units:
            if unit.text and not unit.text.startswith("[English]("):
                lines = translation_lint.differences(
                    "" if unit.docstring or name in ADAPTED else unit.key[0], unit.text, folders)
                if notebook.cells:
                    lines += translation_lint.misquoted(unit.text, code)
                found += [f"{file.catalogue.relative_to(ROOT)}:{unit.line}: {line}"
                          for line in lines]
    return found


def summary(names: Collection[str] = ()) -> Sentence:
    """Say how many paragraphs wait for their Chinese, of how many, and in which files."""
    made = {name: [not unit.text for unit in current(name)[0]] for name in files(names)}
    left, total = (sum(map(count, made.values())) for count in (sum, len))
    where = ", ".join(f"{name}: {sum(waits)}" for name, waits in made.items() if any(waits))
    said = _("{left} of {total} paragraphs wait for Chinese, or for newer Chinese ({where})") \
        if left else _("all {total} paragraphs are in Chinese, and none is older than its English")
    return said.format(left=left, total=total, where=where)


def main(*names: str) -> None:
    """Check the files with these names, or all; exit with what is wrong, a line each."""
    print(f"Chinese edition: {summary(names)}.")
    if found := check(names):
        sys.exit("\n".join([*found, f"Fix {len(found)} things in the Chinese edition; "
                            "docs/glossary.md has the words."]))


if __name__ == "__main__":
    main(*sys.argv[1:])
