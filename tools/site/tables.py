"""Tables for a phone: if a row is too long, its cells are shown one below the other."""

from docutils import nodes
from sphinx.application import Sphinx

LONG = 40  # letters in a row, on average: about what fits on a phone's screen


def stack(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Mark such tables of a page, when it is written."""
    for table in doctree.findall(nodes.table):
        heads = [entry.astext() for entry in next(table.findall(nodes.thead)).findall(nodes.entry)]
        rows = [list(row.findall(nodes.entry))
                for row in next(table.findall(nodes.tbody)).findall(nodes.row)]
        letters = [sum(len(entry.astext()) for entry in row) for row in rows]
        if page == "terms" or len(heads) < 2 or sum(letters) < LONG * len(rows):
            continue
        table["classes"].append("stacked")
        for row in rows:
            for head, entry in zip(heads[1:], row[1:], strict=True):
                if head and entry.children and entry.astext():
                    colon = "：" if app.config.language == "zh_CN" else ": "
                    entry[0].insert(0, nodes.inline("", head + colon, classes=["label"]))
