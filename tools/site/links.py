"""Find the broken links of a built site."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """Collect what a page links to and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.add(value)


def broken(site: Path) -> list[str]:
    """Return "page: link" for each link to a file or an anchor of the site that does not exist."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))
             if "_static" not in path.parts}  # the theme's own
    wrong = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for link in sorted(page.links):
            try:
                parts = urlsplit(link)
            except ValueError:  # not an address at all
                wrong.append(f"{name}: {link}")
                continue
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages
                                        and anchor not in pages[target].anchors):
                wrong.append(f"{name}: {link}")
    return wrong
