"""Memory: whether a PrimFunc stays inside its buffers, and its threads and lanes apart.

Nothing that a program declares is believed. Each sblock's axes are held against the loops that run
them; then the program is lowered until no sblock is left, and every index of every load and store
is looked at, over the loops' real extents and under the conditions that guard it. What an analyzer
of TVM cannot show is tried, for all iterations. Indices that depend on data remain: arrays between
pages that nobody may touch are there for them, in checks.observe.guard_pages.
"""

import ctypes
import math
import mmap
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi

from checks.say.messages import CheckFailed

MOST_TRIED = 3_000_000  # iterations of the loops that an index depends on; more are thinned out


class Unknown(Exception):
    """An expression depends on data, on a symbolic shape, or on what is not known here."""


# ---- walking a program ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Loop:
    """A loop around an access; `kind` as TVM names it: serial, parallel, vectorized, unrolled."""

    variable: Any
    least: Any
    extent: Any
    kind: str

    def __str__(self) -> str:
        kind = "" if self.kind == "serial" else f" {self.kind}"
        extent = _constant(self.extent)
        return f"{self.variable.name}: {self.extent if extent is None else extent}{kind}"


@dataclass(frozen=True)
class _Place:
    """Where a statement or an expression stands: the loops around it, and what must hold there.

    `axes`: variables of sblocks around it, each with the expression that gives its value.
    """

    loops: tuple[_Loop, ...] = ()
    guards: tuple[Any, ...] = ()
    axes: tuple[tuple[Any, Any], ...] = ()

    def under(self, condition: Any) -> "_Place":
        return replace(self, guards=(*self.guards, condition))


@dataclass(frozen=True)
class _Access:
    """A load or a store of one element."""

    place: _Place
    buffer: Any
    indices: tuple[Any, ...]
    writes: bool

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(self.buffer.ty.shape)


def _loads(expression: Any, place: _Place) -> Iterator[_Access]:
    """The loads in an expression; those in a branch of a condition stand under it."""
    kind = type(expression).__name__
    if kind == "TensorLoad":
        yield _Access(place, expression.source, tuple(expression.indices), False)
        parts: Sequence[Any] = expression.indices
    elif kind == "Select" or kind == "Call" and "if_then_else" in str(expression.op):
        condition, yes, no = ((expression.condition, expression.true_value, expression.false_value)
                              if kind == "Select" else expression.args)
        yield from _loads(condition, place)
        yield from _loads(yes, place.under(condition))
        yield from _loads(no, place.under(tvm.tirx.Not(condition)))
        return
    else:
        names = ("a", "b", "value", "body", "args", "base", "stride")
        children = [getattr(expression, name, None) for name in names]
        parts = [part for child in children if child is not None
                 for part in (child if isinstance(child, tvm_ffi.Array) else [child])]
    for part in parts:
        if isinstance(part, tvm.ir.Expr):
            yield from _loads(part, place)


@dataclass
class _Program:
    """What is accessed in a program without sblocks, and the loops in which buffers live."""

    accesses: list[_Access]
    homes: dict[Any, tuple[_Loop, ...]]
    bound: set[Any]  # variables by a let, and those of symbolic shapes
    data: Mapping[Any, np.ndarray]  # arrays of the buffers that are only read, where they are known


def _walk(node: Any, place: _Place, found: _Program) -> None:
    match type(node).__name__:
        case "For":
            kind = tvm.tirx.ForKind(node.kind).name.lower()
            loop = _Loop(node.loop_var, node.min, node.extent, kind)
            _walk(node.body, replace(place, loops=(*place.loops, loop)), found)
        case "IfThenElse":
            found.accesses.extend(_loads(node.condition, place))
            _walk(node.then_case, place.under(node.condition), found)
            if node.else_case is not None:
                _walk(node.else_case, place.under(tvm.tirx.Not(node.condition)), found)
        case "BufferStore":
            for part in (*node.indices, node.value):
                found.accesses.extend(_loads(part, place))
            found.accesses.append(_Access(place, node.buffer, tuple(node.indices), True))
        case "AllocBuffer":
            found.homes[node.buffer] = place.loops
        case _:
            if (variable := getattr(node, "var", None)) is not None:
                found.bound.add(variable)
            for name in ("value", "condition"):
                if isinstance(part := getattr(node, name, None), tvm.ir.Expr):
                    found.accesses.extend(_loads(part, place))
            for child in getattr(node, "seq", None) or [getattr(node, "body", None)]:
                if child is not None:
                    _walk(child, place, found)


def _lowered(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """The program without sblocks, as TVM's own first passes make it: real indices, real sizes."""
    passes = tvm.s_tir.transform
    steps = [passes.CanonicalizeLoop(), passes.LowerInitBlock(),
             passes.PlanAndUpdateBufferAllocationLocation(), passes.ConvertBlocksToOpaque(),
             passes.CompactBufferAllocation(), passes.LowerMatchBuffer(), passes.LowerOpaqueBlock()]
    return tvm.transform.Sequential(steps)(tvm.IRModule({"main": func}))["main"]


# ---- expressions, for all iterations at once -----------------------------------------------

_OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "FloorDiv": np.floor_divide,
    "FloorMod": np.mod, "Min": np.minimum, "Max": np.maximum, "LT": np.less, "LE": np.less_equal,
    "GT": np.greater, "GE": np.greater_equal, "EQ": np.equal, "NE": np.not_equal,
    "And": np.logical_and, "Or": np.logical_or}
_CALLS: dict[str, Callable[..., Any]] = {
    "shift_left": np.left_shift, "shift_right": np.right_shift, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "likely": lambda value: value}


def _value(expression: Any, at: Mapping[Any, Any]) -> Any:
    """Evaluate an expression of loop variables, and of arrays that `at` has for buffers.

    Raises Unknown where it has anything else.
    """
    kind = type(expression).__name__
    if kind == "TensorLoad" and expression.source in at:
        array = at[expression.source]
        places = [np.clip(_value(index, at), 0, size - 1)  # where no iteration is run, or refused
                  for index, size in zip(expression.indices, array.shape, strict=True)]
        return array[tuple(places)]
    if kind == "FloatImm":
        return np.float32(float(expression))
    if kind == "Var":
        if expression not in at:
            raise Unknown
        return at[expression]
    if kind == "IntImm":
        return np.int64(int(expression))
    if kind == "Cast" and "int" in str(expression.ty.dtype if hasattr(expression, "ty")
                                       else expression.dtype):
        with np.errstate(all="ignore"):
            return np.asarray(_value(expression.value, at)).astype(np.int64)  # towards 0, as in C
    if kind == "Not":
        return np.logical_not(_value(expression.a, at))
    if kind in _OPERATORS:
        with np.errstate(all="ignore"):
            return _OPERATORS[kind](_value(expression.a, at), _value(expression.b, at))
    if kind in ("Div", "Mod"):  # towards 0, as in C
        a, b = _value(expression.a, at), _value(expression.b, at)
        if not (np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer)):
            raise Unknown
        with np.errstate(all="ignore"):
            quotient = np.trunc(a / b).astype(np.int64)
        return quotient if kind == "Div" else a - b * quotient
    if kind == "Select":
        return np.where(_value(expression.condition, at), _value(expression.true_value, at),
                        _value(expression.false_value, at))
    if kind == "Call":
        name = str(getattr(expression.op, "name", "")).rpartition(".")[2]
        if name == "if_then_else":
            return np.where(*(_value(part, at) for part in expression.args))
        if name in _CALLS:
            return _CALLS[name](*(_value(part, at) for part in expression.args))
    raise Unknown


def _variables(expressions: Sequence[Any]) -> set[Any]:
    """The variables of expressions, without those that a let inside them binds."""
    found: set[Any] = set()
    bound: set[Any] = set()

    def see(node: Any) -> None:
        kind = type(node).__name__
        if kind == "Var":
            found.add(node)
        elif kind == "Let":
            bound.add(node.var)

    for expression in expressions:
        tvm_ffi.structural_walk(expression, see)
    return found - bound


def _constant(expression: Any) -> int | None:
    return int(expression) if isinstance(expression, int | tvm.tirx.IntImm) else None


def _grid(place: _Place, expressions: Sequence[Any], always: Sequence[_Loop] = (),
          data: Mapping[Any, np.ndarray] | None = None
          ) -> tuple[dict[Any, np.ndarray], np.ndarray]:
    """All iterations of the loops on which expressions depend, and which of them are run.

    `data`: arrays of buffers that the program only reads. Returns them and each variable's values,
    and a mask; values and mask have one length. Raises Unknown where an extent or a guard cannot be
    evaluated. Where there are too many iterations, each loop keeps its ends and
    some in between: what is found then is true, but not all is found.
    """
    needed = _variables([*expressions, *place.guards])
    for variable, given in reversed(place.axes):
        if variable in needed:
            needed |= _variables([given])
    chosen: list[_Loop] = []
    for loop in reversed(place.loops):  # inner extents may depend on outer loops
        if loop.variable in needed or loop in always:
            chosen.insert(0, loop)
            needed |= _variables([part for part in (loop.least, loop.extent)
                                  if isinstance(part, tvm.ir.Expr)])
    most = []
    analyzer = _analyzer(place)
    for loop in chosen:
        extent = _constant(loop.extent)
        if extent is None:
            extent = int(analyzer.const_int_bound(loop.extent).max_value)
            if not 0 <= extent < 2**31:
                raise Unknown
        most.append(extent)
    counts: list[np.ndarray] = [np.arange(extent) for extent in most]
    while math.prod(map(len, counts)) > MOST_TRIED:
        largest = max(range(len(counts)), key=lambda i: len(counts[i]))
        some = counts[largest]
        counts[largest] = np.unique(np.concatenate(
            [some[:2], some[2:-2][::2], some[-2:]])) if len(some) > 8 else some[[0, -1]]
        if all(len(count) <= 2 for count in counts):
            break
    grid = np.meshgrid(*counts, indexing="ij") if counts else []
    at: dict[Any, np.ndarray] = dict(data or {})
    runs = np.ones(math.prod(map(len, counts)), bool)
    for loop, values in zip(chosen, grid, strict=True):
        values = values.reshape(-1)
        if _constant(loop.extent) is None:
            runs &= values < _value(loop.extent, at)
        least = _constant(loop.least)
        at[loop.variable] = values + (_value(loop.least, at) if least is None else least)
    for variable, given in place.axes:
        if variable in needed:
            at[variable] = np.broadcast_to(_value(given, at), runs.shape)
    for guard in place.guards:
        runs &= np.broadcast_to(_value(guard, at), runs.shape).astype(bool)
    return at, runs


def _analyzer(place: _Place) -> Any:
    analyzer = tvm.sym.Analyzer()
    for loop in place.loops:
        analyzer.bind(loop.variable, tvm.ir.Range.from_min_extent(loop.least, loop.extent))
    for variable, given in place.axes:
        analyzer.bind(variable, given)
    return analyzer


def _range(expression: Any, place: _Place) -> tuple[int, int]:
    """Bounds of an expression by TVM's analysis, from the loops alone; perhaps too wide."""
    bound = _analyzer(place).const_int_bound(expression)
    return int(bound.min_value), int(bound.max_value)


# ---- inside the buffers --------------------------------------------------------------------


def _text(buffer: Any, indices: Sequence[int]) -> str:
    return f"{buffer.name}[{', '.join(map(str, indices))}]"


def _sizes(buffer: Any) -> str:
    sizes = [_constant(extent) for extent in buffer.ty.shape]
    if None in sizes:
        return f"({', '.join(str(extent) for extent in buffer.ty.shape)})"
    return str(tuple(sizes))


def _inside(access: _Access) -> bool:
    """Whether the loops alone show that an access is inside; else it has to be tried."""
    analyzer = _analyzer(access.place)
    for index, extent in zip(access.indices, access.shape, strict=True):
        if type(index).__name__ == "Ramp":
            return False
        bound = analyzer.const_int_bound(index)
        size = _constant(extent)
        if size is None:
            return analyzer.can_prove(tvm.tirx.And(index >= 0, index < extent))
        if bound.min_value < 0 or bound.max_value >= size:
            return False
    return True


def _outside(access: _Access, data: Mapping[Any, np.ndarray]) -> tuple[list[int], str] | None:
    """The first element outside its buffer that an access touches, and in which iteration."""
    at, runs = _grid(access.place, [*access.indices, *access.shape], data=data)
    values = [np.broadcast_to(_value(index, at), runs.shape) for index in access.indices]
    sizes = [np.broadcast_to(_value(extent, at), runs.shape) for extent in access.shape]
    outside = np.zeros_like(runs)
    for value, size in zip(values, sizes, strict=True):
        outside |= (value < 0) | (value >= size)
    wrong = np.flatnonzero(outside & runs)
    if not len(wrong):
        return None
    where = ", ".join(f"{variable.name} = {numbers[wrong[0]]}" for variable, numbers in at.items()
                      if variable not in data)
    return [int(value[wrong[0]]) for value in values], where


def _require_loops_for(name: str, access: _Access, bound: set[Any]) -> None:
    """Raise CheckFailed where an index has a variable to which nothing gives a value."""
    if any(True for index in access.indices for _ in _loads(index, access.place)):
        return  # it depends on data
    known = {loop.variable for loop in access.place.loops} | bound
    for variable in _variables(access.indices) - known:
        if not hasattr(variable.ty, "shape"):
            raise CheckFailed(
                "a loop for every axis", f"PrimFunc {name} reads {access.buffer.name} at "
                f"{variable.name}, and no loop runs over {variable.name}: variables "
                f"({variable.name},) are used, but are not passed in as API arguments",
                "te.sum or te.max: every te.reduce_axis of the formula belongs into axis=[...]")


def _require_inside(name: str, found: _Program) -> None:
    for access in found.accesses:
        _require_loops_for(name, access, found.bound)
        if len(access.indices) != len(access.shape) or _inside(access):
            continue
        try:
            wrong = _outside(access, found.data)
        except Unknown:
            continue  # it depends on data: see checks.observe.guard_pages
        if wrong:
            indices, where = wrong
            raise CheckFailed(
                "every index inside its buffer",
                f"PrimFunc {name} {'writes' if access.writes else 'reads'} "
                f"{_text(access.buffer, indices)}, outside the range of its shape "
                f"{_sizes(access.buffer)}: Out of bounds memory access"
                + f"; {where}" * bool(where),
                "the shapes and the index expressions of this PrimFunc")


def _require_axes(name: str, node: Any, place: _Place) -> None:
    """Raise CheckFailed where loops run an sblock's axis beyond the range that it declares."""
    kind = type(node).__name__
    if kind == "For":
        loop = _Loop(node.loop_var, node.min, node.extent,
                     tvm.tirx.ForKind(node.kind).name.lower())
        _require_axes(name, node.body, replace(place, loops=(*place.loops, loop)))
        return
    if kind == "IfThenElse":
        _require_axes(name, node.then_case, place.under(node.condition))
        if node.else_case is not None:
            condition = tvm.tirx.Not(node.condition)
            _require_axes(name, node.else_case, place.under(condition))
        return
    if kind == "Return" and hasattr(getattr(node.value, "ty", None), "shape"):
        raise CheckFailed("a PrimFunc that returns nothing", f"return {node.value.name} in {name}",
                          "the return statement: take it out; what is written into the last "
                          "argument is the result")
    if kind == "SBlockRealize":
        block = node.block
        place = place if _constant(node.predicate) == 1 else place.under(node.predicate)
        inside = place
        for axis, given in zip(block.iter_vars, node.iter_values, strict=True):
            if not isinstance(given, tvm.ir.Expr):
                given = tvm.tirx.const(given, "int64")
            _require_axis(name, block.name_hint, axis, given, place)
            inside = replace(inside, axes=(*inside.axes, (axis.var, given)))
        _require_axes(name, block.body, inside)
        return
    for child in getattr(node, "seq", None) or [getattr(node, "body", None)]:
        if child is not None:
            _require_axes(name, child, place)


def _require_axis(name: str, block: str, axis: Any, given: Any, place: _Place) -> None:
    least, extent = _constant(axis.dom.min), _constant(axis.dom.extent)
    if least or least is None or extent is None:
        return  # emit_te and FuseTIR subtract `least` from the extent once more; indices are judged
    low, high = _range(given, place)
    if least <= low and high < least + extent:
        return
    try:
        at, runs = _grid(place, [given])
        reached = np.broadcast_to(_value(given, at), runs.shape)[runs]
    except Unknown:
        return
    if not len(reached) or least <= reached.min() and reached.max() < least + extent:
        return
    loops = ", ".join(str(loop) for loop in place.loops if loop.variable in at)
    raise CheckFailed(
        "every index inside its buffer",
        f"PrimFunc {name}: axis {axis.var.name} of block {block} goes from {least} to "
        f"{least + extent - 1}, and its loops run it from {reached.min()} to {reached.max()} "
        f"({loops}): outside the range",
        "the extents of these loops; and a split by a factor that does not divide: TVM guards its "
        "last part, but not with disable_predication=True")


# ---- threads and lanes apart ---------------------------------------------------------------


def _require_apart(name: str, found: _Program) -> None:
    """Raise CheckFailed where two threads, or two lanes, meet at one element and one writes it."""
    done = set()
    for access in found.accesses:
        for depth, loop in enumerate(access.place.loops):
            if not access.writes or loop.kind not in ("parallel", "vectorized") \
                    or _constant(loop.extent) == 1 or loop in found.homes.get(access.buffer, ()):
                continue
            if (key := (loop.variable, access.buffer)) not in done:
                done.add(key)
                same = [other for other in found.accesses if other.buffer.same_as(access.buffer)
                        and loop in other.place.loops]
                _require_apart_in(name, loop, access.place.loops[:depth], same, found.data)


def _require_apart_in(name: str, loop: _Loop, outer: Sequence[_Loop], same: list[_Access],
                      data: Mapping[Any, np.ndarray]) -> None:
    extents = [_constant(extent) for extent in same[0].shape]
    shape = [extent for extent in extents if extent is not None]
    if len(shape) < len(extents):
        return
    written: tuple[np.ndarray, np.ndarray] | None = None
    looked_at: list[_Access] = []
    for access in sorted(same, key=lambda access: not access.writes):
        if any(tvm_ffi.structural_equal(list(access.indices), list(other.indices))
               and len(access.place.guards) == len(other.place.guards) == 0
               and access.place.loops == other.place.loops for other in looked_at):
            continue
        looked_at.append(access)
        try:
            at, runs = _grid(access.place, access.indices, [loop], data)
            values = [np.broadcast_to(_value(index, at), runs.shape) for index in access.indices]
        except Unknown:
            continue
        # the outer loops are the same for all threads, and so elements meet within one iteration
        keys, base = np.zeros(runs.shape, np.int64), 1
        for value, size in zip(reversed(values), reversed(shape), strict=True):
            keys, base = keys + base * value, base * size
        for other in outer:
            if other.variable in at:
                numbers = at[other.variable] - at[other.variable].min()
                keys, base = keys + base * numbers, base * (int(numbers.max()) + 1)
        keys, threads = keys[runs], at[loop.variable][runs]
        if access.writes:
            if written is not None:
                keys = np.concatenate([written[0], keys])
                threads = np.concatenate([written[1], threads])
            order = np.argsort(keys, kind="stable")
            keys, threads = keys[order], threads[order]
            written = keys, threads
            others = np.roll(threads, 1)
            wrong = np.flatnonzero((keys == np.roll(keys, 1)) & (threads != others))
        elif written is not None and len(written[0]):
            spot = np.minimum(np.searchsorted(written[0], keys), len(written[0]) - 1)
            others = written[1][spot]
            wrong = np.flatnonzero((written[0][spot] == keys) & (others != threads))
        else:
            continue
        if len(wrong):
            first, second, key = (int(array[wrong[0]]) for array in (others, threads, keys))
            element = np.unravel_index(key % math.prod(shape), shape)
            who = "threads" if loop.kind == "parallel" else "lanes"
            verb = "both write" if access.writes else "write and read"
            raise CheckFailed(
                f"{who} that write different elements",
                f"PrimFunc {name}: iterations {first} and {second} of the loop {loop} "
                f"{verb} {_text(access.buffer, list(map(int, element)))}",
                "which loop is made parallel: none along which a sum or a maximum runs"
                if loop.kind == "parallel" else
                "which loop is vectorised: none along which a sum or a maximum runs")


# ---- all of it -----------------------------------------------------------------------------


def require_safe_access(name: str, func: tvm.tirx.PrimFunc, arrays: Sequence[Any] = ()) -> None:
    """Raise CheckFailed where a PrimFunc leaves its buffers, or its threads or lanes collide.

    Static: nothing runs. What depends on symbolic shapes is not judged; nor what depends on data,
    unless the `arrays` are given on which it runs, one for each argument.
    """
    _require_axes(name, func.body, _Place())
    try:
        body = _lowered(func).body
    except Exception:  # TVM raises many kinds; it will do so again, and be heard, when it compiles
        return
    shapes = [extent for param in func.params for extent in getattr(param.ty, "shape", ())
              if isinstance(extent, tvm.ir.Expr)]
    found = _Program([], {}, _variables([*shapes, *func.params]), {})
    _walk(body, _Place(), found)
    written = {access.buffer for access in found.accesses if access.writes}
    found.data = {param: array for param, array in zip(func.params, arrays, strict=False)
                  if isinstance(array, np.ndarray) and param not in written}
    _require_inside(name, found)
    _require_apart(name, found)


def looks_up(func: tvm.tirx.PrimFunc) -> bool:
    """Whether an index of a PrimFunc depends on data: it reads a buffer."""
    found: list[bool] = []

    def see(node: Any) -> None:
        if type(node).__name__ in ("TensorLoad", "BufferStore"):
            found.extend(any(True for _ in _loads(index, _Place())) for index in node.indices)

    tvm_ffi.structural_walk(func.body, see)
    return any(found)


# ---- arrays that notice --------------------------------------------------------------------

_ALIGNED = 64  # bytes: what TVM's kernels take for granted
_NOBODYS = np.uint8(0xFF)  # fills what stands between an array and a page that nobody may touch:
# as a float it is NaN, so that what was read there shows


@dataclass
class Fenced:
    """A copy of an array between two pages that nobody may touch; `tensor` shares its memory.

    It ends where the second page begins, or begins where the first ends (`at_start`), but for a
    rest of less than 64 bytes; `require_whole` looks at the rest.
    """

    tensor: Any
    array: np.ndarray
    around: list[np.ndarray]

    @classmethod
    def of(cls, values: np.ndarray, at_start: bool = False) -> "Fenced":
        """Return a copy of an array, at the end or the start of memory between forbidden pages."""
        page = mmap.PAGESIZE
        size = max(1, values.nbytes)
        inside = -(-size // page) * page
        area = mmap.mmap(-1, inside + 2 * page)
        every = np.frombuffer(area, np.uint8)
        every[:] = _NOBODYS
        start = page if at_start else page + inside - -(-size // _ALIGNED) * _ALIGNED
        array = every[start:start + values.nbytes].view(values.dtype).reshape(values.shape)
        array[...] = values
        around = [every[page:start], every[start + values.nbytes:page + inside]]
        if sys.platform == "linux":
            protect = ctypes.CDLL(None, use_errno=True).mprotect
            for edge in (0, page + inside):
                protect(ctypes.c_void_p(every.ctypes.data + edge), ctypes.c_size_t(page), 0)
        return cls(tvm.runtime.from_dlpack(array), array, around)

    def require_whole(self, what: str) -> None:
        """Raise CheckFailed where something was written beside the array."""
        if any((rest != _NOBODYS).any() for rest in self.around):
            raise CheckFailed("every index inside its buffer", f"a write beside {what}, outside "
                              "the range of its shape", "every index against its shape")
