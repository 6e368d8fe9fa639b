"""The page on which you draw a garment and the CNN says what it is: one file, or on the site."""

import base64
import contextlib
import html
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from IPython.display import display

from course import fewbits
from course.ship.kernel import SHIM
from course.words import _, language
from data.store import CLASS_NAMES, ROOT, is_real

HERE, IMAGES, PARTS, GROUP = SHIM.parent, 20, 8, 32
LANGUAGES = {"en": 0, "zh": 1}


def _text(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def in_bytes(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the packed weights, float32 (n,), as int8 (n,), and a step for each GROUP neighbours.

    The last group may be shorter. Notebook 13 explains it.
    """
    filled = np.pad(packed, (0, -len(packed) % GROUP))
    integers, steps = fewbits.in_groups(filled.reshape(1, -1), GROUP, 8)
    return integers[0, :len(packed)], steps[0]


def parts(packed: np.ndarray) -> list[str]:
    """Return the packed weights, float32, in eight parts: the steps and int8, as base64."""
    integers, steps = in_bytes(packed)
    every = np.concatenate([steps.astype("<f4").view("int8"), integers])
    return [_text(part) for part in np.array_split(every, PARTS)]


def data(module: bytes, images: np.ndarray, labels: np.ndarray, said: np.ndarray
         ) -> dict[str, Any]:
    """Return what the page shows.

    `module`: cnn.wasm; `images` (n, 28, 28) of uint8; `labels` (n); `said` (n, 10): PyTorch's.
    """
    strings = json.loads((HERE / "garment.json").read_text(encoding="utf-8"))
    assert strings["classes"][0] == list(CLASS_NAMES)
    return {"strings": strings, "wasm": base64.b64encode(module).decode(), "bytes": len(module),
            "images": [_text(image) for image in images], "labels": [int(one) for one in labels],
            "said": [[round(float(p), 9) for p in one] for one in said], "parts": PARTS,
            "real": is_real()}


def fragment(found: dict[str, Any]) -> str:
    """Return the page as HTML for another page; `found` is what data() returned.

    "language" in it, 0 or 1, is the page's; without it the page has a switch. The weights are in
    it, "weights", or in files whose names begin with "folder".
    """
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    page = (HERE / "garment.html").read_text(encoding="utf-8")
    for name, part in (("THEME", (ROOT / "docs" / "theme.js").read_text(encoding="utf-8")),
                       ("CODE", (HERE / "garment.js").read_text(encoding="utf-8")),
                       ("DATA", text)):
        page = page.replace(f"@{name}@", part)
    return page


def page(found: dict[str, Any], packed: np.ndarray, start: str = "en") -> str:
    """Return the page as one file, with the weights in it; `start` is the language it opens in."""
    found = found | {"weights": parts(packed), "start": LANGUAGES[start]}
    return (f'<!doctype html>\n<html lang="{start}"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<link rel="icon" href="data:,">'
            f"<title>{found['strings']['title'][LANGUAGES[start]]}</title><style>body {{"
            "font-family: sans-serif; line-height: 1.5; margin: 0} .garment {min-height: 100vh; "
            "box-sizing: border-box; padding: 1rem max(.5rem, 50% - 30rem)}</style></head>"
            f"<body><main>{fragment(found)}</main></body></html>\n")


def show(found: dict[str, Any], packed: np.ndarray) -> None:
    """Write the page to build/garment.html; show it below a cell where `make lab` runs it."""
    text, file = page(found, packed, language()), ROOT / "build" / "garment.html"
    try:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError:  # a read-only clone
        file = Path(tempfile.gettempdir()) / file.name
        with contextlib.suppress(OSError):
            file.write_text(text, encoding="utf-8")
    name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
    shown = {"text/plain": str(_("Draw a garment: open {file} in a browser.").format(file=name))}
    if "MLC_LAB" in os.environ:  # in a frame, its script meets nothing of JupyterLab's
        title = _("Draw a garment")
        shown["text/html"] = (f'<iframe title="{title}" style="width:100%;height:60em;border:0" '
                              f'srcdoc="{html.escape(text)}"></iframe>')
    display(shown, raw=True)
