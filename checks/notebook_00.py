"""The checks of notebook 00: end-to-end execution."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, te

import helpers
from checks.answers import (
    CheckFailed,
    compare,
    exercise,
    random,
    reason,
    refuse_out_of_bounds,
    registered,
    registry,
    run_library,
    where,
)
from checks.equivalence import build
from loops import is_reduction

# ---- low-level NumPy -----------------------------------------------------------------------


class Watched(np.ndarray):
    """An array that notes what is done to it as a whole, and which elements are assigned."""

    notes: dict[str, Any]

    def __array_finalize__(self, source: Any) -> None:
        self.notes = getattr(source, "notes", {"whole": [], "writes": 0, "reads": 0})

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        self.notes["whole"].append(f"np.{ufunc.__name__}" + f".{method}" * (method != "__call__"))
        inputs = tuple(np.asarray(item) if isinstance(item, Watched) else item for item in inputs)
        if "out" in kwargs:
            kwargs["out"] = tuple(np.asarray(item) for item in kwargs["out"])
        return getattr(ufunc, method)(*inputs, **kwargs)

    def __array_function__(self, function: Callable, types: Any, args: Any, kwargs: Any) -> Any:
        if function.__name__ in ("shape", "size", "ndim", "empty_like", "zeros_like", "full_like"):
            return function(*(np.asarray(arg) if isinstance(arg, Watched) else arg
                              for arg in args), **kwargs)
        self.notes["whole"].append(f"np.{function.__name__}")
        return super().__array_function__(function, types, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        came = super().__getitem__(index)
        if not isinstance(came, np.ndarray):
            self.notes["reads"] += 1
        return came

    def item(self, *index: Any) -> Any:
        self.notes["reads"] += 1
        return super().item(*index)

    def tolist(self) -> list[Any]:
        self.notes["reads"] += self.size
        return super().tolist()

    @property
    def flat(self) -> Any:
        self.notes["reads"] += self.size
        return np.asarray(self).flat

    def _method(name: str) -> Callable:
        def method(self, *arguments: Any, **options: Any) -> Any:
            self.notes["whole"].append(f"the method {name}")
            return getattr(np.asarray(self), name)(*arguments, **options)
        return method

    argmax, argmin, argsort, sort, dot, cumsum = map(
        _method, ("argmax", "argmin", "argsort", "sort", "dot", "cumsum"))

    def __setitem__(self, index: Any, value: Any) -> None:
        size = np.asarray(self)[index].size
        if size > 1:
            self.notes["whole"].append(f"an assignment to {size} elements at once")
        self.notes["writes"] += 1
        super().__setitem__(index, value)


def _watched(array: np.ndarray) -> Watched:
    view = array.view(Watched)
    view.notes = {"whole": [], "writes": 0, "reads": 0}
    return view


def _softmax(x: np.ndarray, axis: int = 1) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis, keepdims=True))
    return exponentials / exponentials.sum(axis, keepdims=True)


def _softmax_mistakes(x: np.ndarray) -> dict[str, Callable[[], Any]]:
    shifted = np.exp(x - x.max(1, keepdims=True))
    return {
        "the axis: this is the softmax of each column": lambda: _softmax(x, 0),
        "the division by the sum is missing": lambda: shifted,
        "the sum: it runs over the whole array, not over one row": lambda: shifted / shifted.sum(),
        "the sum: it goes on from row to row; it has to start anew in each":
            lambda: shifted / np.cumsum(shifted.sum(1))[:, None],
        "the exponentials overflow: subtract the largest number of the row first":
            lambda: np.exp(x) / np.exp(x).sum(1, keepdims=True),
        "the largest number: of the row, not of the whole array (all exponentials of a row can "
        "be 0)": lambda: np.exp(x - x.max()) / np.exp(x - x.max()).sum(1, keepdims=True),
        "the largest number: it starts from 0, and rows below zero need their own":
            lambda: (lambda e: e / e.sum(1, keepdims=True))(
                np.exp(x - np.maximum(x.max(1, keepdims=True), 0))),
        "largest and sum: of each row, not of the whole array (axis=1, keepdims=True)":
            lambda: np.exp(x - x.max()) / np.exp(x - x.max()).sum(),
        "the logarithm: this is log_softmax": lambda: np.log(_softmax(x))}


def _softmax_inputs() -> Iterator[np.ndarray]:
    for shape in [(1, 10), (3, 4), (5, 2)]:
        yield random(*shape)
    yield np.array([[-300, 0, 1000, 999], [0, 1, -2, 3], [-1000, -1001, -999, -1500]], "float32")


@exercise("0.1", seconds=10)
def exercise_0_1(lnumpy_softmax: Callable) -> str:
    """softmax with explicit loops."""
    for x in _softmax_inputs():
        given, out = _watched(x.copy()), _watched(np.full(x.shape, np.nan, "float32"))
        try:
            with np.errstate(all="ignore"):
                returned = lnumpy_softmax(given, out)
        except OverflowError as error:
            raise CheckFailed("a softmax of scores such as 1000", reason(error), "the exponentials "
                              "overflow: subtract the largest number of the row first") from None
        if not np.array_equal(np.asarray(given), x):
            raise CheckFailed("that X stays as it was", "other numbers in X",
                              "what is assigned: only elements of Y")
        came = np.asarray(out)
        if np.isnan(came).all() and not out.notes["writes"]:
            says = "out holds what it held before" + ", and a value was returned" * (
                returned is not None)
            raise CheckFailed("that Y is written", says, "Y[i, j] = ...; `Y = ...` would only "
                              "rebind the name, and nobody takes a returned value")
        if whole := given.notes["whole"] + out.notes["whole"]:
            raise CheckFailed("explicit loops over single elements", f"{whole[0]} on an array",
                              "the words of the exercise: loops with X[i, j] and Y[i, j]")
        compare(came, _softmax(x), "the three loops: largest, exponentials and sum, division",
                _softmax_mistakes(x), atol=1e-6)
        if out.notes["writes"] < x.size:
            raise CheckFailed("explicit loops over single elements",
                              f"{out.notes['writes']} assignments for {x.size} elements of Y",
                              "the words of the exercise: Y[i, j] = ... in the loops")
        if given.notes["reads"] < x.size:
            raise CheckFailed("explicit loops over single elements",
                              f"{given.notes['reads']} elements of X read one by one, of {x.size}",
                              "the words of the exercise: X[i, j] in the loops, not a copy of X")
        if returned is not None:
            raise CheckFailed("that nothing is returned", "a value",
                              "the return statement: Y is the caller's, who has it already")
    return "equal to NumPy for four arrays, scores of 1000 among them; element by element"


# ---- PrimFuncs -----------------------------------------------------------------------------


@contextlib.contextmanager
def _in_tvmscript() -> Iterator[None]:
    """Refuse PrimFuncs that are made of tensor expressions."""
    def refused(*arguments: Any, **options: Any) -> None:
        raise CheckFailed("a PrimFunc in TVMScript", "one by te.create_prim_func",
                          "@T.prim_func(s_tir=True) and the loops under it")
    original = te.create_prim_func
    te.create_prim_func = refused
    try:
        yield
    finally:
        te.create_prim_func = original


def _parts(statement: Any) -> list[Any]:
    """Return the statements directly inside one, in program order."""
    children = getattr(statement, "seq", None) or [
        getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    return [child for child in children if child is not None]


def _sblocks(func: tvm.tirx.PrimFunc) -> list[Any]:
    """Return the sblocks of a PrimFunc in program order, without the root."""
    found: list[Any] = []

    def walk(node: Any) -> None:
        if type(node).__name__ == "SBlockRealize":
            node = node.block
            if node.name_hint != "root":
                found.append(node)
        for part in _parts(node):
            walk(part)

    walk(func.body)
    return found


def _reads(expression: Any) -> set[str]:
    """Names of the buffers that an expression loads from."""
    names: set[str] = set()

    def see(node: Any) -> None:
        if type(node).__name__ == "TensorLoad":
            names.add(node.source.name)

    tvm_ffi.structural_walk(expression, see)
    return names


def _refuse_garbage(func: tvm.tirx.PrimFunc, name: str) -> None:
    """Raise CheckFailed where a store reads the buffer it writes before any store that does not.

    In program order; a T.init comes before its sblock's body, an `if vk == 0` before what follows.
    """
    written = {param.name for param in func.params[:-1]}

    def walk(node: Any, block: str) -> None:
        kind = type(node).__name__
        if kind == "SBlockRealize":
            node, block = node.block, node.block.name_hint
            if node.init is not None:
                walk(node.init, block)
        if kind == "BufferStore":
            buffer = node.buffer.name
            if buffer in _reads(node.value) - written:
                raise CheckFailed("that every element has a first value",
                                  f"{name} adds to {buffer}, or compares with it, in {block}, and "
                                  f"nothing was written into {buffer} before",
                                  "T.init: what does an element start from?")
            written.add(buffer)
        for part in _parts(node):
            walk(part, block)

    walk(func.body, "root")


def _prim_func(func: Any, *shapes: tuple[int, ...]) -> tvm.tirx.PrimFunc:
    """Check that an answer is a PrimFunc with float32 buffers of these shapes, and return it."""
    if not isinstance(func, tvm.tirx.PrimFunc):
        raise CheckFailed("a PrimFunc as the result", type(func).__name__,
                          "the return statement, and the decorator @T.prim_func(s_tir=True)")
    types = [param.ty for param in func.params]
    if any(not hasattr(buffer, "shape") for buffer in types):
        raise CheckFailed(f"{len(shapes)} buffers as arguments", "a scalar among them",
                          'X: T.Buffer(shape, "float32")')

    def text(shape: Any, dtype: str) -> str:
        return f"{dtype} ({', '.join(map(str, shape))}{',' * (len(shape) == 1)})"
    came = [text(buffer.shape, str(buffer.dtype).removeprefix("T.")) for buffer in types]
    wanted = [text(shape, "float32") for shape in shapes]
    fits = len(types) == len(shapes) and all(
        str(buffer.dtype).removeprefix("T.") == "float32" and len(buffer.shape) == len(shape)
        and all(not isinstance(extent, tvm.tirx.IntImm) or int(extent) == size
                for extent, size in zip(buffer.shape, shape, strict=True))
        for buffer, shape in zip(types, shapes, strict=True))
    if not fits:
        raise CheckFailed(f"buffers {', '.join(wanted)}", ", ".join(came) or "none",
                          "the shapes and dtypes of the arguments")
    if "while " in helpers.script(func):
        raise CheckFailed("loops by T.grid or range", "a while loop",
                          "the loop: a compiled while that never ends cannot be stopped")
    return func


def _exposed(func: tvm.tirx.PrimFunc) -> tuple[tvm.tirx.PrimFunc, list[Any]]:
    """The PrimFunc with the buffers that it allocates as further arguments, and these buffers."""
    if type(func.body).__name__ != "SBlockRealize":
        return func, []
    root, own = func.body.block, list(func.body.block.alloc_buffers)
    if any(not isinstance(extent, tvm.tirx.IntImm) for buffer in own for extent in buffer.ty.shape):
        return func, []
    block = tvm.s_tir.SBlock(root.iter_vars, root.reads, root.writes, root.name_hint, root.body,
                             root.init, [], root.match_buffers, root.annotations)
    body = tvm.s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return tvm.tirx.PrimFunc([*func.params, *own], body, func.ret_type, attrs=func.attrs), own


def _run(func: tvm.tirx.PrimFunc, x: np.ndarray, shape: tuple[int, ...],
         filling: float) -> np.ndarray:
    """Run a PrimFunc of one input; its output and its own buffers are full of one number."""
    destination = tvm.runtime.tensor(np.full(shape, filling, "float32"))
    func, own = _exposed(func)
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    source = tvm.runtime.tensor(x)
    scratch = []
    for buffer in own:
        dtype = str(buffer.ty.dtype).removeprefix("T.")
        garbage = np.full([int(extent) for extent in buffer.ty.shape], filling).astype(dtype)
        scratch.append(tvm.runtime.tensor(garbage))
    tvm.compile(mod, target="llvm")["main"](source, destination, *scratch)
    if not np.array_equal(source.numpy(), x):
        raise CheckFailed("that X stays as it was", "other numbers in X",
                          "what is assigned: only elements of Y")
    return destination.numpy()


def _name(func: tvm.tirx.PrimFunc) -> str:
    """Its name; a private PrimFunc has none."""
    return str(func.attrs["global_symbol"]) if "global_symbol" in func.attrs else "the PrimFunc"


def _static(func: tvm.tirx.PrimFunc) -> None:
    refuse_out_of_bounds(tvm.IRModule({_name(func): func}))


@exercise("0.2", seconds=10)
def exercise_0_2(make_relu6: Callable) -> str:
    """ReLU6 as a PrimFunc."""
    with _in_tvmscript():
        func = _prim_func(make_relu6(), (4, 10), (4, 10))
    _static(func)
    _refuse_garbage(func, _name(func))
    x = 12 * random(4, 10)
    for filling in (np.nan, 1e30):
        came = _run(func, x, x.shape, filling)
        untouched = np.isnan(came) if np.isnan(filling) else came == np.float32(filling)
        if untouched.any():
            raise CheckFailed("that every element of Y is written",
                              f"{untouched.sum()} of {came.size} are not, the first at "
                              f"{where(untouched)}", "the extents of the loops, and the indices")
        compare(came, np.clip(x, 0, 6), "the formula: min(max(x, 0), 6)", {
            "the cut at 6: this is a plain ReLU": lambda: np.maximum(x, 0),
            "the cut at 0: negative numbers have to become 0": lambda: np.minimum(x, 6),
            "T.min and T.max: they are exchanged, so everything is 6":
                lambda: np.maximum(np.minimum(x, 0), 6),
            "T.min and T.max, which are exchanged": lambda: np.minimum(np.maximum(x, 6), 0),
            "the upper constant: it is 1, not 6": lambda: np.clip(x, 0, 1),
            "x: it is copied as it is": lambda: x})
    if any(is_reduction(axis) for block in _sblocks(func) for axis in block.iter_vars):
        raise CheckFailed("spatial axes only", "a reduction axis",
                          'remap("SS", ...): each pair of vi and vj writes another element')
    return "min(max(x, 0), 6) for all 40 elements, whatever Y held before"


@exercise("0.3", seconds=10)
def exercise_0_3(make_row_max: Callable) -> str:
    """The largest of each row as a PrimFunc."""
    with _in_tvmscript():
        func = _prim_func(make_row_max(), (5, 12), (5,))
    _static(func)
    _refuse_garbage(func, _name(func))
    x = 5 * random(5, 12)
    x[1], x[3], x[4, 0] = -np.abs(x[1]) - 1, -2e30, 40  # rows with nothing above zero
    x[3, 5], x[0, 11] = -1e30, 9
    reduces = any(is_reduction(axis) and str(axis.dom.extent) not in ("1", "T.int64(1)")
                  for block in _sblocks(func) for axis in block.iter_vars)
    for filling in (np.nan, 3e38, -3e38):
        came = _run(func, x, (5,), filling)
        forgets = {"the update: it forgets what was there before": lambda: x[:, -1]}
        marked = forgets if reduces else {
            "the axis over the columns: it is marked S, so T.init runs at every step and only "
            "the last number counts; a reduction is R": lambda: x[:, -1],
            "the axis over the columns: it is marked S, so T.init runs at every step; and it "
            "starts from 0": lambda: np.maximum(x[:, -1], 0)}
        compare(came, x.max(1), "the update, T.max of what is there and what comes, and its axes", {
            "T.init: it starts from 0, and rows below zero give 0; T.min_value(\"float32\") is "
            "lower than any number": lambda: np.maximum(x.max(1), 0), **marked,
            "T.max: this is the smallest of each row": lambda: x.min(1),
            "T.max: this is the sum of each row": lambda: x.sum(1),
            "the loop over the columns: the first is left out": lambda: x[:, 1:].max(1),
            "the loop over the columns: the last is left out": lambda: x[:, :-1].max(1),
            "the axis: the row is the loop over columns": lambda: x[:, :5].max(0),
            "T.init: T.max_value is the highest number; start from the lowest":
                lambda: np.full(5, np.finfo("float32").max),
            "a first value: this is what Y held before":
                lambda f=filling: np.maximum(x.max(1), np.float32(f)),
            "T.init: -1e9 or the like is not low enough":
                lambda c=came: np.maximum(x.max(1), min(c.min(), 0))})
    if not reduces:
        raise CheckFailed("an sblock with a reduction axis", "spatial axes only, or no sblock",
                          'T.axis.remap("SR", [i, k])')
    return "the largest of each row, negative rows too, whatever Y held before"


# ---- pure or not ---------------------------------------------------------------------------


def _functions() -> Iterator[tuple[str, bool, str, Callable, tuple[int, ...]]]:
    """Yield title, whether it is pure, a hint, the function, and the shape of its output."""
    rng, calls = np.random.default_rng(0), []

    def through_a_temporary(x: np.ndarray, out: np.ndarray) -> None:
        temporary = np.empty(x.shape, "float32")
        temporary[...] = 2 * x
        temporary += 1
        out[...] = temporary

    def with_nan(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = np.where(x < 0, np.float32(np.nan), x)

    def in_place(x: np.ndarray, out: np.ndarray) -> None:
        np.maximum(x, 0, out=x)
        out[...] = x

    def nudges(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x
        x *= np.float32(1 + 1e-6)

    def adds(x: np.ndarray, out: np.ndarray) -> None:
        out += x

    def partly(x: np.ndarray, out: np.ndarray) -> None:
        out[:, 1:] = x[:, 1:]

    def noisy(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x + rng.standard_normal(x.shape, dtype="float32")

    def counts(x: np.ndarray, out: np.ndarray) -> None:
        calls.append(1)
        out[...] = x * len(calls)

    def transposes(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = x.T

    def holds_back(x: np.ndarray, out: np.ndarray) -> None:
        out[...] = np.maximum(out, x)

    yield "doubles x", True, "", lambda x, out: np.multiply(x, 2, out=out), (3, 4)
    yield "transposes x, so out is (4, 3)", True, "the shape of out: it is `shape`", transposes, \
        (4, 3)
    yield "works in a temporary of its own", True, "what is compared", through_a_temporary, (3, 4)
    yield "writes NaN where x < 0", True, "NaN is not equal to NaN: equal_nan=True", with_nan, \
        (3, 4)
    yield ("changes x in place, and to the same the second time", False,
           "the input after the call: compare it with numbers that the function could not change",
           in_place, (3, 4))
    yield ("adds x to what out held", False, "two fillings of out that differ", adds, (3, 4))
    yield ("does not write column 0", False, "two fillings of out that differ", partly, (3, 4))
    yield ("writes the larger of x and what out held", False, "two fillings of out that differ, "
           "one of them above all numbers, one below", holds_back, (3, 4))
    yield ("changes x by a millionth", False, "np.array_equal: a tolerance hides small changes",
           nudges, (3, 4))
    yield "adds noise", False, "a second call with the same input", noisy, (3, 4)
    yield ("multiplies by the number of its calls", False, "a second call with the same input",
           counts, (3, 4))


@exercise("0.4", seconds=10)
def exercise_0_4(looks_pure: Callable) -> str:
    """Finding impure functions."""
    tried = 0
    for title, pure, hint, function, shape in _functions():
        x = random(3, 4)
        before = x.copy()
        came = looks_pure(function, x, shape)
        if not isinstance(came, bool | np.bool_):
            raise CheckFailed("True or False", f"{type(came).__name__}", "the return statement")
        if bool(came) != pure:
            raise CheckFailed(f"{pure} for a function that {title}", f"{came}", hint or
                              "what is compared: it gives the same each time and leaves x alone")
        if not np.array_equal(x, before):
            raise CheckFailed("that the caller's x stays as it was", "other numbers in it, after "
                              f"a function that {title}", "x.copy(): hand copies to the function")
        tried += 1
    return f"right about {tried} functions, four of them pure"


# ---- a module ------------------------------------------------------------------------------


_DEEP = {"x": (None, 784), "w0": (128, 784), "b0": (128,), "w1": (64, 128), "b1": (64,),
         "w2": (10, 64), "b2": (10,)}


def _deep(x: np.ndarray, w0: np.ndarray, b0: np.ndarray, w1: np.ndarray, b1: np.ndarray,
          w2: np.ndarray, b2: np.ndarray, relu: tuple[bool, bool, bool] = (True, True, False),
          bias: tuple[int, int, int] = (1, 1, 1)) -> np.ndarray:
    """The MLP with three layers, with room for one mistake."""
    for w, b, cut, times in zip((w0, w1, w2), (b0, b1, b2), relu, bias, strict=True):
        x = x @ w.T + times * b
        x = np.maximum(x, 0) if cut else x
    return x


def _check_parameters(mod: tvm.IRModule) -> None:
    params = list(mod["main"].params)
    if len(params) != len(_DEEP):
        raise CheckFailed(f"main with 7 parameters, {', '.join(_DEEP)}",
                          ", ".join(param.name for param in params) or "none", "its signature")
    for param, (name, shape) in zip(params, _DEEP.items(), strict=True):
        extents = getattr(getattr(param.ty, "shape", None), "values", None)
        wanted = f"({', '.join('n' if n is None else str(n) for n in shape)})"
        if extents is None or len(extents) != len(shape) or any(
                isinstance(came, tvm.tirx.IntImm) and int(came) != (size or -1)
                for came, size in zip(extents, shape, strict=True)):
            came = re.sub(r"T\.int64\((\d+)\)", r"\1", f"({', '.join(map(str, extents))})") \
                if extents is not None else "a shape that is not given"
            hint = "a symbol for the number of images: \"n\" in the signature" if name == "x" \
                else "the signature of main, and the order of its parameters"
            raise CheckFailed(f"{name} of shape {wanted}", came, hint)
        if str(param.ty.dtype).removeprefix("T.") != "float32":
            raise CheckFailed(f"{name} as float32", str(param.ty.dtype), "the signature of main")


def _check_calls(mod: tvm.IRModule) -> None:
    """Check that main consists of call_tir, and that no PrimFunc starts from garbage."""
    for block in mod["main"].body.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.Call) and getattr(value.op, "name", "") != "relax.call_tir":
                name = getattr(value.op, "name", type(value.op).__name__)
                raise CheckFailed("PrimFuncs that are called by R.call_tir",
                                  f"{binding.var.name} is {name}", "R.call_tir(cls.linear, ...)")
    for variable, func in mod.functions_items():
        if isinstance(func, tvm.tirx.PrimFunc):
            if "while " in helpers.script(func):
                raise CheckFailed("loops by T.grid or range", f"a while loop in "
                                  f"{variable.name_hint}", "the loop of this PrimFunc")
            _refuse_garbage(func, f"PrimFunc {variable.name_hint}")


@exercise("0.5", seconds=20)
def exercise_0_5(create_deep_mlp: Callable) -> str:
    """A module with three layers and a symbolic number of images."""
    mod = create_deep_mlp()
    if not isinstance(mod, tvm.IRModule):
        raise CheckFailed("an IRModule", type(mod).__name__, "the return statement")
    if "main" not in (names := [variable.name_hint for variable in mod.get_global_vars()]):
        raise CheckFailed("a Relax function named main", f"functions {names}", "def main(...)")
    _check_parameters(mod)
    _check_calls(mod)
    with registry():
        machine = build(mod)
    weights = {name: random(*shape) / 4 for name, shape in _DEEP.items() if name != "x"}
    for n in (1, 5, 3):
        arrays = {"x": random(n, 784), **weights}
        try:
            output = machine["main"](*map(tvm.runtime.tensor, arrays.values()))
        except (ValueError, TypeError, RuntimeError) as error:
            raise CheckFailed(f"main to take {n} images", reason(error), "the shapes of main and "
                              "of the PrimFuncs: what is 1 there?") from None
        if not hasattr(output, "numpy"):
            raise CheckFailed("one output", f"a tuple of {len(output)}", "what main returns")
        came = output.numpy()
        compare(came, _deep(**arrays), "the linear PrimFunc, then the five calls in main: each "
                "takes the result of the one before", {
            "the bias is added at every step of the sum, not once":
                lambda a=arrays: _deep(**a, bias=(784, 128, 64)),
            "the ReLU after the first layer is missing":
                lambda a=arrays: _deep(**a, relu=(False, True, False)),
            "the ReLU after the second layer is missing":
                lambda a=arrays: _deep(**a, relu=(True, False, False)),
            "both ReLUs are missing": lambda a=arrays: _deep(**a, relu=(False, False, False)),
            "a ReLU after the last layer: the scores have none":
                lambda a=arrays: _deep(**a, relu=(True, True, True)),
            "the bias: the linear PrimFunc does not add it":
                lambda a=arrays: _deep(**a, bias=(0, 0, 0)),
            "every image gets the scores of image 0":
                lambda a=arrays: np.broadcast_to(_deep(**a)[:1], (len(a["x"]), 10)),
            "only image 0 is right: do the loops of each PrimFunc run over all images?":
                lambda a=arrays, c=came: np.concatenate([_deep(**a)[:1], c[1:]])})
    return "equal to NumPy for 1, 5 and 3 images with one executable; every step by R.call_tir"


# ---- a library function --------------------------------------------------------------------


@exercise("0.6", seconds=10)
def exercise_0_6(register_softmax: Callable) -> str:
    """env.softmax writes the softmax of each row into out."""
    with registry():
        function = registered(register_softmax, "env.softmax")
        for x in _softmax_inputs():
            with np.errstate(all="ignore"):
                came = run_library(function, "env.softmax", x.shape, x=x)
                compare(came, _softmax(x), "the formula, for each row", _softmax_mistakes(x),
                        atol=1e-6)
    return ("env.softmax is registered, can be registered again, and writes the softmax of each\n"
            "row into out; tried with four arrays, scores of 1000 among them")
