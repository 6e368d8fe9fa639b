"""Anchors that stay: a section has one in both languages, made of its English heading.

Sphinx makes a section's anchor of its heading's Latin letters; one that has none is numbered, and
then a section that is put in moves those of all that follow.
"""

import re
from collections import Counter
from collections.abc import Iterable

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging


def anchors(headings: Iterable[str]) -> list[str]:
    """Return an anchor for each of a page's English headings, in Markdown: all different."""
    seen: Counter[str] = Counter()
    found = []
    for heading in headings:
        words = re.sub(r"[`*$]|\]\([^)]*\)|\[", "", heading)
        name = nodes.make_id(words) or nodes.make_id(f"of {words}")  # "2026.12" has no letter
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


class _Named(SphinxTransform):
    """Give the sections of a page the anchors that the setting `section_anchors` has for it."""

    default_priority = 10  # before MyST and Sphinx note which section has which

    def apply(self, **_more: object) -> None:
        """Rename them; a page that has other sections than the setting is a warning."""
        wanted = self.config.section_anchors[self.env.docname]
        sections = list(self.document.findall(nodes.section))
        if len(wanted) != len(sections):
            logging.getLogger(__name__).warning(
                "%s has %s sections, its English headings are %s", self.env.docname,
                len(sections), wanted, location=self.document)
            return
        renamed = {}
        for section, anchor in zip(sections, wanted, strict=True):
            for old in section["ids"]:
                del self.document.ids[old]
                renamed[old] = anchor
            section["ids"] = [anchor]
        for section in sections:
            self.document.ids[section["ids"][0]] = section
        for name, old in self.document.nameids.items():
            self.document.nameids[name] = renamed.get(old, old)
        slugs = self.env.metadata[self.env.docname].get("myst_slugs", {})  # MyST has it twice
        slugs.update({slug: (line, renamed.get(old, old), text)
                      for slug, (line, old, text) in slugs.items()})


def setup(app: Sphinx) -> dict:
    """Name the sections of every page."""
    app.add_config_value("section_anchors", {}, "env")
    app.add_transform(_Named)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
