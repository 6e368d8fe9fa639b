"""PrimFuncs of answers, run by the interpreter and by LLVM."""

import contextlib
import functools
import linecache
import math
import operator
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import nbformat
import numpy as np
import torch
import tvm
import two_sided
from tvm import te, topi
from tvm.script import tirx

from course.checks.observe.primfuncs import QUICK, Misuse
from course.checks.spec.interpret import Interpreted, Unknown
from tools.grading.submission import name_of

# for each exercise: the shapes of what a function of te.Tensors takes, or of a PrimFunc's arguments
SHAPES: dict[str, list[list[tuple[int, ...]]]] = {
    "0.2": [[(4, 10), (4, 10)]], "0.3": [[(5, 12), (5,)]],
    "2.1": [[(3, 4)], [(1, 5)]],
    "2.2": [[(2, 3), (4, 3), (4,)], [(1, 1), (2, 1), (2,)], [(3, 5), (5, 5), (5,)]],
    "2.3": [[(2, 3, 5, 4), (4, 3, 2, 3)], [(1, 2, 3, 3), (1, 2, 3, 3)]],
    "2.4": [[(2, 3, 4, 6)], [(1, 1, 2, 2)]]}


def _numbers(*shape: int) -> np.ndarray:
    draw = np.random.default_rng(shape)
    return (np.round(draw.uniform(-9, 9, shape) * 4) / 4).astype("float32")


def _answers(exercise: str) -> Iterator[tuple[str, Any]]:
    """Yield the answers of tests/candidates that can be defined outside of their notebook."""
    digits = f"{int(exercise.partition('.')[0]):02}"
    path = next((two_sided.ROOT / "notebooks").glob(f"{digits}*.ipynb"))
    cells = nbformat.read(path, as_version=4).cells
    solution = next(cell.source for cell in cells if name_of(cell) == f"{exercise}-solution")
    *_others, name = re.findall(r"^def (\w+)", solution, re.MULTILINE)
    for number, answer in enumerate(two_sided.candidates(path.stem)):
        if answer.exercise == exercise:
            with contextlib.suppress(Exception):  # wrong ones raise what they like
                yield answer.title, defined(answer.source, f"answer_{digits}_{number}")[name]


def defined(source: str, module: str) -> dict[str, Any]:
    """Return what cells define: TVMScript looks for their source, and for their module."""
    file = f"{module}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[module] = types.ModuleType(module)
    names = vars(sys.modules[module])
    names |= {"np": np, "torch": torch, "tvm": tvm, "te": te, "topi": topi, "T": tirx,
              "functools": functools, "operator": operator, "math": math}
    exec(compile(source, file, "exec"), names)
    return names


def of_candidates(exercise: str) -> list[tuple[tvm.tirx.PrimFunc, list[np.ndarray], str]]:
    """Return the PrimFuncs of an exercise's answers, with arrays to run each on, and a title."""
    cases = []
    for title, answer in _answers(exercise):
        for shapes in SHAPES[exercise]:
            try:
                if exercise.startswith("0."):
                    func = answer()
                    arrays = [_numbers(*shape) for shape in shapes]
                else:
                    inputs = [te.placeholder(shape, name=f"x{i}")
                              for i, shape in enumerate(shapes)]
                    more = [0.25] * (exercise == "2.1")
                    output = answer(*inputs, *more)
                    func = te.create_prim_func([*inputs, output])
                    arrays = [*(_numbers(*shape) for shape in shapes),
                              np.zeros([int(n) for n in output.shape], "float32")]
            except Exception:  # wrong answers raise what they like; TVM many kinds
                continue
            if isinstance(func, tvm.tirx.PrimFunc) and len({*func.params}) == len(arrays):
                arrays = [array.astype(str(param.ty.dtype)) for array, param in
                          zip(arrays, func.params, strict=True)]
                cases.append((func, arrays, f"{exercise} {title} {shapes}"))
    return cases


def compare(func: tvm.tirx.PrimFunc, arrays: list[np.ndarray], title: str) -> bool | str:
    """Run a PrimFunc both ways: True where they agree, else what kept it from being compared.

    Raises AssertionError where they do not agree.
    """
    came = [array.copy() for array in arrays]
    nothing = np.nan if came[-1].dtype.kind == "f" else 77
    came[-1][...] = nothing
    try:
        Interpreted(func)(*came)
    except Unknown as unknown:
        return f"unknown: {unknown}"
    except Misuse as fault:
        return f"fault: {fault}"
    tensors = [tvm.runtime.tensor(array) for array in (
        *arrays[:-1], np.full_like(arrays[-1], nothing))]
    main = tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}),
                       target=QUICK)["main"]
    main(*tensors)
    assert np.allclose(came[-1], tensors[-1].numpy(), 1e-6, 1e-6, equal_nan=True), title
    return True
