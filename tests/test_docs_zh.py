"""The Chinese of documents: the messages, rows, code and links of the English, and the glossary.

tests/test_translation.py has the machinery, and `make test` runs its gate over them.
"""

import re
from pathlib import Path

import pytest

from tools.translation import EXERCISES, current, files

ROOT = Path(__file__).resolve().parent.parent
DOCS = ("troubleshooting", "tvm_errors", "rosetta", "old_course", "benchmark")
LANGUAGES = re.compile(r"^\[(?:English|中文)\]\([^)]*\).*\n", re.MULTILINE)  # to the other one
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HANDS_ON = ("README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in DOCS),
            "docs/glossary.md", "data/README.md", "instructor/README.md", "README.zh.md",
            "data/README.zh.md", "instructor/README.zh.md", "instructor/student_README.zh.md",
            *(f"docs/zh/{name}.md" for name in DOCS))


def read(name: str) -> str:
    return LANGUAGES.sub("", (ROOT / name).read_text(encoding="utf-8"))


def pairs(name: str) -> list[tuple[str, str]]:
    """Return the paragraphs that are translated, in English and Chinese."""
    return [(one.english, one.text) for one in current(f"docs/{name}.md")[0] if one.text]


def spans(text: str) -> list[str]:
    return re.findall(r"``.+?``|`[^`]+`", text)


def rows(section: str) -> list[list[str]]:
    """Return the cells of a section's tables, headers and all."""
    lines = [line for line in FENCE.sub("", section).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:].removesuffix("|").split(" |")] for line in lines]


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", re.sub(r"``.+?``|`[^`]+`", "code", FENCE.sub("", text)))


@pytest.mark.parametrize("name", DOCS)
def test_messages_code_and_rows_are_those_of_the_english(name: str) -> None:
    for english, chinese in pairs(name):
        heading, translated = english.partition("\n")[0], chinese.partition("\n")[0]
        if heading.startswith("#"):
            assert "`" not in heading or heading == translated, "its anchor would be another"
        assert FENCE.findall(english) == FENCE.findall(chinese), f"{heading}: its code"
        assert len(rows(english)) == len(rows(chinese)), f"{heading}: its rows"
        for row, other in zip(rows(english), rows(chinese), strict=True):
            assert len(row) == len(other), other
            for cell, its in zip(row, other, strict=True):
                assert sorted(spans(cell)) == sorted(spans(its)), f"{cell}\n{its}"
            if len(row) == 4 and row[2] != "status":
                assert row[2] == other[2], f"the status of {row[0]}"


@pytest.mark.parametrize("name", DOCS)
def test_links_have_the_anchors_of_the_english(name: str) -> None:
    for texts in pairs(name):
        one, other = (sorted(link.partition("#")[2] for link in links(text)) for text in texts)
        assert one == other


def anchors(path: Path) -> set[str]:
    """Return the anchors of a file's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")),
                          re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", HANDS_ON)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    folder = ROOT if "student" in name else (ROOT / name).parent  # it is put on top
    for link in links(text):
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            assert (folder / path).is_file(), link
            assert not anchor or anchor in anchors(folder / path), link


def test_each_language_links_to_the_other() -> None:
    known = [(file.source, file.chinese) for name, file in files().items()
             if re.search("^docs|(^|/)README", name)]
    assert len(known) == len(DOCS) + 3
    for one, other in [pair for both in known for pair in (both, both[::-1])]:
        (link,) = LANGUAGES.findall(one.read_text(encoding="utf-8"))
        assert (one.parent / re.search(r"\((.*?)\)", link)[1]).resolve() == other


def test_the_readme_has_the_same_notebooks() -> None:
    english, chinese = read("README.md"), read("README.zh.md")
    table = re.compile(r"^\| \[(\d\d) .+\]\(.*/(\w+)\.\w+\) \| .+ \| (\d+) \| (\d+) \| .* \|$",
                       re.MULTILINE)
    assert len(table.findall(english)) >= 8 and table.findall(english) == table.findall(chinese)
    for readme, said in ((english, " exercises in "), (chinese, " 个 notebook，")):
        assert said in readme.partition(EXERCISES)[2].partition("<!--")[0], "what `make sync` wrote"
    assert re.findall(r"apache-tvm [\d.]+|torch \d+\.\d+", english)[:2] == re.findall(
        r"apache-tvm [\d.]+|torch \d+\.\d+", chinese)[:2]


GLOSSARY = read("docs/glossary.md")


def glossary(heading: str) -> list[list[str]]:
    found = re.search(rf"^## {heading} / .*$", GLOSSARY, re.MULTILINE)
    return rows(GLOSSARY[found.end():].partition("\n## ")[0])[2:]


def test_the_glossary_is_in_order() -> None:
    headings = {path.name[:2]: set(re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(
        encoding="utf-8")), re.MULTILINE)) for path in (ROOT / "paired_md").glob("[0-9]*.md")}
    terms = glossary("Terms")
    assert len(terms) >= 80
    for english, chinese, _, gate, meaning, its_meaning, where in terms:
        assert english and chinese and meaning and its_meaning and gate in ("yes", "no"), english
        number, _, heading = where.partition(": ")
        assert not where or heading in headings[number], f"{english}: no section {where}"
    names = [(row[0], row[1]) for row in terms]
    assert len(set(names)) == len(names)
    assert all(len(row) == 2 for row in glossary("Fixed phrases"))
    assert all(len(row) == 3 and all(row) for row in glossary("Not translated"))
