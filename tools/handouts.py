"""Write what students get into build/handouts/: a zip, and HTML without and with solutions.

    python -m tools.handouts           all notebooks
    python -m tools.handouts 02 03     some of them, for one week

`make handouts LANG=zh` writes those of the Chinese edition into build/handouts/zh/.
The same files make the same zip, byte for byte. Nothing is written if part of a solution would be
in it.
"""

import base64
import functools
import html
import re
import sys
import zipfile
from pathlib import Path

import nbformat

from course.words import ROOT, _
from tools import lang, messages
from tools.pages import as_html
from tools.student import SOLUTION, student_version

BUILD = ROOT / lang.place("build/handouts")
TOP = "mlc"  # the folder in every zip: one unpacked over another adds notebooks
FILES = ("helpers.py", "course/**/*.py", "course/gpu/*.hpp", "course/ship/*", "docs/*",
         "data/README*.md", "data/*.py", "data/*.npz", "data/stand_in/**/*", "data/tuned/*",
         "requirements.txt", "tools/requirements-bench.txt", "LICENSE", "tools/__init__.py",
         "tools/install.py", "tools/lang.py",
         "tools/student.py", "tools/lab.py", "tools/doctor.py", "tools/execute.py",
         "tools/pages.py", "tools/progress.py", "tools/bench.py")
CHINESE = ("docs/zh/*", "course/words/zh.po")  # also in the Chinese handout
LONG = 45  # a secret line of this many characters may not be inside another line either


def readme(edition: str = "en") -> str:
    """Return the students' README."""
    end = {"en": ".md", "zh": ".zh.md"}[edition]
    return (ROOT / f"instructor/student_README{end}").read_text(encoding="utf-8")


def contents(paths: list[Path], edition: str = "en") -> dict[str, bytes]:
    """Return the files of a handout by name."""
    patterns = FILES + (CHINESE if edition == "zh" else ())
    found = {path.relative_to(ROOT).as_posix(): path.read_bytes()
             for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()}
    found["README.md"] = readme(edition).encode()
    # what a student types without LANG is for the edition that was handed out
    makefile = (ROOT / "instructor" / "student.mk").read_text(encoding="utf-8")
    found["Makefile"] = makefile.replace("EDITION := en\n", f"EDITION := {edition}\n").encode()
    for path in paths:
        notebook = student_version(path, edition, keep_given=True)
        name = f"{lang.place('notebooks', edition)}/{path.name}"
        found[name] = (nbformat.writes(notebook) + "\n").encode()
        page = f"{lang.place('html', edition)}/{path.stem}.html"
        found[page] = as_html(notebook, path.stem).encode()
    return dict(sorted(found.items()))


# ---- does a solution leak? ------------------------------------------------------------------


def _lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines() if len(line.strip()) > 20}


def _without_marks(page: str) -> str:
    """Return the text of HTML, and the pictures in it."""
    return html.unescape(re.sub(r"<(?!img)[^>]*>", "", page))


def _outputs(cell: nbformat.NotebookNode) -> tuple[set[str], set[str]]:
    """Return the lines of text and the pictures (base64) in a cell's outputs."""
    lines, pictures = set(), set()
    for output in cell.get("outputs", []):
        lines |= _lines(output.get("text", "") + "\n".join(output.get("traceback", [])))
        for kind, data in output.get("data", {}).items():
            if kind.startswith("image/") and kind != "image/svg+xml":
                pictures.add("".join(data.split()))
            elif isinstance(data, str):
                lines |= _lines(_without_marks(data) if kind == "text/html" else data)
    return lines, pictures


@functools.cache
def secrets() -> set[str]:
    """Return what the masters have only in solutions, or in outputs of solutions."""
    inside: set[str] = set()
    outside: set[str] = set()
    said: set[str] = set()
    # what a check says when it passes is in course/checks/, and is not part of an answer
    ticks = "\n".join([*(path.read_text(encoding="utf-8")
                         for path in ROOT.glob("course/checks/**/*.py")),
                       # in one piece
                       *(text for one in messages.extracted()
                         for text in (one.msgid, one.msgid_plural))])
    for path in lang.masters("en"):
        for cell in nbformat.read(path, as_version=4).cells:
            lines, pictures = _outputs(cell)
            if cell.metadata.get("nbgrader", {}).get("grade"):
                said |= {line for line in lines if line not in ticks}
                lines = set()
            solved = cell.metadata.get("nbgrader") or cell.source.startswith("# needs exercise")
            (inside if solved else outside).update(lines, pictures)
            for match in SOLUTION.finditer(cell.source):
                inside |= _lines(match[0])
            outside |= _lines(SOLUTION.sub("", cell.source))
    given = "\n".join(outside)  # the output of check_equivalence includes what a check says
    return (inside | {line for line in said if line not in given}) - outside


def _text(name: str, data: bytes) -> str:
    """Return a file of a handout as a reader sees it: text, without marks and escapes."""
    text = data.decode("utf-8", errors="replace")
    if name.endswith(".ipynb"):
        cells = nbformat.reads(text, as_version=4).cells
        outputs = [part for cell in cells for found in _outputs(cell) for part in found]
        return "\n".join([*(cell.source for cell in cells), *outputs])
    if name.endswith(".html"):
        return _without_marks(text)
    return base64.b64encode(data).decode() if name.endswith(".png") else text


def leaks(files: dict[str, bytes]) -> list[str]:
    """Return "file: line" for each part of a solution that is in a handout."""
    hidden = secrets()
    found = []
    for name, data in files.items():
        text = _text(name, data)
        lines = _lines(text)
        found += [f"{name}: {part[:90]}" for part in sorted(hidden)
                  if part in lines or len(part) >= LONG and part in text]
    return found


def pack(target: Path, files: dict[str, tuple[bytes, int]]) -> None:
    """Write a zip of files with their modes; the same files give the same bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in files.items():
            entry = zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0))
            entry.create_system, entry.compress_type = 3, zipfile.ZIP_DEFLATED  # Unix: modes count
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, data)


def main(numbers: list[str]) -> None:
    paths = lang.chosen(lang.masters("en"), numbers)
    files = contents(paths, lang.CHOSEN)
    if found := leaks(files):
        sys.exit("\n".join([_("Not written, solutions would leak:"), *found]))
    for folder in ("student", "solved"):
        (BUILD / folder).mkdir(parents=True, exist_ok=True)
    for path in paths:
        page = files[f"{lang.place('html')}/{path.stem}.html"]
        (BUILD / "student" / f"{path.stem}.html").write_bytes(page)
        solved = as_html(lang.read(path), f"{path.stem}, solved")
        (BUILD / "solved" / f"{path.stem}_solved.html").write_text(solved, encoding="utf-8")
    words = ["mlc", *(["zh"] if lang.CHOSEN == "zh" else []),
             *(path.name[:2] for path in paths if numbers)]
    target = BUILD / f"{'_'.join(words)}.zip"
    place = lang.place("build/handouts")
    pack(target, {f"{TOP}/{name}": (data, 0o644) for name, data in files.items()})
    print(_("{file}: {notebooks} notebooks, {files} files, {size} MB").format(
        file=f"{place}/{target.name}", notebooks=len(paths), files=len(files),
        size=f"{target.stat().st_size / 1e6:.1f}"))
    print(_("{student} and {solved}: the same as HTML. Keep solved/ to yourself.").format(
        student=f"{place}/student/", solved=f"{place}/solved/"))


if __name__ == "__main__":
    main(sys.argv[1:])
