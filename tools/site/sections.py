"""For Sphinx: sections get the anchors of `tools.site.anchors`."""

from docutils import nodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging


class Named(SphinxTransform):
    """Give the sections of a page the anchors that the setting `section_anchors` has for it."""

    default_priority = 10  # before MyST and Sphinx note which section has which

    def apply(self, **_more: object) -> None:
        """Rename them; warn if a page's sections differ from the setting."""
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
