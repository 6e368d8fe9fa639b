"""What the site is made of, as far as that needs no Sphinx; tests/slow/test_site.py builds it."""

import base64
import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.pyplot as plt
import nbformat
import newest
import numpy as np
import pytest
import searching
import yaml

from course import listing
from course.plots.dark import photograph
from tools import colab, execute, translation
from tools.site import aliases, anchors, landing, links, narrow, pages, project, terms
from tools.site.dark import IMAGE, for_the_dark, transparent
from tools.site.words import SAID, WORDS

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
        opened = re.compile(r'<p class="open-in">.*</p>\n\n')
        assert opened.search(page.cells[0].source)
        page.cells[0].source = opened.sub("", page.cells[0].source)
        assert [c.source for c in page.cells if c.cell_type == "markdown"] == \
            [terms.indexed(pages.linked(c.source, master, "en"),
                           terms.defined(master.name[:2], stored, stored))
             for c in stored.cells if c.cell_type == "markdown"]


@pytest.mark.parametrize(("address", "site"), [
    ("https://github.com/a/B", "https://a.github.io/B/"),
    ("https://github.com/a/a.github.io", "https://a.github.io/"),
    ("https://gitlab.com/a/b", ""), (None, "")])
def test_ways_to_open_a_notebook(address: str | None, site: str) -> None:
    assert project.site_address(address) == site
    found = project.ways("04_x", "zh", address)
    assert found["download"] == "notebooks/04_x.ipynb" and (len(found) == 3) == bool(site)
    if site:
        assert found["colab"].startswith("https://colab.research.google.com/github/a/")
        assert found["colab"].endswith("/blob/students/zh/04_x.ipynb")
        assert found["binder"].endswith("urlpath=lab/tree/work/zh/04_x.ipynb")
    for words in WORDS.values():
        assert found.keys() <= words.open_in.keys()


def test_the_sites_words_have_the_same_places_in_both_languages() -> None:
    for name, said in SAID.items():
        one, other = (sorted(re.findall(r"\{\w+\}|<\w+|\d+", str(said[language])))
                      for language in ("en", "zh"))
        assert one == other, name


def test_a_readme_leads_to_what_is_made_of_the_repository() -> None:
    for language, name in (("en", "README.md"), ("zh", "README.zh.md")):
        readme = (ROOT / name).read_text(encoding="utf-8")
        assert project.addressed(readme, language, None) == readme
        for address in ("https://github.com/a/b", "https://gitlab.com/a/b"):
            said = project.addressed(readme, language, address)
            assert f"\ngit clone {address} mlc-course\n" in said
            assert project.addressed(said, language, address) == said
            assert ("](https://a.github.io/b/" in said) == ("github" in address)
            assert ("colab.research.google.com/github/a/b" in said) == ("github" in address)
            assert len(said.split()) <= 1300 or language == "zh"
        assert translation.normal(readme) == translation.normal(said), "no change for Chinese"


def test_the_map_has_each_notebook_below_what_it_needs() -> None:
    maps = {}
    for language, name in (("en", "README.md"), ("zh", "README.zh.md")):
        course = maps[language] = landing.stops((ROOT / name).read_text(encoding="utf-8"))
        assert sorted(stop.page for stop in course) == [path.stem for path in pages.masters()]
        rows = {stop.number: stop.row for stop in course}
        assert all(rows[name] < stop.row for stop in course for name in stop.needs)
        found = landing.arrows(course)
        # one of more than a row would run behind a box, and say nothing
        assert found and all(first.row + 1 == then.row for first, then in found)
        assert {stop.number for stop in course} == WORDS[language].lines.keys()
        for row in set(rows.values()):
            places = [stop.column for stop in course if stop.row == row]
            assert places == sorted(set(places)) and places[0] > 0 and places[-1] < 1
        drawn = landing.plan(course, dict.fromkeys(rows, ["1.1"] * 3), WORDS[language])
        assert re.findall(r"<strong>(\d\d) ", drawn) == sorted(rows), "in reading order"
        assert drawn.count("<path ") == len(found) and drawn.count("<a ") == len(course)
    assert [(s.number, s.needs, s.minutes) for s in maps["en"]] == \
        [(s.number, s.needs, s.minutes) for s in maps["zh"]]


def test_the_first_page_says_what_readme_says() -> None:
    for language in WORDS:
        text = pages.readme(language)
        assert all(part in pages.arrival(language, "") for part in landing.beginning(text))
        assert landing.about(text)[-1] in ".。" and "\n" not in landing.about(text)
        assert " 2.3 ✗\n" in landing.beginning(text)[3]


def test_the_map_knows_exercises_by_the_numbers_of_their_sections() -> None:
    """docs/site/_static/solved.js keeps what is solved by these."""
    for stem, numbers in (("00", "0.1 0.2"), ("10", "10.1 10.2")):
        assert f'data-exercises="{numbers} ' in pages.arrival("en", ""), stem


def test_an_arrow_that_another_way_stands_for_is_left_out() -> None:
    row = "| [{0} x]({0}_x.ipynb) | do it | 9 | 2 | {1} |\n"
    course = landing.stops(row.format("01", "") + row.format("02", "01")
                           + row.format("03", "01, 02"))
    assert [(a.number, b.number) for a, b in landing.arrows(course)] == [("01", "02"), ("02", "03")]


def test_drawings_for_the_dark() -> None:
    svg = ('<svg width="9"><g id="patch_1">\n<path d="M 0 0" style="fill: #ffffff"/></g>'
           '<path style="fill: #cfe3f5; stroke: #000000"/><path style="fill: #ffffff"/></svg>')
    dark = for_the_dark(svg)
    ground, pale, line, white = re.findall(r"(?:fill|stroke): (none|#\w+)", dark)
    assert ground == "none" and re.match(r'<svg fill="#(ed)+" ', dark)
    assert pale[1] < "5" and line[1] == "e" and white[1] == "1", dark  # light and dark exchanged
    images = 0
    for path in execute.PICTURES.rglob("*.svg"):
        drawing = path.read_text(encoding="utf-8")
        assert "style=\"fill: #ffffff\"" not in transparent(drawing).split("patch_2")[0], path
        dark = for_the_dark(drawing)
        assert dark.count("<path") == drawing.count("<path")
        for before, after in zip(IMAGE.findall(drawing), IMAGE.findall(dark), strict=True):
            images += 1  # a photograph of a garment stays; of what is drawn in colours nothing does
            assert (before == after) == photograph(_rgb(before)), path
    assert images > 20


def _rgb(png: str) -> np.ndarray:
    return plt.imread(io.BytesIO(base64.b64decode(png)))[..., :3]


def test_a_row_of_panels_becomes_a_column_for_a_phone() -> None:
    narrowed = 0
    for path in execute.PICTURES.rglob("*.svg"):
        drawing = path.read_text(encoding="utf-8")
        if form := narrow.narrow(drawing):
            narrowed += 1
            (before, _), (after, _) = (map(float, re.findall(
                r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0]) for svg in (drawing, form))
            assert after <= 0.8 * before and narrow.smallest(form) == narrow.smallest(drawing)
            boxes = narrow.panels(drawing)
            assert form.count('<use xlink:href="#figure_1"/>') == len(boxes) > 1
            ElementTree.fromstring(form)
            for n, one in enumerate(boxes):  # none is cut, and none is seen twice
                assert not any(max(one.x0, other.x0) < min(one.x1, other.x1)
                               and max(one.y0, other.y0) < min(one.y1, other.y1)
                               for other in boxes[:n]), path
    assert narrowed > 40


def test_no_letter_of_a_picture_is_too_small(tmp_path: Path) -> None:
    """As wide as the page shows it on a screen of 390 pixels, whichever form that is."""
    (tmp_path / "pictures").mkdir()
    for path in sorted(execute.PICTURES.glob("*.svg")):
        source = pages.picture(tmp_path / "pictures", "")(b"", f"{path.stem}.png")
        shown = pages.by_theme(f'<img alt="a" src="{source}">', tmp_path)
        least = dict(re.findall(r"(--least(?:-narrow)?): (\d+)px", shown))
        assert f'<a href="{source}">' in shown and shown.count("<img ") == 2
        for name, wide in least.items():
            form = tmp_path / "pictures" / f"{path.stem}{name.removeprefix('--least')}.svg".replace(
                "-narrow", ".narrow")
            svg = form.read_text(encoding="utf-8")
            points = float(re.findall(r'viewBox="0 0 ([\d.]+)', svg)[0])
            assert narrow.smallest(svg) * int(wide) / points >= narrow.LEAST
    assert "min-width: var(--least-narrow, var(--least))" in \
        (ROOT / "docs" / "site" / "_static" / "course.css").read_text(encoding="utf-8")


def test_the_first_page_has_its_picture() -> None:
    master = next(path for path in pages.masters() if path.name.startswith("04"))
    page = nbformat.writes(nbformat.v4.new_notebook(cells=[]))
    with pytest.raises(LookupError, match="titles"):
        pages.opening([page])
    names = list(execute.pictures(master))
    assert any("<!-- target -->" in (execute.PICTURES / f"{name}.svg").read_text(encoding="utf-8")
               for name in names if (execute.PICTURES / f"{name}.svg").exists())


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
    wanted = [row["Defined in"] for row in terms.ROWS if row.get("Defined in")]
    assert len(wanted) > 50 and text.count(".ipynb#") == len(wanted)  # each with its heading


def test_sections_are_indexed_by_the_terms_they_define() -> None:
    master = next(path for path in pages.masters() if path.name.startswith("02"))
    (english, _), (chinese, _) = pages.read(master, "en"), pages.read(master, "zh")
    names = terms.defined("02", english, chinese)
    heading = next(heading for heading, here in names.items() if "卷积" in here)
    assert "convolution" in names[heading] and heading in terms.headings(chinese)
    marked = terms.indexed(f"## {heading}\n\ntext", names)
    assert marked.startswith(f"## {heading}\n\n```{{index}} ") and "卷积" in marked
    assert terms.indexed("## Another\n\ntext", names) == "## Another\n\ntext"


def test_search_knows_names_of_code_and_chinese() -> None:
    def section(title: str, text: str, page: str = "04_x", **more) -> dict:
        return {"page": page, "id": title, "title": title, "above": ["Top"], "names": [title],
                "text": text, "code": "", **more}

    known = [
        section("Scheduling", "Of vectorize, of exercise 4.4 and of exercise 4.5.", above=[]),
        section("vectorize: several elements", "Lanes.", names=["vectorize", "向量化"]),
        section("Exercise 4.4: a schedule", "Some <b>loops</b> of yours."),
        section("Exercise 4.5: another", "As in exercise 4.4, once more as in exercise 4.4."),
        section("Old names", "No schedule here.\nte.create_schedule | te.create_prim_func\nMore.",
                "rosetta"),
        section("循环", "先切分循环，再把内层循环展开。"),
        section("展开", "不要循环。")]
    asked = {"exercise 4.4": "Exercise 4.4", "Vectorise": "vectorize", "vectoriz": "vectorize",
             "向量化": "vectorize", "create_schedule": "Old names", "4.5": "Exercise 4.5",
             "te.create_schedule": "Old names", "tvm.te.create_schedule": "Old names",
             "schedules": "Exercise 4.4", "展开": "展开", "nowhere": "", "?": ""}
    found = dict(zip(asked, searching.answers(known, [*asked]), strict=True))
    assert [(query, here[0]["title"].startswith(asked[query]) if here else not asked[query])
            for query, here in found.items()] == [(query, True) for query in asked]
    assert found["create_schedule"][0]["excerpt"] == "te.create_schedule | te.create_prim_func"


def _filtered(colour: str, most: float) -> np.ndarray:
    """Return a colour after CSS's invert(most) hue-rotate(180deg), by the formulas of its standard.

    https://www.w3.org/TR/filter-effects-1/#feColorMatrixElement
    """
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    rgb = np.array([int(digits[n:n + 2], 16) / 255 for n in (0, 2, 4)])
    grey = np.array([.213, .715, .072])
    turn = 2 * np.outer(np.ones(3), grey) - np.eye(3)
    return np.clip(turn @ (most - rgb * (2 * most - 1)), 0, 1)


def _luminance(rgb: np.ndarray) -> float:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_listings_can_be_read_in_the_dark() -> None:
    css = (ROOT / "docs" / "site" / "_static" / "course.css").read_text(encoding="utf-8")
    rule = re.search(r"filter: (invert\(([.\d]+)\) hue-rotate\(180deg\))", css)
    assert rule and rule[1] in listing.in_the_dark  # the lab's
    listings = [found for master in pages.masters()
                for cell in nbformat.read(master, as_version=4).cells
                for output in cell.get("outputs", []) if "data" in output
                for found in re.findall(r"<pre.*?</pre>", output.data.get("text/html", ""),
                                        re.DOTALL)]
    light = {colour for listing in listings
             for colour in re.findall(r'<span style="[^"]*?(#\w+)', listing)}
    grounds = {"#f6f8fa", "#dafbe1", "#ffebe9"}  # of a listing, of a diff's lines
    assert len(light) > 8 and all("#f6f8fa" in listing for listing in listings)
    for ground in grounds:
        below = _luminance(_filtered(ground, float(rule[2])))
        assert below < 0.03
        for ink in {*light, "#24292f"} - grounds - {"#BBB"}:  # spaces are of no colour
            if ground == "#f6f8fa" or ink == "#24292f":
                above = _luminance(_filtered(ink, float(rule[2])))
                assert (above + 0.05) / (below + 0.05) > 4.5, ink


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there"></a><a href="b.html#gone"></a>'
                                     '<img src="none.svg"><a href="https://x.invalid/"></a>'
                                     '<a href="http://[x/"></a>')
    (tmp_path / "b.html").write_text('<p id="there">')
    assert links.broken(tmp_path) == [
        "a.html: b.html#gone", "a.html: http://[x/", "a.html: none.svg"]


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
    assert "make data" in container["onCreateCommand"]  # before the editor opens work/
    opened = container["customizations"]["codespaces"]["openFiles"]
    assert opened == [f"work/{pages.masters()[0].name}"]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text()
                             + (ROOT / "instructor" / "student.mk").read_text(), re.MULTILINE))
    workflows = [path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    for text in (container["onCreateCommand"], *workflows):
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


def test_anchors_stay_when_a_section_is_put_in() -> None:
    assert anchors.anchors(["A `call_tir`", "With your model", "With your model", "2026.11"]) == \
        ["a-call-tir", "with-your-model", "with-your-model-2", "of-2026-11"]
    known = pages.section_anchors()
    assert not [one for here in known.values() for one in here if re.fullmatch(r"id\d+", one)]
    assert all(len(here) == len({*here}) for here in known.values())


def test_other_names_are_of_sections_that_are_there(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    known = pages.section_anchors()
    found = aliases.by_section(known)
    assert "cross compile" in found["11_ship_it#another-machine"] and len(found) > 100
    monkeypatch.setattr(aliases, "TABLE", tmp_path / "aliases.toml")
    monkeypatch.setattr(aliases, "ROOT", tmp_path)
    aliases.TABLE.write_text('["11"]\n"Another planet" = "Mars"\n')
    with pytest.raises(LookupError, match="Another planet"):
        aliases.by_section(known)
