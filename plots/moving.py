"""Loop nests, live: what TVM makes of a small program for every choice that a page offers."""

import base64
import html
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from IPython.display import display
from tvm import te

from listing import show as listing
from tir.loops import iterations, nests
from words import _, language

DOCS = Path(__file__).resolve().parent.parent / "docs"
SIDE = 8  # elements a row and a column: small enough to see each
LOOPS = 4  # a program is not cut into more
LANGUAGES = {"en": 0, "zh": 1}
Choice = tuple[str, int, int]  # a primitive, the number of the loop from outside, a factor or 0


def programs() -> dict[str, tvm.tirx.PrimFunc]:
    """Return the programs of the page, by the key of their description in docs/live.json."""
    A = te.placeholder((SIDE, SIDE), name="A")
    k = te.reduce_axis((0, SIDE), name="k")
    add = te.compute((SIDE, SIDE), lambda i, j: A[i, j] + 1.0, name="C")
    total = te.compute((SIDE,), lambda i: te.sum(A[i, k], axis=k), name="S")
    return {"add": te.create_prim_func([A, add]), "sum": te.create_prim_func([A, total])}


def choices(func: tvm.tirx.PrimFunc) -> list[Choice]:
    """Return what the page offers at each loop. TVM may refuse it; that is shown too.

    A loop is split once, and two are fused before anything is split: else there is no end.
    """
    nest = nests(func)[-1]
    kinds = [loop.kind for loop in nest.loops]
    whole = [not re.search(r"_[01]$", loop.name) for loop in nest.loops]
    offered: list[Choice] = []
    for n, loop in enumerate(nest.loops):
        inner, extent = n + 1 < len(nest.loops), int(loop.extent)
        if loop.kind == "serial":
            offered += [("split", n, factor) for factor in (2, 4)
                        if whole[n] and extent > factor and len(nest.loops) < LOOPS]
            if inner and all(whole) and kinds[n + 1] == "serial":
                offered.append(("fuse", n, 0))
            if not inner and "vectorized" not in kinds:
                offered.append(("vectorize", n, 0))
            if n == 0 and "parallel" not in kinds:
                offered.append(("parallel", n, 0))
        if inner:
            offered.append(("reorder", n, 0))
    return offered


def chosen(before: tvm.s_tir.Schedule, block: str, choice: Choice) -> tvm.s_tir.Schedule:
    """Return a schedule with one more primitive. Raises ScheduleError where TVM refuses it."""
    schedule = before.copy()
    loops = schedule.get_loops(schedule.get_sblock(block))
    primitive, n, factor = choice
    if primitive == "split":
        schedule.split(loops[n], factors=[None, factor])
    elif primitive == "fuse":
        schedule.fuse(loops[n], loops[n + 1])
    elif primitive == "reorder":
        schedule.reorder(loops[n + 1], loops[n])
    else:
        getattr(schedule, primitive)(loops[n])
    return schedule


def visits(func: tvm.tirx.PrimFunc) -> list[int]:
    """Return the moment at which each element, row by row, of the block's two axes is visited."""
    step, places = iterations(nests(func)[-1])
    when = np.full((SIDE, SIDE), -1)
    when[tuple(places)] = step
    return when.ravel().tolist()


def tree(name: str, func: tvm.tirx.PrimFunc, lines: dict[str, int],
         messages: dict[str, int]) -> dict[str, Any]:
    """Return each program that choices lead to, and where each of its own choices leads.

    `lines` and `messages` gather the texts of all programs, each with its number.
    """
    block, first = nests(func)[-1].block, listing(func).text
    reached, orders = {first: 0}, dict[tuple, int]()
    todo, states = [(first, tvm.s_tir.Schedule(func))], []
    for own, schedule in todo:  # grows as programs are found
        func = schedule.mod["main"]
        edges: list[tuple] = []
        for choice in choices(func):
            try:
                after = chosen(schedule, block, choice)
            except tvm.s_tir.ScheduleError as error:
                said = str(error).split("Error message: ")[-1].strip().split("\n")[0]
                said = re.sub(r"s_tir\.SBlock#\d+", block, said)
                edges.append((*choice, -1, messages.setdefault(said, len(messages))))
                continue
            text = listing(after.mod["main"]).text
            if text not in reached:
                reached[text] = len(todo)
                todo.append((text, after))
            edges.append((*choice, reached[text]))
        order = tuple(visits(func))
        states.append({
            "loops": [(loop.name, loop.extent, loop.kind) for loop in nests(func)[-1].loops],
            "lines": [lines.setdefault(line, len(lines)) for line in own.splitlines()],
            "visits": orders.setdefault(order, len(orders)), "edges": edges})
    return {"id": name, "block": block, "memory": "C" if name == "add" else "A",
            "states": states, "visits": list(orders)}


def data() -> dict[str, Any]:
    """Return what the page shows, all of it from TVM; takes some seconds."""
    lines: dict[str, int] = {}
    messages: dict[str, int] = {}
    found = [tree(name, func, lines, messages) for name, func in programs().items()]
    strings = json.loads((DOCS / "live.json").read_text(encoding="utf-8"))
    return {"version": tvm.__version__, "strings": strings, "programs": found,
            "lines": list(lines), "messages": list(messages)}


def fragment(found: dict[str, Any], language: str = "") -> str:
    """Return the page as HTML that goes into another, in a language; else it has a switch."""
    known = found | ({"language": LANGUAGES[language]} if language else {})
    text = json.dumps(known, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return (DOCS / "live.html").read_text(encoding="utf-8").replace("@DATA@", text)


def _icon() -> str:
    """Return the site's icon as an address: without one, browsers ask the server for it."""
    svg = (DOCS / "site" / "_static" / "favicon.svg").read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}"


def page(found: dict[str, Any], start: str = "en") -> str:
    """Return the page as one file, for both languages; `start` is the one it opens in."""
    found = found | {"start": LANGUAGES[start]}
    return (f'<!doctype html>\n<html lang="{start}"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<link rel="icon" href="{_icon()}">'
            f"<title>{found['strings']['title'][0]}</title><style>body {{font-family: sans-serif; "
            "line-height: 1.5; margin: 0} .live {min-height: 100vh; box-sizing: border-box; "
            "padding: 1rem max(.5rem, 50% - 35rem)}</style></head>"
            f"<body><main>{fragment(found)}</main></body></html>\n")


def live() -> None:
    """Show the page below a cell, where `make lab` runs it; elsewhere a line says where it is."""
    found = data()
    count = sum(len(program["states"]) for program in found["programs"])
    said = _("Loop nests, live: {count} programs, in JupyterLab and on the course's site.")
    shown = {"text/plain": str(said.format(count=f"{count:,}"))}
    if "MLC_LAB" in os.environ:  # a frame of its own: its script meets nothing of JupyterLab's
        title, inside = _("Loop nests, live"), html.escape(page(found, language()))
        shown["text/html"] = (f'<iframe title="{title}" style="width:100%;height:60em;border:0" '
                              f'srcdoc="{inside}"></iframe>')
    display(shown, raw=True)
