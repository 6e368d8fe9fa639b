"""Programs that TVM's schedules lead to: the data of the page "Loop nests, live"."""

import random
import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm

from course.listing import readable, script, show
from course.tir.loops import is_reduction, iterations, nests

Step = tuple[str, int, int]  # a primitive, the number of a loop from outside, and a factor or loop
FACTORS = (2, 3, 4, 6, 8, 16, 32)  # those that the page offers
SIDE = 4  # the images of the small conv2d: rows and columns of its output
_ADD = """\
import tvm
from tvm import te

A = te.placeholder((8, 8), name="A")
C = te.compute((8, 8), lambda i, j: A[i, j] + 1.0, name="C")
mod = tvm.IRModule({"main": te.create_prim_func([A, C])})

sch = tvm.s_tir.Schedule(mod)"""
_SUM = """\
import tvm
from tvm import te

A = te.placeholder((8, 8), name="A")
k = te.reduce_axis((0, 8), name="k")
S = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="S")
mod = tvm.IRModule({"main": te.create_prim_func([A, S])})

sch = tvm.s_tir.Schedule(mod)"""
_CONV = f"""\
import tvm
from tvm import te, topi

A = te.placeholder((1, 1, {SIDE + 2}, {SIDE + 2}), name="A")
W = te.placeholder((4, 1, 3, 3), name="W")
Y = topi.nn.conv2d(A, W, 1, 0, 1)  # stride 1, padding 0, dilation 1
mod = tvm.IRModule({{"main": te.create_prim_func([A, W, Y])}})

sch = tvm.s_tir.Schedule(mod)
sch.compute_inline(sch.get_sblock("pad_temp", func_name="main"))"""


@dataclass(frozen=True)
class Program:
    """A program of the page: how it is made, and how what it visits is drawn."""

    id: str
    code: str  # makes `mod` and its schedule `sch`
    block: str
    memory: str  # the tensor that is drawn
    place: tuple[int, ...]  # from one step of each axis to the next, in its elements
    panels: tuple[int, int]  # the drawing: the number of squares, and the side of each

    def schedule(self) -> tvm.s_tir.Schedule:
        """Return the program in a new schedule, by running its code."""
        made: dict[str, Any] = {}
        exec(self.code, made)
        return made["sch"]


PROGRAMS = (Program("add", _ADD, "C", "C", (8, 1), (1, 8)),
            Program("sum", _SUM, "S", "A", (8, 1), (1, 8)),
            Program("conv", _CONV, "conv2d_nchw", "conv2d_nchw",
                    (0, SIDE * SIDE, SIDE, 1, 0, 0, 0), (4, SIDE)))


def described(program: Program) -> dict[str, Any]:
    """Return what the page needs to know of a program to work out what becomes of it."""
    func = program.schedule().mod["main"]
    nest, = nests(func)
    assert all(loop.extent == axis.dom.extent for loop, axis in
               zip(nest.loops, nest.realize.block.iter_vars, strict=True))
    shown, lines = show(func).text.splitlines(), readable(script(func)).splitlines()
    axes = [(loop.name, int(loop.extent), "R" if is_reduction(axis) else "S")
            for loop, axis in zip(nest.loops, nest.realize.block.iter_vars, strict=True)]
    loops = ", ".join(name for name, _, _ in axes)
    count, side = program.panels
    return {"id": program.id, "block": program.block, "memory": program.memory, "axes": axes,
            "place": program.place, "panels": program.panels, "size": count * side * side,
            "head": shown[:next(n for n, line in enumerate(shown) if line.startswith("    for "))],
            "body": [line[12:] for line in
                     lines[next(n for n, line in enumerate(lines) if " T.axis." in line) + 1:]],
            "code": [*program.code.splitlines(),
                     f'block = sch.get_sblock("{program.block}", func_name="main")',
                     f"{loops} = sch.get_loops(block)"]}


def apply(schedule: tvm.s_tir.Schedule, block: str, step: Step) -> None:
    """Take a step of the page. Raises ScheduleError if TVM refuses it."""
    loops = schedule.get_loops(schedule.get_sblock(block, func_name="main"))
    primitive, at, other = step
    if primitive == "split":
        schedule.split(loops[at], factors=[None, other])
    elif primitive == "fuse":
        schedule.fuse(loops[at], loops[other])
    elif primitive == "reorder":
        schedule.reorder(loops[max(at, other)], loops[min(at, other)])
    else:
        getattr(schedule, primitive)(loops[at])


def refusal(error: tvm.s_tir.ScheduleError) -> str:
    """Return the line in which TVM says why, the block and the loops as {block}, {0} and {1}."""
    said = str(error).split("Error message: ")[-1].strip().split("\n")[0]
    said = re.sub(r"s_tir\.SBlock#\d+", "{block}", said)
    return re.sub(r"tirx\.For#(\d+)", r"{\1}", said)


def visits(program: Program, func: tvm.tirx.PrimFunc) -> list[list[int]]:
    """Return the moments at which each drawn element is visited, in order."""
    step, places = iterations(nests(func)[-1])
    where = np.array(program.place) @ places
    count, side = program.panels
    return [np.sort(step[where == n]).tolist() for n in range(count * side * side)]


def step_from(schedule: tvm.s_tir.Schedule, chance: random.Random) -> Step:
    """Return a random step of those that the page offers; TVM may refuse it."""
    loops = nests(schedule.mod["main"])[-1].loops
    at, count = chance.randrange(len(loops)), len(loops)
    extent = int(loops[at].extent)
    near = [at + 1] if at + 1 < count else [at - 1] if at else []
    factors = [n for n in FACTORS if n < extent and extent % n == 0]
    offered: list[Step] = [(op, at, 0) for op in ("vectorize", "parallel", "unroll")]
    offered += 2 * [(op, at, n) for op in ("reorder", "fuse") for n in near]
    offered += [("fuse", at, at + 2)] * (at + 2 < count)
    offered += 4 * [("split", at, chance.choice(factors))] if factors else []
    return chance.choice(offered)


def refusals() -> dict[str, str]:
    """Return the line in which TVM refuses each primitive that it may refuse, by its name.

    In it, the block is {block}, the first loop of the call {0}, the second {1}.
    """
    program = next(program for program in PROGRAMS if program.id == "sum")
    said = {}
    for step in (("vectorize", 1, 0), ("parallel", 1, 0), ("fuse", 1, 0)):
        try:
            apply(program.schedule(), program.block, step)
        except tvm.s_tir.ScheduleError as error:
            said[step[0]] = refusal(error)
    return said


def checked(program: Program, count: int, known: dict[str, str], length: int = 10,
            seed: int = 1) -> tuple[list[list], int]:
    """Return walks of random steps until TVM has made `count` programs, with what it answered.

    A walk is a list of [primitive, loop, factor or loop, answer]. The answer is the checksum of
    the TVMScript and the visits of the program made. If TVM refused, it is "" if TVM's line is the
    one that `known` has for the primitive, else the line. Also returns the number of programs.
    """
    chance, made, walks = random.Random(seed), set[str](), list[list]()
    while len(made) < count:
        schedule, walk = program.schedule(), list[list]()
        for _ in range(length):
            step = step_from(schedule, chance)
            try:
                apply(schedule, program.block, step)
            except tvm.s_tir.ScheduleError as error:
                said = refusal(error)
                walk.append([*step, "" if said == known.get(step[0]) else said])
                continue
            func = schedule.mod["main"]
            text = show(func).text
            made.add(text)
            walk.append([*step, checksum(text, visits(program, func))])
        walks.append(walk)
    return walks, len(made)


def checksum(text: str, moments: list[list[int]]) -> int:
    """Return a checksum of a program's TVMScript and visits; the page computes the same one."""
    shown = ";".join(",".join(map(str, own)) for own in moments)
    return zlib.crc32(f"{text}\n{shown}".encode())
