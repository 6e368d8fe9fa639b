"""A PrimFunc as Python: run on small arrays without a compiler, and nothing that it does is unseen.

It becomes Python's source once (about a millisecond; LLVM takes 25 to 300). A buffer is a dict from
indices to numbers: what is outside of it, or was not written yet, is not in there. Numbers are
NumPy's of their dtype. Loops run in their order, so that races stay with checks.observe.memory.
"""

import itertools
import math
from typing import Any

import numpy as np
from tvm import ir, s_tir, tirx

from course.checks.observe.primfuncs import Misuse
from course.tir.walk import constant
from course.words import _

_INFIX = {
    tirx.Add: "+", tirx.Sub: "-", tirx.Mul: "*", tirx.FloorDiv: "//", tirx.FloorMod: "%",
    tirx.LT: "<", tirx.LE: "<=", tirx.GT: ">", tirx.GE: ">=", tirx.EQ: "==", tirx.NE: "!=",
    tirx.And: "and", tirx.Or: "or"}
_CALLED = {tirx.Min: "least", tirx.Max: "most", tirx.Div: "div", tirx.Mod: "mod"}
_HINTS = {"pragma_auto_unroll_max_step", "pragma_unroll_explicit", "pragma_scope"}


def _whole(a: Any, b: Any) -> Any:
    """Divide whole numbers, and drop what is behind the point."""
    return -(-a // b) if (a < 0) != (b < 0) else a // b


# What source may call, by the last part of an intrinsic's name. NaN is on neither side of anything.
_CALLS: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: type(x)(10) ** x, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt, "tanh": np.tanh,
    "sin": np.sin, "cos": np.cos, "fabs": abs, "abs": abs, "floor": np.floor, "ceil": np.ceil,
    "trunc": np.trunc, "round": np.rint, "nearbyint": np.rint, "pow": np.power,
    "rsqrt": lambda x: type(x)(1) / np.sqrt(x), "likely": lambda x: x,
    "sigmoid": lambda x: type(x)(1) / (type(x)(1) + np.exp(-x)),
    "erf": lambda x: type(x)(math.erf(x)), "isnan": lambda x: bool(np.isnan(x)),
    "isinf": lambda x: bool(np.isinf(x)), "isfinite": lambda x: bool(np.isfinite(x)),
    "bitwise_and": lambda a, b: a & b, "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b, "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b}
_USED = {"least": lambda a, b: a if a < b else b, "most": lambda a, b: a if a > b else b,
         "div": lambda a, b: a / b if isinstance(a, np.floating) else _whole(a, b),
         "mod": lambda a, b: np.fmod(a, b) if isinstance(a, np.floating) else a - b * _whole(a, b)}
MOST = 2_000_000  # runs of sblocks and stores: what takes more is not for an interpreter


class Unknown(Exception):
    """A node that is not known here: the program is to be compiled."""


class _Buffer(dict):
    """Its numbers by their indices; `name`: in the source."""

    def __init__(self, name: str, array: np.ndarray | None = None) -> None:
        super().__init__(() if array is None else np.ndenumerate(array))
        self.name = name

    def __missing__(self, at: tuple[int, ...]) -> None:
        raise KeyError((self.name, at))


class Interpreted:
    """A PrimFunc as a function of arrays in the order of its parameters; the last is written.

    Raises Unknown where it has a node that is not known, and Misuse when it is called. `source` is
    Python; `steps` how many stores it does at most, infinity where that depends on its arguments.
    """

    def __init__(self, func: tirx.PrimFunc) -> None:
        self._names: dict[Any, str] = {}
        self._homes: dict[str, tuple[str, Any]] = {}  # a buffer's own name and shape
        self._lines: list[str] = []
        self._count = itertools.count()
        self.steps = 0.0
        if any(not hasattr(param.ty, "shape") for param in func.params):
            raise Unknown("a scalar parameter")
        self._params = [self._buffer(param) for param in func.params]
        symbols: set[str] = set()
        for name, param in zip(self._params, func.params, strict=True):
            for axis, extent in enumerate(param.ty.shape):
                if isinstance(extent, tirx.Var) and self._name(extent) not in symbols:
                    symbols.add(self._name(extent))
                    self._line(1, f"{self._name(extent)} = {name}_shape[{axis}]")
        self._statement(func.body, 1, 1)
        given = [*self._params, *(f"{name}_shape" for name in self._params)]
        self.source = "\n".join([f"def program({', '.join(given)}):", *self._lines, "    pass"])
        known = _CALLS | _USED | {"np": np, "tick": self._tick, "_Buffer": _Buffer}
        exec(self.source, known)
        self._program = known["program"]

    def _tick(self) -> None:
        if next(self._count) > MOST:
            raise Misuse(_("a program that ends"), _("still running after two million steps"))

    def __call__(self, *arrays: np.ndarray) -> None:
        """Run it; the last array is written, and what it held before is not read."""
        buffers = [_Buffer(name, array) for name, array in
                   zip(self._params, arrays[:-1], strict=False)]
        before, out = [dict(one) for one in buffers], _Buffer(self._params[-1])
        shapes = [array.shape for array in arrays]
        self._count = itertools.count()
        try:
            with np.errstate(all="ignore"):
                self._program(*buffers, out, *shapes)
        except KeyError as error:
            name, at = error.args[0]
            raise self._misuse(name, at, shapes) from None
        for one, then in zip(buffers, before, strict=True):
            if len(one) > len(then):
                raise self._misuse(one.name, next(at for at in one if at not in then), shapes, True)
            if changed := next((at for at in one if one[at] is not then[at]), None):
                raise Misuse(_("the inputs to stay as they were"), _("{place} is written").format(
                    place=f"{self._homes[one.name][0]}{list(changed)}"))
        for at, number in out.items():
            if not _inside(at, shapes[-1]):
                raise self._misuse(out.name, at, shapes, True)
            arrays[-1][at] = number
        if left := [at for at in np.ndindex(shapes[-1]) if at not in out]:
            raise Misuse.unwritten(self._homes[out.name][0], left[0], len(left) - 1)

    def _misuse(self, name: str, at: tuple[Any, ...], shapes: list[tuple[int, ...]],
                writes: bool = False) -> Misuse:
        """Return which buffer has no number there: it is too short, or nobody has written it."""
        own, shape = self._homes[name]
        place = f"{own}{list(map(int, at))}"
        if name in self._params:
            shape = shapes[self._params.index(name)]
        if None in shape or _inside(at, shape):
            return Misuse(_("every element to be written before it is read"),
                          _("{place} is read, and nothing was written there before").format(
                              place=place))
        return Misuse(_("every index inside its buffer"), (
            _("{place} is written, outside of its shape {shape}") if writes
            else _("{place} is read, outside of its shape {shape}")).format(
                place=place, shape=shape))

    # ---- to Python ----

    def _name(self, variable: Any) -> str:
        return self._names.setdefault(variable, f"v{len(self._names)}")

    def _buffer(self, buffer: Any) -> str:
        name = self._name(buffer)
        if name not in self._homes:
            shape = getattr(buffer, "shape", None) or buffer.ty.shape
            self._homes[name] = buffer.name, tuple(map(constant, shape))
        return name

    def _line(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _places(self, indices: Any) -> str:
        return "(" + "".join(f"{self._expression(index)}, " for index in indices) + ")"

    def _expression(self, node: Any) -> str:
        kind = type(node)
        if kind in _INFIX:
            return f"({self._expression(node.a)} {_INFIX[kind]} {self._expression(node.b)})"
        if kind in _CALLED:
            return f"{_CALLED[kind]}({self._expression(node.a)}, {self._expression(node.b)})"
        match node:
            case tirx.Var() if node in self._names:
                return self._name(node)
            case tirx.IntImm():
                return str(int(node))
            case tirx.FloatImm():
                return _as(str(node.ty.dtype), f"'{float(node)}'")
            case ir.TensorLoad(source=buffer):
                return f"{self._buffer(buffer)}[{self._places(node.indices)}]"
            case tirx.Cast():
                return _as(str(node.ty.dtype), self._expression(node.value))
            case tirx.Not():
                return f"(not {self._expression(node.a)})"
            case tirx.Let():
                value = self._expression(node.value)
                name = self._name(node.var)
                return f"(lambda {name}: {self._expression(node.body)})({value})"
            case (tirx.Select(condition=condition, true_value=yes, false_value=no)
                  | ir.Call(op=ir.Op(name="prim.if_then_else"), args=[condition, yes, no])):
                return (f"({self._expression(yes)} if {self._expression(condition)} "
                        f"else {self._expression(no)})")
            case ir.Call(op=ir.Op(name=name), args=args) if name.rpartition(".")[2] in _CALLS:
                given = ", ".join(map(self._expression, args))
                return f"{name.rpartition('.')[2]}({given})"
        raise Unknown(f"{kind.__name__}: {node}")

    def _statement(self, node: Any, depth: int, times: float) -> None:
        """Write a statement; `times`: how often it runs."""
        match node:
            case tirx.SeqStmt():
                for part in node.seq:
                    self._statement(part, depth, times)
            case tirx.For():
                if tirx.ForKind(node.kind) == tirx.ForKind.THREAD_BINDING:
                    raise Unknown("threads")  # which wait for one another
                if node.step is not None:
                    raise Unknown("a step")
                first, extent = self._expression(node.min), self._expression(node.extent)
                self._line(depth, f"for {self._name(node.loop_var)} in "
                                  f"range({first}, {first} + {extent}):")
                size = constant(node.extent)
                self._line(depth + 1, "tick()")
                self._statement(node.body, depth + 1, times * (math.inf if size is None else size))
            case tirx.IfThenElse():
                self._line(depth, f"if {self._expression(node.condition)}:")
                self._statement(node.then_case, depth + 1, times)
                if node.else_case is not None:
                    self._line(depth, "else:")
                    self._statement(node.else_case, depth + 1, times)
            case tirx.BufferStore(buffer=buffer):
                self.steps += times
                value = _as(str(buffer.dtype), self._expression(node.value))
                self._line(depth, f"{self._buffer(buffer)}[{self._places(node.indices)}] = {value}")
            case s_tir.SBlockRealize():
                self._block(node, depth, times)
            case tirx.Bind():
                value = self._expression(node.value)
                self._line(depth, f"{self._name(node.var)} = {value}")
            case tirx.AllocBuffer(buffer=buffer):
                self._line(depth, f"{self._buffer(buffer)} = _Buffer({self._buffer(buffer)!r})")
            case tirx.AttrStmt() if node.attr_key in _HINTS:
                self._statement(node.body, depth, times)
            case tirx.Evaluate() if constant(node.value) is not None:
                self._line(depth, "pass")
            case _:
                raise Unknown(f"{type(node).__name__}: {node}")

    def _block(self, node: s_tir.SBlockRealize, depth: int, times: float) -> None:
        block = node.block
        if block.match_buffers:
            raise Unknown("a buffer that is a part of another")
        given = [self._expression(value) for value in node.iter_values]
        for axis, value in zip(block.iter_vars, given, strict=True):
            self._line(depth, f"{self._name(axis.var)} = {value}")
        self._line(depth, f"if {self._expression(node.predicate)}:")
        for buffer in block.alloc_buffers:
            self._line(depth + 1, f"{self._buffer(buffer)} = _Buffer({self._buffer(buffer)!r})")
        if block.init is not None:
            firsts = [f"{self._name(axis.var)} == {self._expression(axis.dom.min)}"
                      for axis in block.iter_vars if axis.iter_type == tirx.IterVar.CommReduce]
            self._line(depth + 1, f"if {' and '.join(firsts) or True}:")
            self._statement(block.init, depth + 2, times)
        self._line(depth + 1, "pass")
        self._statement(block.body, depth + 1, times)


def _inside(at: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(at) == len(shape) and all(0 <= place < size
                                         for place, size in zip(at, shape, strict=True))


def _as(dtype: str, text: str) -> str:
    """Return source that makes a number of a dtype: whole ones are Python's."""
    if dtype == "bool":
        return f"bool({text})"
    if dtype in ("int32", "int64"):  # fewer bits wrap around
        return f"int({text})"
    if dtype in ("float16", "float32", "float64"):
        return f"np.{dtype}({text})"
    raise Unknown(dtype)
