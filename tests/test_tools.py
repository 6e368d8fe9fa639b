"""The tools: nbval's settings, the comparison of pairs, the command that opens JupyterLab."""

import os
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from tools import execute, lab, sync

ROOT = Path(__file__).resolve().parent.parent


def _notebook(path: Path, *sources: str) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source, execution_count=1) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}})
    nbformat.write(notebook, path)
    return notebook


def _nbval(path: Path, data: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"),
                           "--confcutdir", str(ROOT), "-p", "conftest", str(path)],
                          capture_output=True, text=True, cwd=ROOT, check=False,
                          env={**os.environ, "MLC_DATA": data, "PYTHONPATH": str(ROOT)})


def test_a_crashed_kernel_is_reported_within_seconds(tmp_path: Path) -> None:
    _notebook(tmp_path / "x.ipynb", "import os", "os._exit(1)")
    start = time.monotonic()
    result = _nbval(tmp_path / "x.ipynb", "data/stand_in")
    assert "the kernel crashed in this cell" in result.stdout
    assert result.returncode == 1 and time.monotonic() - start < 60


def test_on_the_stand_in_only_what_depends_on_data_may_differ(tmp_path: Path) -> None:
    lines = ["Data: Fashion-MNIST and the published weights.",
             "Right on 843 of 1,000 images; PyTorch on 843",
             "max |difference| to PyTorch below 1e-5"]
    same = [lines[0].replace("Fashion", "Other"), lines[1].replace("843", "914"), lines[2]]
    unequal = [*same[:1], "Right on 914 of 1,000 images; PyTorch on 915", same[2]]
    worse = [*same[:2], "max |difference| to PyTorch below 1e-2"]
    for printed, passes in [(same, True), (unequal, False), (worse, False)]:
        path = tmp_path / "x.ipynb"
        notebook = _notebook(path, f"print({chr(10).join(printed)!r})")
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="\n".join(lines) + "\n")]
        nbformat.write(notebook, path)
        result = _nbval(path, "data/stand_in")
        assert (result.returncode == 0) is passes, (printed, result.stdout)


def test_a_pair_that_differs_is_named(tmp_path: Path, monkeypatch) -> None:
    for folder in ("notebooks", "paired_md"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(sync, "ROOT", tmp_path)
    _notebook(tmp_path / "notebooks" / "00_x.ipynb", "1 + 1")
    assert sync.differing() == ["00_x"]
    sync.write_markdown()
    assert sync.differing() == []
    md = tmp_path / "paired_md" / "00_x.md"
    md.write_text(md.read_text().replace("1 + 1", "1 + 2"))
    assert sync.differing() == ["00_x"]
    sync.write_notebooks()
    assert sync.differing() == []
    assert nbformat.read(tmp_path / "notebooks" / "00_x.ipynb", 4).cells[0].source == "1 + 2"


def test_outputs_and_ids_survive_a_sync_from_the_markdown(tmp_path: Path, monkeypatch) -> None:
    for folder in ("notebooks", "paired_md"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(sync, "ROOT", tmp_path)
    path = tmp_path / "notebooks" / "00_x.ipynb"
    notebook = _notebook(path, "print(1)")
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="1\n")]
    nbformat.write(notebook, path)
    sync.write_markdown()
    before = path.read_text()
    sync.write_notebooks()
    after = nbformat.read(path, 4)
    assert after.cells == nbformat.reads(before, 4).cells


def test_sync_does_not_overwrite_edits(tmp_path: Path, monkeypatch) -> None:
    for folder in ("notebooks", "paired_md"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(sync, "ROOT", tmp_path)
    ipynb, md = tmp_path / "notebooks" / "00_x.ipynb", tmp_path / "paired_md" / "00_x.md"
    _notebook(ipynb, "1 + 1")
    sync.write_markdown()
    os.utime(ipynb, (1, 1))  # the pair says the same: it does not matter which is newer
    sync.refuse_to_overwrite_edits(to_markdown=True)
    md.write_text(md.read_text().replace("1 + 1", "1 + 2"))
    with pytest.raises(SystemExit, match="paired_md/00_x.md is newer .*`make sync FROM=md`"):
        sync.refuse_to_overwrite_edits(to_markdown=True)
    sync.refuse_to_overwrite_edits(to_markdown=False)
    os.utime(md, (0, 0))
    sync.refuse_to_overwrite_edits(to_markdown=True)
    with pytest.raises(SystemExit, match="notebooks/00_x.ipynb is newer .*`make sync`"):
        sync.refuse_to_overwrite_edits(to_markdown=False)


@pytest.mark.parametrize(("words", "says"), [
    (["tools.sync", "MD"], "Nothing is written: there is no 'MD'."),
    (["tools.execute"], "python -m tools.execute run "),
    (["tools.execute", "output"], "python -m tools.execute outputs "),
])
def test_tools_say_how_they_are_called(words: list[str], says: str) -> None:
    before = sorted(ROOT.glob("*/[0-9]*"))
    result = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True,
                            text=True, check=False)
    assert result.returncode == 1 and says in result.stderr and "Traceback" not in result.stderr
    assert result.stdout == "" and sorted(ROOT.glob("*/[0-9]*")) == before


def test_times_are_kept_and_other_outputs_are_not() -> None:
    def cell(text: str, *tags: str) -> nbformat.NotebookNode:
        made = nbformat.v4.new_code_cell("x", id=f"{'-'.join(tags) or 'plain'}",
                                         metadata={"tags": list(tags)})
        made.outputs = [nbformat.v4.new_output("stream", text=text)]
        return made

    fresh = nbformat.v4.new_notebook(cells=[cell("new"), cell("new", "timing")])
    stored = nbformat.v4.new_notebook(cells=[cell("old"), cell("old", "timing")])
    execute.keep_times(fresh, stored)
    assert [cell.outputs[0].text for cell in fresh.cells] == ["new", "old"]


@pytest.mark.parametrize(("environment", "user", "present", "absent"), [
    ({"DISPLAY": ":0"}, 1000, [], ["--no-browser", "--allow-root"]),
    ({"DISPLAY": ":0", "SSH_CONNECTION": "x"}, 1000, ["--no-browser"], ["--allow-root"]),
    ({}, 0, ["--allow-root"], []),
])
def test_how_jupyterlab_is_started(environment, user, present, absent, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    for name in ("02_second", "01_first"):
        (tmp_path / "work" / f"{name}.ipynb").touch()
    monkeypatch.setattr(lab, "ROOT", tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    line = lab.command()
    assert "--ip=127.0.0.1" in line
    assert "--LabApp.default_url=/lab/tree/work/01_first.ipynb" in line
    assert all(word in line for word in present) and not any(word in line for word in absent)
