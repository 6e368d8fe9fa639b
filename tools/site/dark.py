"""Pictures for a dark page: the same drawing without its ground, light where it was dark."""

import colorsys
import re

COLOUR = re.compile(r"#([0-9a-f]{6})\b")
INK, GROUND = 0.93, 0.07  # what black and white become: the lightness of the page's text and ground
WHITE = "fill: #ffffff"


def _turned(match: re.Match) -> str:
    """Return a colour of the same hue, as light as it was dark."""
    red, green, blue = (int(match[1][n:n + 2], 16) / 255 for n in (0, 2, 4))
    hue, light, strength = colorsys.rgb_to_hls(red, green, blue)
    rgb = colorsys.hls_to_rgb(hue, INK - (INK - GROUND) * light, strength)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def transparent(svg: str) -> str:
    """Return a drawing of Matplotlib's without the white of the figure and of its axes."""
    return re.sub(rf'(<g id="patch_\d+">\s*<path d="[^"]*"(?: clip-path="[^"]*")? style="){WHITE}"',
                  r'\1fill: none"', svg)


def for_the_dark(svg: str) -> str | None:
    """Return a drawing for a dark page; None where a photograph is in it: that has no other side.

    `svg`: as Matplotlib writes it, in which what has no colour is black.
    """
    if "<image" in svg:
        return None
    ink = f"#{round(255 * INK):02x}" + f"{round(255 * INK):02x}" * 2
    svg = COLOUR.sub(_turned, transparent(svg))
    return svg.replace("<svg ", f'<svg fill="{ink}" ', 1)
