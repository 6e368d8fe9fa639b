"""The Chinese edition: each paragraph of Chinese stands under a hash of its English one.

    python -m tools.translation check            does each paragraph hold what its English has?
    python -m tools.translation check 02 docs/rosetta.md    some; tools.translation_lint says how
    python -m tools.translation status           how many paragraphs of each file are in Chinese

`<!-- en: 3f9c1a2b -->` stands in front of a paragraph of paired_md/zh/, docs/zh/ or x.zh.md. The
rules are gettext's; its .po files would hide the prose from readers on GitHub, and po4a is Perl.
`make sync` keeps a translation wherever its English has moved to. Where the English changed, the
Chinese stays in its place as `<!-- en: NEW was: OLD -->`, and the notebook has the English, until
somebody mends it; `make sync ACCEPT=02` says that it is still right. New English comes as
`<!-- en: HASH untranslated -->`. Chinese without English is kept at the end, in
`<!-- old zh: ... -->`, until its English comes back or somebody deletes it. What stands below
`<!-- en: none -->` has no English. The docstring of an exercise is a paragraph too: the 思路.
"""

import difflib
import hashlib
import inspect
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import jupytext
import nbformat
from jupytext.config import load_jupytext_config

from tools import translation_lint

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- en: ([0-9a-f]{8})(?: was: ([0-9a-f]{8})| (untranslated))? -->[ \t]*$",
                  re.MULTILINE)
OLD = re.compile(r"^<!-- old zh: (\w+)\n(.*?)\n-->[ \t]*$", re.MULTILINE | re.DOTALL)
NONE = "<!-- en: none -->"
ALMOST = re.compile(rf"^(?!{NONE}).*<!--\s*(?:en|old zh)\b.*$", re.MULTILINE)  # mistyped
COUNTED = "<!-- counted by make sync -->"  # up to the next comment
ROW = r"(?m)^(\| \[{} [^|]*\|[^|]*)\|.*$"  # of a notebook in README's table, up to what is counted
WEEK = r"(?m)^(\| \d+ \| {} \|.*\|) \d+ \|$"  # of a notebook in the instructors' plan: its points
EXERCISES = "<!-- counted by make sync: exercises -->"  # up to the next comment
APPROACH = "**思路"
# of other commands and folders than the English: of these the gate sees only the Chinese
ADAPTED = ("README.md", "instructor/student_README.md")


class TranslationError(Exception):
    """A file of the Chinese edition cannot be read; the message says where and what to do."""


@dataclass(eq=False)
class Unit:
    """A paragraph: the hash of its English, its text, and the hash of what that translates."""

    known: str  # none: Chinese that is kept
    text: str
    of: str = ""  # none: it is English, or not finished
    english: str = ""
    cell: int = 0  # the number of its Markdown cell
    docstring: bool = False

    @property
    def translated(self) -> bool:
        return self.of == self.known

    @property
    def shown(self) -> str:
        """What a notebook shows: English is seen from paired_md/zh/, a docstring in its code."""
        english = "" if self.docstring else self.english.replace("](../", "](../../")
        return self.text if self.translated else english

    def __str__(self) -> str:
        if not self.known:
            return f"<!-- old zh: {self.of or 'draft'}\n{self.text.replace('-->', '--&gt;')}\n-->"
        note = "" if self.translated else f" was: {self.of}" if self.of else " untranslated"
        return f"<!-- en: {self.known}{note} -->\n{self.text}".strip()


def digest(english: str) -> str:
    """Return the hash of a paragraph, wherever its lines end and whatever `make sync` counts."""
    text = re.sub(r"(<!-- counted.*?-->).*?<!--", r"\1<!--", english, flags=re.DOTALL)
    for row in (ROW, WEEK):
        text = re.sub(row.format(r"\d\d"), r"\1", text)
    text = re.sub(r"(?m)^git clone .* mlc-course.*$", "", text)
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:8]


def masters() -> list[Path]:
    """Return the English notebooks."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def file_of(master: Path) -> Path:
    """Return the path of a notebook's Chinese."""
    return ROOT / "paired_md" / "zh" / f"{master.stem}.md"


def files(names: Collection[str] = ()) -> dict[str, tuple[Path, Path]]:
    """Return English and Chinese files by name, all or some: "02", else the English one's path."""
    found = {}
    globs = ("paired_md/zh/*.md", "docs/zh/*.md", "*.zh.md", "*/*.zh.md")
    for path in sorted({*map(file_of, masters()), *(one for it in globs for one in ROOT.glob(it))}):
        folder = path.parent.parent if path.parent.name == "zh" else path.parent
        source = folder / path.name.replace(".zh.md", ".md")
        name = source.relative_to(ROOT).as_posix()
        if folder.name == "paired_md":
            source = ROOT / "notebooks" / f"{path.stem}.ipynb"
            name = path.name[:2] if source.exists() else name
        found[name] = (source, path)
    if unknown := set(names) - found.keys():
        raise TranslationError(f"Nothing Chinese is called {min(unknown)}: there are "
                               f"{', '.join(found)}.")
    return {name: pair for name, pair in found.items() if name in names or not names}


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of English Markdown.

    What has no words stays with a neighbour: fences, formulas and closing tags with what is above,
    <details> with what is below. A mark between the items of a list would make two lists of it.
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
    return [Unit(digest(one[0]), one[0], "", *one) for one in found], notebook


def units(text: str, name: str) -> list[Unit]:
    """Return what stands in a file, in its order, then what is kept. Raises TranslationError."""
    kept = [Unit("", chinese, known) for known, chinese in OLD.findall(text)]
    runs, found = [OLD.sub("", text)], []
    if name.startswith("paired_md"):  # what stands between code cells: two blank lines part nothing
        cells = jupytext.reads(runs[0], "md:markdown").cells
        runs = ["\n\n".join(cell.source for cell in run) for kind, run in
                groupby(cells, lambda cell: cell.cell_type) if kind == "markdown"]
    for run in runs:
        first, *pieces = MARK.split(run)
        for line in [*first.strip().splitlines(), *ALMOST.findall(MARK.sub("", run))][:1]:
            raise TranslationError(f"{name}: above the line {line[:60]!r} stands no mark, or it is "
                                   "a mistyped one: <!-- en: HASH -->, with the eight digits that "
                                   "it had (git diff shows them).")
        for known, was, untranslated, body in zip(*[iter(pieces)] * 4, strict=True):
            found.append(Unit(known, body.strip(), was or ("" if untranslated else known)))
    return found + kept


def foreign_code() -> list[str]:
    """Return a line for each Chinese code cell that is in neither form of its notebook."""
    lines = []
    for master in (master for master in masters() if file_of(master).exists()):
        twin = ROOT / "paired_md" / f"{master.stem}.md"
        known = as_markdown(nbformat.read(master, as_version=4))
        known += twin.read_text(encoding="utf-8") if twin.exists() else ""
        for cell in jupytext.read(file_of(master), fmt="md:markdown").cells:
            if cell.cell_type == "code" and cell.source not in known:
                line = next((one for one in cell.source.splitlines() if one not in known), "")
                lines.append(f"{file_of(master).relative_to(ROOT)}: a code cell differs, "
                             f"{line.strip()[:60]!r}: code is edited in notebooks/. Take it back.")
    return lines


def _alike(one: str, other: str) -> float:
    """Return how much of two texts is the same in any language: names, numbers, the beginning."""
    words = [{text[:1], *re.findall(r"[\w.]+", text, re.ASCII)} for text in (one, other)]
    return len(words[0] & words[1]) / len(words[0] | words[1])


def merge(wanted: list[Unit], have: list[Unit]) -> list[Unit]:
    """Give English paragraphs the Chinese that there is; return Chinese that has no English.

    That of the same English is taken, wherever it stood. In a stretch that changed, paragraphs
    stay in their order where there are as many as before; else what is left over goes to the
    paragraph that it is most like, or to that as far from the beginning.
    """
    have = [unit for unit in have if unit.text]  # without text: somebody took the Chinese out
    left = [unit for unit in have if unit.of or digest(unit.text) != unit.known]
    for want in wanted:
        own = [unit for unit in left if unit.known == want.known][:1]
        left = [unit for unit in left if unit not in own]
        for unit in own or [unit for unit in have if unit.of == want.known][:1]:
            want.text, want.of = unit.text, unit.of
    matcher = difflib.SequenceMatcher(None, [unit.known for unit in have],
                                      [want.known for want in wanted], autojunk=False)
    for kind, start, end, new, new_end in matcher.get_opcodes():
        as_many = end - start == new_end - new
        pairs = [(0 if as_many else -_alike(wanted[at].text, have[old].text),
                  abs(at - new - old + start), old, at)
                 for old in range(start, end) for at in range(new, new_end) if kind == "replace"]
        for *_, old, at in sorted(pairs):
            unit, want = have[old], wanted[at]
            if (unit in left and unit.known and want.text == want.english
                    and unit.text.startswith(APPROACH) == want.docstring
                    and unit.text.startswith("#") == want.text.startswith("#")):
                left.remove(unit)
                want.text, want.of = unit.text, unit.of
    used = {want.text for want in wanted}
    return [Unit("", unit.text, unit.of) for unit in left if unit.text not in used]


def as_markdown(notebook: nbformat.NotebookNode) -> str:
    """Return the Markdown that belongs to a notebook, by the repository's jupytext settings."""
    config = load_jupytext_config(str(ROOT / "notebooks" / "x.ipynb"))
    return jupytext.writes(notebook, "md:markdown", config=config)


def current(name: str, accept: bool = False
            ) -> tuple[list[Unit], str, nbformat.NotebookNode]:
    """Return the paragraphs of one of `files`, up to date, the file's text, and the notebook.

    Raises TranslationError.
    """
    ((source, path),) = files([name]).values()
    if not source.exists():
        raise TranslationError(f"{path.relative_to(ROOT)} is the Chinese of nothing: rename or "
                               "delete it.")
    wanted, notebook = english(source)
    have = units(path.read_text(encoding="utf-8") if path.exists() else "",
                 path.relative_to(ROOT).as_posix())
    kept = merge(wanted, have)
    for above, unit in pairwise(have):  # a 思路 stands where its translator has put it
        for one in [one for one in wanted if one.docstring and one.text == unit.text]:
            if place := [it for it in wanted if it.text == above.text and it.cell == one.cell]:
                wanted.remove(one)
                wanted.insert(wanted.index(place[0]) + 1, one)
    for unit in wanted:
        if accept and unit.of and not unit.translated:
            print(f"{name}: still right for {unit.english[:70]!r}")
            unit.of = unit.known
    text = "\n\n".join(map(str, wanted))
    if notebook.cells:
        shown = []
        cells = (cell for cell in notebook.cells if cell.cell_type == "markdown")
        for cell, (_, group) in zip(cells, groupby(wanted, lambda unit: unit.cell), strict=True):
            own = list(group)
            shown.append((cell, "\n\n".join(unit.shown for unit in own if unit.shown)))
            cell.source = "\n\n".join(map(str, own))
        text = as_markdown(notebook).rstrip("\n")
        for cell, said in shown:
            cell.source = said
        notebook.metadata["lang"] = "zh"
    return wanted, "\n\n".join([text, *map(str, kept)]) + "\n", notebook


def notebook(master: Path) -> nbformat.NotebookNode:
    """Return the Chinese notebook: the master's code cells, outputs, ids and metadata.

    A paragraph that waits for its translation is in English. Raises TranslationError.
    """
    return current(master.name[:2])[2]


def plain(text: str) -> str:
    """Return Chinese Markdown without marks and what is kept."""
    return re.sub(rf"(?:{MARK.pattern}|^{NONE}$)\n", "", OLD.sub("", text), flags=re.MULTILINE)


def write(change: bool = True, accept: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Bring the Chinese up to date, as far as its files can be read.

    Returns the names of the files that were (with `change=False`: would be) written, and the
    messages of those that cannot be read, which stay as they are.
    """
    written, wrong = [], []
    for name, (_, path) in files().items():
        try:
            _, text, _ = current(name, name in accept)
        except TranslationError as error:
            wrong.append(str(error))
            continue
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            written.append(path.relative_to(ROOT).as_posix())
            if change:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    return written, wrong


def check(names: Collection[str]) -> list[str]:
    """Return what Chinese paragraphs lack, or do wrong, a line each, with file and line."""
    found = []
    for name, (_, path) in files(names).items():
        text, folder = path.read_text(encoding="utf-8"), path.parent.relative_to(ROOT)
        above = folder.parent if folder.name == "zh" else folder
        if adapted := name in ADAPTED:
            folder = Path()  # students get theirs on top of a handout
        for unit in current(name)[0]:
            line = text[:max(0, text.find(f"<!-- en: {unit.known}"))].count("\n") + 1
            if unit.translated and not unit.text.startswith("[English]("):
                found += [f"{path.relative_to(ROOT)}:{line}: {wrong}" for wrong in
                          translation_lint.differences(
                              "" if unit.docstring or adapted else unit.english,
                              unit.text.partition(NONE)[0], folders=(above, folder))]
    return found


def counted(names: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return for each file how many paragraphs wait for their Chinese, and of how many."""
    return {name: (sum(not unit.translated for unit in made), len(made))
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
