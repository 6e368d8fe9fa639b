"""Loop nests, live: the page on which choices at each loop change a small program.

The page itself works out what becomes of the program (docs/loops.js). It carries TVM's answers to
random steps (plots.walks), and compares its own answers with them when it is opened.
"""

import base64
import html
import json
import os
import re
from pathlib import Path
from typing import Any

import tvm
from IPython.display import display

from course.plots import walks
from course.words import _, language

DOCS = Path(__file__).resolve().parents[2] / "docs"
PROGRAMS = 300  # TVM makes this many of each kind, to compare the page with
LANGUAGES = {"en": 0, "zh": 1}
ERRORS = ("tvm_errors.html", "zh/tvm_errors.html")  # beside loops.html; beside a page of the site,
ERRORS_BESIDE = (ERRORS[0],) * 2                    # the one in its language
# what TVM says when it builds two nested loops of a kind; it accepts the schedule itself
BUILDING = {
    "buildparallel": "Nested parallel loop is not supported by threadpool, try fuse them instead",
    "buildvectorized": "VectorizeLoop before LiftStorageAlloc"}


def anchor(message: str) -> str:
    """Return the anchor that explains a message on the page of TVM's messages, or ""."""
    text = (DOCS / "tvm_errors.md").read_text(encoding="utf-8")
    for heading in re.findall(r"^### (.*)$", text, re.MULTILINE):
        if any(words in message for words in re.findall(r"`([^`]+)`", heading)):
            return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return ""


def data(count: int = PROGRAMS) -> dict[str, Any]:
    """Return what the page shows and what it is compared with; TVM takes some seconds."""
    messages = walks.refusals() | BUILDING
    programs = []
    for program in walks.PROGRAMS:
        found, made = walks.checked(program, count, messages)
        programs.append(walks.described(program) | {"walks": found, "made": made})
    return {"version": tvm.__version__, "programs": programs, "messages": messages,
            "anchors": {key: anchor(message) for key, message in messages.items()},
            "strings": json.loads((DOCS / "live.json").read_text(encoding="utf-8"))}


def fragment(found: dict[str, Any], language: str = "") -> str:
    """Return the page as HTML for another page, in a language; without one it has a switch."""
    if language:
        found = found | {"language": LANGUAGES[language], "errors": ERRORS_BESIDE}
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    page = (DOCS / "live.html").read_text(encoding="utf-8")
    for name, part in (("LOOPS", (DOCS / "loops.js").read_text(encoding="utf-8")),
                       ("THEME", (DOCS / "theme.js").read_text(encoding="utf-8")), ("DATA", text)):
        page = page.replace(f"@{name}@", part)
    return page


def page(found: dict[str, Any], start: str = "en", beside: bool = True) -> str:
    """Return the page as one file, for both languages; `start` is the one it opens in.

    `beside`: whether the site's pages are next to it, so that it can link to them.
    """
    found = found | {"start": LANGUAGES[start]} | ({"errors": ERRORS} if beside else {})
    icon = (DOCS / "site" / "_static" / "favicon.svg").read_bytes()  # else browsers ask for one
    return (f'<!doctype html>\n<html lang="{start}"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="icon" href="data:image/svg+xml;base64,'
            f'{base64.b64encode(icon).decode()}">'
            f"<title>{found['strings']['title'][0]}</title><style>body {{font-family: sans-serif; "
            "line-height: 1.5; margin: 0} .live {min-height: 100vh; box-sizing: border-box; "
            "padding: 1rem max(.5rem, 50% - 35rem)}</style></head>"
            f"<body><main>{fragment(found)}</main></body></html>\n")


def live() -> None:
    """Show the page below a cell under `make lab`; elsewhere print where it is."""
    shown = {"text/plain": str(_("Loop nests, live: in JupyterLab and on the course's site."))}
    if "MLC_LAB" in os.environ:  # in a frame, its script meets nothing of JupyterLab's
        title = _("Loop nests, live")  # below, fewer programs: a reader waits for them
        inside = html.escape(page(data(PROGRAMS // 5), language(), beside=False))
        shown["text/html"] = (f'<iframe title="{title}" style="width:100%;height:60em;border:0" '
                              f'srcdoc="{inside}"></iframe>')
    display(shown, raw=True)
