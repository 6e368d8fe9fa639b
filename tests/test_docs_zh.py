"""The Chinese of README and docs: the messages, rows, code and links of the English.

In docs/zh/ a mark stands in front of each section, as in paired_md/zh/ in front of each cell: a
hash of the English that it translates. A section whose English has changed since is stale. That
fails nothing; the end of the test run counts it, with the mark that it gets once it is mended.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from tools.translation import EXERCISES, MARK, digest
from tools.translation_lint import differences

ROOT = Path(__file__).resolve().parent.parent
DOCS = ("tvm_errors", "rosetta", "old_course")
LANGUAGES = re.compile(r"^\[(?:English|中文)\]\(.*\)\n", re.MULTILINE)  # the link to the other one
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HANDS_ON = ("README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in (*DOCS, "benchmark")),
            "README.zh.md", "instructor/student_README.zh.md", "docs/glossary.md",
            *(f"docs/zh/{name}.md" for name in DOCS))


def read(name: str) -> str:
    return LANGUAGES.sub("", (ROOT / name).read_text(encoding="utf-8"))


def sections(text: str) -> list[str]:
    """Return a document's sections, each from its heading, or from the mark in front of it, on."""
    hidden = FENCE.sub(lambda code: code[0].replace("\n#", "\n "), text)  # a comment is no heading
    starts = [match.start() for match in re.finditer(rf"(?:{MARK.pattern}\n)?^#+ ", hidden,
                                                     re.MULTILINE)]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def pairs(name: str) -> list[tuple[str, str, bool]]:
    """Return the sections: English, Chinese without its mark, and whether this is stale."""
    english, chinese = sections(read(f"docs/{name}.md")), sections(read(f"docs/zh/{name}.md"))
    assert len(english) == len(chinese), "a section is missing, or there is one too many"
    found = []
    for one, other in zip(english, chinese, strict=True):
        known = MARK.match(other)
        assert known, f"no mark in front of {other.splitlines()[0]}"
        found.append((one, other[known.end():].lstrip(), known[1] != digest(one)))
    return found


def spans(text: str) -> list[str]:
    return re.findall(r"``.+?``|`[^`]+`", text)


def rows(section: str) -> list[list[str]]:
    """Return the cells of a section's tables, headers and all."""
    lines = [line for line in FENCE.sub("", section).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:].removesuffix("|").split(" |")] for line in lines]


def links(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", re.sub(r"``.+?``|`[^`]+`", "code", FENCE.sub("", text)))


def targets(text: str, folder: Path) -> Counter:
    """Return what a text in this folder links to; docs/zh/ counts as docs/."""
    found = Counter()
    for link in links(text):
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            link = f"{(folder / path).resolve().relative_to(ROOT)}#{anchor}"
        found[link.replace("docs/zh/", "docs/")] += 1
    return found


@pytest.mark.parametrize("name", DOCS)
def test_messages_code_and_rows_are_those_of_the_english(name: str) -> None:
    for english, chinese, _ in pairs(name):
        heading, translated = english.partition("\n")[0], chinese.partition("\n")[0]
        assert heading.partition(" ")[0] == translated.partition(" ")[0], f"{heading}: its level"
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
def test_what_is_not_stale_has_all_of_the_english(name: str) -> None:
    for english, chinese, stale in pairs(name):
        if not stale:
            heading = english.partition("\n")[0]
            wanted, have = targets(english, ROOT / "docs"), targets(chinese, ROOT / "docs" / "zh")
            assert wanted == have, heading
            here = [re.sub(r"\]\([^)]+\)", "](https://here)", text) for text in (english, chinese)]
            assert not (lacks := differences(*here)), "\n".join([heading, *lacks])


@pytest.mark.parametrize("name", DOCS)
def test_stale_sections_are_counted(name: str, record_property) -> None:
    found = [(english, chinese) for english, chinese, stale in pairs(name) if stale]
    record_property("stale", [(f"docs/zh/{name}.md", len(found), [
        f"{chinese.partition(chr(10))[0]}: its English has changed; when mended, "
        f"<!-- en: {digest(english)} -->" for english, chinese in found])])


def anchors(path: Path) -> set[str]:
    """Return the anchors of a file's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", path.read_text(encoding="utf-8")),
                          re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", HANDS_ON)
def test_links_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    folder = ROOT if name.startswith("instructor") else (ROOT / name).parent  # it is put on top
    for link in links(text):
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            assert (folder / path).is_file(), link
            assert not anchor or anchor in anchors(folder / path), link


def test_each_language_links_to_the_other() -> None:
    for english, chinese in (("README.md", "README.zh.md"), *(
            (f"docs/{name}.md", f"docs/zh/{name}.md") for name in DOCS)):
        for one, other in ((english, chinese), (chinese, english)):
            text = (ROOT / one).read_text(encoding="utf-8")
            (link,) = LANGUAGES.findall(text)
            target = re.search(r"\((.*)\)", link)[1]
            assert ((ROOT / one).parent / target).resolve() == ROOT / other


def test_the_readme_has_the_same_notebooks_and_troubles() -> None:
    english, chinese = read("README.md"), read("README.zh.md")
    table = re.compile(r"^\| \[(\d\d) .+\]\(.*/(\w+)\.\w+\) \| .+ \| (\d+) \| .+ \|$", re.MULTILINE)
    assert len(table.findall(english)) >= 8 and table.findall(english) == table.findall(chinese)
    for readme, said in ((english, " exercises in "), (chinese, " 个 notebook，")):
        assert said in readme.partition(EXERCISES)[2].partition("<!--")[0], "what `make sync` wrote"

    def troubles(text: str, start: str, end: str) -> list[list[str]]:
        part = text.partition(f"\n## {start}\n")[2].partition(f"\n## {end}\n")[0]
        return [sorted(spans(row[0] + row[1])) for row in rows(part)[2:]]

    said, translated = (troubles(english, "Troubleshooting", "Licence"),
                        troubles(chinese, "遇到问题", "许可证"))
    assert len(said) >= 10 and said == translated[:len(said)]
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
