"""Handouts: nothing of a solution is in them, all that a student needs is, twice is the same."""

import base64
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from tools import autograder, handouts, lang

ROOT = Path(__file__).resolve().parent.parent
STEM = "02_emit_te_ingestion"
LINE = b"\n        gv = bb.emit_output(bb.emit_te(topi.nn.softmax, lv, axis=1))\n"  # exercise 2.5


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return handouts.contents(lang.masters("en"))


def test_no_part_of_a_solution_is_in_a_handout(files) -> None:
    secrets = handouts.secrets()
    assert sum(len(part) < 2000 for part in secrets) > 100, "lines of solutions and of outputs"
    assert any(len(part) > 2000 for part in secrets), "pictures"
    assert handouts.leaks(files) == []


def test_none_is_in_what_the_autograder_has_more() -> None:
    """Or its zip isn't written: a line of an answer that the course's own code has, too."""
    assert handouts.leaks(autograder.more()) == []


def test_the_test_finds_what_is_planted(files) -> None:
    """A line in a module, in a cell, in HTML; an output; a picture, in a notebook and as a file."""
    name, found = f"notebooks/{STEM}.ipynb", handouts.leaks
    assert found({"helpers.py": files["helpers.py"] + LINE})[0].startswith("helpers.py: gv = bb")
    notebook = nbformat.reads(files[name].decode(), as_version=4)
    notebook.cells[3].source += LINE.decode()
    assert found({name: nbformat.writes(notebook).encode()})
    master = nbformat.read(ROOT / "notebooks" / f"{STEM}.ipynb", as_version=4)
    assert len(found({"html/x.html": handouts.as_html(master, "x").encode()})) > 20

    after = [cell for path in lang.masters("en") for cell in nbformat.read(path, as_version=4).cells
             if cell.source.startswith("# needs exercise")]
    texts = [cell for cell in after if any("text/html" in o.get("data", {}) for o in cell.outputs)]
    notebook = nbformat.v4.new_notebook(cells=[texts[0]])
    notebook.cells[0].source = "given"
    assert found({name: nbformat.writes(notebook).encode()}), "the printed IR of an answer"
    picture = next(o.data["image/png"] for cell in after for o in cell.outputs
                   if "image/png" in o.get("data", {}))
    output = nbformat.v4.new_output("display_data", {"image/png": picture})
    notebook.cells[0].outputs = [output]
    assert found({name: nbformat.writes(notebook).encode()})
    assert found({"html/x.html": handouts.as_html(notebook, "x").encode()})
    assert found({"docs/x.png": base64.b64decode(picture)})


def test_given_outputs_are_kept_up_to_the_first_exercise(files) -> None:
    for path in lang.masters("en"):
        master = nbformat.read(path, as_version=4).cells
        handed = nbformat.reads(files[f"notebooks/{path.name}"].decode(), as_version=4).cells
        first = next(i for i, cell in enumerate(master) if "nbgrader" in cell.metadata)
        assert [cell.get("outputs") for cell in handed[:first]] \
            == [cell.get("outputs") for cell in master[:first]]
        assert any(cell.get("outputs") for cell in handed[:first])
        assert not any(cell.get("outputs") for cell in handed[first:])


def test_what_is_in_a_handout(files) -> None:
    needed = {"README.md", "Makefile", "LICENSE", "helpers.py", "course/checks/__init__.py",
              "course/plots/__init__.py", "course/plots/loops.py", "course/kernels.py",
              "course/tir/loops.py", "data/versions.py", "tools/doctor.py", "tools/install.py",
              "tools/lab.py", "data/__init__.py", "data/store.py", "data/fetch.py",
              "docs/tvm_errors.md", "docs/troubleshooting.md",
              "requirements.txt", f"notebooks/{STEM}.ipynb", f"html/{STEM}.html",
              "data/stand_in/models/cnn.npz"}
    assert needed <= set(files)
    for name in files:
        assert not name.startswith(("tests/", "paired_md/", "instructor/", "work/", "build/"))
        assert name != "conftest.py" and not name.endswith(".mk")
        assert "solved" not in name and "__pycache__" not in name
    assert b"(docs/troubleshooting.md)" in files["README.md"]
    assert b"paired_md" not in files["README.md"]


def test_twice_gives_the_same_bytes_and_one_week_is_a_part(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(handouts, "BUILD", tmp_path)
    made = []
    for _ in range(2):
        handouts.main(["03", "02"])
        made.append((tmp_path / "mlc_02_03.zip").read_bytes())
    assert made[0] == made[1]
    names = zipfile.ZipFile(tmp_path / "mlc_02_03.zip").namelist()
    assert [name[14:16] for name in names if name.startswith("mlc/notebooks/")] == ["02", "03"]
    assert not any(name.startswith("mlc/work/") for name in names), "unpacked over one's work"
    solved = {path.name for path in (tmp_path / "solved").iterdir()}
    assert solved == {f"{STEM}_solved.html", "03_extern_library_calls_solved.html"}


def test_nothing_is_written_if_something_leaks(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(handouts, "BUILD", tmp_path)
    monkeypatch.setattr(handouts, "readme", lambda edition: LINE.decode())
    with pytest.raises(SystemExit, match="solutions would leak:\nREADME.md: gv = bb.emit_output"):
        handouts.main(["02"])
    assert list(tmp_path.iterdir()) == []


def test_a_handout_works_where_it_is_unpacked(tmp_path: Path, files) -> None:
    """make help, the student's copies, and an exercise wrong, then right; make lab is slow."""
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    said = subprocess.run(["make", "help"], cwd=tmp_path, capture_output=True, text=True,
                          check=True).stdout
    assert [line.split()[1] for line in said.splitlines() if line.startswith("  make ")] \
        == ["help", "data", "lab", "run", "progress", "doctor", "bench"]
    fill = [sys.executable, "-m", "tools.student"]
    subprocess.run(fill, cwd=tmp_path, check=True, capture_output=True)
    copy = tmp_path / "work" / f"{STEM}.ipynb"
    assert copy.read_bytes() == files[f"notebooks/{STEM}.ipynb"], "given outputs and all"
    copy.write_text("my work")
    subprocess.run(fill, cwd=tmp_path, check=True, capture_output=True)
    assert copy.read_text() == "my work"


def test_errors_are_for_people() -> None:
    result = subprocess.run([sys.executable, "-m", "tools.handouts", "2"], cwd=ROOT, text=True,
                            capture_output=True, check=False)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert result.stderr == 'There is no notebook 2: take the two digits of its name, NB="02 03".\n'
