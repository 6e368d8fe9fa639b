"""The data of the site's search, each section of each page, as Sphinx has it.

It writes sections.js, from which docs/site/_static/search.js ranks them in the browser. That is a
script because pages that are opened as files may not fetch data.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx

SKIPPED = (nodes.section, nodes.title, nodes.comment, nodes.math_block, addnodes.toctree)


def _said(node: nodes.Node) -> str:
    """Return a node's text in one line: formulas as they look, no HTML."""
    if isinstance(node, nodes.Text):
        return re.sub(r"\s+", " ", node.astext())
    if isinstance(node, nodes.math):
        return re.sub(r"<[^>]*>|\s+", "", str(tex2mathml(node.astext())))
    if isinstance(node, nodes.raw):
        return " " * ("<br" in node.astext())
    return "".join(map(_said, node.children))


class _Section:
    """One section without those below it: its prose by paragraphs, its code, what it defines."""

    def __init__(self, node: nodes.section, page: str, above: list[str]) -> None:
        title = next(node.findall(nodes.title))
        self.node, self.page, self.above = node, page, above
        self.id, self.title = node["ids"][0], _said(title)
        self.prose: list[str] = []
        self.code: list[str] = []
        # "vectorize: several ..." and "vectorize（向量化）：..." are of vectorize
        self.names = [self.title, *re.split(r"[:,]\s|[：，（）]", self.title)]
        self.bold: list[str] = []
        self._folded = 0
        self._read(node)

    def _read(self, node: nodes.Node) -> None:
        for child in node.children:
            classes = child.get("classes", []) if isinstance(child, nodes.Element) else []
            if isinstance(child, SKIPPED) or {"cell_output", "tag_hide-input"} & {*classes}:
                continue  # what a program prints, imports, solutions
            if isinstance(child, nodes.raw):
                self._folded += child.astext().count("<details") - child.astext().count("</details")
            elif isinstance(child, addnodes.index):  # tools.site.terms
                self.names += [entry[1] for entry in child["entries"]]
            elif isinstance(child, nodes.literal_block):
                self.code.append(child.astext())
            elif isinstance(child, nodes.row):
                self._add(" | ".join(map(_said, child.children)))
            elif isinstance(child, nodes.TextElement):
                self.bold += [] if self._folded else map(_said, child.findall(nodes.strong))
                self._add(_said(child))
            else:
                self._read(child)

    def _add(self, text: str) -> None:
        # hints and answers are found, but not shown in excerpts
        (self.code if self._folded else self.prose).append(text.strip())

    def entry(self) -> dict:
        """Return what search.js reads."""
        return {"page": self.page, "id": self.id if self.above else "", "title": self.title,
                "above": self.above, "names": [*dict.fromkeys(filter(None, self.names))],
                "text": "\n".join(filter(None, self.prose)), "code": "\n".join(self.code)}


def _sections(parent: nodes.Node, page: str, above: list[str]) -> Iterator[_Section]:
    for node in parent.children:
        if isinstance(node, nodes.section):
            here = _Section(node, page, above)
            yield here
            yield from _sections(node, page, [*above, here.title])


def write(app: Sphinx, error: Exception | None) -> None:
    """Write sections.js next to the pages."""
    if error:
        return
    found = [section for page in sorted(app.env.found_docs)
             for section in _sections(app.env.get_doctree(page), page, [])]
    known: set[str] = set()
    for section in found:  # a term is in bold where it is defined; later, recaps repeat it
        here = [re.sub(r"^[\w.]+\.(?=\w+$)", "", name) for name in section.bold]  # `R.call_tir`
        section.names += [name for name in here if name not in known]
        known |= {*here}
        section.names += app.config.other_names.get(f"{section.page}#{section.id}", [])
    text = json.dumps([section.entry() for section in found], ensure_ascii=False)
    (Path(app.outdir) / "sections.js").write_text(f"const SECTIONS = {text};\n", encoding="utf-8")


def replace(app: Sphinx) -> None:
    """Leave Sphinx's own search out."""
    app.builder.search = False
