"""Ask the site's search, a script of the browser's."""

import json
from pathlib import Path

import in_node

SCRIPT = Path(__file__).resolve().parent.parent / "docs" / "site" / "_static" / "search.js"
ASK = """({ Finder, excerpt }, [sections, queries]) => {
  const finder = new Finder(sections);
  return queries.map((query) => {
    const { results, wanted } = finder.find(query);
    return results.slice(0, 3).map(({ section }) =>
      ({ ...section, excerpt: excerpt(section.text, wanted) }));
  });
}"""


def sections(site: Path) -> list[dict]:
    """Return the sections that a built site, or its Chinese part, looks through."""
    text = (site / "sections.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("const SECTIONS = ").rstrip().removesuffix(";"))


def answers(known: list[dict], queries: list[str]) -> list[list[dict]]:
    """Return of each query the first three sections, best first, each with its excerpt."""
    return in_node.answer(SCRIPT, ASK, [known, queries])


def named(section: dict) -> str:
    """Return a section as tests/queries.toml names it."""
    page = section["page"]
    return f"{page[:2] if page[:2].isdigit() else page}#{section['id']}"
