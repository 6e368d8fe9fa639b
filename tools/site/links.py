"""Find the links of a built site that lead nowhere."""

import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

WAIT = 20  # seconds for an answer


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


def _refused(address: str) -> str:
    """Return why an address does not answer, or "" where it does."""
    try:
        request = urllib.request.Request(address, headers={"User-Agent": "link check of a course"})
        with urllib.request.urlopen(request, timeout=WAIT):
            return ""
    except HTTPError as error:
        return f"{error.code} {error.reason}"
    except (OSError, HTTPException, ValueError) as error:  # no network, half an answer, no address
        return str(getattr(error, "reason", "") or error or type(error).__name__)


def broken(site: Path, outside: bool = False) -> list[str]:
    """Return "page: link" for each link to a file or an anchor that is not there.

    Where `outside` is set, links that lead outside are tried too, each once; the line then says
    why it failed.
    """
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))
             if "_static" not in path.parts}  # the theme's own
    wrong, away = [], dict[str, str]()
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        for link in sorted(page.links):
            try:
                parts = urlsplit(link)
            except ValueError:  # not an address at all
                wrong.append(f"{name}: {link}")
                continue
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
            wrong += [f"{away[link]}: {link} ({why})" for link, why
                      in zip(away, pool.map(_refused, away), strict=True) if why]
    return wrong
