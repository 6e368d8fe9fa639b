"""Pictures of what was counted: the same on every machine."""

from collections.abc import Mapping, Sequence

from matplotlib import pyplot as plt

from course.plots.figure import BLUE, EDGE, show
from course.words import _


def growth(counts: Mapping[str, Sequence[int]], along: str, what: str) -> None:
    """Draw counts against 1, 2, 3, ...: a line for each name, which stands at its end."""
    figure, axes = plt.subplots(figsize=(6.6, 3.2), layout="constrained")
    most = max(map(max, counts.values()))
    for (name, every), colour in zip(counts.items(), (EDGE, BLUE), strict=True):
        axes.plot(range(1, len(every) + 1), every, color=colour)
        axes.annotate(_(name), (len(every), every[-1]), (-4, 6), textcoords="offset points",
                      ha="right", color=colour)
    axes.set(xlabel=_(along), ylabel=_(what), ylim=(0, most * 1.15), xlim=(1, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    said = _("; ").join(_("{name}: from {first} to {last}").format(
        name=_(name), first=f"{every[0]:,}", last=f"{every[-1]:,}")
        for name, every in counts.items())
    show(figure, _("{what}, against {along}. {said}.").format(
        what=_(what), along=_(along), said=said))
