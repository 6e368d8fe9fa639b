"""Pictures for a dark page: the same drawing without its background, light where it was dark."""

import base64
import io
import re

import matplotlib.pyplot as plt
import numpy as np

from course.plots.dark import INK, photograph, turned

COLOUR = re.compile(r"#([0-9a-f]{6})\b")
IMAGE = re.compile(r'(?<=xlink:href="data:image/png;base64,)[^"]+')
WHITE = "fill: #ffffff"


def _turned(match: re.Match) -> str:
    rgb = turned(np.array([int(match[1][n:n + 2], 16) / 255 for n in (0, 2, 4)]))
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def _turned_image(match: re.Match) -> str:
    """Return an image in a drawing, as base64: a colour map is inverted, a photograph is not."""
    pixels = plt.imread(io.BytesIO(base64.b64decode(match[0])))
    if photograph(pixels[..., :3]):
        return match[0]
    pixels[..., :3] = turned(pixels[..., :3])
    png = io.BytesIO()
    plt.imsave(png, pixels)
    return base64.b64encode(png.getvalue()).decode()


def transparent(svg: str) -> str:
    """Return Matplotlib's drawing without the white of the figure and its axes."""
    return re.sub(rf'(<g id="patch_\d+">\s*<path d="[^"]*"(?: clip-path="[^"]*")? style="){WHITE}"',
                  r'\1fill: none"', svg)


def for_the_dark(svg: str) -> str:
    """Return a drawing for a dark page; photographs in it do not change.

    `svg`: as Matplotlib writes it, in which what has no colour is black.
    """
    ink = f"#{round(255 * INK):02x}" + f"{round(255 * INK):02x}" * 2
    svg = IMAGE.sub(_turned_image, COLOUR.sub(_turned, transparent(svg)))
    return svg.replace("<svg ", f'<svg fill="{ink}" ', 1)
