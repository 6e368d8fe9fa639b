"""Pieces of a module by themselves, from values that it has to a later one, beside PyTorch's steps.

So a layer is tried on other inputs than those that reach it: the smallest on which it is wrong, or
larger or smaller ones than a model's images and weights make.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

import helpers
from course.checks.compare.tolerance import ATOL, ATOL_PROBABILITIES, to_numpy
from course.checks.diagnose.chain import Chain, Parting, Place
from course.checks.observe.guard_pages import guarded
from course.checks.observe.intermediates import part, with_functions
from course.checks.observe.memory import looks_up
from course.checks.spec.shrink import Inputs
from course.checks.spec.spec import Rerun, Spec

_WIDE = 2, 50, 1e-3  # standard deviations of what a layer alone is tried on
_NEAR = 1e-5  # of the largest right number: float32 sums of such numbers are off by less


@dataclass
class Piece:
    """The part of a module between the values that some steps take and where they should lead.

    Its inputs and results are the module's own, by the names of its variables, in its order of the
    axes: `names` has those of the inputs, by their positions. `machine` is built of `mod`, in which
    it is a function.
    """

    chain: Chain
    parting: Parting
    end: Place
    names: dict[int, str]
    machine: relax.VirtualMachine
    mod: tvm.IRModule

    @property
    def inputs(self) -> list[Inputs]:
        """The module's own values, for each call."""
        return [{name: self.chain.arrays(position)[call] for position, name in self.names.items()}
                for call in range(len(self.chain.inputs))]

    @property
    def atol(self) -> float:
        """How far a right number may be off."""
        layer = self.chain.step(max(self.parting.first, self.parting.last)).layer
        return ATOL_PROBABILITIES if isinstance(layer, torch.nn.Softmax) \
            and self.parting.last >= self.parting.first else ATOL

    def run(self, **given: np.ndarray) -> np.ndarray:
        """Return what the module makes of the inputs; what is not written is NaN."""
        with guarded(self.machine, self.mod):
            return to_numpy(self.machine[_title(self.parting)](
                *map(tvm.runtime.tensor, given.values())))

    def right(self, **given: np.ndarray) -> np.ndarray:
        """Return what PyTorch makes of the inputs."""
        chain, parting, values = self.chain, self.parting, {}
        for taken in parting.takes:
            if place := chain.at[taken]:
                array = np.transpose(given[self.names[place.position]], place.axes)
                values[taken] = torch.from_numpy(np.array(array, order="C"))
        result = chain.made(parting, values)
        axes = self.end.axes if len(self.end.axes) == result.ndim else range(result.ndim)
        return np.array(np.transpose(result.numpy(), np.argsort(axes)), order="C")

    def rerun(self, atol: float) -> Rerun:
        """Return how the piece is run on other inputs than its own."""
        limits = {name: (value.min(initial=0), value.max(initial=0))
                  for name, value in self.inputs[0].items() if value.dtype.kind != "f"}
        return Rerun(self.run, Spec(
            lambda run: run, self.right, atol=atol, fits=lambda given: all(
                least <= given[name].min() and given[name].max() <= most
                for name, (least, most) in limits.items())))  # they may be indices

    def wrong_of_wide(self) -> tuple[Inputs, float] | None:
        """Return inputs that its own values do not show it wrong on, and the tolerance, or None.

        Where a value is never below 0 in the module, as behind a ReLU, it is not here. None, too,
        where numbers say which places are read or written: larger ones are beside the buffers.
        """
        functions = {variable.name_hint: func for variable, func in self.mod.functions_items()}
        for binding in self.chain.bindings[max(min(self.names) + 1, 0):self.end.position + 1]:
            func = functions.get(binding.kernel)
            if isinstance(func, tvm.tirx.PrimFunc) and looks_up(func):
                return None
        for seed, scale in enumerate(_WIDE):
            given = {name: _wide([inputs[name] for inputs in self.inputs], scale, seed + place)
                     for place, name in enumerate(self.names.values())}
            with torch.no_grad():
                right = self.right(**given)
            atol = max(ATOL, _NEAR * float(np.abs(right).max(initial=0)))
            rerun = self.rerun(atol)
            if np.isfinite(right).all() and rerun.kind(given, rerun.called(given), right):
                return given, atol
        return None


def _wide(values: Sequence[np.ndarray], scale: float, seed: int) -> np.ndarray:
    """Return an array like values of one shape, with numbers of another size."""
    if values[0].dtype.kind != "f":
        return values[0]
    drawn = np.random.default_rng([seed, *values[0].shape]).normal(0, scale, values[0].shape)
    if min(value.min(initial=0) for value in values) >= 0:
        drawn = np.abs(drawn)
    return drawn.astype(values[0].dtype)


def _title(parting: Parting) -> str:
    """Return the name of the function that a piece is."""
    return f"piece_{parting.first}_{parting.last}"


def built(mod: tvm.IRModule, chain: Chain, partings: Sequence[Parting], target: Any
          ) -> list[Piece]:
    """Return those of the pieces that can be run by themselves: they take only what is given."""
    functions, found = {}, []
    for parting in partings:
        given = [place.position for taken in parting.takes if (place := chain.at[taken])]
        names: dict[int, str] = {}
        for position in dict.fromkeys(given):  # TVMScript may bind one name several times
            name = chain.name(position)
            names[position] = f"{name}_{position}" if name in names.values() else name
        if (end := parting.end) and (
                function := part(mod, list(names), end.position, _title(parting))):
            functions[_title(parting)] = function
            found.append((parting, end, names))
    if not found:
        return []
    whole = with_functions(relax.transform.ToNonDataflow()(mod), functions)
    whole = relax.transform.DeadCodeElimination(list(functions))(whole)
    machine = helpers.build(whole, target)
    return [Piece(chain, *one, machine, whole) for one in found]
