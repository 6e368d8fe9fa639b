"""The site as it is built; the ways to start without installing, by the commands they name."""

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup

from data.versions import pins
from tools import colab
from tools.site.pages import masters
from tools.student import student_version

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def _run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone with the working tree's files; its .venv is the one that runs the tests."""
    place = tmp_path_factory.mktemp("site") / "course"
    _run("git", "clone", "--quiet", str(ROOT), str(place), cwd=ROOT)
    listed = _run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    for path in place.glob("requirements*.txt"):
        os.utime(path, (0, 0))  # nothing is to be installed anew
    (place / ".venv").symlink_to(sys.prefix)
    return place


@pytest.fixture(scope="module")
def site(clone: Path) -> Path:
    """The site, built by the command that README names, with its address in CITATION.cff."""
    _run("git", "remote", "remove", "origin", cwd=clone)
    cited = clone / "CITATION.cff"
    cited.write_text(cited.read_text(encoding="utf-8")
                     + "repository-code: https://example.org/a/b\n", encoding="utf-8")
    built = _run(sys.executable, "-m", "tools.site", cwd=clone)
    assert built.returncode == 0, built.stdout + built.stderr  # no warning, no broken link
    assert "WARNING" not in built.stderr
    return clone / "build" / "site"


def _page(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def test_pages_in_both_languages(site: Path) -> None:
    for folder, language, other in ((site, "en", "zh/"), (site / "zh", "zh-CN", "../")):
        for master in masters():
            page = _page(folder / f"{master.stem}.html")
            assert page.html["lang"] == language
            assert page.select_one("a.other-language")["href"] == f"{other}{master.stem}.html"
            assert page.select_one(".prev-next-area a") and page.select_one(".page-toc")
            assert all(image.get("alt") for image in page.select("article img"))
            links = [link["href"] for link in page.select(".about-page a")]
            assert links[0] == f"https://example.org/a/b/blob/HEAD/notebooks/{master.name}"
            assert links[2].startswith("https://example.org/a/b/issues/new?title=")
            assert pins()["apache-tvm"] in page.select_one("footer.bd-footer-content").text
            outside = [tag.get("src") or tag.get("href") for tag in page.select(
                "script[src], img[src], link[rel=stylesheet]")]
            assert not [address for address in outside if address.startswith("http")]


def test_every_solution_is_folded(site: Path) -> None:
    for master in masters():
        solved = [cell for cell in nbformat.read(master, as_version=4).cells
                  if "### BEGIN SOLUTION" in cell.source]
        page = _page(site / f"{master.stem}.html")
        folded = [details for details in page.select("details")
                  if details.summary.text.strip().startswith("Show a solution")]
        assert len(folded) == len(solved) > 0
        assert not any(details.has_attr("open") for details in page.select("details"))
        for details in folded:
            details.decompose()
        assert page.text.count("raise NotImplementedError") >= len(solved)


def test_search_finds_words_of_both_languages(site: Path) -> None:
    def index(folder: Path) -> dict:
        text = (folder / "searchindex.js").read_text(encoding="utf-8")
        return json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))

    english, chinese = index(site), index(site / "zh")
    for found in (english, chinese):
        assert any(term.startswith("decompose_reduc") for term in found["terms"])
        assert "ffi" in found["terms"]
    assert {"卷积", "循环", "嵌套"} <= chinese["terms"].keys() | chinese["titleterms"].keys()
    # the queries are split by the index's words, and stemmed by what is there
    script = (site / "zh" / "_static" / "language_data.js").read_text(encoding="utf-8")
    assert "var splitQuery" in script and "Stemmer = EnglishStemmer" in script


def test_the_live_page_is_one_file_without_a_network(site: Path) -> None:
    text = (site / "loops.html").read_text(encoding="utf-8")
    page = BeautifulSoup(text, "html.parser")
    assert not page.select("[src]") and not [link["href"] for link in page.select("link")
                                             if not link["href"].startswith("data:")]
    assert "http" not in page.select_one("script:last-of-type").string
    data = json.loads(page.select_one("script.live-data").string)
    assert [program["made"] >= 300 for program in data["programs"]] == [True] * 3
    assert len(text) < 500_000


def test_the_live_page_leads_to_what_explains_a_refusal(site: Path) -> None:
    for name in ("loops.html", "live.html", "zh/live.html"):
        data = json.loads(_page(site / name).select_one("script.live-data").string)
        assert len(data["anchors"]) == 5 and all(data["anchors"].values())
        for errors in data["errors"]:
            page = _page((site / name).parent / errors)
            assert all(page.find(id=place) for place in data["anchors"].values())


def test_the_devcontainers_command(clone: Path) -> None:
    container = json.loads((clone / ".devcontainer" / "devcontainer.json").read_text())
    done = _run("bash", "-c", container["postCreateCommand"], cwd=clone, MLC_DATA="data/stand_in")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((clone / "work").glob("[0-9]*.ipynb"))) == len(masters())
    setting = container["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert Path(setting.replace("${containerWorkspaceFolder}", str(clone))).exists()
    shutil.rmtree(clone / "work")


def test_binders_commands(clone: Path) -> None:
    python = re.fullmatch(r"python-(3\.\d+)\n", (clone / ".binder" / "runtime.txt").read_text())
    assert python and python[1] in (clone / "README.md").read_text(encoding="utf-8")
    done = _run(str(clone / ".binder" / "postBuild"), cwd=clone, MLC_DATA="data/stand_in",
                PATH=f"{BIN}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list((clone / "work").glob("[0-9]*.ipynb"))) == len(masters())


def test_colab_without_the_courses_environment(clone: Path, tmp_path: Path) -> None:
    """TVM comes by the notebook's first cell, beside the packages that are there already."""
    venv.create(tmp_path / "bare", with_pip=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    others = tmp_path / "others"  # what Colab has, and no TVM
    others.mkdir()
    for path in Path(pytest.__file__).parent.parent.iterdir():
        if not path.name.startswith(("tvm", "apache_tvm", "pip")) and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    packages = next((tmp_path / "bare" / "lib").glob("python*/site-packages"))
    (packages / "others.pth").write_text(str(others))
    assert _run(python, "-c", "import tvm", cwd=tmp_path).returncode == 1
    notebook = colab.for_colab(student_version(masters()[3]), str(clone))
    nbformat.write(notebook, tmp_path / "start.ipynb")
    done = _run(python, "-m", "nbconvert", "--to", "notebook", "--execute", "--allow-errors",
                "--output", "done.ipynb", "start.ipynb", cwd=tmp_path, MLC_DATA="data/stand_in",
                PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    cells = nbformat.read(tmp_path / "done.ipynb", as_version=4).cells
    errors = ["\n".join(output.traceback) for cell in cells for output in cell.get("outputs", [])
              if output.output_type == "error"]
    assert errors and all("not done yet" in error for error in errors), errors
    assert (tmp_path / "course" / "helpers.py").exists()
