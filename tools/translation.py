"""The Chinese edition: paired_md/zh/ holds the Chinese of each Markdown cell on the master's code.

    python -m tools.translation check          does each Chinese cell hold what its English has?
    python -m tools.translation check 02 03    some notebooks; tools.translation_lint says how
    python -m tools.translation status         how many cells of each notebook are translated

In front of each Markdown cell of paired_md/zh/NN_name.md is a comment with a hash of the
English cell whose Chinese follows, `<!-- en: 3f9c1a2b7d -->`. `make sync` writes the code cells
anew from the master. It keeps a translation as long as its hash is that of a cell of the master,
wherever that has moved to; where none fits it puts the English, marked as
`<!-- en: 3f9c1a2b7d untranslated -->`. Chinese whose English has changed or gone is kept in a
comment, `<!-- old zh: ... -->`, behind the cell that took its place, until somebody deletes it.
Nothing is guessed.
"""

import difflib
import hashlib
import re
import sys
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import jupytext
import nbformat
from jupytext.config import load_jupytext_config

from tools import translation_lint

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "paired_md" / "zh"
MARK = re.compile(r"^<!-- en: ([0-9a-f]{10})( untranslated)? -->[ \t]*$", re.MULTILINE)
OLD = re.compile(r"^<!-- old zh: ([0-9a-f]{10})\n(.*?)\n-->[ \t]*$", re.MULTILINE | re.DOTALL)
COUNTED = "<!-- counted by make sync -->"  # up to the next comment
EXERCISES = "<!-- counted by make sync: exercises -->"  # the same
ALMOST = re.compile(r"^.*<!--\s*(?:en|old zh)\b.*$", re.MULTILINE)  # a mark that somebody mistyped


class TranslationError(Exception):
    """A file of the Chinese edition cannot be read; the message says where and what to do."""


def kept(known: str, chinese: str) -> str:
    """Return the comment that keeps Chinese whose English, of this hash, has changed or is gone."""
    return f"<!-- old zh: {known}\n{chinese.replace('-->', '--&gt;')}\n-->"


@dataclass
class Block:
    """The Chinese of one English Markdown cell: its hash, the text, what is kept from before."""

    digest: str
    text: str
    translated: bool = True
    old: list[str] = field(default_factory=list)  # by `kept`

    def __str__(self) -> str:
        mark = f"<!-- en: {self.digest}{'' if self.translated else ' untranslated'} -->"
        return "\n\n".join([f"{mark}\n{self.text}", *self.old])

    @property
    def pristine(self) -> bool:
        """Whether nobody has worked on it: it holds the English."""
        return not self.translated and digest(self.text) == self.digest


def digest(english: str) -> str:
    """Return the hash that names an English cell: ten hexadecimal digits of its SHA-256."""
    return hashlib.sha256(english.strip().encode()).hexdigest()[:10]


def masters() -> list[Path]:
    """Return the English notebooks."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def chosen(numbers: Collection[str]) -> list[Path]:
    """Return the English notebooks with these numbers, or all. Raises TranslationError."""
    found = [path for path in masters() if not numbers or path.name[:2] in numbers]
    if unknown := set(numbers) - {path.name[:2] for path in found}:
        raise TranslationError(f"There is no notebook {min(unknown)}: take the two digits of its "
                               "name.")
    return found


def file_of(master: Path) -> Path:
    """Return the path of a notebook's Chinese."""
    return FOLDER / f"{master.stem}.md"


def english(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """Return the Markdown cells of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


# ---- reading ---------------------------------------------------------------------------------


def _runs(text: str) -> list[str]:
    """Return the Markdown between code cells: two blank lines by hand do not make two cells."""
    cells = jupytext.reads(text, "md:markdown").cells
    return ["\n\n".join(cell.source for cell in run)
            for kind, run in groupby(cells, lambda cell: cell.cell_type) if kind == "markdown"]


def blocks(text: str, name: str) -> list[Block]:
    """Return the blocks of a file of paired_md/zh/, in its order. Raises TranslationError."""
    found = []
    for run in _runs(text):
        first, *pieces = MARK.split(run)
        if first.strip():
            raise TranslationError(f"{name}: no line <!-- en: ... --> stands in front of the text "
                                   f"{first.strip().splitlines()[0][:60]!r}. Put back the one it "
                                   "had (git diff shows it).")
        for known, untranslated, body in zip(*[iter(pieces)] * 3, strict=True):
            content, old = OLD.sub("", body).strip(), [kept(*found) for found in OLD.findall(body)]
            if wrong := ALMOST.search(content):
                raise TranslationError(f"{name}: the line {wrong[0][:60]!r} is no mark as it "
                                       "should be. <!-- en: HASH -->, with the ten digits it had, "
                                       "is one.")
            found.append(Block(known, content, not untranslated, old))
    return found


# ---- putting together --------------------------------------------------------------------------


def _places(before: list[str], after: list[str]) -> list[int]:
    """Return, for each hash of the file, the number of the master's cell that it belongs to.

    That is the cell of the same hash; else, in a stretch that changed, the cell as far from its
    beginning.
    """
    first = {known: number for number, known in reversed(list(enumerate(after)))}
    places = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for _, start, end, new, new_end in matcher.get_opcodes():
        for number in range(start, end):
            place = min(new + number - start, new_end - 1)
            if before[number] != after[place]:
                place = first.get(before[number], place)
            places.append(max(0, place))
    return places


def merged(notebook: nbformat.NotebookNode, have: list[Block]) -> list[Block]:
    """Return a block for each Markdown cell of the master, with all the work that `have` holds."""
    cells = [cell.source.strip() for cell in english(notebook)]
    wanted = [digest(cell) for cell in cells]
    work: dict[str, list[Block | None]] = defaultdict(list)
    for given in have:
        work[given.digest].append(None if given.pristine else given)
    result: list[Block] = []
    used = []
    for known, cell in zip(wanted, cells, strict=True):
        of_it = work[known]
        # the same English elsewhere: the same Chinese
        twins = (other for other in have if other.digest == known and other.translated)
        block = (of_it.pop(0) if of_it else None) or next(twins, None)
        if block is None:
            result.append(Block(known, cell, translated=False))
        else:
            used.append(block.text)
            result.append(Block(known, block.text, block.translated))
    for given, place in zip(have, _places([given.digest for given in have], wanted), strict=True):
        if not given.pristine and given.text and given.text not in used:
            result[place].old.append(kept(given.digest, given.text))
        result[place].old += given.old
    return result


def current(master: Path) -> tuple[nbformat.NotebookNode, list[Block]]:
    """Return an English notebook and the blocks of its Chinese, up to date.

    Raises TranslationError.
    """
    notebook = nbformat.read(master, as_version=4)
    path = file_of(master)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return notebook, merged(notebook, blocks(text, path.relative_to(ROOT).as_posix()))


def as_markdown(notebook: nbformat.NotebookNode) -> str:
    """Return the Markdown that belongs to a notebook, by the repository's jupytext settings."""
    config = load_jupytext_config(str(ROOT / "notebooks" / "x.ipynb"))
    return jupytext.writes(notebook, "md:markdown", config=config)


def up_to_date(master: Path) -> str:
    """Return what a notebook's file of paired_md/zh/ should hold. Raises TranslationError."""
    made, have = current(master)
    for cell, block in zip(english(made), have, strict=True):
        cell.source = str(block)
    return as_markdown(made)


def notebook(master: Path) -> nbformat.NotebookNode:
    """Return the Chinese notebook: the master's code cells, outputs, ids and metadata.

    A cell that waits for its translation is in English. Raises TranslationError.
    """
    made, have = current(master)
    for cell, block in zip(english(made), have, strict=True):
        cell.source = block.text if block.translated else cell.source.replace("](../", "](../../")
    made.metadata["lang"] = "zh"
    return made


def write(change: bool = True) -> tuple[list[str], list[str]]:
    """Bring paired_md/zh/ up to date, as far as its files can be read.

    Returns the names of the notebooks whose file was (with `change=False`: would be) written, and
    the messages of those that cannot be read, which stay as they are.
    """
    written, wrong = [], []
    for master in masters():
        path = file_of(master)
        try:
            text = up_to_date(master)
        except TranslationError as error:
            wrong.append(str(error))
            continue
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            written.append(master.stem)
            if change:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    names = {master.stem for master in masters()}
    wrong += [f"{path.relative_to(ROOT)} belongs to no notebook: rename or delete it."
              for path in sorted(FOLDER.glob("*.md")) if path.stem not in names]
    return written, wrong


def status(numbers: Collection[str]) -> list[str]:
    """Return a line for each notebook: what is translated, what is not, what is kept beside it."""
    lines = []
    for master in chosen(numbers):
        _, have = current(master)
        lines.append(f"{master.stem}: {sum(block.translated for block in have)} of {len(have)} "
                     f"cells in Chinese, {sum(len(block.old) for block in have)} kept beside")
    return lines


def check(numbers: Collection[str]) -> list[str]:
    """Compare the cells of some notebooks, or of all, with their English.

    Returns what is missing or wrong in the Chinese, a line each, with file and line.
    """
    found = []
    for master in chosen(numbers):
        path = file_of(master)
        notebook, have = current(master)
        text = path.read_text(encoding="utf-8")
        for cell, block in zip(english(notebook), have, strict=True):
            line = text[:max(0, text.find(f"<!-- en: {block.digest}"))].count("\n") + 1
            if block.translated:
                found += [f"{path.relative_to(ROOT)}:{line}: {wrong}"
                          for wrong in translation_lint.differences(cell.source, block.text)]
    return found


def counted(numbers: Collection[str] = ()) -> dict[str, tuple[int, int]]:
    """Return for each notebook's number how many cells wait for their Chinese, and of how many."""
    return {master.name[:2]: (sum(not block.translated for block in have), len(have))
            for master in chosen(numbers) for _, have in [current(master)]}


def summary(counts: dict[str, tuple[int, int]], language: str = "en") -> str:
    """Say, in "en" or "zh", how far the translation is."""
    waits = {number: waiting for number, (waiting, _) in counts.items() if waiting}
    left, total = sum(waits.values()), sum(every for _, every in counts.values())
    if language == "zh":
        where = "，".join(f"{number}：{count}" for number, count in waits.items())
        return (f"{total} 个单元格中译好 {total - left} 个，"
                f"{left} 个待译或待更新（{where}）" if waits
                else f"{total} 个单元格全部译好，没有一个比英文旧")
    where = ", ".join(f"{number}: {count}" for number, count in waits.items())
    return (f"{total - left} of {total} cells are in Chinese; {left} wait for a translation, or "
            f"for a newer one ({where})" if waits else
            f"all {total} cells are in Chinese, and none is older than its English")


def exercises(language: str = "en") -> str:
    """Say, in "en" or "zh", how many exercises and notebooks the course has."""
    paths = masters()
    graded = sum(bool(cell.metadata.get("nbgrader", {}).get("grade")) for path in paths
                 for cell in nbformat.read(path, as_version=4).cells)
    return (f"{len(paths)} 个 notebook，{graded} 道练习" if language == "zh"
            else f"{graded} exercises in {len(paths)} notebooks")


def readmes(change: bool = True) -> list[str]:
    """Write the counts where a README has places for them; return the names that had others."""
    counts, other = counted(), []
    for name, language in (("README.md", "en"), ("README.zh.md", "zh")):
        path = ROOT / name
        wanted = text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for place, said in ((COUNTED, summary(counts, language)), (EXERCISES, exercises(language))):
            before, mark, rest = wanted.partition(place)
            wanted = before + mark + said + rest[rest.index("<!--"):] if mark else wanted
        if wanted != text:
            other.append(name)
            if change:
                path.write_text(wanted, encoding="utf-8")
    return other


def main(task: str = "", *numbers: str) -> None:
    """Do what the module's text says; exit with what is wrong, a line each."""
    if task not in ("check", "status"):
        sys.exit(__doc__)
    found: list[str] = []
    try:
        if task == "status":
            print("\n".join(status(numbers)))
        else:
            found = check(numbers)
            print(f"Chinese edition: {summary(counted(numbers))}.")
    except TranslationError as error:
        sys.exit(str(error))
    if found:
        sys.exit("\n".join([*found, f"{len(found)} things in the Chinese edition are to be mended; "
                            "the words stand in docs/glossary.md."]))


if __name__ == "__main__":
    main(*sys.argv[1:])
