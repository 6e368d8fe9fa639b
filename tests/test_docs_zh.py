"""The Chinese of documents: the messages, rows, code and links of the English, and the glossary.

tests/test_translation.py has the machinery, and `make test` runs its gate over them.
"""

import re
from pathlib import Path

import pytest

from tools.translation import EXERCISES, current, files
from tools.translation_lint import rows

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = {name: file for name, file in files().items() if name.endswith(".md")}
LANGUAGES = re.compile(r"(?m)^\[(?:English|中文)\]\(([^)]*)\)")  # a link to the other one
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"``.+?``|`[^`]+`")
IN_ENGLISH_ALONE = ROOT / "CONTRIBUTING.md", ROOT / "docs" / "glossary.md"


def read(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table(text: str) -> list[list[object]]:
    """Return the code spans of each cell of a paragraph's table, and below its head the status."""
    cells = [[cell.strip() for cell in line[1:].removesuffix("|").split(" |")]
             for line in FENCE.sub("", text).splitlines() if line.startswith("|")]
    return [[*(sorted(SPAN.findall(cell)) for cell in row), row[2] if at and len(row) == 4 else ""]
            for at, row in enumerate(cells)]


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", SPAN.sub("code", FENCE.sub("", text)))


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("docs/")])
def test_messages_code_rows_and_anchors_are_those_of_the_english(name: str) -> None:
    ((messages,), _, _) = current(name)
    for english, chinese in ((one.msgid, one.msgstr) for one in messages if one.translated()):
        heading, translated = english.partition("\n")[0], chinese.partition("\n")[0]
        if heading.startswith("#"):
            assert "`" not in heading or heading == translated, "its anchor would be another"
        assert FENCE.findall(english) == FENCE.findall(chinese), f"{heading}: its code"
        assert table(english) == table(chinese), f"{heading}: its rows"
        one, other = (sorted(link.partition("#")[2] for link in links(text))
                      for text in (english, chinese))
        assert one == other


def anchors(text: str) -> set[str]:
    """Return the anchors of a text's headings, as GitHub makes them."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall("(?m)^#+ (.*)$", FENCE.sub("", text))}


@pytest.mark.parametrize("path", [*IN_ENGLISH_ALONE, *(
    path for file in DOCUMENTS.values() for path in (file.source, file.chinese))], ids=str)
def test_links_lead_somewhere(path: Path) -> None:
    folder = ROOT if "student" in path.name else path.parent  # it is put on top
    for link in links(read(path)):
        if not link.startswith("http"):
            name, _, anchor = link.partition("#")
            assert (folder / name).is_file(), link
            assert not anchor or anchor in anchors(read(folder / name)), link


def test_each_language_links_to_the_other() -> None:
    known = [(file.source, file.chinese) for name, file in DOCUMENTS.items()
             if "student" not in name]
    assert len(known) >= 8
    for one, other in [pair for both in known for pair in (both, both[::-1])]:
        (link,) = LANGUAGES.findall(read(one))
        assert (one.parent / link).resolve() == other


def test_the_readme_has_the_same_notebooks() -> None:
    texts = [read("README.md"), read("README.zh.md")]
    for text, said in zip(texts, (" exercises in ", " 个 notebook，"), strict=True):
        assert said in text.partition(EXERCISES)[2].partition("<!--")[0], "what `make sync` wrote"
    row = re.compile(r"(?m)^\| \[(\d\d) .+\]\(.*/(\w+)\.\w+\) \| .+ \| (\d+) \| (\d+) \| .* \|$")
    english, chinese = map(row.findall, texts)
    assert len(english) >= 8 and english == chinese
    english, chinese = (re.findall(r"apache-tvm [\d.]+|torch \d+\.\d+", text) for text in texts)
    assert len(english) >= 2 and english[:2] == chinese[:2]


def test_the_glossary_is_in_order() -> None:
    headings = {path.name[:2]: re.findall("(?m)^#+ (.*)$", FENCE.sub("", read(path)))
                for path in (ROOT / "paired_md").glob("[0-9]*.md")}
    glossary = read("docs/glossary.md")
    terms = [list(row.values()) for row in rows(glossary, "Terms")]
    assert len(terms) >= 80
    for english, chinese, _, gate, meaning, its_meaning, where in terms:
        assert english and chinese and meaning and its_meaning and gate in ("yes", "no"), english
        number, _, heading = where.partition(": ")
        assert not where or heading in headings[number], f"{english}: no section {where}"
    assert len({(row[0], row[1]) for row in terms}) == len(terms)
    assert all(len(row) == 2 for row in rows(glossary, "Fixed phrases"))
    assert all(len(row) == 3 and all(row.values()) for row in rows(glossary, "Not translated"))
