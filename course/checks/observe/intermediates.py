"""The values of a module's main: what each binding computes, and whether it is a layer's output."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tvm
from torch import nn
from tvm import relax

import helpers
from course.checks.compare.tolerance import ATOL, RTOL
from course.checks.observe.guard_pages import guarded

ALL_VALUES = "all_values"  # the function that returns what main binds
NEARLY_ZERO = 1e-30  # probabilities below it are taken for equal: float32 ends at 1e-38


class Binding(NamedTuple):
    """A variable of main, what computes it, what that takes, and its value for each input tried.

    `kernel` is the PrimFunc or library function; it takes `constants`, and the variables at the
    positions `of` among main's tensors, those below 0 among its parameters.
    """

    name: str
    kernel: str
    constants: list[np.ndarray]
    of: tuple[int, ...]
    values: list[np.ndarray]

    @property
    def value(self) -> np.ndarray:
        """The value for the first input."""
        return self.values[0]


def kernel_of(value: Any) -> str:
    """Return the name of what computes a binding: the PrimFunc or library function it calls."""
    if not isinstance(value, relax.Call):
        return type(value).__name__
    called = [value.args[0]] if len(value.args) else []
    for callee in [*called, value.op]:  # call_tir and call_dps_packed have it as first argument
        for attribute in ("name_hint", "global_symbol", "name"):
            if isinstance(name := getattr(callee, attribute, None), str) \
                    and not isinstance(callee, relax.Var):
                return name
    return "Call"


def _constants(value: Any) -> list[np.ndarray]:
    """Return the constants that a call takes."""
    return [part.value.numpy()
            for argument in (value.args if isinstance(value, relax.Call) else ())
            for part in (argument.fields if isinstance(argument, relax.Tuple) else (argument,))
            if isinstance(part, tvm.ir.GenericConst)]


def _tensors(main: relax.Function) -> list[Any]:
    """Return main's bindings that are tensors, but for second names; what it returns comes last."""
    every = [binding for block in main.body.blocks for binding in block.bindings
             if isinstance(binding.var.ty, relax.TensorType)]
    bindings = [binding for binding in every if not isinstance(binding.value, relax.Var)]
    # what main returns goes last, also where something else was bound after it
    returned = main.body.body
    if isinstance(returned, relax.Tuple) and len(returned.fields) == 1:
        returned = returned.fields[0]
    for binding in reversed(every):  # emit_output gives a value a second name: gv = lv11
        if binding.var.same_as(returned) and isinstance(binding.value, relax.Var):
            returned = binding.value
    return bindings + [binding for binding in bindings[:-1] if binding.var.same_as(returned)]


def with_all_values(mod: tvm.IRModule) -> tvm.IRModule:
    """Return the module with a function that returns, beside main, every tensor that main binds."""
    main = relax.transform.ToNonDataflow()(mod)["main"]
    made = [binding.var for binding in _tensors(main)]
    return with_functions(mod, {ALL_VALUES: _function(main, main.params, main.body.blocks, made,
                                                      ALL_VALUES)})


def _function(main: relax.Function, params: Sequence[relax.Var],
              blocks: Sequence[relax.BindingBlock], made: Sequence[relax.Var], name: str
              ) -> relax.Function:
    """Return blocks of main as a function that returns some of what they bind."""
    function = relax.Function(params, relax.SeqExpr(blocks, relax.Tuple(made)),
                              relax.TupleType([var.ty for var in made]),
                              is_pure=main.is_pure).with_attr("global_symbol", name)
    return relax.utils.copy_with_new_vars(function)  # main has the same variables


def with_functions(mod: tvm.IRModule, more: Mapping[str, relax.Function]) -> tvm.IRModule:
    """Return a module with more functions, and with its attributes: compiled code is among them."""
    functions = {tvm.ir.GlobalVar(name): function for name, function in more.items()}
    return tvm.IRModule({**dict(mod.functions_items()), **functions}, attrs=mod.attrs)


def values_of(mod: tvm.IRModule, machine: relax.VirtualMachine,
              inputs: Sequence[np.ndarray | tuple[np.ndarray, ...]]) -> list[Binding]:
    """Return the tensors that main of `mod` binds; the machine is built of with_all_values(mod).

    An input is what main takes in one call: an array, or a tuple of several.
    """
    main = relax.transform.ToNonDataflow()(mod)["main"]
    bindings = _tensors(main)
    makes = {binding.var: binding.value for block in main.body.blocks
             for binding in block.bindings}
    positions = {var: place - len(main.params) for place, var in enumerate(main.params)}
    for place, binding in enumerate(bindings):
        positions.setdefault(binding.var, place)

    def of(value: Any) -> tuple[int, ...]:
        found, waiting = [], [*relax.analysis.free_vars(value)]
        while waiting:
            if (var := waiting.pop()) in positions:
                found.append(positions[var])
            elif var in makes:  # a tuple, a shape, a second name
                waiting.extend(relax.analysis.free_vars(makes[var]))
        return tuple(found)

    def computes(value: Any) -> Any:  # what is taken of a tuple was computed with the others
        return makes.get(value.tuple_value, value) if isinstance(value, relax.TupleGetItem) \
            else value

    runs = [[value.numpy() for value in machine[ALL_VALUES](*(
        tvm.runtime.tensor(one) for one in (x if isinstance(x, tuple) else (x,))))]
        for x in inputs]
    return [Binding(binding.var.name, kernel_of(value := computes(binding.value)),
                    _constants(value), of(binding.value), [run[position] for run in runs])
            for position, binding in enumerate(bindings)]


def intermediate_values(mod: tvm.IRModule,
                        inputs: Sequence[np.ndarray | tuple[np.ndarray, ...]],
                        target: Any) -> list[Binding]:
    """Return every tensor that `main` binds, for each input; the module is built for the target.

    Elements that no kernel writes are NaN.
    """
    if not _tensors(mod["main"]):
        return []
    machine = helpers.build(with_all_values(mod), target)
    with guarded(machine, mod):
        return values_of(mod, machine, inputs)


def differing(a: np.ndarray, b: np.ndarray, layer: nn.Module | None) -> np.ndarray:
    """Return a mask of where a layer's values of one shape differ.

    Probabilities are compared by their logarithms: they are nearly one-hot, so that wrong ones are
    within an absolute tolerance.
    """
    if isinstance(layer, nn.Softmax):
        with np.errstate(all="ignore"):
            a, b = (np.log(np.maximum(values, NEARLY_ZERO)) for values in (a, b))
        return ~np.isclose(a, b, 0, 1e-3, equal_nan=True)
    return ~np.isclose(a, b, RTOL, ATOL, equal_nan=True)


def layouts(shape: Sequence[int], wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of an array's axes that give it a shape; its own first.

    Height and width of images are never exchanged: that is wrong.
    """
    if sorted(shape) == sorted(wanted):
        yield from (axes for axes in itertools.permutations(range(len(shape)))
                    if tuple(shape[i] for i in axes) == tuple(wanted)
                    and not (len(axes) == 4 and axes[2] > axes[3]))


def layout(a: np.ndarray, b: np.ndarray, layer: nn.Module | None) -> tuple[int, ...] | None:
    """Return in which order of its axes `a` holds a layer's values `b`, or None.

    What is flattened or a softmax has to have its exact order.
    """
    exact = isinstance(layer, nn.Flatten | nn.Softmax)
    return next((axes for axes in layouts(a.shape, b.shape)
                 if not (exact and axes != tuple(range(a.ndim)))
                 and not differing(a.transpose(axes), b, layer).any()), None)


def is_layer(a: np.ndarray, b: np.ndarray, layer: nn.Module | None = None) -> bool:
    """Whether `a` holds a layer's values `b`, up to the order of the axes; see layout."""
    return layout(a, b, layer) is not None


def part(mod: tvm.IRModule, given: Sequence[int], end: int, name: str) -> relax.Function | None:
    """Return the part of main that makes one of its tensors of others, as a function of these.

    They are positions among main's tensors, those below 0 among its parameters. None where it
    takes more than what is given, such as a size that has a name.
    """
    main = relax.transform.ToNonDataflow()(mod)["main"]
    tensors, inputs = [binding.var for binding in _tensors(main)], list(main.params)
    params = [(tensors if place >= 0 else inputs)[place] for place in given]
    makes = {binding.var: binding for block in main.body.blocks for binding in block.bindings}
    needed: set[relax.Var] = set()
    waiting = [tensors[end]]
    while waiting:
        if (var := waiting.pop()) in params or var in needed:
            continue  # TVM compares variables by what they are, not by their names
        if var not in makes:
            return None
        needed.add(var)
        waiting.extend(relax.analysis.free_vars(makes[var].value))
    block = relax.BindingBlock([binding for var, binding in makes.items() if var in needed])
    return _function(main, params, [block], [tensors[end]], name)
