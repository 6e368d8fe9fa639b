"""A Chinese handout from end to end: unpacked, solved in part, executed, graded."""

import csv
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import chinese
import nbformat
import pytest

pytest.importorskip("distributed", reason="Dask is missing: `make test-all` installs it")

from course import words
from tools import handouts, lang
from tools.grading.submission import name_of

pytestmark = chinese.quoted
ROOT = Path(__file__).resolve().parents[2]
STEM = "01_model_preparation"
MASTER = nbformat.read(ROOT / "notebooks" / f"{STEM}.ipynb", as_version=4)
CHINESE = {**os.environ, "MLC_LANG": "zh", "MLC_QUICK": "1",
           "MLC_DATA": str(ROOT / "data" / "stand_in")}


def _solve(path: Path) -> None:
    """Answer 1.1 rightly and 1.2 wrongly, in the copy of a student."""
    notebook = nbformat.read(path, as_version=4)
    solutions = {name_of(cell): cell.source for cell in MASTER.cells}
    for cell in notebook.cells:
        match name_of(cell):
            case "1.1-solution" as name:
                cell.source = solutions[name]
            case "1.2-solution":
                cell.source = ("def cross_entropy(logits, labels):\n"
                               "    chosen = torch.from_numpy(logits), torch.from_numpy(labels)\n"
                               "    return -F.cross_entropy(*chosen).item()\n")
    nbformat.write(notebook, path)


@pytest.fixture(scope="module")
def handout(tmp_path_factory) -> Path:
    """The folder in which a student unpacked the handout and worked."""
    place = tmp_path_factory.mktemp("handout")
    made = subprocess.run([sys.executable, "-m", "tools.handouts", "01"], cwd=ROOT, text=True,
                          capture_output=True, check=True, env=CHINESE)
    assert made.stdout.startswith("build/handouts/zh/mlc_zh_01.zip：1 个 notebook，")
    with zipfile.ZipFile(ROOT / "build" / "handouts" / "zh" / "mlc_zh_01.zip") as archive:
        archive.extractall(place)
    folder = place / handouts.TOP
    subprocess.run([sys.executable, "-m", "tools.student"], cwd=folder, check=True, env=CHINESE)
    copy, given = (folder / place / "zh" / f"{STEM}.ipynb" for place in ("work", "notebooks"))
    assert copy.read_bytes() == given.read_bytes()
    _solve(copy)
    return folder


def test_it_is_chinese_without_being_asked(handout: Path) -> None:
    """Its files, README and make help; nothing in it is for LANG=en."""
    assert (handout / "docs/zh/tvm_errors.md").exists() and (handout / words.CATALOGUE.relative_to(
        ROOT)).exists() and not (handout / "notebooks" / f"{STEM}.ipynb").exists()
    assert '<html lang="zh-CN">' in (handout / f"html/zh/{STEM}.html").read_text(encoding="utf-8")
    assert "练习" in (handout / "README.md").read_text(encoding="utf-8")
    environment = {name: value for name, value in CHINESE.items() if name != "MLC_LANG"}
    said = subprocess.run(["make", "help"], cwd=handout, capture_output=True, text=True, check=True,
                          env=environment).stdout
    assert said.startswith("机器学习编译")
    english = subprocess.run([sys.executable, "-m", "tools.student"], cwd=handout, text=True,
                             capture_output=True, check=False, env=environment)
    assert english.returncode == 1 and english.stderr \
        == "This edition is not in the handout that was unpacked here: LANG=zh is.\n"


def test_it_runs_and_its_checks_speak_chinese(handout: Path) -> None:
    subprocess.run([sys.executable, "-m", "tools.execute", "run", "work"], cwd=handout, check=True,
                   env=CHINESE, capture_output=True)
    pages = handout / "build" / "html" / "zh"
    page = (pages / f"{STEM}.html").read_text(encoding="utf-8")
    assert "练习 1.1 ✓ " in page and "练习 1.2 ✗" in page and "练习 1.3 还没有做" in page
    assert '<html lang="zh-CN">' in page and "Exercise 1.1 ✓" not in page
    assert f'href="{STEM}.html"' in (pages / "index.html").read_text(encoding="utf-8")


def test_solved_notebooks_run_in_chinese_too(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tools.execute", "run", "notebooks", "01"], cwd=ROOT,
                   check=True, env=CHINESE, capture_output=True)
    page = ROOT / "build" / "html" / "zh" / f"{STEM}.html"
    assert all(f"练习 1.{number} ✓" in page.read_text(encoding="utf-8") for number in (1, 2, 3))


def test_it_is_graded_as_the_english_one(handout: Path, tmp_path: Path) -> None:
    for name in ("anna", "ben"):
        (tmp_path / name).mkdir()
    copy = handout / "work" / "zh" / f"{STEM}.ipynb"
    shutil.copy(copy, tmp_path / "anna")
    notebook = nbformat.read(copy, as_version=4)
    for cell, english in zip(notebook.cells, MASTER.cells, strict=True):
        assert cell.id == english.id
        if cell.cell_type == "markdown":
            cell.source = english.source
    del notebook.metadata["lang"]
    nbformat.write(notebook, tmp_path / "ben" / copy.name)
    build = ROOT / "build" / "test_chinese"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    try:
        subprocess.run([sys.executable, "-m", "tools.grade", str(tmp_path), "--to", str(build)],
                       cwd=ROOT, check=True, capture_output=True, env=CHINESE)
        with (build / "grades.csv").open(encoding="utf-8") as file:
            rows = {row.pop("student"): row for row in csv.DictReader(file)}
        pages = {name: (build / "feedback" / name / "index.html").read_text(encoding="utf-8")
                 for name in rows}
    finally:
        shutil.rmtree(build)
    assert rows["anna"] == rows["ben"] and float(rows["anna"]["1.1"]) > 0 == float(
        rows["anna"]["1.2"]) == float(rows["anna"]["1.3"]) and rows["anna"]["problems"] == ""
    assert "练习 1.1 ✓" in pages["anna"] and "练习 1.2 ✗" in pages["anna"]
    assert "检查：" in pages["anna"] and "练习 1.3 还没有做" in pages["anna"]
    assert "Exercise 1.1 ✓" in pages["ben"] and "练习" not in pages["ben"]


def test_the_lab_opens_the_chinese_copy(handout: Path) -> None:
    said = subprocess.run([sys.executable, "-c", "from tools import lab; print(lab.command('01'))"],
                          cwd=handout, text=True, capture_output=True, check=True, env=CHINESE)
    assert f"/lab/tree/{lang.place('work', 'zh')}/{STEM}.ipynb" in said.stdout
