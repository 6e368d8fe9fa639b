"""Other names of sections, for the search: words that readers type and the course does not use."""

import tomllib

from tools.site.anchors import anchors
from tools.site.project import ROOT

TABLE = ROOT / "docs" / "aliases.toml"


def by_section(known: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the other names of sections by "page#anchor", for both languages.

    `known`: the anchors of each page. Raises LookupError if the table names a section that does
    not exist.
    """
    found = {}
    for page, sections in tomllib.loads(TABLE.read_text(encoding="utf-8")).items():
        name = next((one for one in known if one == page or one.startswith(f"{page}_")), "")
        for heading, names in sections.items():
            anchor, = anchors([heading])
            if anchor not in known.get(name, ()):
                raise LookupError(f"{TABLE.relative_to(ROOT)}: no section {heading!r} on {page!r}")
            found[f"{name}#{anchor}"] = names.split("; ")
    return found
