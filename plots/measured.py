"""What was measured: times as bars, and what was reached against what the machine allows."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

import helpers
from plots.figure import EDGE, show

# on white at least 4.5 to 1, so that names in these colours can be read
_TRAILS = ("#1f5fa8", "#a34a00", "#1a6e2e", "#b3202a", "#6f42c1", "#7a4a2b", "#a3246f")


def times(timings: dict[str, helpers.Timing], floor: float | None = None) -> None:
    """Draw median times as bars, with the quartiles as whiskers.

    With a `floor`, the least possible time in microseconds, the axis is logarithmic and a line
    stands at the floor.
    """
    figure, axes = plt.subplots(figsize=(7, 0.5 * len(timings) + 0.8), layout="constrained")
    medians = [timing.median for timing in timings.values()]
    spread = [[t.median - t.low for t in timings.values()], [t.high - t.median
                                                            for t in timings.values()]]
    axes.barh(list(timings), medians, xerr=spread, color="#7cc4a4", ecolor=EDGE, capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="microseconds for one call (median, quartiles)")
    if floor is not None:
        axes.axvline(floor, color=EDGE, linestyle="--", linewidth=1)
        axes.annotate("floor", (floor, 1), (3, 2), xycoords=("data", "axes fraction"),
                      textcoords="offset points", size=8)
        axes.set(xscale="log", xlim=(min(floor, *medians) * 0.7, max(medians) * 1.8))
        for row, timing in enumerate(timings.values()):
            axes.text(timing.high * 1.08, row, f"{timing.median:.0f}", va="center", size=8)
    show(figure, "Bars: " + ", ".join(f"{name} {timing.median:.0f} microseconds"
                                      for name, timing in timings.items()) + ".", measured=True)


def roofline(peak: float, bandwidth: float,
             trails: dict[str, list[tuple[float, float, float]]]) -> None:
    """Draw what was reached against what the machine allows: a roofline, both axes logarithmic.

    peak in GFLOP/s, bandwidth in GB/s. A trail is what an operator went through, each point
    (floating-point operations, bytes moved at least, microseconds); the last is drawn bold.
    """
    figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
    spots = {name: [(flops / moved, flops / us / 1e3) for flops, moved, us in trail]
             for name, trail in trails.items()}
    reached = [spot for trail in spots.values() for spot in trail]
    intensity = np.geomspace(min(x for x, _ in reached) / 2, max(x for x, _ in reached) * 4, 99)
    axes.plot(intensity, np.minimum(peak, bandwidth * intensity), color=EDGE)
    axes.fill_between(intensity, np.minimum(peak, bandwidth * intensity), peak * 3,
                      color="#d0d7de", alpha=0.4, linewidth=0)
    for (name, trail), colour in zip(spots.items(), itertools.cycle(_TRAILS)):
        x, y = zip(*trail, strict=True)
        axes.plot(x, y, linestyle=":", marker="o", markersize=4, alpha=0.6, color=colour)
        axes.plot(x[-1], y[-1], marker="o", markersize=9, color=colour)
        axes.annotate(name, (x[-1], y[-1]), (8, -3), textcoords="offset points", size=9,
                      color=colour, zorder=3, bbox={"facecolor": "white", "lw": 0, "pad": 0.5})
    axes.set(xscale="log", yscale="log", xlim=(intensity[0], intensity[-1]),
             ylim=(min(y for _, y in reached) / 2, peak * 3),
             xlabel="floating-point operations for each byte moved", ylabel="GFLOP/s")
    axes.annotate("beyond the roof", (0.02, 0.93), xycoords="axes fraction", size=9,
                  color=EDGE)
    show(figure, f"Roofline, peak {peak:.0f} GFLOP/s, bandwidth {bandwidth:.0f} GB/s. " + "; ".join(
        f"{name} at " + " then ".join(f"{y:.1f}" for _, y in trail) + " GFLOP/s"
        for name, trail in spots.items()) + ".", measured=True)


def compared(every: dict[str, dict[str, helpers.Timing]]) -> None:
    """Draw median times as dots on a logarithmic axis, one kind of dot for each key of `every`.

    The quartiles are whiskers. A name that only some of them have gets a row all the same.
    """
    names = list(dict.fromkeys(name for times in every.values() for name in times))
    figure, axes = plt.subplots(figsize=(7, 0.34 * len(names) + 1.2), layout="constrained")
    for (title, times), colour, marker in zip(every.items(), _TRAILS, "osD^vPX", strict=False):
        median = np.array([timing.median for timing in times.values()])
        ends = np.array([(timing.low, timing.high) for timing in times.values()]).T
        axes.errorbar(median, [names.index(name) for name in times], xerr=np.abs(ends - median),
                      fmt=marker, color=colour, ecolor=EDGE, markersize=6, label=title)
    axes.set(xscale="log", xlabel="microseconds for one call (median, quartiles), logarithmic",
             yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="both", color="#d0d7de", lw=0.6)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper right", ncols=len(every), fontsize=9, frameon=False)
    show(figure, "Dots. " + "; ".join(
        f"{title}: " + ", ".join(f"{name} {timing.median:.0f} microseconds"
                                 for name, timing in times.items())
        for title, times in every.items()) + ".", measured=True)
