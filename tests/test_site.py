"""What the site is made of, as far as that needs no Sphinx; tests/slow/test_site.py builds it."""

import json
import re
from pathlib import Path

import nbformat
import pytest
import yaml

from tools import colab, execute, newest
from tools.site import links, pages, project, terms
from tools.site.words import WORDS

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(("remote", "address"), [
    ("https://github.com/a/b.git", "https://github.com/a/b"),
    ("https://name:secret@github.com/a/b", "https://github.com/a/b"),
    ("git@github.com:a/b.git", "https://github.com/a/b"),
    ("ssh://git@example.org:2222/a/b.git", "https://example.org/a/b"),
    ("/srv/course.git", None), ("../course", None), ("", None)])
def test_address(remote: str, address: str | None) -> None:
    assert project.web_address(remote) == address


def test_links_lead_to_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    text = ("[a](../docs/rosetta.md#unchanged) [b](02_emit_te_ingestion.ipynb) "
            "[c](../requirements.txt) `f[0](x)` [d](../docs/zh/rosetta.md)")
    master = ROOT / "notebooks" / "00_end_to_end_execution.ipynb"
    for address, third in ((None, "c"), ("https://x.org/a/b",
                                         "[c](https://x.org/a/b/blob/HEAD/requirements.txt)")):
        monkeypatch.setattr(pages, "repository", lambda known=address: known)
        assert pages.linked(text, master, "en") == (
            f"[a](rosetta.md#unchanged) [b](02_emit_te_ingestion.ipynb) {third} `f[0](x)` "
            '<a href="zh/rosetta.html">d</a>')
    back = pages.linked("[English](../rosetta.md)", ROOT / "docs" / "zh" / "rosetta.md", "zh")
    assert back == '<a href="../rosetta.html">English</a>'


def test_solutions_and_long_listings_are_folded() -> None:
    answer = nbformat.v4.new_code_cell(
        "def f(x):\n    ### BEGIN SOLUTION\n    return x\n    ### END SOLUTION")
    stub, solved = pages.folded(answer, WORDS["en"])
    assert "NotImplementedError" in stub.source and "tags" not in stub.metadata
    assert solved.source == "def f(x):\n    return x" and solved.metadata.tags == ["hide-input"]

    def shown(lines: int) -> list[str]:
        cell = nbformat.v4.new_code_cell("show(mod)", outputs=[nbformat.v4.new_output(
            "display_data", {"text/plain": "line\n" * lines})])
        return pages.folded(cell, WORDS["en"])[0].metadata.get("tags", [])

    assert shown(pages.LONG) == [] and shown(pages.LONG + 1) == ["hide-output"]


def test_every_page_of_a_notebook_keeps_all_it_has(tmp_path: Path) -> None:
    for master in pages.masters()[:2]:
        stored = nbformat.read(master, as_version=4)
        page = nbformat.reads(pages.notebook_page(master, "en", tmp_path), as_version=4)
        images = re.findall(r'<img alt="([^"]*)"[^>]*src="(pictures/\w+\.\w+)"',
                            "".join(str(output.data.get("text/html", "")) for cell in page.cells
                                    for output in cell.get("outputs", []) if "data" in output))
        assert len(images) == len(execute.pictures(master)) > 0
        assert all(alt and (tmp_path / source).exists() for alt, source in images)
        assert [c.source for c in page.cells if c.cell_type == "markdown"] == \
            [terms.indexed(pages.linked(c.source, master, "en"),
                           terms.defined(master.name[:2], stored, stored))
             for c in stored.cells if c.cell_type == "markdown"]


def test_drawn_pictures_have_an_svg_and_no_svg_is_left_over() -> None:
    stored = {name: drawn for master in pages.masters()
              for name, drawn in execute.pictures(master).items()}
    svgs = {path.stem for path in execute.PICTURES.glob("*.svg")}
    lacking = {name for name, drawn in stored.items() if drawn} - svgs
    assert not lacking and svgs <= stored.keys(), "`make outputs` brings docs/pictures/ up to date"


def test_svgs_of_stored_pictures_only_are_kept(tmp_path: Path,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    kept = next(iter(execute.pictures(pages.masters()[0])))
    monkeypatch.setattr(execute, "PICTURES", tmp_path / "pictures")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "fresh").mkdir()
    for name in ("pictures/0123456789abcdef", f"fresh/{kept}", "fresh/fedcba9876543210"):
        (tmp_path / f"{name}.svg").write_text("<svg/>")
    (tmp_path / "fresh" / "zh").mkdir()
    (tmp_path / "fresh" / "zh" / f"{kept}.svg").write_text("<svg/>")
    execute.keep_svgs(tmp_path / "fresh")
    assert sorted(path.stem for path in (tmp_path / "pictures").rglob("*.svg")) == [kept, kept]


def test_terms_lead_to_their_sections() -> None:
    known = {path.name[:2]: (path.name, pages.read(path, "en")[0], pages.read(path, "zh")[0])
             for path in pages.masters()}
    text = terms.page(WORDS["zh"], "zh", known)
    wanted = [row["Defined in"] for row in terms.rows() if row.get("Defined in")]
    assert len(wanted) > 50 and text.count(".ipynb#") == len(wanted)  # each with its heading


def test_sections_are_indexed_by_the_terms_they_define() -> None:
    master = next(path for path in pages.masters() if path.name.startswith("02"))
    (english, _), (chinese, _) = pages.read(master, "en"), pages.read(master, "zh")
    names = terms.defined("02", english, chinese)
    heading = next(heading for heading, here in names.items() if "卷积" in here)
    assert "convolution" in names[heading] and heading in terms.headings(chinese)
    marked = terms.indexed(f"## {heading}\n\ntext", names)
    assert marked.startswith(f"## {heading}\n\n```{{index}} !") and "!卷积" in marked
    assert terms.indexed("## Another\n\ntext", names) == "## Another\n\ntext"


def test_listings_have_a_dark_colour_for_each_light_one() -> None:
    css = (ROOT / "docs" / "site" / "_static" / "course.css").read_text(encoding="utf-8")
    dark = set(re.findall(r'&\[style\*="(#\w+)"\]', css))
    listings = [found for master in pages.masters()
                for cell in nbformat.read(master, as_version=4).cells
                for output in cell.get("outputs", []) if "data" in output
                for found in re.findall(r"<pre.*?</pre>", output.data.get("text/html", ""),
                                        re.DOTALL)]
    light = {colour for listing in listings
             for colour in re.findall(r'<span style="[^"]*?(#\w+)', listing)}
    spaces = {"#BBB"}
    assert light - spaces == dark


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there"></a><a href="b.html#gone"></a>'
                                     '<img src="none.svg"><a href="https://x.invalid/"></a>'
                                     '<a href="https://x..invalid/"></a><a href="http://[x/"></a>')
    (tmp_path / "b.html").write_text('<p id="there">')
    assert links.broken(tmp_path) == [
        "a.html: b.html#gone", "a.html: http://[x/", "a.html: none.svg"]
    outside = links.broken(tmp_path, outside=True)[3:]  # each with why
    assert [re.sub(r" \(.+\)$", "", line) for line in outside] == [
        "a.html: https://x..invalid/", "a.html: https://x.invalid/"]
    assert all(line.endswith(")") for line in outside)


def test_colab_notebooks_begin_by_setting_it_up() -> None:
    notebook = colab.for_colab(nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_markdown_cell("# Title")]), "https://x.org/a/b")
    compile(notebook.cells[0].source, "cell", "exec")
    assert '"https://x.org/a/b"' in notebook.cells[0].source
    assert all(f"{name}==" in notebook.cells[0].source for name in colab.PACKAGES)
    assert 'os.chdir("course/notebooks")' in notebook.cells[0].source
    chinese = colab.for_colab(nbformat.v4.new_notebook(metadata={"lang": "zh"}), "https://a/b")
    assert 'os.chdir("course/paired_md/zh")' in chinese.cells[0].source, "checks speak Chinese"


def test_settings_name_what_there_is() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert "make data" in container["postCreateCommand"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text()
                             + (ROOT / "course.mk").read_text(), re.MULTILINE))
    workflows = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    for text in (container["postCreateCommand"], *workflows):
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
    for text in workflows:
        assert yaml.safe_load(text)["jobs"]
        assert all((ROOT / "tools" / f"{name}.py").exists()
                   for name in re.findall(r"-m tools\.(\w+)", text))
    known = set(newest.ALONG)
    assert known == set(re.search(r"package: \[(.+)\]",
                                  "\n".join(workflows))[1].split(", "))
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert f"## {cited['version']}" in (ROOT / "CHANGELOG.md").read_text()
