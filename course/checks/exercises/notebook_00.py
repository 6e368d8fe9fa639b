"""The checks of notebook 00: end-to-end execution."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

from course.checks.compare.tolerance import ATOL, fractions, random, rows
from course.checks.diagnose.equivalence import build, require_tensor, require_well_formed
from course.checks.exercises.softmax import softmax_spec
from course.checks.observe import primfuncs
from course.checks.observe.guard_pages import guarded
from course.checks.observe.libraries import registry
from course.checks.run.check import exercise
from course.checks.say.messages import CheckFailed, require_type
from course.checks.spec.elements import element_by_element
from course.checks.spec.forms import Main, Misuse, fenced, is_float32, program, result
from course.checks.spec.spec import Cases, Spec, check, not_finite
from course.tir.evaluate import variables
from course.tir.loops import is_reduction
from course.tir.walk import accesses, constant, sblocks, walk
from course.words import _

# ---- low-level NumPy -----------------------------------------------------------------------

_SOFTMAX = softmax_spec(element_by_element, "X")


@exercise("0.1", "lnumpy_softmax(X, Y)", seconds=20)
def exercise_0_1(lnumpy_softmax: Callable) -> str:
    """softmax with explicit loops.

    That the largest number is subtracted first: Blanchard, Higham and Higham, Accurately computing
    the log-sum-exp and softmax functions, IMA J. Numer. Anal. 41(4), 2021.
    """
    return _("equal to NumPy for {count} arrays, scores of 1000 and of -500,000 among them; "
             "element by element").format(count=check(_SOFTMAX, lnumpy_softmax))


# ---- PrimFuncs -----------------------------------------------------------------------------

def _relu6_cases() -> Cases:
    yield {"X": np.linspace(-8, 11.5, 40, dtype="float32").reshape(4, 10)}
    yield {"X": np.geomspace(1, 1e9, 40, dtype="float32").reshape(4, 10)}
    yield from ({"X": x} for x in rows(4, 10))


def _giving(*shape: int) -> Callable[[tvm.tirx.PrimFunc], Callable[..., np.ndarray]]:
    """Return the form of a PrimFunc of X and of Y, which has this shape."""
    def form(func: tvm.tirx.PrimFunc) -> Callable[..., np.ndarray]:
        run = program(func)
        return lambda X: run([X], shape)
    return form


_CUT = Spec(_giving(4, 10), lambda X: np.clip(X, 0, 6), _relu6_cases, fault=Misuse,
            beyond=lambda: not_finite({"X": random(4, 10)}, [np.inf]))


def _require_usable(func: tvm.tirx.PrimFunc) -> None:
    """Raise CheckFailed unless a PrimFunc in TVMScript can be run."""
    primfuncs.require_tvmscript(func)
    primfuncs.require_order(func)
    name = str(func.attrs.get("global_symbol") or _("the PrimFunc"))  # a private one has none
    primfuncs.require_inside_buffers(tvm.IRModule({name: func}))
    primfuncs.require_first_values(func, name)


def _require_sblocks(func: tvm.tirx.PrimFunc, axes: bool) -> None:
    """Raise CheckFailed where something is assigned outside of all sblocks, of those with axes."""
    for node, place in walk(func.body):
        if isinstance(node, tvm.tirx.BufferStore) and not (place.axes if axes else place.block):
            raise CheckFailed(_("every assignment in an sblock with axes") if axes
                              else _("every assignment in an sblock"),
                              _("one to {name} in none").format(name=node.buffer.name))


@exercise("0.2", "make_relu6()", seconds=10)
def exercise_0_2(make_relu6: Callable) -> str:
    """ReLU6 as a PrimFunc: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU6.html."""
    func = primfuncs.with_buffers(make_relu6(), (4, 10), (4, 10))
    _require_usable(func)
    check(_CUT, func)
    _require_sblocks(func, axes=True)
    for axis in (axis for block in sblocks(func) for axis in block.iter_vars):
        if axis.iter_type != tvm.tirx.IterVar.DataPar:
            raise CheckFailed(_("spatial axes only"),
                              _("axis {name} is not spatial").format(name=axis.var.name))
    return _("TVMScript, in sblocks with spatial axes; min(max(x, 0), 6) for all 40 elements,\n"
             "whatever Y held before")


def _row_max_cases() -> Cases:
    mixed = 5 * random(5, 12)
    mixed[1], mixed[3] = -np.abs(mixed[1]) - 1, np.finfo("float32").min  # none above zero
    mixed[3, 5], mixed[4, 0], mixed[0, 11] = -3.4025e38, 40, 9  # near the least
    yield from ({"X": x} for x in (*rows(5, 12), mixed))


_LARGEST = Spec(_giving(5), lambda X: X.max(1), _row_max_cases, fault=Misuse,
                beyond=lambda: not_finite({"X": random(5, 12)}, [np.inf, -np.inf]))


@exercise("0.3", "make_row_max()", seconds=10)
def exercise_0_3(make_row_max: Callable) -> str:
    """The largest of each row as a PrimFunc."""
    func = primfuncs.with_buffers(make_row_max(), (5, 12), (5,))
    _require_usable(func)
    check(_LARGEST, func)
    if not any(map(_reads_along, sblocks(func))):
        raise CheckFailed(_("an sblock that reads {buffer} along a reduction axis").format(
                              buffer=func.params[0].name),
                          _("none"), 'T.axis.remap("SR", [i, k])')
    _require_sblocks(func, axes=False)
    for block in sblocks(func):
        if block.init is None and any(map(is_reduction, block.iter_vars)):
            raise CheckFailed(_("the first value in T.init"),
                              _("sblock {name_hint} has a reduction axis and no T.init").format(
                                  name_hint=block.name_hint))
        if read := _read_first(block):
            raise CheckFailed(_("the first value in T.init"),
                              _("T.init of sblock {name_hint} reads {buffer}").format(
                                  name_hint=block.name_hint, buffer=read))
    return _("TVMScript, a reduction axis and its T.init; the largest of each row, negative rows\n"
             "too, whatever Y held before")


def _read_first(block: Any) -> str:
    """Return the name of a buffer that a T.init writes, and reads before, or ""."""
    every = [each for node, place in walk(block.init) for each in accesses(node, place)] \
        if block.init is not None else []
    written = [each.buffer for each in every if each.writes]
    first = {each.buffer: each for each in reversed(every)}
    return next((buffer.name for buffer in written if not first[buffer].writes), "")


def _reads_along(block: Any) -> bool:
    """Whether an index of what an sblock reads depends on a reduction axis, not of one place."""
    along = {axis.var for axis in block.iter_vars
             if is_reduction(axis) and constant(axis.dom.extent) != 1}
    for node, place in walk(block.body):
        if isinstance(node, tvm.tirx.For) and along & variables([node.min, node.extent]):
            along.add(node.loop_var)
        if any(not access.writes and along & variables(access.indices)
               for access in accesses(node, place)):
            return True
    return False


# ---- pure or not ---------------------------------------------------------------------------


_quarters = partial(fractions, fine=False)
_X = _quarters(3, 4)
_COUNTED = np.arange(12, dtype="float32").reshape(3, 4)  # in any order they have the same sum
_SIZES = random(5, 6) * np.logspace(-6, 6, 30, dtype="float32").reshape(5, 6)  # small and large

# Whether a function f(x, out) is pure, its lines, an x, and out's shape if it is not that of x.
_FUNCTIONS: list[tuple[Any, ...]] = [
    (True, "out[...] = 2 * x", _X),
    (True, "out[...] = x.T", _X, (4, 3)),
    (True, "out[...] = x.sum(-1)", _quarters(5, 7), (5,)),
    (True, "out[...] = 2 * x", _quarters(1)),
    (True, "twice = 2 * x; twice += 1; out[...] = twice", _quarters(2, 3, 4)),
    (True, "out[...] = np.where(x < 0, np.nan, x)", _X),
    (False, "x[x < 0] = 0; out[...] = x", _X),
    (False, "out += x", _X),
    (False, "out[:, 1:] = x[:, 1:]", _X),
    (False, "out[:-1] = x[:-1]", _quarters(12, 1)),
    (False, "out[...] = np.maximum(x, out)", _X),
    (False, "out[...] = np.minimum(x, out)", _X),
    (False, "out[...] = x; x *= np.float32(1 + 1e-6)", _X),
    (False, "out[...] = x; x[-1, -1] += 1", _X),
    (False, "out[...] = x; x[...] = np.roll(x, 1)", _COUNTED),
    (False, "out[...] = np.roll(x, next(calls))", _COUNTED),
    (False, "out[...] = x; x += next(calls) == 1", _X),
    (False, "out[...] = x; x += next(calls) > 1", _X),
    (False, "odd = next(calls) % 2; out.flat[odd::2] = x.flat[odd::2]", _X),
    (False, "out[...] = np.abs(x); x *= -1", _X),
    (False, "noise = np.random.default_rng(next(calls)); out[...] = x + noise.random(x.shape)", _X),
    (False, "out[...] = next(calls) * x", _X),
    (False, "out[...] = (-1) ** next(calls) * x", _X),
    (False, "out[...] = x + next(calls) / 1000", _COUNTED),
    (False, "out[...] = x + 1000 * next(calls)", _X),
    (False, "out[...] = np.nan if next(calls) == 1 else 0", _X),
    (False, "out.flat[1:] = x.flat[1:]", _X),
    (False, "out[...] = x; x[0, 0] += 1", _X),
    (False, "out[...] = x; x += 1000", 1000 + _COUNTED),
    (False, "out[...] = x; np.nan_to_num(x, copy=False)",
     np.where(_COUNTED < 2, np.float32(np.nan), _COUNTED)),
    (False, "out[...] = x; x[0, 3] += np.spacing(x[0, 3])", _SIZES),
    (False, "out[...] = x; out[0, 3] += next(calls) * np.spacing(x[0, 3])", _SIZES),
    (True, "out[...] = 2 * x", np.where(_X < 0, np.float32(np.nan), _X)),
    (False, "out += x", np.where(_X < 0, np.float32(np.nan), _X))]


def _source(lines: str) -> str:
    """Return a program that defines a function of these lines."""
    counts = "calls = itertools.count(1)\n" * ("calls" in lines)
    return counts + "def function(x, out):\n    " + lines.replace("; ", "\n    ")


def _functions() -> Cases:
    for _pure, lines, x, *shape in _FUNCTIONS:
        yield {"function": _source(lines), "x": x, "shape": shape[0] if shape else x.shape}


def _given_programs(looks_pure: Callable) -> Callable[..., np.ndarray]:
    """Return looks_pure as a function of programs; it refuses what a function does not take."""
    def run(function: str, x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        names: dict[str, Any] = {"np": np, "itertools": itertools}
        exec(function, names)
        wrong: list[CheckFailed] = []
        of_x = x.shape

        def watched(x: Any, out: Any) -> None:
            for name, array, wanted in (("x", x, of_x), ("out", out, shape)):
                came = (str(getattr(array, "dtype", type(array).__name__)), np.shape(array))
                if not isinstance(array, np.ndarray) or came != ("float32", wanted):
                    wrong.append(CheckFailed(
                        _("{name} as {type}, in a call of function").format(
                            name=name, type=f"float32 {wanted}"), " ".join(map(str, came))))
            names["function"](x, out)
        watched.__qualname__ = "function"  # in errors, as the reader knows it
        try:
            came = looks_pure(watched, x, shape)
        finally:
            if wrong:  # function could not work with what it was handed
                raise wrong[0] from None
        require_type(came, bool | np.bool_, _("True or False"))
        return np.asarray(came, bool)
    return run


_PURE = {_source(lines): pure for pure, lines, *_x in _FUNCTIONS}
_LOOKS_PURE = Spec(
    _given_programs, lambda function, **_: _PURE[function], _functions, fault=CheckFailed,
    fits=lambda _: False)  # with a simpler x one may be pure


@exercise("0.4", "looks_pure(function, x, shape)", seconds=10)
def exercise_0_4(looks_pure: Callable) -> str:
    """Finding impure functions."""
    return _("right about {count} functions, {pure} of them pure").format(
        count=check(_LOOKS_PURE, looks_pure), pure=sum(pure for pure, *_rest in _FUNCTIONS))


# ---- a module ------------------------------------------------------------------------------


_DEEP: dict[str, tuple[Any, ...]] = {
    "x": (None, 784), "w0": (128, 784), "b0": (128,), "w1": (64, 128), "b1": (64,),
    "w2": (10, 64), "b2": (10,)}


def _deep(x: np.ndarray, **given: np.ndarray) -> np.ndarray:
    """The MLP with three layers."""
    for layer in range(3):
        x = x @ given[f"w{layer}"].T + given[f"b{layer}"]
        x = np.maximum(x, 0) if layer < 2 else x
    return x


def _require_signature(mod: tvm.IRModule) -> None:
    params = list(mod["main"].params)
    if len(params) != len(_DEEP):
        raise CheckFailed(f"main({', '.join(_DEEP)})",
                          f"main({', '.join(param.name for param in params)})")
    for param, (name, shape) in zip(params, _DEEP.items(), strict=True):
        if not is_float32(param.ty, *shape) or any(  # the images' letter is no other extent's
                size and came.same_as(params[0].ty.shape[0])
                for came, size in zip(param.ty.shape, shape, strict=True)):
            wanted = ", ".join('"n"' if size is None else str(size) for size in shape)
            raise CheckFailed(f'{name}: R.Tensor(({wanted}{"," * (len(shape) == 1)}), "float32")',
                              f"{param.name}: {param.ty}")
    require_tensor(mod["main"])


def _require_shapes(mod: tvm.IRModule, name: str, call: relax.Call) -> None:
    """Raise CheckFailed where two shapes in a call differ for which the PrimFunc has one symbol.

    TVM compares them only when the model runs, and says which number it found but not where. A
    number that differs from the PrimFunc's own is not well formed.
    """
    if not isinstance(func := mod[call.args[0]], tvm.tirx.PrimFunc):
        return
    known: dict[Any, tuple[int, str]] = {}
    for param, argument in zip(func.params, [*getattr(call.args[1], "fields", ()), call],
                               strict=False):
        says = _("the output") if argument is call else getattr(argument, "name", _("a constant"))
        extents = getattr(getattr(argument.ty, "shape", None), "values", ())
        for symbol, extent in zip(getattr(param.ty, "shape", ()), extents, strict=False):
            if constant(symbol) is not None or constant(extent) is None:
                continue
            size, other = known.setdefault(symbol, (int(extent), says))
            if size != int(extent):
                raise CheckFailed(_("arguments of {kernel} whose shapes fit one another").format(
                                      kernel=call.args[0].name_hint),
                                  _("for {name}: {one} in {other}, and {extent} in {says}").format(
                                      name=name, one=f"{symbol} = {size}", other=other,
                                      extent=int(extent), says=says))


def _require_calls(mod: tvm.IRModule) -> None:
    """Raise CheckFailed unless main is calls by call_tir of PrimFuncs that can be run safely."""
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            if not isinstance(value := binding.value, relax.Call):
                continue
            if getattr(value.op, "name", "") != "relax.call_tir":
                raise CheckFailed(_("PrimFuncs that are called by R.call_tir"),
                                  _("main calls {call}").format(call=value))
            _require_shapes(mod, binding.var.name, value)
    for variable, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc):
            if primfuncs.has_while(func):
                raise CheckFailed(_("loops by T.grid or range"), _("a while loop"),
                                  variable.name_hint)
            primfuncs.require_first_values(func, _("PrimFunc {name}").format(
                name=variable.name_hint))


def _called(main: Main) -> Callable[..., np.ndarray]:
    return lambda **given: result(main, *given.values(), title=f"x {given['x'].shape}")


def _deep_inputs() -> Cases:
    weights = {name: random(*shape) / 4 for name, shape in _DEEP.items() if name != "x"}
    # where each number has its own way through the layers, a search comes to its end
    lines = {name: np.zeros_like(array) for name, array in weights.items()}
    for name in ("w0", "w1", "w2"):
        np.fill_diagonal(lines[name][:, :10], 1)
    for n in (1, 90):
        yield {"x": 10 * np.eye(n, 784, 10 - n, dtype="float32"), **lines}
    for n, scale in ((1, 1), (5, 1), (3, 40), (90, 1)):
        yield {"x": np.float32(scale) * random(n, 784), **weights}


_DEEP_MLP = Spec(_called, _deep, _deep_inputs, {"x": "n 784"}, fault=CheckFailed,
                 atol=lambda given: ATOL * max(1, float(np.abs(given["x"]).max(initial=0))))


@exercise("0.5", "create_deep_mlp()", seconds=20)
def exercise_0_5(create_deep_mlp: Callable) -> str:
    """A module with three layers and a symbolic number of images."""
    mod = create_deep_mlp()
    require_well_formed(mod)
    _require_signature(mod)
    _require_calls(mod)
    with registry():
        machine = build(mod, primfuncs.QUICK)
    unwritten = False
    for given in _deep_inputs():
        for at_start in (False, True):
            with guarded(machine, mod, at_start=at_start):
                unwritten |= bool(np.isnan(_called(machine["main"])(**given)).any())
    # what is not written is NaN in guarded arrays; without them a search is faster
    check(_DEEP_MLP, fenced(machine, mod) if unwritten else machine["main"])
    return _("equal to NumPy for 1, 5, 3 and 90 images with one executable; every step by "
             "R.call_tir")
