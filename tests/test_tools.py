"""The tools: nbval's settings, the comparison of pairs, the command that opens JupyterLab."""

import ast
import base64
import dataclasses
import graphlib
import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import chinese
import nbformat
import pytest
from bs4 import BeautifulSoup
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from course import present, words
from course.plots import figure
from data import versions
from tools import catalogue, doctor, execute, lab, lang, pages, progress, sync
from tools.student import for_students

ROOT = Path(__file__).resolve().parent.parent


def _notebook(path: Path, *sources: str) -> nbformat.NotebookNode:
    cells = [nbformat.v4.new_code_cell(source, execution_count=1) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}})
    nbformat.write(notebook, path)
    return notebook


# ---- what nbval compares ----

LINES = ["Data: Fashion-MNIST and the published weights.",
         "Right on 843 of 1,000 images; PyTorch on 843",
         "max |difference| to PyTorch below 1e-5"]
SAME = [LINES[0].replace("Fashion", "Other"), LINES[1].replace("843", "914"), LINES[2]]
PRINTED = {"same": SAME, "worse": [*SAME[:2], "max |difference| to PyTorch below 1e-2"],
           "unequal": [SAME[0], "Right on 914 of 1,000 images; PyTorch on 915", SAME[2]]}


def _png(drawn: str | None) -> str:
    """Return a PNG that holds its fingerprint, as plots.show makes it, in base64."""
    file, about = io.BytesIO(), PngInfo()
    if drawn:
        about.add_text("Description", drawn)
    Image.new("L", (2, 2), color=len(drawn or "")).save(file, "PNG", pnginfo=about)
    return base64.b64encode(file.getvalue()).decode()


def _picture(alt: str, drawn: str | None, png: str) -> tuple[dict, dict]:
    return {"image/png": png, "text/plain": "<Figure>"}, \
        {"image/png": {"alt": alt} | ({"drawn": drawn} if drawn else {})}


DRAWN, OTHER = "3 Rectangle; 0123456789abcdef", "4 Rectangle; 0123456789abcdef"
LOOPS = _picture("Loop nests: i, j", DRAWN, _png(DRAWN))
TIMES = _picture("Bars: a 65 microseconds", None, _png(None))
PICTURES = {  # the picture that is shown, and the stored one
    "as it was": (LOOPS, LOOPS),
    "another PNG": (LOOPS, _picture("Loop nests: i, j", DRAWN, _png(OTHER))),
    "another text": (LOOPS, _picture("Loop nests: i, k", DRAWN, _png(DRAWN))),
    "another picture": (LOOPS, _picture("Loop nests: i, j", OTHER, _png(OTHER))),
    "other times": (TIMES, _picture("Bars: a 70 microseconds", None, _png(None))),
    "not of times": (TIMES, _picture("Loop nests: a 65", None, _png(None))),
    "of these images": (_picture("recall: Shirt 0.2", OTHER, _png(OTHER)),
                        _picture("recall: Shirt 0.1", DRAWN, _png(DRAWN)))}


@pytest.fixture(scope="module")
def said(tmp_path_factory) -> dict[str, tuple[str, float]]:
    """Let pytest run some notebooks on the stand-in: what is wrong with each, "", and seconds."""
    folder = tmp_path_factory.mktemp("nbval")
    _notebook(folder / "crash.ipynb", "import os; os._exit(1)")
    for name, lines in PRINTED.items():
        notebook = _notebook(folder / f"{name}.ipynb", f"print({chr(10).join(lines)!r})")
        notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="\n".join(LINES) + "\n")]
        nbformat.write(notebook, folder / f"{name}.ipynb")
    for name, ((data, about), (stored, stored_about)) in PICTURES.items():
        notebook = _notebook(folder / f"{name}.ipynb",
                             f"display({data}, metadata={about}, raw=True)")
        notebook.cells[0].outputs = [nbformat.v4.new_output("display_data", stored,
                                                            metadata=stored_about)]
        if "times" in name:
            notebook.cells[0].metadata["tags"] = ["nbval-ignore-output"]
        nbformat.write(notebook, folder / f"{name}.ipynb")
    subprocess.run([sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"),
                    "--confcutdir", str(ROOT), "-p", "conftest", "--junitxml=said.xml", "."],
                   cwd=folder, capture_output=True, check=False,
                   env={**os.environ, "MLC_DATA": "data/stand_in", "PYTHONPATH": str(ROOT)})
    cases = ElementTree.parse(folder / "said.xml").iter("testcase")
    return {case.attrib["classname"].rpartition("/")[2].split(".")[0]: (
        "".join(part.text or "" for part in case), float(case.attrib["time"])) for case in cases}


def test_a_crashed_kernel_is_reported_within_seconds(said) -> None:
    text, seconds = said["crash"]
    assert "the kernel crashed in this cell" in text and seconds < 30


def test_on_the_stand_in_only_what_depends_on_data_may_differ(said) -> None:
    assert said["same"][0] == "" and said["of these images"][0] == ""
    assert "PyTorch on 915" in said["unequal"][0] and "below 1e-2" in said["worse"][0]


def test_a_picture_that_was_exchanged_is_found(said) -> None:
    assert said["as it was"][0] == "" and said["other times"][0] == ""
    assert "A stored picture is not the one that belongs there" in said["another PNG"][0]
    for name in ("another text", "another picture", "not of times"):
        assert "Pictures differ" in said[name][0]


# ---- pairs ----


def test_a_wrong_name_is_told_before_anything_is_written(monkeypatch) -> None:
    monkeypatch.setattr(sync, "write_markdown", lambda: pytest.fail("written"))
    with pytest.raises(SystemExit, match="There is no Chinese of 99"):
        sync.main("md", "accept", "99")


@pytest.fixture
def pair(tmp_path: Path, monkeypatch) -> tuple[Path, Path]:
    """A notebook of a course of its own, and where its Markdown will be."""
    for folder in ("notebooks", "paired_md"):
        (tmp_path / folder).mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(sync, "ROOT", tmp_path)
    _notebook(tmp_path / "notebooks" / "00_x.ipynb", "1 + 1")
    return tmp_path / "notebooks" / "00_x.ipynb", tmp_path / "paired_md" / "00_x.md"


def test_a_pair_that_differs_is_named(pair: tuple[Path, Path]) -> None:
    ipynb, md = pair
    assert sync.differing() == ["00_x"]
    sync.write_markdown()
    assert sync.differing() == []
    md.write_text(md.read_text().replace("1 + 1", "1 + 2"))
    assert sync.differing() == ["00_x"]
    sync.write_notebooks()
    assert sync.differing() == []
    assert nbformat.read(ipynb, 4).cells[0].source == "1 + 2"


def test_outputs_and_ids_survive_a_sync_from_the_markdown(pair: tuple[Path, Path]) -> None:
    path, _md = pair
    notebook = nbformat.read(path, 4)
    notebook.cells[0].outputs = [nbformat.v4.new_output("stream", text="2\n")]
    nbformat.write(notebook, path)
    sync.write_markdown()
    before = path.read_text()
    sync.write_notebooks()
    after = nbformat.read(path, 4)
    assert after.cells == nbformat.reads(before, 4).cells


def test_sync_does_not_overwrite_edits(pair: tuple[Path, Path]) -> None:
    ipynb, md = pair
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


def test_outputs_of_some_notebooks(monkeypatch, capsys) -> None:
    stored = []
    monkeypatch.setattr(execute, "is_real", lambda: True)
    monkeypatch.setattr(execute, "store", stored.append)
    execute.main("outputs", "03", "00")
    assert [path.name[:2] for path in stored] == ["00", "03"]
    stored.clear()
    execute.main("outputs")
    assert stored == lang.masters("en")
    assert "[1/2] 00_end_to_end_execution ... 0 s" in capsys.readouterr().out


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
    assert "--LabApp.default_url=/lab/tree/work/02_second.ipynb" in lab.command("02")
    line = lab.command()
    assert "--ip=127.0.0.1" in line
    assert "--LabApp.default_url=/lab/tree/work/01_first.ipynb" in line
    assert all(word in line for word in present) and not any(word in line for word in absent)


def test_ctrl_c_ends_the_lab_and_waits_for_it(tmp_path) -> None:
    """Both get it, as from a terminal; the lab may take its time to end its kernels."""
    # by os.write: print refuses to be called while it is interrupted in another call
    ends = ("import os, signal, sys, time\n"
            "signal.signal(signal.SIGINT, lambda *_: (time.sleep(1), os.write(1, b'ended\\n'), "
            "sys.exit(0)))\nos.write(1, b'runs\\n')\ntime.sleep(60)\n")
    code = (f"import sys; from tools import lab; lab.command = lambda number: "
            f"[sys.executable, '-c', {ends!r}]; sys.exit(lab.main())")
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, text=True,
                               stdout=subprocess.PIPE, start_new_session=True)
    while process.stdout.readline() != "runs\n":
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "ended\n" and process.returncode == 0


def test_there_is_no_such_notebook() -> None:
    for command in (["tools.lab", "77"], ["tools.execute", "run", "notebooks", "77"],
                    ["tools.execute", "outputs", "77"]):
        ended = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, text=True,
                               capture_output=True, check=False)
        assert ended.returncode == 1
        assert "There is no notebook 77" in ended.stdout + ended.stderr


def test_a_page_has_the_texts_of_its_pictures() -> None:
    data, about = _picture('a "text" <with> signs', DRAWN, _png(DRAWN))
    cell = nbformat.v4.new_code_cell("1", outputs=[
        nbformat.v4.new_output("display_data", data, metadata=about)])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    soup = BeautifulSoup(pages.as_html(notebook, "x"), "html.parser")
    assert [image["alt"] for image in soup.find_all("img")] == ['a "text" <with> signs']
    assert soup.find("meta", attrs={"name": "viewport"}) and soup.html["lang"] == "en"
    assert "image/png" in cell.outputs[0].data, "the notebook stays as it was"


# ---- what make says, in Chinese ----


@chinese.quoted
def test_the_doctor_speaks_chinese_and_looks_for_a_font(monkeypatch, capsys) -> None:
    monkeypatch.setattr(words, "_chosen", "zh")
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    said = [doctor.machine(), versions.package("no-such-package", "1.0")]
    assert [text for _good, text in said] == [
        "FAIL 平台：Windows。请用 WSL2（Windows 里的 Linux），在那里输入命令",
        "FAIL no-such-package：没有安装，需要 1.0。"
        "请运行 `make lab`（它会安装 requirements.txt 里固定的版本）"]
    for font, line in (("", "sudo apt install fonts-noto-cjk"), ("SimHei", "图中所用：SimHei")):
        monkeypatch.setattr(figure, "chinese_font", lambda font=font: font)
        assert line in doctor.writes_chinese()
    monkeypatch.setattr(doctor, "attempts", lambda checks: [(True, one[0]) for one in checks])
    doctor.main()
    assert "TVM\ntorch\nHTML\n数据\n字体\n" in (out := capsys.readouterr().out)
    assert "项全部正常" in out or "请从第一个 FAIL 开始" in out


@chinese.quoted
@pytest.mark.parametrize("name", ["docs/troubleshooting.md", "docs/zh/troubleshooting.md"])
def test_troubles_are_quoted_as_they_are_said(name: str, monkeypatch) -> None:
    language = "zh" if "/zh/" in name else "en"
    said = [one.msgstr if language == "zh" else one.msgid
            for one in catalogue.read(words.CATALOGUE)]
    said += [(ROOT / "instructor" / "student.mk").read_text(encoding="utf-8")]
    said += [versions.package("apache-tvm", "99")[1]]
    said += re.findall("^### (.*)$", (ROOT / "docs" / "tvm_errors.md").read_text(), re.MULTILINE)
    for found in [], [("false",)]:
        kind = dataclasses.replace(present.KNOWN["c"], candidates=lambda found=found: found)
        monkeypatch.setitem(present.KNOWN, "c", kind)
        said.append(words.told(present.tool.__wrapped__("c").said, language))
    rows = re.findall(r"^\| (.*?) \| ", (ROOT / name).read_text(), re.MULTILINE)
    quoted = [part.strip(" ,") for row in rows
              for quote in re.findall("`([^`]+)`" if language == "en" else "“([^”]+)”", row)
              for part in quote.split("...") if part.strip(" ,")]
    assert len(quoted) > 6
    others = {"nvidia-", "Run all cells"}  # pip's, and JupyterLab's
    assert not [quote for quote in quoted
                if quote not in others and not any(quote in str(text) for text in said)]


@chinese.quoted
def test_tools_for_students_speak_chinese() -> None:
    chinese = {**os.environ, "MLC_LANG": "zh"}
    for module, status, says in (
            ("tools.lab", 1, "没有编号为 77 的 notebook：请用文件名开头的两位数字，NB=03。"),
            ("tools.student", 1, "没有编号为 77 的 notebook：请用文件名开头的两位数字，FRESH=03。"),
            ("data.fetch", 0, "数据：替代数据（STAND-IN）")):
        ended = subprocess.run([sys.executable, "-m", module, "77"], cwd=ROOT, text=True,
                               capture_output=True, check=False,
                               env=chinese | {"MLC_DATA": "data/stand_in"})
        assert ended.returncode == status and says in ended.stdout + ended.stderr


# ---- imports ----

FLOORS = (("course.words",), ("data", "course.tir", "course.present", "course.progress"),
          ("helpers", "course.attention", "course.cnn8", "course.fewbits", "course.intrinsics",
           "course.kernels", "course.listing", "course.devices", "course.gpu"),
          ("course.plots", "course.ship"), ("course.checks",), ("tools",))
ROOMS = ("say", "run", "compare", "observe", "spec", "diagnose", "exercises")  # of checks/


def _modules() -> dict[str, Path]:
    """Return the course's modules by their dotted names; packages too."""
    paths = [ROOT / "helpers.py", *(path for package in ("data", "course", "tools")
                                    for path in (ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
            for path in paths}


def _imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the course's modules that a module imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: an import with dots"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            while name and name not in known:  # from a.b import f: a.b
                name = name.rpartition(".")[0]
            found |= {name} - {""}
    return {name for name in found if known[name] != path}


def _floor(name: str) -> int:
    """Return how high a module stands. Each has its floor: a StopIteration names a new one."""
    return next(number for number, floor in enumerate(FLOORS) for room in floor
                if f"{name}.".startswith(f"{room}."))


def test_imports_go_one_way() -> None:
    known = {name: path for name, path in _modules().items() if name != "course"}
    graph = {name: _imports(path, known) for name, path in known.items()}
    assert len(graph) > 80 and graph["tools.sync"] >= {"tools.translation", "tools.messages"}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(reversed(error.args[1])))
    assert not {f"{name} -> {used}" for name, uses in graph.items() for used in uses
                if _floor(used) > _floor(name)}
    inside = {name: uses for name, uses in graph.items() if name.startswith("course.checks.")}
    assert not {f"{name} -> {used}" for name, uses in inside.items() for used in uses
                if used == "course.checks" or used.startswith("course.checks.")
                and ROOMS.index(used.split(".")[2]) > ROOMS.index(name.split(".")[2])}


def test_progress_is_what_checks_have_accepted(tmp_path: Path, capsys, monkeypatch) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "02_emit_te_ingestion.ipynb", as_version=4)
    nbformat.write(notebook, tmp_path / "02_emit_te_ingestion.ipynb")
    for_students(notebook)
    nbformat.write(notebook, tmp_path / "02_emit_te_ingestion.old1.ipynb")
    nbformat.write(notebook, tmp_path / "03_begun.ipynb")
    assert progress.table(tmp_path) == [
        "02_emit_te_ingestion: 7 of 7",
        "03_begun: 0 of 7; not yet: 2.1, 2.2, 2.3, 2.4, 2.5, 2.6, 2.7"]
    monkeypatch.setattr(progress, "ROOT", tmp_path)
    assert progress.main() == 1 and "make lab puts yours there" in capsys.readouterr().out
