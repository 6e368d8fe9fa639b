"""The links of a built site: each leads somewhere."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

WAIT = 20  # seconds for an answer


class _Page(HTMLParser):
    """Collect what a page links to and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.add(value)


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _answers(address: str) -> bool:
    request = urllib.request.Request(address, headers={"User-Agent": "link check of a course"})
    try:
        with urllib.request.urlopen(request, timeout=WAIT):
            return True
    except OSError:
        return False


def broken(site: Path, outside: bool = False) -> list[str]:
    """Return "page: link" for each link to a file or an anchor that is not there.

    Links that lead outside are asked, each once, where `outside` is set.
    """
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))
             if "_static" not in path.parts}  # the theme's own
    wrong, away = [], dict[str, str]()
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme in ("http", "https"):
                away.setdefault(link.partition("#")[0], name)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages
                                        and anchor not in pages[target].anchors):
                wrong.append(f"{name}: {link}")
    if outside:
        with ThreadPoolExecutor(8) as pool:
            wrong += [f"{away[link]}: {link}" for link, good
                      in zip(away, pool.map(_answers, away), strict=True) if not good]
    return wrong
