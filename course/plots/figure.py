"""Every figure passes here: it is shown once, with a text and a fingerprint of what was drawn."""

import base64
import contextlib
import functools
import hashlib
import html
import io
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from matplotlib import artist, axis, colors, font_manager, patches, spines
from matplotlib.text import Text

from course.plots import dark
from course.words import Sentence, _, language, told

EDGE, GREY, ORANGE, BLUE, PALE = "#57606a", "#c3cad1", "#d9822b", "#4878a8", "#cfe3f5"
PAD = 0.1  # inches around a picture
ARROW = {"arrowstyle": "->", "color": "#30363d", "lw": 1.1, "shrinkA": 0, "shrinkB": 0}
# fonts with Chinese characters, on Linux, macOS and Windows; the last have other shapes
FONTS = ("Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN",
         "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans GB",
         "Heiti SC", "STHeiti", "Microsoft YaHei", "SimHei", "Droid Sans Fallback",
         "Arial Unicode MS", "Noto Sans CJK JP")


@functools.cache
def chinese_font() -> str:
    """Return the name of an installed font with Chinese characters, or ""."""
    # some have a single weight, and Matplotlib would say so in a red box above each picture
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    known = {entry.fname for entry in font_manager.fontManager.ttflist}
    for path in set(font_manager.findSystemFonts()) - known:  # installed after Matplotlib looked
        with contextlib.suppress(Exception):  # a file that is no font, or a kind it cannot read
            font_manager.fontManager.addfont(path)
    names = {entry.name for entry in font_manager.fontManager.ttflist
             if entry.name in FONTS and Path(entry.fname).exists()}
    return next((name for name in FONTS if name in names), "")


def speak(figure: plt.Figure, tongue: str) -> None:
    """Put the sentences in a figure into "en" or "zh", the latter in a font with its characters."""
    for text in figure.findobj(Text):
        if isinstance(said := text.get_text(), Sentence):
            text.set_text(told(said, tongue))
            if tongue == "zh":  # a letter that the first lacks comes from the second
                text.set_fontfamily([*text.get_fontfamily(), chinese_font()])
                text.set_fontstyle("normal")  # Chinese has no italics


def settle(figure: plt.Figure) -> None:
    """Put the sentences in a figure into the reader's language, before anything is laid out."""
    if language() == "zh":  # without a Chinese font they would be boxes
        speak(figure, "zh" if chinese_font() else "en")


def caption(text: str) -> Sentence:
    """Return a caption that a cell put together as a sentence, by the templates below."""
    for template in (_("label: {name}"), _("{label}\nas {prediction} {probability}"),
                     _("{count} thread"), _("{count} threads")):
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>.+)", re.escape(template.template))
        if found := re.fullmatch(pattern, text):
            return template.format(**found.groupdict())
    return _(text)


def ink(background: str | tuple[float, ...]) -> str:
    """Return "black" or "white", whichever reads better on a colour: at least 4.5 to 1.

    From the relative luminance of WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
    """
    rgb = np.array(colors.to_rgb(background))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return "black" if linear @ [0.2126, 0.7152, 0.0722] > 0.179 else "white"


def box(axes: plt.Axes, left: float, top: float, width: float, height: float, colour: str,
        **style) -> None:
    """Draw a rectangle with a thin grey edge, in the units of the data."""
    axes.add_patch(plt.Rectangle((left, top), width, height, facecolor=colour,
                                 **{"edgecolor": EDGE, "lw": 0.8, **style}))


def sheet(width: float, height: float, **limits) -> tuple[plt.Figure, plt.Axes]:
    """Return a figure of this size in inches, and its axes, which are not drawn themselves.

    `limits` are arguments of axes.set.
    """
    figure, axes = plt.subplots(figsize=(width, height), layout="constrained")
    axes.set(**limits)
    axes.axis("off")
    return figure, axes


def write(axes: plt.Axes, x: float, y: float, text: str, size: float = 9, **style) -> None:
    """Write a text at a point, in the units of the data; centred, unless its style differs."""
    axes.text(x, y, text, size=size, **{"ha": "center", "va": "center", **style})


def swatches(says: Mapping[str, str], colours: dict[str, str]) -> list[patches.Patch]:
    """Return the handles of a legend: a patch for each kind in `says`, with its text and colour."""
    return [patches.Patch(facecolor=colours[kind], edgecolor=EDGE, label=label)
            for kind, label in says.items()]


def _drawn(figure: plt.Figure) -> Iterator[artist.Artist]:
    """Yield what was drawn in a figure, without ticks, which follow from sizes."""
    for axes in figure.axes:
        legend = axes.get_legend()
        yield from (item for item in axes.get_children() if item not in (axes.patch, legend)
                    and not isinstance(item, spines.Spine | axis.Axis))
        yield from (axes.xaxis.label, axes.yaxis.label)
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        yield from legend.get_texts() if legend else ()


_LOOKS = ("text", "color", "facecolor", "position", "width", "height", "xydata", "array", "clim")


def fingerprint(figure: plt.Figure) -> str:
    """Return what was drawn as one line: the number of artists of each kind, and their SHA-256.

    Texts, colours and data, rounded to three decimals, count; sizes in pixels, fonts and ticks do
    not. So it is the same on every machine, and different for a different picture.
    """
    def plain(value: Any) -> str:
        return value if isinstance(value, str) else str(
            (np.round(np.asarray(value, dtype=float), 3) + 0.0).tolist())  # no -0.0

    found = [(type(item).__name__, plain(getattr(item, "xy", ())),  # a corner, or an arrow's end
              *(plain(getattr(item, f"get_{look}", tuple)()) for look in _LOOKS))
             for item in _drawn(figure)]
    kinds = Counter(kind for kind, *_ in found)
    digest = hashlib.sha256(repr(found).encode()).hexdigest()[:16]
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) + f"; {digest}"


def _for_the_lab(png: bytes, figure: plt.Figure, alt: str) -> str:
    """Return the HTML of a figure with its text, as a PNG for each of JupyterLab's themes."""
    night = io.BytesIO()
    plt.imsave(night, dark.for_the_dark(plt.imread(io.BytesIO(png)), figure, PAD))
    words = html.escape(alt, quote=True)
    return dark.BY_THEME + "".join(
        f'<img alt="{words}" class="{kind}" style="max-width:100%{hidden}" '
        f'src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        for kind, content, hidden in (("mlc-light", png, ""),
                                      ("mlc-dark", night.getvalue(), ";display:none")))


def _sharp(figure: plt.Figure, path: Path, alt: str | None = None) -> None:
    """Write a figure as SVG for the site, the same bytes for the same figure.

    Letters become outlines, because the reader's machine may not have the font.
    """
    path.parent.mkdir(exist_ok=True)
    with plt.rc_context({"svg.hashsalt": "", "svg.fonttype": "path"}):
        figure.savefig(path, bbox_inches="tight",
                       metadata={"Date": None, "Creator": None, "Description": alt})


def show(figure: plt.Figure, alt: str, measured: bool = False) -> None:
    """Display a figure once, with a text for readers who cannot see it.

    The output's metadata has the text, `alt`, and the fingerprint, `drawn`, which the PNG itself
    has as its Description: if a stored picture is swapped for another, they differ. A picture of
    what was `measured`, such as times, has no fingerprint, since it differs in each run. JupyterLab
    shows pictures without their text; if `make lab` started it, it gets HTML that has the text.
    `make outputs` also keeps each as SVG for the site, named by the PNG: tools.execute. The Chinese
    SVG, made if there is a font for it, contains its text.
    """
    settle(figure)
    words = told(alt, language()).replace("\n", " ")
    about, drawn = {"alt": words}, None
    if not measured:
        about["drawn"] = drawn = fingerprint(figure)
    png = io.BytesIO()
    figure.savefig(png, bbox_inches="tight", pad_inches=PAD,
                   metadata={"Description": drawn, "Software": None})
    kind, content = ("text/html", _for_the_lab(png.getvalue(), figure, words)) \
        if "MLC_LAB" in os.environ else ("image/png", base64.b64encode(png.getvalue()).decode())
    if folder := os.environ.get("MLC_SVG"):
        name = f"{hashlib.sha256(png.getvalue()).hexdigest()[:16]}.svg"
        _sharp(figure, Path(folder, name))
        if chinese_font():
            speak(figure, "zh")
            _sharp(figure, Path(folder, "zh", name), told(alt, "zh").replace("\n", " "))
    display({kind: content, "text/plain": repr(figure)}, metadata={kind: about}, raw=True)
    plt.close(figure)
