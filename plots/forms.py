"""What TVM makes of small programs: asked in advance for the page that moves (plots.moving).

A program has a *form*: what split and fuse have made of its loops, and what stands in its block.
TVM is asked for each form, and for each loop in it. In which order the loops stand, and which are
parallel or vectorised, changes nothing of a form; so the page, docs/live.js, may put the loops
in any order itself. Tests walk through both, TVM and the page, and compare.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import tvm

from listing import script, show

# As the page shows them, to be pasted: what runs here is this text.
SOURCES = {
    "add": '''\
A = te.placeholder((8, 8), name="A")
C = te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="C")
sch = tvm.s_tir.Schedule(te.create_prim_func([A, C]))
block = sch.get_sblock("C")
i, j = sch.get_loops(block)''',
    "sum": '''\
A = te.placeholder((8, 8), name="A")
k = te.reduce_axis((0, 8), name="k")
S = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="S")
sch = tvm.s_tir.Schedule(te.create_prim_func([A, S]))
block = sch.get_sblock("S")
i, k = sch.get_loops(block)''',
    "conv": '''\
data = te.placeholder((1, 1, 6, 6), name="data")
kernel = te.placeholder((4, 1, 3, 3), name="kernel")
output = topi.nn.conv2d(data, kernel, 1, 0, 1)  # stride 1, padding 0, dilation 1
sch = tvm.s_tir.Schedule(te.create_prim_func([data, kernel, output]))
sch.compute_inline(sch.get_sblock("pad_temp"))
block = sch.get_sblock("conv2d_nchw")
nn, ff, yy, xx, rc, ry, rx = sch.get_loops(block)'''}
STEPS = {"add": 4, "sum": 3, "conv": 2}  # splits and fuses, one after another, of every kind
MEMORY = {"add": ("C", ("v_i", "v_j"), (8, 8)), "sum": ("A", ("v_i", "v_k"), (8, 8)),  # as drawn
          "conv": ("conv2d_nchw", ("v_nn", "v_ff", "v_yy", "v_xx"), (1, 4, 4, 4))}
TILED = {"add": ("i", "j"), "sum": ("i",), "conv": ("nn", "ff", "yy", "xx")}  # see tiles
REFUSED = "cannot be fulfilled with regard to"  # of the schedule's messages, the one that occurs
SAID = {  # TVM's words on the page, the last two when it builds, and their anchors in tvm_errors
    "refused": (f'The "{{kind}}" {REFUSED} block {{block}} because some block iter whose block '
                "binding contains the loop var is not a data parallel block iter",
                "cannot-be-fulfilled-with-regard-to"),
    "parallel": ("Nested parallel loop is not supported by threadpool, try fuse them instead",
                 "nested-parallel-loop-is-not-supported-by-threadpool"),
    "vectorized": ("Check failed: (op->kind != ForKind::kVectorized) is false: "
                   "VectorizeLoop before LiftStorageAlloc",
                   "vectorizeloop-before-liftstoragealloc")}
Step = tuple[str, str | int]  # the loop that is split and the factor, or the two that are fused


class Form(NamedTuple):
    """A form: its loops with their iterations, by name, and the first lines of its block."""

    loops: tuple[tuple[str, int], ...]
    lines: tuple[str, ...]


def imports(source: str) -> str:
    """Return the lines of import that a source needs."""
    names = [name for name in ("te", "topi") if f"{name}." in source]
    return f"import tvm\nfrom tvm import {', '.join(names)}\n\n"


def start(program: str) -> tvm.s_tir.Schedule:
    """Return a new schedule of a program, by its key in SOURCES."""
    names: dict[str, Any] = {}
    exec(imports(SOURCES[program]) + SOURCES[program], names)
    return names["sch"]


def factors(extent: int) -> tuple[int, ...]:
    """Return by what the page splits a loop. 3 is for loops that it does not divide: T.where."""
    return tuple(factor for factor in (2, 3, 4, 8)
                 if factor < extent and (factor != 3 or extent in (4, 8)))


def block_of(program: str) -> str:
    """Return the name of a program's block."""
    return re.findall(r'get_sblock\("(\w+)"\)', SOURCES[program])[-1]


def readable(schedule: tvm.s_tir.Schedule) -> str:
    """Return the TVMScript of a schedule, with broken lines in the signature only."""
    text = re.sub(r"T\.int64\((-?\d+)\)", r"\1", script(schedule.mod["main"]))
    root = "# with T.sblock(\"root\"):\n"
    return show(schedule.mod["main"]).text.partition(root)[0] + root + text.partition(root)[2]


def _form(schedule: tvm.s_tir.Schedule) -> tuple[Form, list[str]]:
    """Return the form of a schedule whose loops are serial, and their names, outermost first."""
    text = re.sub(r"T\.int64\((-?\d+)\)", r"\1", script(schedule.mod["main"]))
    loops, block = re.split(r"^ +for |:\n +with T\.sblock\(\"(?!root).*\n", text,
                            maxsplit=2, flags=re.MULTILINE)[1:]
    names, extents = re.split(r" in T\.grid\(| in range\(", loops.rstrip(")"))
    order = names.split(", ")
    found = zip(order, map(int, extents.split(", ")), strict=True)
    lines = block[:block.index("T.reads")].splitlines()[:-1]
    return Form(tuple(sorted(found)), tuple(line.strip() for line in lines)), order


def after(schedule: tvm.s_tir.Schedule, block: str, order: list[str],
          step: Step) -> tvm.s_tir.Schedule:
    """Return a schedule with one more split or fuse. `order`: the names of its loops."""
    schedule = schedule.copy()
    loops = dict(zip(order, schedule.get_loops(schedule.get_sblock(block)), strict=True))
    first, second = step
    if isinstance(second, int):
        schedule.split(loops[first], factors=[None, second])
        return schedule
    chosen = [loops.pop(first), loops.pop(second)]
    if order.index(second) != order.index(first) + 1:  # only neighbours are fused
        schedule.reorder(*chosen, *loops.values())
    schedule.fuse(*chosen)
    return schedule


def steps(form: Form) -> Iterator[Step]:
    """Yield each split and fuse that the page offers at a form's loops, in whatever order."""
    for name, extent in form.loops:
        yield from ((name, factor) for factor in factors(extent))
        yield from ((name, other) for other, _ in form.loops if other != name)


def tiles(program: str, form: Form, step: Step) -> bool:
    """Whether a step is one of a tiling as in notebook 04: loops cut evenly, parts fused.

    An axis is cut once, and so is what was fused of all. Parts of different axes are fused, in
    the order of the axes. Such steps lead to few forms, so the page goes on with them to the end.
    """
    def places(name: str) -> list[int]:
        return [axes.index(part) if part in axes else -1
                for part in re.findall(r"[a-z]+", name) if part != "fused"]

    axes, (first, second) = TILED[program], step
    if isinstance(second, int):
        whole = first.endswith("_fused") and places(first) == list(range(len(axes)))
        return (first in axes or whole) and dict(form.loops)[first] % second == 0
    found = places(first) + places(second)
    return "fused" not in second and min(found) >= 0 and found == sorted(set(found))


def refused(schedule: tvm.s_tir.Schedule, block: str, order: list[str],
            known: dict[str, bool]) -> dict[str, bool]:
    """Return for each loop, by its name, whether TVM makes it neither parallel nor vectorised.

    It refuses both or none, and with the one message that the page explains. `known`: what it
    said before the last step, which has changed nothing for a loop that is still there.
    """
    found = {name: known[name] for name in order if name in known}
    schedule = schedule.copy()
    loops = schedule.get_loops(schedule.get_sblock(block))
    for name, loop in zip(order, loops, strict=True):
        if name in found:
            continue
        said = []
        for kind in (schedule.vectorize, schedule.parallel):
            try:
                kind(loop)
            except tvm.s_tir.ScheduleError as error:
                said.append(str(error))
        assert len(said) in (0, 2) and all(REFUSED in line for line in said), said
        found[name] = bool(said)
    return found


def message(error: tvm.s_tir.ScheduleError, block: str) -> str:
    """Return the line of TVM's error that gives the reason, with the block's name in it."""
    said = str(error).split("Error message: ")[-1].strip().split("\n")[0]
    return re.sub(r"s_tir\.SBlock#\d+", block, said)


def explore(program: str, most: int | None = None) -> dict[str, Any]:
    """Return the forms of a program that splits and fuses lead to, as the page reads them.

    `most`: how many steps to go; if None, STEPS, and tilings to the end.

    Of the result, `forms` holds four flat lists for each form: the names and iterations of its
    loops; the numbers of its lines in `lines`; the numbers of the loops that are refused; and its
    steps, three numbers each: the loop, a factor below 0 or the loop to fuse it with, and the form
    that it leads to. `shape` and `axes` are those of the memory that is drawn.
    """
    block = block_of(program)
    first = tvm.s_tir.Schedule(start(program).mod, error_render_level="fast")
    tiling, most = most is None, STEPS[program] if most is None else most
    whole = readable(first).splitlines()
    body = next(n for n, line in enumerate(whole) if "T.reads(" in line)
    head = next(n for n, line in enumerate(whole) if line.lstrip().startswith("for "))
    indent = whole[body].index("T.")
    lines: dict[str, int] = {}
    form, first_order = _form(first)
    numbers = {form: 0}
    todo = [(form, first_order, first, 0, tiling, dict[str, bool]())]
    forms: list[list] = []
    extents: set[int] = set()
    for form, order, schedule, done, tiled, known in todo:  # grows as forms are found
        known = refused(schedule, block, order, known)
        names = [name for name, _ in form.loops]
        extents.update(extent for _, extent in form.loops)
        edges: list[int] = []
        for step in steps(form):
            tiling = tiled and tiles(program, form, step)
            if done >= most and not tiling:
                continue
            changed = after(schedule, block, order, step)
            came, moved = _form(changed)
            if came not in numbers:
                numbers[came] = len(numbers)
                todo.append((came, moved, changed, done + 1, tiling, known))
            name, second = step
            edges += [names.index(name),
                      -second if isinstance(second, int) else names.index(second), numbers[came]]
        forms.append([[part for loop in form.loops for part in loop],
                      [lines.setdefault(line, len(lines)) for line in form.lines],
                      [n for n, name in enumerate(names) if known[name]], edges])
    memory, axes, shape = MEMORY[program]
    return {"id": program, "block": block, "memory": memory, "axes": axes, "shape": shape,
            "source": imports(SOURCES[program]) + SOURCES[program], "order": first_order,
            "head": whole[:head], "body": [line[indent:] for line in whole[body:]],
            "factors": {extent: factors(extent) for extent in sorted(extents)},
            "lines": list(lines), "forms": forms}
