"""Walk at random through the page that moves and, by the code that it shows, through TVM."""

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tvm

from plots import forms, moving
from tir.evaluate import every
from tir.loops import nests

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="runs the page under Node")


def moments(func: tvm.tirx.PrimFunc, program: str) -> list[list[int]]:
    """Return the moments at which each element of the drawn memory is visited, from TVM's loops."""
    _, axes, shape = forms.MEMORY[program]
    nest = nests(func)[-1]
    found = every({loop.variable: np.arange(int(loop.extent)) for loop in nest.loops})
    runs = found.values(nest.realize.predicate)[0].astype(bool)
    when = np.zeros(runs.shape, int)
    for loop in nest.loops:
        if loop.kind == "serial":
            when = when * int(loop.extent) + found.at[loop.variable]
    names = [axis.var.name for axis in nest.realize.block.iter_vars]
    values = dict(zip(names, found.values(*nest.realize.iter_values), strict=True))
    place = np.ravel_multi_index([values[axis][runs] for axis in axes], shape)
    return [np.unique(when[runs][place == n]).tolist() for n in range(int(np.prod(shape)))]


def compare_walks(page: dict, folder: Path, seed: int, walks: int, steps: int) -> Counter:
    """Walk through each program of moving.data() and assert that TVM does what the page says.

    The code that the page shows is run, line by line; the TVMScript is to be the same after each,
    and so are refusals, word by word, and in the end the moments. Returns how often what happened.
    """
    (folder / "page.json").write_text(json.dumps(page), encoding="utf-8")
    done = subprocess.run(
        ["node", str(Path(__file__).with_suffix(".js")), str(moving.DOCS / "live.js"),
         str(folder / "page.json"), str(seed), str(walks), str(steps)],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    met: Counter = Counter()
    for walk in json.loads(done.stdout):
        names: dict = {}
        exec(walk["source"], names)
        program, text, so_far = walk["id"], forms.readable(names["sch"]), []
        for step in walk["taken"]:
            met[step["what"]] += 1
            so_far.append(step["code"])
            if step["what"] == "refused":
                with pytest.raises(tvm.s_tir.ScheduleError) as raised:
                    exec(step["code"], names)
                kind = step["code"].removeprefix("sch.").partition("(")[0]
                block = forms.block_of(program)
                assert forms.message(raised.value, block) == forms.SAID["refused"][0].format(
                    kind=kind, block=block), so_far
            elif step["what"] in ("done", "already"):
                exec(step["code"], names)
                text = forms.readable(names["sch"])
            else:  # the page doesn't know; TVM may well do it
                so_far.pop()
            assert step["script"] == text, so_far
        assert walk["taken"][-1]["moments"] == moments(names["sch"].mod["main"], program), so_far
    return met
