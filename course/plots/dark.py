"""Colours for a dark page: the same hue, as light as they were dark."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import QuadMesh
from matplotlib.image import AxesImage

INK, GROUND = 0.93, 0.07  # what black and white become: the lightness of a page's text and ground
# each of JupyterLab's themes hides what is for the other; elsewhere, what is for the dark is hidden
BY_THEME = ('<style>.mlc-dark { display: none } [data-jp-theme-light="false"] .mlc-dark { display: '
            'inline !important } [data-jp-theme-light="false"] .mlc-light { display: none '
            "!important }</style>")


def turned(rgb: np.ndarray) -> np.ndarray:
    """Return colours (..., 3), each number from 0 to 1: the same hue, as light as it was dark.

    As in HLS, the lightness is the mean of the largest and the smallest of the three. The
    saturation does not change either.
    """
    light = (rgb.max(-1, keepdims=True) + rgb.min(-1, keepdims=True)) / 2
    now = INK - (INK - GROUND) * light
    room, room_now = 1 - abs(2 * light - 1), 1 - abs(2 * now - 1)
    return now + (rgb - light) * np.divide(room_now, room, out=np.zeros_like(room), where=room > 0)


def photograph(rgb: np.ndarray) -> bool:
    """Whether an image (height, width, 3) has only greys: a garment, not a map in colours."""
    return not np.ptp(rgb, axis=-1).any()


def for_the_dark(picture: np.ndarray, figure: plt.Figure, pad: float) -> np.ndarray:
    """Return a figure's pixels for a dark page; photographs in it do not change.

    `picture`: (height, width, 4), each number from 0 to 1. `pad`: inches around what is
    drawn, as savefig left them with bbox_inches="tight".
    """
    found = picture.copy()
    found[..., :3] = turned(picture[..., :3])
    edge = figure.get_tightbbox().padded(pad)
    high = picture.shape[0]
    kinds = (AxesImage, QuadMesh)  # a photograph, and the bar that explains its greys
    for image in figure.findobj(lambda item: isinstance(item, kinds)):
        if photograph(image.to_rgba(image.get_array())[..., :3]):
            box = image.get_window_extent()
            left, right = (round(x - edge.x0 * figure.dpi) for x in (box.x0, box.x1))
            foot, top = (round(high - y + edge.y0 * figure.dpi) for y in (box.y0, box.y1))
            found[top:foot, left:right] = picture[top:foot, left:right]
    return found
