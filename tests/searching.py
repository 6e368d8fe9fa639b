"""Ask the site's search, a script of the browser's, by Node.js."""

import json
import subprocess
from pathlib import Path

import pytest

from course import present

SCRIPT = Path(__file__).resolve().parent.parent / "docs" / "site" / "_static" / "search.js"
ASK = """
const { Finder, excerpt } = require(process.argv[1]);
const [sections, queries] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const finder = new Finder(sections);
console.log(JSON.stringify(queries.map((query) => {
  const { results, wanted } = finder.find(query);
  return results.slice(0, 3).map(({ section }) =>
    ({ ...section, excerpt: excerpt(section.text, wanted) }));
})));
"""


def sections(site: Path) -> list[dict]:
    """Return the sections that a built site, or its Chinese part, looks through."""
    text = (site / "sections.js").read_text(encoding="utf-8")
    return json.loads(text.removeprefix("const SECTIONS = ").rstrip().removesuffix(";"))


def answers(known: list[dict], queries: list[str]) -> list[list[dict]]:
    """Return of each query the first three sections, best first, each with its excerpt."""
    if not (node := present.tool("node").command):
        pytest.skip(present.tool("node").said)
    done = subprocess.run([*node, "-e", ASK, str(SCRIPT)], input=json.dumps([known, queries]),
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def named(section: dict) -> str:
    """Return a section as tests/queries.toml names it."""
    page = section["page"]
    return f"{page[:2] if page[:2].isdigit() else page}#{section['id']}"
