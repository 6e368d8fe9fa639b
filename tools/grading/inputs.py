"""Find whose file is whose, and which notebook it is, as learning platforms and students pack them.

Nothing here runs a line of a submission or follows a link; archives are read up to limits.
"""

import contextlib
import os
import re
import stat
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

from course.words import Sentence, _
from tools import lang
from tools.grading.submission import MOST_FILE, printable, read

MOST_ENTRIES = 20_000  # files and folders examined for one student, or in an archive
MOST_UNPACKED = 400_000_000  # bytes of an archive that are read
MOST_DEPTH = 2  # archives in archives
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
# user and submission (Canvas), or user (Moodle), before the file's original name
PLATFORMS = re.compile(r"(?P<who>.+?_(?:LATE_)?\d+)_(?:\d+_|assignsubmission_\w+?_)(?P<file>.+)")
Marks = Mapping[str, set[bytes]]


def known() -> Marks:
    """Return what identifies each notebook of the course, by its stem: see `_ids`."""
    return {path.stem: _ids(path.read_bytes()) for path in lang.masters("en")}


def _ids(data: bytes) -> set[bytes]:
    """Return the ids of cells, and the names of exercises, in which was a dot until autumn 2026."""
    return {one.replace(b".", b"-")
            for one in re.findall(rb'"(?:grade_)?id"\s*:\s*"([\w.-]+)"', data)}


def _entries(path: Path) -> Iterator[tuple[str, float, IO[bytes]]]:
    """Yield the ordinary files of an archive: name, time, and an open file."""
    if path.name.lower().endswith(".zip"):
        with zipfile.ZipFile(path) as packed:
            for info in packed.infolist()[:MOST_ENTRIES]:
                if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16):
                    with packed.open(info) as inner:
                        yield info.filename, time.mktime((*info.date_time, 0, 0, -1)), inner
    else:
        with tarfile.open(path) as tape:
            for _number, member in zip(range(MOST_ENTRIES), tape, strict=False):
                if member.isreg() and (file := tape.extractfile(member)):
                    yield member.name, member.mtime, file


def _may_be_one(name: str) -> bool:
    """Whether a file may be a notebook, or contain one."""
    name = name.lower()
    return not name.startswith("._") and not re.search(r"\.old\d+", name) and (
        ".ipynb" in name or name.endswith((".json", *ARCHIVES)))


def unpack(archive: Path, to: Path, depth: int = 1) -> list[Sentence]:
    """Write an archive's possible notebooks into a folder; return what was wrong."""
    left, notes, name = MOST_UNPACKED, [], printable(archive.name)
    try:
        for number, (inner, when, file) in enumerate(_entries(archive)):
            parts = [part for part in PurePosixPath(inner.replace("\\", "/")).parts if part != "/"]
            if not parts or not _may_be_one(parts[-1]) \
                    or {"..", ".ipynb_checkpoints"} & set(parts):
                continue
            data = file.read(min(MOST_FILE, left) + 1)
            if len(data) > min(MOST_FILE, left):
                notes.append(_("{file} holds too much: the rest was not read").format(file=name))
                break
            left -= len(data)
            place = to.joinpath(*(f"{part[:50]}~{number}{Path(part).suffix}" if len(part) > 100
                                  else part.replace("\0", "") for part in parts))
            with contextlib.suppress(OSError, OverflowError):  # one name twice; no such time
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(data)
                os.utime(place, (when, when))
            if depth and place.name.lower().endswith(ARCHIVES):  # a class's: these are students'
                notes += unpack(place, place.with_name(f"{place.name}~"), depth + 1) \
                    if depth < MOST_DEPTH else []
                place.unlink(missing_ok=True)
    except Exception as error:  # whatever zipfile, tarfile and their like raise for a broken file
        notes.append(_("{file} cannot be opened ({error})").format(
            file=name, error=printable(str(error))[:100]))
    return notes


def unpacked(place: Path, scratch: Path) -> Path:
    """Return the folder of a class, which may be an archive; exit if there is none."""
    if place.is_file() and place.name.lower().endswith(ARCHIVES):
        for note in unpack(place, folder := scratch / "class", depth=0):
            print(note)
        while folder.is_dir() and len(inner := list(folder.iterdir())) == 1 and inner[0].is_dir():
            folder = inner[0]  # as Gradescope packs an export
        place = folder
    if not place.is_dir():
        sys.exit(_("There is no folder {place}: make grade SUBMISSIONS=folder, with a folder, an "
                   "archive or files in it for each student.").format(place=place))
    return place


def _who(name: str, known: Marks) -> str:
    """Return whose file it is, by the prefix that a platform gave its name."""
    if match := PLATFORMS.match(name):
        return match["who"].replace("_LATE_", "_")
    score, best = _fit(name, known)
    words = re.sub(r"[^a-z0-9]+", ".", best[3:])
    found = re.search(rf"(?:^|[^a-z0-9]){best[:2]}[^a-z0-9]|{words}", name, re.IGNORECASE)
    front = name[:found.start()].strip(" _-.") if found and score else ""
    return front or name.partition(".")[0]


def students(folder: Path, known: Marks) -> dict[str, list[Path]]:
    """Return the files of each student, by printable names; say what else is there.

    Exits if there are none. Names that look alike are made distinct.
    """
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        name = path.name
        if name[0] in "._" or path.is_symlink():  # macOS and Windows leave such files behind
            print(_("{file} is not a student's: left out. Rename it if it is one.").format(
                file=printable(name)))
        elif path.is_dir():
            found[printable(name)] = [path]
        elif _may_be_one(name):
            flat = PLATFORMS.match(name) or not name.lower().endswith(ARCHIVES)
            who = _who(name, known) if flat else name.partition(".")[0]
            found.setdefault(printable(who), []).append(path)
        else:
            print(_("{file} is not a readable notebook, folder or archive: left out.").format(
                file=printable(name)))
    if not found:
        sys.exit(_("{place} has no student's work: it needs a folder, an archive or files for each "
                   "student.").format(place=folder))
    return found


@dataclass
class Found:
    """The files of a student: which notebook each is, and notes about it."""

    taken: dict[str, Path] = field(default_factory=dict)  # by the notebook's stem
    notes: dict[str, list[Sentence]] = field(default_factory=dict)
    absent: Sentence | None = None  # the note for a notebook that is not there

    def of(self, wanted: Sequence[str]) -> "Found":
        """Return those of some notebooks that are there, with a note for each of the others."""
        notes = {stem: self.notes.get(stem, [] if stem in self.taken else [
            _("{number} {what}").format(number=stem[:2], what=self.absent)]) for stem in wanted}
        return Found({stem: path for stem, path in self.taken.items() if stem in wanted}, notes)


def _files(place: Path, notes: list[Sentence]) -> Iterator[Path]:
    """Yield the files of a folder and below; raises nothing, follows no link."""
    def closed(error: OSError) -> None:
        notes.append(_("{file} cannot be read").format(
            file=printable(os.path.basename(error.filename))))

    if not place.is_dir():
        yield place
        return
    seen = 0
    for at, folders, names in os.walk(place, onerror=closed):
        folders[:] = sorted(name for name in folders if name not in (
            ".ipynb_checkpoints", "__MACOSX", ".venv", ".git"))
        for name in sorted(names):
            seen += 1
            if seen > MOST_ENTRIES:
                notes.append(_("more than {count} files: the rest was not looked at").format(
                    count=MOST_ENTRIES))
                return
            yield Path(at, name)


def _fit(name: str, known: Marks) -> tuple[int, str]:
    """Return how well a file's name fits a notebook, and which: 0 is not at all, 4 is exactly.

    Learning platforms and browsers add names and numbers in front and behind: "anna_77_02_emit_te_
    ingestion-2.ipynb", "02_emit_te_ingestion (1).IPYNB", "Anna 02 emit-te-ingestion.ipynb.txt".
    """
    slug = f"_{re.sub('[^a-z0-9]+', '_', name.lower()).strip('_')}_"
    return max(((4 - [name == f"{stem}.ipynb", f"_{stem}_" in slug, stem[3:] in slug,
                      slug.startswith(f"_{stem[:2]}_"), True].index(True), stem)
                for stem in known), key=lambda one: one[0])


def find(places: Sequence[Path], known: Marks, scratch: Path) -> Found:
    """Return a student's copies of the notebooks, with notes about each.

    Of several copies, one in work/ is taken, else the newest; a file that only begins with the
    notebook's number comes last. Archives are unpacked in `scratch`.
    """
    found, strangers = Found(), []
    general: list[Sentence] = []
    fits: dict[str, list[tuple[Any, ...]]] = {}

    def look(place: Path, top: Path) -> None:
        for path in _files(place, general):
            where = printable(str(path.relative_to(top)))
            ordinary = os.path.isfile(path) and not os.path.islink(path)  # these raise nothing
            if path.name.lower().endswith(ARCHIVES) and ordinary:
                folder = scratch / f"unpacked {len(list(scratch.iterdir()))}"
                general.extend(unpack(path, folder))
                look(folder, folder)
                continue
            name = match["file"] if (match := PLATFORMS.match(path.name)) else path.name
            (score, best), may_be = _fit(name, known), _may_be_one(name)
            if may_be and not score:
                with contextlib.suppress(ValueError):
                    there = _ids(read(path))  # by its cells
                    count, best = max((len(ids & there), stem) for stem, ids in known.items())
                    score = int(count >= 3)
            if not score or not may_be:
                if (may_be or score > 1) and ".old" not in name:
                    strangers.append(where)
            elif not ordinary:
                note = _("{number}: {file} is not an ordinary file")
                found.notes.setdefault(best, []).append(note.format(number=best[:2], file=where))
            else:
                parts = list(path.relative_to(top).parts[:-1])
                fits.setdefault(best, []).append((
                    -parts.index("work") if "work" in parts else -99, score > 1,
                    path.stat().st_mtime, score, -len(parts), where, path))

    for place in places:
        look(place, place if place.is_dir() else place.parent)
    for stem, files in fits.items():
        *_rank, where, found.taken[stem] = max(files)
        if len(files) > 1 or Path(where).name != f"{stem}.ipynb":
            found.notes.setdefault(stem, []).append(
                _("{number}: {count} file(s) could be it, {file} was taken").format(
                    number=stem[:2], count=len(files), file=where))
    found.absent = _("was not found by its name or its cells; there is {files}").format(
        files=", ".join(strangers[:3]) + f" (+ {len(strangers) - 3})" * (len(strangers) > 3)
        ) if strangers else _("was not handed in")
    if general:
        found.absent = _("{what} ({more})").format(what=found.absent,
                                                   more=_("; ").join(general[:3]))
    return found
