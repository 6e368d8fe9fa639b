"""Loop nests, live: a page on which the loops of small programs are split, moved and fused."""

import base64
import html
import json
import os
from pathlib import Path
from typing import Any

import tvm
from IPython.display import display

from plots.forms import SAID, SOURCES, explore
from words import _, language

DOCS = Path(__file__).resolve().parent.parent / "docs"
LANGUAGES = {"en": 0, "zh": 1}
ERRORS = ("tvm_errors.html", "zh/tvm_errors.html")  # of the site, from loops.html


def data(most: int | None = None) -> dict[str, Any]:
    """Return what the page shows, all of it from TVM; takes some seconds. `most`: see explore."""
    strings = json.loads((DOCS / "live.json").read_text(encoding="utf-8"))
    said = {key: {"text": text, "anchor": anchor} for key, (text, anchor) in SAID.items()}
    return {"version": tvm.__version__, "strings": strings, "messages": said,
            "programs": [explore(name, most) for name in SOURCES]}


def fragment(found: dict[str, Any], language: str = "") -> str:
    """Return the page as HTML that goes into another, in a language; else it has a switch.

    In a language it is a page of the site, and links to the site's page of errors.
    """
    known = found | ({"language": LANGUAGES[language], "errors": [ERRORS[0]] * len(LANGUAGES)}
                     if language else {})
    text = json.dumps(known, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    model = (DOCS / "live.js").read_text(encoding="utf-8")
    template = (DOCS / "live.html").read_text(encoding="utf-8")
    return template.replace("@MODEL@", model).replace("@DATA@", text)


def _icon() -> str:
    """Return the site's icon as an address: without one, browsers ask the server for it."""
    svg = (DOCS / "site" / "_static" / "favicon.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def page(found: dict[str, Any], start: str = "en", errors: tuple[str, ...] = ERRORS) -> str:
    """Return the page as one file, for both languages; `start` is the one it opens in.

    `errors`: where the page of errors is in each language; if empty, it is named, not linked.
    """
    found = found | {"start": LANGUAGES[start]} | ({"errors": errors} if errors else {})
    return (f'<!doctype html>\n<html lang="{start}"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<link rel="icon" href="{_icon()}">'
            f"<title>{found['strings']['title'][0]}</title><style>body {{font-family: sans-serif; "
            "line-height: 1.5; margin: 0} .live {min-height: 100vh; box-sizing: border-box; "
            "padding: 1rem max(.5rem, 50% - 35rem)}</style></head>"
            f"<body><main>{fragment(found)}</main></body></html>\n")


def live() -> None:
    """Show the page below a cell, where `make lab` runs it; elsewhere a line says where it is."""
    found = data()
    count = len(found["programs"])
    said = _("Loop nests, live: {count} programs, in JupyterLab and on the course's site.")
    shown = {"text/plain": str(said.format(count=count))}
    if "MLC_LAB" in os.environ:  # a frame of its own: its script meets nothing of JupyterLab's
        title, inside = _("Loop nests, live"), html.escape(page(found, language(), ()))
        shown["text/html"] = (f'<iframe title="{title}" style="width:100%;height:60em;border:0" '
                              f'srcdoc="{inside}"></iframe>')
    display(shown, raw=True)
