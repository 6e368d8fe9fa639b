"""The index of terms: each term of the glossary, with a link to the section that defines it."""

import re

import nbformat
from mdit_py_plugins.anchors.index import slugify

from tools.site.words import Words
from tools.translation_lint import GLOSSARY, rows

ROWS = rows(GLOSSARY, "Terms")  # by column


def headings(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the headings of a notebook's Markdown, in order."""
    return headings_in("\n".join(cell.source for cell in notebook.cells
                                 if cell.cell_type == "markdown"))


def headings_in(text: str) -> list[str]:
    """Return the headings of Markdown, in order."""
    return re.findall(r"^#{1,4} +(.+?)\s*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL),
                      re.MULTILINE)


def defined(number: str, english: nbformat.NotebookNode,
            own: nbformat.NotebookNode) -> dict[str, list[str]]:
    """Return the terms, in both languages, that each section of a notebook defines.

    By the sections' headings in `own`; `number`: the notebook's, as "04".
    """
    known = dict(zip(headings(english), headings(own), strict=True))
    found: dict[str, list[str]] = {}
    for row in ROWS:
        where, _, heading = row.get("Defined in", "").partition(": ")
        if where == number and heading in known:
            found.setdefault(known[heading], []).extend(
                name.strip("` ") for name in f"{row['English']}, {row['中文']}".split(","))
    return found


def indexed(text: str, names: dict[str, list[str]]) -> str:
    """Return Markdown with index entries, so that a search for a term finds its section first."""
    def mark(match: re.Match) -> str:
        if here := names.get(match[1]):
            return f"{match[0]}\n\n```{{index}} {', '.join(here)}\n```\n"
        return match[0]

    return re.sub(r"^#{1,4} +(.+?)[ \t]*$", mark, text, flags=re.MULTILINE)


def _place(where: str, pages: dict) -> str:
    """Return a link to the section "00: Heading" in the page's language; "" for none."""
    number, _, heading = where.partition(": ")
    if number not in pages:
        return where
    name, english, own = pages[number]
    known = headings(english)
    if heading not in known:
        return f"[{number}]({name})"
    said = headings(own)[known.index(heading)]
    return f"[{number} · {said}]({name}#{slugify(said)})"


def page(words: Words, language: str, pages: dict) -> str:
    """Return the page of the index.

    `pages`: of each number, the page's name and the notebook in English and in the language.
    """
    title, about, term, meaning = words.terms
    first, other, says = ("English", "中文", "Meaning") if language == "en" else \
        ("中文", "English", "释义")
    lines = [f"# {title}", "", about, "", f"| {term} | {other} | {meaning} |", "|---|---|---|"]
    for row in sorted(ROWS, key=lambda row: row[first].lower()):
        place = _place(row.get("Defined in", ""), pages)
        names = [f'<span class="term" lang="{code}">{row[head]}</span>'
                 for head, code in ((first, language), (other, "zh" if language == "en" else "en"))]
        lines.append(f"| {' | '.join(names)} | {row[says]}{place and f'<br>{place}'} |")
    return "\n".join(lines) + "\n"
