"""The Chinese of notebooks and documents: catalogues, and the Markdown made of them.

    python -m tools.translation                      check all, and count what waits for Chinese
    python -m tools.translation 02 docs/rosetta.md   check some; tools.translation_lint says how

A paragraph is a message of gettext, in paired_md/po/zh/, which has 02_emit_te_ingestion.po and
docs/rosetta.po. An exercise's docstring is one too, in the context "docstring". `make sync` merges
the catalogues with the English (tools.catalogue) and writes paired_md/zh/, docs/zh/ and x.zh.md
from them. Readers get the English of a paragraph without Chinese, and of one that is `fuzzy`
because its English changed; `make sync ACCEPT=02` accepts the Chinese as it is.
"""

import inspect
import json
import re
import sys
from collections.abc import Callable, Collection
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import jupytext
import nbformat
from jupytext.config import load_jupytext_config
from nbformat.v4 import new_markdown_cell, new_notebook
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


class File(NamedTuple):
    """A notebook or document: in English, its catalogue, and what is made of them."""

    source: Path
    catalogue: Path
    chinese: Path


def normal(text: str) -> str:
    """Return a text without what `make sync` counts, and the address of a clone."""
    text = re.sub(r"(<!-- counted.*?-->).*?<!--", r"\1<!--", text, flags=re.DOTALL)
    text = re.sub(ROW.format(r"\d\d"), r"\1| | | |", text)
    text = re.sub(WEEK.format(r"\d\d"), r"\1 0 |", text)
    return re.sub(r"(?m)^git clone .* mlc-course.*$", "git clone ADDRESS mlc-course", text)


def files(names: Collection[str] = ()) -> dict[str, File]:
    """Return all files by name, or some: a notebook's is "02", a document's its English path."""
    po, made = ROOT / "paired_md" / "po" / "zh", ROOT / "paired_md" / "zh"
    found = {path.name[:2]: File(path, po / f"{path.stem}.po", made / f"{path.stem}.md")
             for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))}
    for path in sorted({*po.rglob("*.po")} - {file.catalogue for file in found.values()}):
        name = path.relative_to(po).with_suffix(".md")
        if not (ROOT / name).exists():
            raise TranslationError(f"{path.relative_to(ROOT)} is the Chinese of nothing: no "
                                   "notebook or document has this name. Rename or delete it.")
        zh = Path("docs/zh", name.name) if name.parts[0] == "docs" else name.with_suffix(".zh.md")
        found[name.as_posix()] = File(ROOT / name, path, ROOT / zh)
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


def english(source: Path) -> tuple[list[list[POEntry]], nbformat.NotebookNode]:
    """Return the messages of each Markdown cell, and the notebook; a document is one cell.

    An exercise's docstring comes where its Chinese is shown, before the hints.
    """
    notebook = nbformat.read(source, as_version=4) if source.suffix == ".ipynb" else new_notebook(
        cells=[new_markdown_cell(normal(source.read_text(encoding="utf-8")))])
    found = list[list[POEntry]]()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found.append([POEntry(msgid=text) for text in paragraphs(cell.source)])
        elif cell.metadata.get("nbgrader", {}).get("solution"):
            at = next((at for at, one in enumerate(found[-1])
                       if one.msgid.startswith("<details><summary>Hint")), len(found[-1]))
            found[-1][at:at] = [POEntry(msgid=inspect.cleandoc(text), msgctxt="docstring") for text
                                in re.findall('"""(.*?)"""', cell.source, re.DOTALL)[:1]]
    return found, notebook


def as_markdown(notebook: nbformat.NotebookNode) -> str:
    """Return the Markdown that belongs to a notebook, by the repository's jupytext settings."""
    config = load_jupytext_config(str(ROOT / "notebooks" / "x.ipynb"))
    return jupytext.writes(notebook, "md:markdown", config=config)


def current(name: str) -> tuple[list[list[POEntry]], str, nbformat.NotebookNode]:
    """Return the messages of each Markdown cell, the text of the Chinese, and the Chinese notebook.

    A message's msgstr is what is shown: where it is in English, the message is fuzzy. The notebook
    has the master's code cells, outputs, ids and metadata.
    """
    (file,) = files([name]).values()
    messages, notebook = english(file.source)
    have = {(one.msgid, one.msgctxt): one
            for one in catalogue.read(file.catalogue).translated_entries()}
    # the Chinese file is in a folder below the English one
    link = r"\]\((?=\.\./)" if file.source.suffix == ".ipynb" else r"\]\((?![a-z]+:|#)"
    up = "](../" if file.chinese.parent.name == "zh" else "]("
    for one in chain(*messages):
        if same := have.get((one.msgid, one.msgctxt)):
            one.msgstr, one.linenum = same.msgstr, same.linenum
        elif not one.msgctxt:  # a docstring is in the code already
            one.msgstr, one.fuzzy = re.sub(link, up, one.msgid), True
    cells = (cell for cell in notebook.cells if cell.cell_type == "markdown")
    for cell, group in zip(cells, messages, strict=True):
        cell.source = "\n\n".join(one.msgstr for one in group if one.msgstr)
    text = as_markdown(notebook) if file.source.suffix == ".ipynb" else f"{cell.source}\n"
    notebook.metadata["lang"] = "zh"
    return messages, text, notebook


def _refuse_edits(file: File) -> None:
    """Raise TranslationError where the newer Chinese file has a line that its catalogue lacks."""
    made, po = file.chinese, file.catalogue
    if not made.exists() or po.exists() and made.stat().st_mtime_ns <= po.stat().st_mtime_ns:
        return
    known = normal("\n".join([*(one.msgstr for one in catalogue.read(po)),
                              file.source.read_text(encoding="utf-8")]))
    made, po = made.relative_to(ROOT), po.relative_to(ROOT)
    for line in normal(file.chinese.read_text(encoding="utf-8")).splitlines():
        if re.search(HAN, line) and line.strip() not in known:
            raise TranslationError(f"{made} is made by `make sync`, and {line.strip()[:60]!r} is "
                                   f"not in {po}: write it there, then `touch {po}`.")


def merge(change: bool = True, accept: Collection[str] = ()) -> list[Path]:
    """Bring catalogues up to date, if `change`; return which were not. Raises TranslationError."""
    every, behind = files(), list[Path]()
    for file in every.values():
        _refuse_edits(file)
    for name, file in every.items():
        found = catalogue.merged(file.catalogue, chain(*english(file.source)[0]))
        for one in found.fuzzy_entries() if name in accept else ():
            print(f"{name}: still right for {one.msgid[:70]!r}")
            one.fuzzy, one.previous_msgid = False, None
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
        messages, _text, notebook = current(name)
        code = json.dumps([cell for cell in notebook.cells if cell.cell_type == "code"],
                          ensure_ascii=False)
        for one in chain(*messages):
            if one.translated() and not one.msgstr.startswith("[English]("):
                lines = translation_lint.differences(
                    "" if one.msgctxt or name in ADAPTED else one.msgid, one.msgstr, folders)
                if file.source.suffix == ".ipynb":
                    lines += translation_lint.misquoted(one.msgstr, code)
                found += [f"{file.catalogue.relative_to(ROOT)}:{one.linenum}: {line}"
                          for line in lines]
    return found


def summary(names: Collection[str] = ()) -> Sentence:
    """Say how many paragraphs wait for their Chinese, of how many, and in which files."""
    made = {name: [not one.translated() for one in chain(*current(name)[0])]
            for name in files(names)}
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
