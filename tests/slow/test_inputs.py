"""Whose files are whose, and which notebook each is: as platforms and students pack them."""

import io
import os
import random
import shutil
import tarfile
import zipfile
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("nh3", reason="nh3 is missing: `make test-all` installs it")
import submissions
from submissions import BOX, ROOT, STEM, answers, raw

from tools.grading import inputs
from tools.grading.inputs import find, students, unpack

KNOWN = inputs.known()
ONE, BOTH = raw(answers("2.1")), raw(answers("2.1", "2.2"))


def zipped(**files: bytes) -> bytes:
    """Return a zip; the names' __ is /, and their _ipynb the ending."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_ipynb", ".ipynb"), data)
    return made.getvalue()


def _write(place: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place


@pytest.mark.parametrize("name", [
    f"{STEM}.ipynb", f"{STEM} (1).ipynb", f"{STEM}.IPYNB", f"{STEM}-2.ipynb", f"{STEM}.ipynb.txt",
    f"anna_4711_{STEM}.ipynb", f"Anna Lena_123_assignsubmission_file_{STEM}.ipynb", f"{STEM}.json",
    "02 Emit TE Ingestion.ipynb", f"late_99_{STEM}_v3 FINAL.ipynb", "emit_te_ingestion.ipynb",
    "02.ipynb", "02_mine.ipynb", f"{STEM}~.ipynb", f"copy of {STEM}.ipynb.json"])
def test_names_that_platforms_make_are_understood(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert find([tmp_path], KNOWN, tmp_path).taken == {STEM: tmp_path / name}


@pytest.mark.parametrize("name", ["homework.ipynb", "2_emit.ipynb", "x02y.ipynb", f"{STEM}.py"])
def test_a_notebook_that_fits_none_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    found = find([tmp_path], KNOWN, tmp_path).of([STEM])
    assert found.taken == {} and found.notes == {
        STEM: [f"02 was not found by its name or its cells; there is {name}"]}


def test_a_notebook_is_known_by_its_cells(tmp_path: Path) -> None:
    bare = answers("2.1")
    for one in bare.cells:
        one.metadata = nbformat.NotebookNode()
    for name, data in [("homework.ipynb", ONE), ("final version.ipynb", raw(bare))]:
        place = _write(tmp_path / name[:5], {name: data})
        assert find([place], KNOWN, tmp_path).taken == {STEM: place / name}


COPIES = [  # what is there, and which of them is taken; the first is the oldest
    ([f"backup/{STEM}.ipynb", f"work/{STEM}.ipynb"], 1),
    ([f"work/{STEM}.ipynb", f"Copy of work/{STEM}.ipynb", f"notebooks/{STEM}.ipynb"], 0),
    ([f"mlc/work/{STEM}.ipynb", f"mlc/backup/work/{STEM}.ipynb", f"mlc/notebooks/{STEM}.ipynb"], 0),
    ([f"mlc/work/zh/{STEM}.ipynb", f"mlc/notebooks/zh/{STEM}.ipynb"], 0),
    ([f"{STEM} (1).ipynb", f"{STEM}.ipynb", f"{STEM} (2).ipynb"], 2),
    ([f"{STEM}.ipynb", f"{STEM}-Copy1.ipynb"], 1), ([f"{STEM}.ipynb", "02_mine.ipynb"], 0),
    ([f"work/{STEM}.ipynb", f"work/.ipynb_checkpoints/{STEM}.ipynb"], 0),
]


@pytest.mark.parametrize(("names", "taken"), COPIES, ids=[names[0] for names, _ in COPIES])
def test_of_several_copies_work_counts_then_the_newest(tmp_path: Path, names: list[str],
                                                       taken: int) -> None:
    _write(tmp_path, dict.fromkeys(names, ONE))
    for when, name in enumerate(names):
        os.utime(tmp_path / name, (1e9 + 60 * when, 1e9 + 60 * when))
    found = find([tmp_path], KNOWN, tmp_path)
    assert found.taken == {STEM: tmp_path / names[taken]}
    if "checkpoints" not in names[-1]:
        assert found.notes[STEM] == [
            f"02: {len(names)} file(s) could be it, {names[taken]} was taken"]


def test_archives_are_read_and_nothing_leaves_their_folder(tmp_path: Path) -> None:
    inner = zipped(**{f"deep__{STEM}_ipynb": ONE})
    hostile = io.BytesIO()
    with zipfile.ZipFile(hostile, "w") as archive:
        archive.writestr("../escaped.ipynb", ONE)
        archive.writestr("/absolute.ipynb", ONE)
        archive.writestr("..\\windows.ipynb", ONE)
        link = zipfile.ZipInfo("link.ipynb")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("one.zip", inner)
        archive.writestr("helpers.py", "evil")
    tape = io.BytesIO()
    with tarfile.open(fileobj=tape, mode="w:gz") as archive:
        for kind, name in [(tarfile.SYMTYPE, "link.ipynb"), (tarfile.CHRTYPE, "device.ipynb")]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        info = tarfile.TarInfo(f"work/{STEM}.ipynb")
        info.size = len(ONE)
        archive.addfile(info, io.BytesIO(ONE))
    _write(tmp_path / "in", {"a.zip": hostile.getvalue(), "b.tgz": tape.getvalue(), "c.zip": b"PK"})
    for name in ("a.zip", "b.tgz"):
        assert unpack(tmp_path / "in" / name, tmp_path / "out" / name) == []
    came = {str(path.relative_to(tmp_path / "out")): path.read_bytes()
            for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert came == {f"a.zip/one.zip~/deep/{STEM}.ipynb": ONE, "a.zip/absolute.ipynb": ONE,
                    f"b.tgz/work/{STEM}.ipynb": ONE}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))
    assert "c.zip cannot be opened (" in unpack(tmp_path / "in" / "c.zip", tmp_path / "c")[0]


def test_what_an_archive_may_hold_is_limited(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(inputs, "MOST_UNPACKED", 1_000_000)
    monkeypatch.setattr(inputs, "MOST_ENTRIES", 50)
    nested = zipped(a_ipynb=b"3")
    for _ in range(5):
        nested = zipped(a_zip=nested).replace(b"a_zip", b"a.zip")
    _write(tmp_path, {"large.zip": zipped(**{f"{i}_ipynb": bytes(400_000) for i in range(5)}),
                      "many.zip": zipped(**{f"{i}_ipynb": b"1" for i in range(99)}),
                      "deep.zip": nested})
    assert unpack(tmp_path / "large.zip", tmp_path / "1") == [
        "large.zip holds too much: the rest was not read"]
    assert sum(path.stat().st_size for path in (tmp_path / "1").iterdir()) <= 1_000_000
    assert unpack(tmp_path / "many.zip", tmp_path / "2") == []
    assert len(list((tmp_path / "2").iterdir())) == 50
    unpack(tmp_path / "deep.zip", tmp_path / "3")
    assert not [path for path in tmp_path.glob("3/**/*") if path.is_file()]


def test_a_broken_archive_is_a_line(tmp_path: Path) -> None:
    """Whatever byte is wrong, in each way in which a zip is packed; other entries are read."""
    draw = random.Random(0)
    for kind in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", kind) as archive:
            for name in (".", "a.ipynb", "a.ipynb/b.ipynb", "/", f"{'y' * 300}.ipynb"):
                archive.writestr(name, ONE)
        path = _write(tmp_path, {"whole.zip": made.getvalue()}) / "whole.zip"
        assert unpack(path, tmp_path / f"whole {kind}") == []
        assert len(list((tmp_path / f"whole {kind}").iterdir())) == 2
        for number in range(60):
            data = bytearray(made.getvalue())
            for _ in range(1 + number // 10):
                data[draw.randrange(len(data))] = draw.randrange(256)
            _write(tmp_path, {"broken.zip": bytes(data)})
            for note in unpack(tmp_path / "broken.zip", tmp_path / f"{kind} {number}"):
                assert "broken.zip cannot be opened (" in note or "holds too much" in note
    assert not list(tmp_path.rglob("b.ipynb"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_may_not_be_looked_into_is_a_line(tmp_path: Path) -> None:
    _write(tmp_path, {f"closed/{STEM}.ipynb": ONE})
    (tmp_path / "closed").chmod(0o444)
    assert "is not an ordinary file" in find([tmp_path], KNOWN, tmp_path).of([STEM]).notes[STEM][0]
    (tmp_path / "closed").chmod(0o755)


CLASSES = {
    "Canvas": ({f"smithjohn_12345_67890_{STEM}.ipynb": ONE,
                f"doejane_LATE_23456_78901_{STEM}-1.ipynb": BOTH,
                "leeann_34567_89012_homework.zip": zipped(**{f"work__{STEM}_ipynb": ONE}),
                "wuli_45678_90123_homework.ipynb": ONE},
               {"smithjohn_12345": 1, "doejane_23456": 3, "leeann_34567": 1, "wuli_45678": 1}),
    "Moodle": ({f"Jane Doe_123_assignsubmission_file_/{STEM}.ipynb": ONE,
                f"Li Wu_124_assignsubmission_file_{STEM}.ipynb": BOTH,
                "Bo Ek_125_assignsubmission_file_/work.zip": zipped(**{f"{STEM}_ipynb": ONE})},
               {"Jane Doe_123_assignsubmission_file_": 1, "Li Wu_124": 3,
                "Bo Ek_125_assignsubmission_file_": 1}),
    "Gradescope": ({f"assignment_1_export/submission_11/{STEM}.ipynb": ONE,
                    f"assignment_1_export/submission_12/{STEM}.ipynb": BOTH,
                    "assignment_1_export/submission_metadata.yml": b""},
                   {"submission_11": 1, "submission_12": 3}),
    "by hand": ({"jane_doe.zip": zipped(**{f"mlc__work__{STEM}_ipynb": ONE,
                                          f"mlc__notebooks__{STEM}_ipynb": raw(answers())}),
                 f"anna_77_{STEM}.ipynb": BOTH, "ben/my work.zip": zipped(**{f"{STEM}_ipynb": ONE}),
                 "zoe/nothing.txt": b""}, {"jane_doe": 1, "anna_77": 3, "ben": 1, "zoe": 0})}


@pytest.fixture(scope="module")
def build() -> Path:
    """Where all classes are graded: the results of a file are kept, for it is in most of them."""
    place = ROOT / "build" / "test_inputs"
    shutil.rmtree(place, ignore_errors=True)
    return place


@BOX
@pytest.mark.parametrize("platform", CLASSES)
def test_a_class_is_read_as_a_platform_packs_it(tmp_path: Path, platform: str, build: Path
                                                ) -> None:
    """From the archive that the platform gives: a row for every student, with the points."""
    files, points = CLASSES[platform]
    (tmp_path / "class.zip").write_bytes(zipped(**files))
    place = _write(tmp_path / "class", files) if platform == "by hand" else tmp_path / "class.zip"
    run = submissions.run(submissions.command(place, build, 60), build)
    assert run.status == 0, run.printed
    assert {name: int(row["total"]) for name, row in run.rows.items()} == points, run.printed


def test_names_of_students(tmp_path: Path, capsys) -> None:
    _write(tmp_path, {"a.ipynb": ONE, f"{STEM}.ipynb": ONE, "notes.pdf": b"", ".hidden/x": b""})
    assert set(students(tmp_path, KNOWN)) == {"a", STEM}
    said = capsys.readouterr().out
    assert "notes.pdf is not a readable notebook" in said and ".hidden is not a student's" in said
