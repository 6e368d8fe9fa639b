"""Images, predictions, and the tensors and shares of a network's layers."""

import matplotlib.pyplot as plt
import numpy as np

from course.plots.figure import BLUE, GREY, ORANGE, box, caption, ink, sheet, show, write
from course.words import Sentence, _


def image_grid(images: np.ndarray, captions: list[str], columns: int = 5) -> None:
    """Draw images (n, 1, 28, 28) with values in [0, 1]: 0 is black, 1 is white."""
    rows = -(-len(images) // columns)
    figure, all_axes = plt.subplots(rows, columns, figsize=(1.7 * columns, 1.95 * rows),
                                    squeeze=False, layout="constrained")
    for axes in all_axes.flat:
        axes.axis("off")
    says = [caption(text) for text in captions]
    for axes, image, said in zip(all_axes.flat, images, says, strict=False):
        drawn = axes.imshow(np.asarray(image).reshape(28, 28), cmap="gray", vmin=0, vmax=1)
        axes.set_title(said, size=9)
    figure.colorbar(drawn, ax=all_axes, ticks=[0, 1], fraction=0.25 / columns, aspect=10,
                    shrink=0.8 / rows, pad=0.02)
    show(figure, _("Images with their captions: {captions}.").format(captions=_("; ").join(says)))


def class_bars(names: tuple[str, ...], values: np.ndarray, title: str,
               image: np.ndarray | None = None, label: int | None = None) -> None:
    """Draw one bar for each class, from 0 to 1, next to their image if it is given.

    The bar of the class `label` is orange. NaN is written, not drawn.
    """
    width = 2 if image is not None else 1
    figure, all_axes = plt.subplots(1, width, figsize=(5.2 + 2.6 * (width - 1), 3), squeeze=False,
                                    width_ratios=[1, 2][2 - width:], layout="constrained")
    if image is not None:
        all_axes[0, 0].imshow(np.asarray(image).reshape(28, 28), cmap="gray", vmin=0, vmax=1)
        all_axes[0, 0].axis("off")
        if label is not None:
            all_axes[0, 0].set_title(_("label: {name}").format(name=names[label]), size=10)
    axes = all_axes[0, -1]
    values = np.asarray(values)
    colours = [ORANGE if i == label else BLUE for i in range(len(names))]
    axes.barh(names, np.nan_to_num(values), color=colours)
    for i, value in enumerate(values):
        axes.text(np.nan_to_num(value) + 0.015, i, f"{value:.3f}", va="center", size=8)
    axes.set(xlim=(0, 1.15), title=_(title), xticks=[0, 0.25, 0.5, 0.75, 1])
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    show(figure, _("{title}: {bars}.").format(title=_(title), bars=_(", ").join(
        f"{name} {value:.3f}" for name, value in zip(names, values, strict=True))))


def confusion_matrix(confusion: np.ndarray, names: tuple[str, ...]) -> None:
    """Draw a confusion matrix: rows are labels, columns are predictions, dark is many."""
    figure, axes = plt.subplots(figsize=(6, 5.2), layout="constrained")
    drawn = axes.imshow(np.sqrt(confusion), cmap="Blues")  # the root: 3 among 100 stays visible
    for (i, j), count in np.ndenumerate(confusion):
        if count:
            write(axes, j, i, count, color=ink(drawn.to_rgba(np.sqrt(count))),
                  weight="bold" if i == j else "normal")
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel=_("prediction"), ylabel=_("label"))
    rows = _("; ").join(f"{name}: {', '.join(map(str, row))}"
                        for name, row in zip(names, confusion, strict=True))
    show(figure, _("Confusion matrix, a row for each label. {rows}.").format(rows=rows))


def network(layers: list[str], shapes: list[tuple[int, ...]]) -> None:
    """Draw the tensors between the layers of a network, for one image.

    `shapes` (without the batch axis) has the input's first, then one for each layer: maps as a
    stack of squares with their side to scale, vectors as bars whose height is logarithmic.
    """
    figure, axes = sheet(11, 2.7, xlim=(-0.7, 1.55 * (len(shapes) - 1) + 0.6), ylim=(-1, 1),
                         aspect="equal")
    for i, shape in enumerate(shapes):
        x, count = 1.55 * i, min(shape[0], 4) if len(shape) == 3 else 1
        width, height = (shape[-1] / 35,) * 2 if len(shape) == 3 else (0.14, np.log10(shape[0]) / 3)
        for back in reversed(range(count)):
            shift = (back - (count - 1) / 2) * 0.07
            box(axes, x - width / 2 + shift, shift - height / 2, width, height, "#dbe7f3",
                edgecolor=BLUE, lw=1)
        axes.text(x, -0.85, "×".join(map(str, shape)), ha="center", size=9)
        if i:
            axes.annotate("", (x - 0.56, 0), (x - 0.99, 0), arrowprops={"arrowstyle": "->"})
            axes.text(x - 0.775, 0.78, _(layers[i - 1]), ha="center", size=9, weight="bold")
    show(figure, _("The network as tensors joined by arrows: {says}.").format(says=_(", ").join(
        [_("input {shape}").format(shape=shapes[0]),
         *(_("after {layer} {shape}").format(layer=_(layer), shape=shape)
           for layer, shape in zip(layers, shapes[1:], strict=True))])))


def _percent(value: float) -> Sentence:
    return _("{number} %").format(number=f"{value:.1f}")


def shares(names: list[str], **amounts: list[float]) -> None:
    """Draw how a few totals (two or three keywords) are shared among the named parts."""
    figure, axes = plt.subplots(figsize=(7, 0.45 * len(names) + 1), layout="constrained")
    thick, says = 0.8 / len(amounts), []
    for k, (what, values) in enumerate(amounts.items()):
        percent = 100 * np.asarray(values) / np.sum(values)
        rows = np.arange(len(names)) + (k - (len(amounts) - 1) / 2) * thick
        axes.barh(rows, percent, thick, color=(BLUE, ORANGE, GREY)[k],
                  label=_("share of the {what}").format(what=_(what)))
        for row, value in zip(rows, percent, strict=True):
            axes.text(value + 0.8, row, _percent(value), va="center", size=8)
        says.append(_("{title}: {bars}").format(title=_(what), bars=_(", ").join(
            _("{name} {share}").format(name=name, share=_percent(value))
            for name, value in zip(names, percent, strict=True))))
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 100), xlabel=_("per cent"))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    show(figure, _("Shares. {says}.").format(says=_("; ").join(says)))
