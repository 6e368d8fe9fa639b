"""A notebook as an HTML page: accessible, and for every screen."""

import base64
import functools
import hashlib
import html
from pathlib import Path
from xml.etree import ElementTree

import nbformat
from nbconvert import HTMLExporter
from nbconvert.preprocessors import Preprocessor
from traitlets import Any, Unicode

from course.words import ROOT

PICTURES = ROOT / "docs" / "pictures"
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}


def embedded(picture: bytes, name: str) -> str:
    """Return the address of a picture that is part of the page."""
    return f"data:{KINDS[Path(name).suffix]};base64,{base64.b64encode(picture).decode()}"


def in_chinese(name: str) -> tuple[bytes, str] | None:
    """Return the Chinese form of a stored picture and its text, if `make outputs` kept one."""
    path = PICTURES / "zh" / f"{name}.svg"
    if not path.exists():
        return None
    svg = path.read_bytes()
    return svg, str(ElementTree.fromstring(svg).findtext(".//{*}description"))


class Described(Preprocessor):
    """Give pictures the text in their outputs' metadata, which nbconvert and MyST-NB drop.

    `source`: a function that returns a picture's address for its bytes and name. If `lang` is "zh",
    stored pictures are replaced by their Chinese forms, if there are any.
    """

    source, lang = Any(embedded), Unicode("en")

    def preprocess_cell(self, cell, resources, index):
        for output in cell.get("outputs", []):
            about = output.get("metadata", {}).get("image/png", {})
            if "image/png" in output.get("data", {}) and about.get("alt"):
                png = base64.b64decode(output.data.pop("image/png"))
                name = hashlib.sha256(png).hexdigest()[:16]
                own = in_chinese(name) if self.lang == "zh" else None
                address = self.source(own[0], f"{name}-zh.svg") if own \
                    else self.source(png, f"{name}.png")
                alt = html.escape(own[1] if own else about["alt"])
                output.data["text/html"] = (
                    f'<div style="overflow-x:auto"><img alt="{alt}" '
                    f'style="max-width:100%" src="{address}"></div>')
        return cell, resources


HTML_LANG = {"en": "en", "zh": "zh-CN"}  # selects the shapes of Chinese characters in browsers


@functools.cache
def _exporter(lang: str) -> HTMLExporter:  # shared: it reads its templates once
    return HTMLExporter(preprocessors=[Described(lang=lang, enabled=True)], language_code=lang)


def as_html(notebook: nbformat.NotebookNode, name: str) -> str:
    """Return a notebook as one HTML page."""
    lang = notebook.metadata.get("lang", "en")
    body, _ = _exporter(lang).from_notebook_node(notebook, {"metadata": {"name": name}})
    body = body.replace(f'lang="{lang}"', f'lang="{HTML_LANG[lang]}"', 1)  # it knows no regions
    # in a narrow window code and pictures are scrolled, not cut off or shrunk beyond reading
    style = (ROOT / "docs" / "notebook.css").read_text(encoding="utf-8")
    return body.replace("</head>", f"<style>\n{style}</style>\n</head>", 1)
