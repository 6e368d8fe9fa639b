"""Measurements, as times and as shares of what the machine allows; and counts."""

import itertools
from collections.abc import Collection, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

import helpers
from course.plots.figure import BLUE, EDGE, caption, settle, show
from course.words import Sentence, _

# on white at least 4.5 to 1, so that names in these colours can be read
_TRAILS = ("#1f5fa8", "#a34a00", "#1a6e2e", "#b3202a", "#6f42c1", "#7a4a2b", "#a3246f")
_LIBRARY, _OURS = "#6e7781", "#1a6e2e"


def _note(axes: plt.Axes, text: str, at: tuple[float, float], shift: tuple[float, float],
          **style) -> None:
    """Write a text some points away from a point: small and grey, unless its style differs."""
    axes.annotate(text, at, shift, textcoords="offset points",
                  **{"size": 8, "color": EDGE, **style})


def _medians(timings: dict[str, helpers.Timing]) -> Sentence:
    """Return the median times with their names, which are those of the tables."""
    return _(", ").join(_("{name} {time} microseconds").format(
        name=name, time=f"{timing.median:.0f}") for name, timing in timings.items())


def times(timings: dict[str, helpers.Timing], floor: float, libraries: Collection[str]) -> None:
    """Draw median times as dots on a logarithmic axis, with the quartiles as whiskers.

    The dots of `libraries` are grey; a line is at the `floor`, the least possible microseconds.
    """
    figure, axes = plt.subplots(figsize=(7, 0.36 * len(timings) + 0.8), layout="constrained")
    medians = [timing.median for timing in timings.values()]
    axes.axvline(floor, color=EDGE, linestyle="--", linewidth=1)
    _note(axes, _("floor"), (floor, 1), (3, 2), xycoords=("data", "axes fraction"), color="black")
    axes.set(xlabel=_("microseconds for one call (median, quartiles)"), xscale="log",
             xlim=(min(floor, *medians) * 0.7, max(medians) * 1.8))
    axes.grid(axis="x", color="#eaeef2")
    for row, (name, timing) in enumerate(timings.items()):
        spread = [[timing.median - timing.low], [timing.high - timing.median]]
        axes.errorbar(timing.median, name, xerr=spread, fmt="o", ecolor=EDGE, capsize=3,
                      color=_LIBRARY if name in libraries else _OURS)
        axes.text(timing.high * 1.1, row, f"{timing.median:.0f}", va="center", size=8)
    axes.tick_params(axis="y", length=0)
    axes.margins(y=0.5 / len(timings))
    axes.invert_yaxis()
    show(figure, _("Dots, with a floor at {floor}: {times}.").format(
        floor=f"{floor:.0f}", times=_medians(timings)), measured=True)


def throughput(speeds: dict[int, float], link: float) -> None:
    """Draw the GFLOP/s of one thread against the number of sums that grow side by side.

    link: the GFLOP/s that each further sum would add if it never had to wait for another sum.
    """
    figure, axes = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    peak = max(speeds.values())
    axes.plot([0, peak / link], [0, peak], linestyle=":", color=EDGE)
    axes.axhline(peak, linestyle=":", color=EDGE)
    axes.plot(list(speeds), list(speeds.values()), "o-", color=_TRAILS[0])
    for sums, speed in speeds.items():
        _note(axes, f"{speed:.0f}", (sums, speed), (0, 6), ha="center", color="black")
    _note(axes, _("each sum waits for itself"), (peak / link / 2, peak / 2), (12, -8), size=9)
    _note(axes, _("every pipe is busy"), (max(speeds) * 0.7, peak), (0, 22), ha="center", size=9)
    axes.set(xlabel=_("independent sums (vectors) in one thread"), ylabel="GFLOP/s",
             xlim=(0, None), ylim=(0, peak * 1.3), xticks=list(speeds))
    said = _(", ").join(f"{sums}: {speed:.0f}" for sums, speed in speeds.items())
    show(figure, _("GFLOP/s of one thread against the number of independent sums: {speeds}."
                   ).format(speeds=said), measured=True)


def bandwidths(speeds: dict[int, float], caches: dict[str, int]) -> None:
    """Draw the GB/s of one thread against the bytes it reads again and again, caches marked."""
    figure, axes = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    axes.plot([size / 1e3 for size in speeds], list(speeds.values()), "o-", color=_TRAILS[0])
    for name, size in caches.items():
        if size < max(speeds):
            axes.axvline(size / 1e3, linestyle="--", linewidth=1, color=EDGE)
            _note(axes, f"{name}: {size / 1e3:,.0f} kB", (size / 1e3, 1), (0, 3),
                  xycoords=("data", "axes fraction"), ha="center")
    axes.set(xscale="log", xlabel=_("kB that are read again and again"), ylabel="GB/s",
             ylim=(0, max(speeds.values()) * 1.1))
    axes.grid(color="#eaeef2")
    said = _(", ").join(f"{size / 1e3:,.0f} kB {speed:.0f}" for size, speed in speeds.items())
    sizes = _(", ").join(f"{name} {size / 1e3:,.0f} kB" for name, size in caches.items())
    show(figure, _("GB/s of one thread against the bytes it reads again and again: {speeds}; "
                   "caches: {sizes}.").format(speeds=said, sizes=sizes or _("unknown")),
         measured=True)


def _lifted(ends: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Return by how many points to move each end's label up, so that none covers another.

    ends: where they are in the picture, in points. A label is 13 high and at most 120 wide.
    """
    lifted: dict[str, float] = {}
    placed: list[tuple[float, float]] = []
    for name, (x, y) in sorted(ends.items(), key=lambda end: end[1][1]):
        high = y
        for other, top in sorted(placed, key=lambda place: place[1]):
            if abs(x - other) < 120 and high - top < 13:
                high = max(high, top + 13)
        placed.append((x, high))
        lifted[name] = high - y
    return lifted


def _speed(speed: float) -> str:
    return f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"


def _peak(peak: float, unit: str) -> Sentence:
    return _("peak {peak} {unit}").format(peak=_speed(peak), unit=unit)


def _draw_roof(axes: plt.Axes, peak: float, bandwidth: float, ceilings: dict[str, float],
               intensity: np.ndarray, unit: str) -> None:
    """Draw what the machine allows at each intensity, in operations for each byte moved."""
    roof, end = np.minimum(peak, bandwidth * intensity), intensity[-1]
    axes.plot(intensity, roof, color=EDGE)
    slope = (intensity[0] * peak / bandwidth) ** 0.5  # the middle of the slope, for its label
    _note(axes, f"{bandwidth:.0f} GB/s", (slope, bandwidth * slope), (8, -8))
    _note(axes, _peak(peak, unit), (end, peak), (-4, 4), ha="right")
    for name, ceiling in ceilings.items():
        axes.plot([ceiling / bandwidth, end], [ceiling] * 2, linestyle="--", lw=0.8, color=EDGE)
        said = _("{name}: {speed}").format(name=_(name), speed=_speed(ceiling))
        close = any(ceiling / 1.3 < other < ceiling for other in ceilings.values())
        _note(axes, said, (end, ceiling), (-4, 4 if close else -9), ha="right")
    axes.fill_between(intensity, roof, peak * 3, color="#d0d7de", alpha=0.4, linewidth=0)


def roofline(peak: float, bandwidth: float,
             trails: dict[str, list[tuple[float, float, float | None]]],
             ceilings: dict[str, float], unit: str = "GFLOP/s") -> None:
    """Draw what was reached against what the machine allows: a roofline, both axes logarithmic.

    peak in GFLOP/s, bandwidth in GB/s. A trail has the versions of an operator, each as
    (floating-point operations, bytes moved at least, microseconds); the last is drawn larger.
    None for microseconds: it was not timed, and is drawn on the roof, which is what it can reach.
    ceilings: the limits in GFLOP/s of programs that use only part of the machine, by their name.
    If operations are not floating-point ones, `unit` says what is counted per second.
    """
    figure, axes = plt.subplots(figsize=(7.6, 4.2), layout="constrained")
    spots = {name: [(flops / moved, flops / us / 1e3 if us else
                     min(peak, bandwidth * flops / moved)) for flops, moved, us in trail]
             for name, trail in trails.items()}
    timed = {name: all(us for *_, us in trail) for name, trail in trails.items()}
    reached = [spot for trail in spots.values() for spot in trail]
    knee = peak / bandwidth  # always in the picture: there two lines become a roof
    intensity = np.geomspace(min(knee, *(x for x, _ in reached)) / 2,
                             max(knee, *(x for x, _ in reached)) * 4, 99)
    _draw_roof(axes, peak, bandwidth, ceilings, intensity, unit)
    axes.set(xscale="log", yscale="log", xlim=(intensity[0], intensity[-1]),
             ylim=(min([y for _, y in reached] + list(ceilings.values())) / 2, peak * 3),
             xlabel=_("floating-point operations for each byte moved") if unit == "GFLOP/s"
             else _("operations for each byte moved"), ylabel=unit)
    settle(figure)
    figure.draw_without_rendering()  # the layout: only now are the points' places known
    lift = _lifted({name: tuple(axes.transData.transform(trail[-1]) * 72 / figure.dpi)
                    for name, trail in spots.items()})
    for (name, trail), colour in zip(spots.items(), itertools.cycle(_TRAILS)):
        x, y = zip(*trail, strict=True)
        axes.plot(x, y, linestyle=":", marker="o", markersize=4, alpha=0.6, color=colour)
        axes.plot(x[-1], y[-1], marker="o", markersize=9, color=colour,
                  fillstyle="full" if timed[name] else "none")
        _note(axes, _(name), (x[-1], y[-1]), (8, lift[name] - 3), size=9, color=colour, zorder=3,
              bbox={"facecolor": "white", "lw": 0, "pad": 0.5, "alpha": 0.7})
    axes.xaxis.set_minor_formatter("")  # on an axis of few decades they overlap
    axes.annotate(_("beyond the roof"), (0.02, 0.93), xycoords="axes fraction", size=9, color=EDGE)
    lower = [_peak(peak, unit), *(
        _("{name} {speed}").format(name=_(name), speed=_speed(ceiling))
        for name, ceiling in ceilings.items())]
    says = [(_("{name} at {speeds} {unit}") if timed[name] else
             _("{name} at most {speeds} {unit}")).format(
        name=_(name), unit=unit, speeds=_(" then ").join(f"{spot[1]:.1f}" for spot in trail))
        for name, trail in spots.items()]
    show(figure, _("Roofline, {lower}, bandwidth {bandwidth} GB/s. {says}.").format(
        lower=_("; ").join(lower), bandwidth=f"{bandwidth:.0f}", says=_("; ").join(says)),
        measured=any(timed.values()))


def compared(every: dict[str, dict[str, helpers.Timing]]) -> None:
    """Draw median times as dots on a logarithmic axis, one kind of dot for each key of `every`.

    The quartiles are whiskers. A name that only some of them have still gets a row.
    """
    names = list(dict.fromkeys(name for times in every.values() for name in times))
    figure, axes = plt.subplots(figsize=(7, 0.34 * len(names) + 1.2), layout="constrained")
    for (title, times), colour, marker in zip(every.items(), _TRAILS, "osD^vPX", strict=False):
        median = np.array([timing.median for timing in times.values()])
        ends = np.array([(timing.low, timing.high) for timing in times.values()]).T
        axes.errorbar(median, [names.index(name) for name in times], xerr=np.abs(ends - median),
                      fmt=marker, color=colour, ecolor=EDGE, markersize=6, label=caption(title))
    axes.set(xscale="log", xlabel=_("microseconds for one call (median, quartiles), logarithmic"),
             yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.4, -0.6))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:.0f}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="both", color="#d0d7de", lw=0.6)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper right", ncols=len(every), fontsize=9, frameon=False)
    says = [_("{title}: {times}").format(title=caption(title), times=_medians(times))
            for title, times in every.items()]
    show(figure, _("Dots. {says}.").format(says=_("; ").join(says)), measured=True)


def growth(counts: Mapping[str, Sequence[int]], along: str, what: str) -> None:
    """Draw counts against 1, 2, 3, ...: a line for each name, with the name at its end."""
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


def staircase(shares: Mapping[str, Mapping[int, float]]) -> None:
    """Draw the share of the peak that programs reach at sizes: a line each, named at its end."""
    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    sizes = sorted({size for reached in shares.values() for size in reached})
    for (name, reached), colour, marker in zip(shares.items(), _TRAILS, "osD^vPX", strict=False):
        axes.plot(list(reached), [100 * share for share in reached.values()], color=colour,
                  marker=marker, label=name)
    axes.set(xscale="log", xticks=sizes, xticklabels=sizes, xlabel=_("rows and columns"),
             ylabel=_("percent of one thread's peak"), ylim=(0, 100))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(axis="y", color="#eaeef2")
    figure.legend(loc="outside right center", reverse=True, fontsize=9, frameon=False)
    said = _("; ").join(_("{name}: {shares}").format(name=name, shares=_(", ").join(
        f"{size} {share:.0%}" for size, share in reached.items()))
        for name, reached in shares.items())
    show(figure, _("Percent of one thread's peak against rows and columns. {said}.").format(
        said=said), measured=True)


def by_length(lines: Mapping[str, Mapping[float, float]], what: str, measured: bool = False,
              along: str = "positions") -> None:
    """Draw what programs take at several lengths, or `along` others: a line each, named at its end.

    The vertical axis is logarithmic; so is the other, if its largest is over ten times its least.
    """
    figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
    lengths = sorted({length for line in lines.values() for length in line})
    for (name, line), colour, marker in zip(lines.items(), _TRAILS, "osD^vPX", strict=False):
        axes.plot(list(line), list(line.values()), color=colour, marker=marker, label=_(name))
    axes.set(xscale="log" if lengths[-1] > 10 * lengths[0] else "linear", yscale="log",
             xticks=lengths, xticklabels=lengths, xlabel=_(along), ylabel=_(what))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter("{x:,.4g}")
    values = [value for line in lines.values() for value in line.values()]
    if (spread := max(values) / min(values)) < 100:  # then most ticks are minor ones
        axes.yaxis.set_minor_formatter("{x:,.4g}")
        if spread >= 10:  # all of them would be too many
            axes.yaxis.set_minor_locator(LogLocator(subs=(2, 3, 5)))
    axes.grid(axis="y", color="#eaeef2")
    figure.legend(loc="outside right center", reverse=True, fontsize=9, frameon=False)
    said = _("; ").join(_("{name}: {shares}").format(name=_(name), shares=_(", ").join(
        f"{length:,} {value:,.4g}" for length, value in line.items()))
        for name, line in lines.items())
    show(figure, _("{what}, against {along}. {said}.").format(
        what=_(what), along=_(along), said=said), measured=measured)
