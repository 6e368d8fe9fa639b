"""A GPU program, run on NumPy: all threads of all blocks at once, one statement after the other.

What a GPU leaves open is not guessed: a result that depends on which thread comes first is a race,
and it is named. Barriers are in the program as `lowered` shows it.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, s_tir, tirx

from course.tir.evaluate import OPERATORS, Unknown
from course.tir.walk import accesses, walk
from course.words import CourseError, Sentence, _, language, told

WARP = 32  # threads that load together
SEGMENT = 128  # bytes that one transaction fetches
MOST_THREADS = 1024  # of a block
BANKS, WORD = 32, 4  # of shared memory, and the bytes that each gives in a round
AXES = "xyz"
_SCHEDULED, _LOWERED = s_tir.transform, tirx.transform
_PASSES = [
    _SCHEDULED.CanonicalizeLoop(), _SCHEDULED.LowerCrossThreadReduction(),
    _SCHEDULED.LowerInitBlock(), _SCHEDULED.PlanAndUpdateBufferAllocationLocation(),
    _SCHEDULED.ConvertBlocksToOpaque(), _SCHEDULED.LiftThreadBinding()]
_COMPACT = _SCHEDULED.CompactBufferAllocation()
_OPAQUE = [_SCHEDULED.UnifyThreadBinding(), _SCHEDULED.LowerMatchBuffer(),
           _SCHEDULED.StmtSimplify(), _SCHEDULED.LowerOpaqueBlock()]
_FLAT = [_LOWERED.FlattenBuffer(), _SCHEDULED.InjectVirtualThread()]
_CUDA = {"kind": "cuda", "arch": "sm_80"}
_CALLS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "exp", "exp2", "log", "log2", "log1p", "sqrt", "tanh", "sin", "cos", "fabs", "floor",
        "ceil", "trunc")},
    "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x))}


# Whose value each thread gets, within its part of a warp: by its own place, and a number.
_SHUFFLES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "tvm_warp_shuffle": lambda lane, by, width: by % width,
    "tvm_warp_shuffle_up": lambda lane, by, width: lane - by,
    "tvm_warp_shuffle_down": lambda lane, by, width: lane + by}


# What several threads may do to an element at once, by the name of T.call_extern or of an operator.
_ATOMIC = {"atomicAdd": np.add, "atomicMax": np.maximum, "atomicMin": np.minimum,
           "tirx.cuda.atomic_add": np.add}


class Refused(CourseError):
    """The program is wrong in every order of its threads."""


def lowered(func: tirx.PrimFunc, barriers: bool = True) -> tirx.PrimFunc:
    """Return a scheduled PrimFunc as its threads run it, with its barriers in place.

    Without `barriers`, those that TVM inserts are left out. Buffers keep their axes, which shows
    an index beyond its row, unless TVM needs them flat: for virtual threads, and where it would
    insert other barriers. Its attribute "moved" names the buffers that it allocates itself and
    whose indices TVM has changed.
    """
    target = tvm.target.Target(_CUDA, host="llvm")
    sync = [_SCHEDULED.ThreadSync(scope) for scope in ("shared", "shared.dyn") if barriers]
    whole = tvm.transform.Sequential(_PASSES)(
        tvm.IRModule({"main": func.with_attr("target", target)}))
    compact = _COMPACT(whole)
    compact["main"] = compact["main"].with_attr("moved", _moved(whole["main"], compact["main"]))
    mod = tvm.transform.Sequential(_OPAQUE)(compact)
    rest = [_SCHEDULED.StmtSimplify(), *sync]
    flat = tvm.transform.Sequential([*_FLAT, *rest])(mod)["main"].without_attr("target")
    if any(isinstance(node, tirx.AttrStmt) and node.attr_key == "virtual_thread"
           for node, _place in walk(mod["main"].body)):
        return flat
    kept = tvm.transform.Sequential(rest)(mod)["main"].without_attr("target")
    barriers_in = [one.script().count("tvm_storage_sync(") for one in (flat, kept)]
    return kept if barriers_in[0] == barriers_in[1] else flat


def _moved(before: tirx.PrimFunc, after: tirx.PrimFunc) -> list[str]:
    """Return the buffers that a program allocates itself, and whose indices a pass has changed."""
    own = {node.buffer.name for node, _place in walk(before.body)
           if isinstance(node, tirx.AllocBuffer)}
    each = [[access for node, place in walk(func.body) for access in accesses(node, place)]
            for func in (before, after)]
    return sorted({one.buffer.name for one, other in zip(*each, strict=True)
                   if one.buffer.name in own and not all(map(
                       one.place.analyzer.can_prove_equal, one.indices, other.indices))})


def _atomic(node: Any) -> tuple[np.ufunc, ir.TensorLoad, Any] | None:
    """Return how an atomic statement changes an element, which element, and by what."""
    match node:
        case tirx.Evaluate(value=ir.Call(op=ir.Op(name=name), args=[
                *called, ir.Call(args=[ir.TensorLoad() as target]), by])):
            name = getattr(called[0], "value", None) if called else name
            return (_ATOMIC[name], target, by) if name in _ATOMIC else None
    return None


def require_one_extent(func: tirx.PrimFunc) -> None:
    """Raise Refused unless each axis of blocks or threads has one extent in each kernel.

    TVM launches a kernel with the extent of one of the loops, and ignores the others.
    """
    found: dict[Any, tirx.For] = {}
    for node, place in walk(func.body):
        if not isinstance(node, tirx.For) or node.thread_binding is None:
            continue
        tag = node.thread_binding.thread_tag
        if not tag.startswith(("blockIdx", "threadIdx")):
            continue
        top = place.loops[0].variable if place.loops else node.loop_var
        first = found.setdefault((top, tag), node)
        if not tvm_ffi.structural_equal(*(loop.extent.astype("int64") for loop in (first, node))):
            raise Refused(_("{axis} is bound to a loop of {first} and to one of {second}: in one "
                            "kernel an axis has one extent").format(
                axis=tag, first=first.extent, second=node.extent))


def outside_of_bound(func: tirx.PrimFunc) -> str | None:
    """Return the first unbound loop around bound ones, or None."""
    for node, place in walk(func.body):
        if isinstance(node, tirx.For) and node.thread_binding is not None and place.loops \
                and place.loops[0].node.thread_binding is None:
            return place.loops[0].name
    return None


def thread_name(block: tuple[int, ...], thread: tuple[int, ...]) -> Sentence:
    """Return a thread's name in messages, by its place in its block, x first."""
    return _("thread {thread} of block {block}").format(thread=_short(thread), block=_short(block))


def _short(place: tuple[int, ...]) -> str:
    used = place[:max([1, *(axis + 1 for axis, at in enumerate(place) if at)])]
    return str(used[0]) if len(used) == 1 else str(used)


def _with_shape(what: Sentence, shape: tuple[int, ...]) -> Sentence:
    """Return what is said of a buffer with its shape in the lowered program, if that is given."""
    return _("{what}; its shape in the lowered program is {shape}").format(
        what=what, shape=shape) if shape else what


def divergent(count: int, block: tuple[int, ...]) -> Refused:
    """Return what to say where only so many threads of a block reach a barrier."""
    return Refused(_("{count} threads of block {block} reach a barrier that the others do not reach"
                     ).format(count=count, block=_short(block)))


@dataclass(frozen=True)
class Race:
    """Two threads access an element, at least one of them writes, and either may come first.

    Threads are ((block x, y, z), (thread x, y, z)); `what`: "write and write", "write and read" or
    "read and write", in the order of this run. `shape`: the buffer's in the lowered program, where
    its indices are not those of the program.
    """

    buffer: str
    index: str  # along each axis
    what: str
    first: tuple[tuple[int, ...], tuple[int, ...]]
    second: tuple[tuple[int, ...], tuple[int, ...]]
    shape: tuple[int, ...] = ()

    @property
    def says(self) -> Sentence:
        """The race in words."""
        what = {
            "write and write": _("{buffer}[{index}]: {first} writes it, {second} writes it"),
            "write and read": _("{buffer}[{index}]: {first} writes it, {second} reads it"),
            "read and write": _("{buffer}[{index}]: {first} reads it, {second} writes it"),
        }[self.what].format(buffer=self.buffer, index=self.index, first=thread_name(*self.first),
                            second=thread_name(*self.second))
        why = _("{what}, and there is no barrier in between") \
            if self.first[0] == self.second[0] else \
            _("{what}, and no barrier makes one block wait for another")
        return _with_shape(why.format(what=what), self.shape)

    def __str__(self) -> str:
        return told(self.says, language())


@dataclass
class Launch:
    """What one kernel did: its grid of blocks and its block of threads, x first, and counts.

    `params`: the names of the PrimFunc's buffers. `loads`, `stores`: of single elements, for each
    buffer by name. `transactions`: of SEGMENT bytes, for each buffer in global memory, loads and
    stores together. `rounds`: in which the threads of each warp access shared memory, for each
    buffer there; `conflicts`: the rounds that are needed because several words of one bank are
    wanted. `operations`: on floats.
    `shared_bytes`: of one block. `barriers`: that each thread reaches. `writer`: for each buffer
    in global memory that is written, the number of the thread that wrote an element last, -1 for
    none; number = block number * threads of a block + thread number. `together`: for each buffer
    the elements of the access that takes a warp most transactions, or most rounds in shared memory,
    there those of one bank; the first such. `shapes`: of the buffers that the kernel makes, as
    they lie in memory: lowering may have cut them to what is used, and left room between rows.
    """

    grid: tuple[int, ...]
    block: tuple[int, ...]
    params: tuple[str, ...] = ()
    loads: Counter = field(default_factory=Counter)
    stores: Counter = field(default_factory=Counter)
    transactions: Counter = field(default_factory=Counter)
    rounds: Counter = field(default_factory=Counter)
    conflicts: Counter = field(default_factory=Counter)
    operations: int = 0
    shared_bytes: int = 0
    barriers: int = 0
    races: list[Race] = field(default_factory=list)
    writer: dict[str, np.ndarray] = field(default_factory=dict)
    together: dict[str, np.ndarray] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """The threads of one block."""
        return int(np.prod(self.block))

    def names(self, lane: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the block and the thread, x first, of a thread's number."""
        block, thread = divmod(int(lane), self.threads)
        return (tuple(int(i) for i in np.unravel_index(block, self.grid[::-1])[::-1]),
                tuple(int(i) for i in np.unravel_index(thread, self.block[::-1])[::-1]))


class _Seen:
    """Which threads accessed each element of a buffer, (copies, size), in one way.

    The last one and its phase, another one before it, whether there were several in that phase, and
    one of another block than the last. A phase of a block ends with a barrier.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.last, self.before, self.when, self.several, self.elsewhere = (
            np.full(shape, -1, np.int64) for _each in range(5))


@dataclass
class _Memory:
    """A buffer: its numbers, (copies, size), the copy of each thread, and its accesses.

    `strides`: from one element to the next along each axis. `moved`: the shape, where TVM has
    changed the indices. `filled`: which elements of a thread's own memory have a number.
    """

    name: str
    scope: str
    data: np.ndarray
    copy: np.ndarray | int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    watched: bool
    moved: tuple[int, ...] = ()
    seen: dict[str, _Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.watched:
            self.seen = {what: _Seen(self.data.shape) for what in ("read", "write")}
        self.filled = np.full(self.data.shape, self.scope != "local")

    def at(self, flat: int) -> str:
        """Return an element's indices as text."""
        places = []
        for stride in self.strides:  # of padded rows, which are longer than the shape says
            place, flat = divmod(int(flat), stride)
            places.append(place)
        return ", ".join(map(str, places))


# Accesses that must not meet at an element without a barrier.
_BESIDE = {"read": ("write", "add"), "write": ("read", "add", "write"), "add": ("read", "write")}


class _Run:
    """One launch of a kernel."""

    def __init__(self, launch: Launch, memory: dict[Any, _Memory], moved: Sequence[str]) -> None:
        self.launch, self.memory, self.moved = launch, memory, moved
        self.lanes = np.arange(np.prod(launch.grid) * launch.threads)
        self.blocks, self.thread = np.divmod(self.lanes, launch.threads)
        self.at: dict[Any, Any] = {}
        self.tags: dict[Any, str] = {}  # which axis of a block a variable is
        blocks = int(np.prod(launch.grid))
        self.phases = np.zeros(blocks, np.int64)
        self.barriers = np.zeros(blocks, np.int64)
        self.reducer: Any = None
        self.text = functools.cache(str)  # of indices: TVM prints them anew each time
        self.loaded: dict[tuple, np.ndarray] | None = None  # of one expression
        # inside a loop over a vector's lanes
        self.vector: dict[tuple[str, str], tuple[_Memory, list[np.ndarray]]] | None = None
        self.most: Counter = Counter()  # of one warp's access, for each buffer: see `together`

    def index_of(self, tag: str) -> np.ndarray:
        """Return the value of blockIdx.x and so on in every thread."""
        kind, _, axis = tag.partition(".")
        number, extents = ((self.blocks, self.launch.grid) if kind == "blockIdx"
                           else (self.thread, self.launch.block))
        place = AXES.index(axis)
        return number // int(np.prod(extents[:place])) % extents[place]

    # ---- expressions ----

    def value(self, node: Any, active: np.ndarray) -> Any:
        """Return an expression's value in every thread; meaningless for threads not `active`."""
        if operator := OPERATORS.get(type(node)):  # Div is among them, for whole numbers
            a, b = self.value(node.a, active), self.value(node.b, active)
            with np.errstate(all="ignore"):
                if np.issubdtype(np.asarray(a).dtype, np.floating):
                    self.launch.operations += int(np.count_nonzero(active))
                    return np.divide(a, b) if isinstance(node, tirx.Div) else operator(a, b)
                return operator(a, b)
        match node:
            case tirx.Var() if node in self.at:
                return self.at[node]
            case tirx.IntImm():
                return np.int64(int(node))
            case tirx.FloatImm():
                return np.dtype(str(node.ty.dtype)).type(float(node))
            case ir.TensorLoad(source=buffer):
                return self.load(buffer, node.indices, active)
            case tirx.Cast():
                with np.errstate(all="ignore"):
                    return np.asarray(self.value(node.value, active)).astype(str(node.ty.dtype))
            case tirx.Not():
                return np.logical_not(self.value(node.a, active))
            case (tirx.Select(condition=condition, true_value=yes, false_value=no)
                  | ir.Call(op=ir.Op(name="prim.if_then_else"), args=[condition, yes, no])):
                taken = self.holds(condition, active)
                return np.where(taken, self.value(yes, active & taken),
                                self.value(no, active & ~taken))
            case ir.Call(op=ir.Op(name=name), args=args):
                return self.called(name.rpartition(".")[2], args, node, active)
        raise Unknown(f"{type(node).__name__}: {node}")

    def called(self, name: str, args: Sequence[Any], node: Any, active: np.ndarray) -> Any:
        """Return what an operation gives in every thread. Raises Unknown."""
        if name == "likely":
            return self.value(args[0], active)
        if name == "tvm_warp_activemask":
            return np.int64(0)
        if name in _SHUFFLES:
            return self.shuffled(_SHUFFLES[name], args, active)
        if name not in _CALLS:
            raise Unknown(f"{type(node).__name__}: {node}")
        self.launch.operations += int(np.count_nonzero(active))
        with np.errstate(all="ignore"):
            return _CALLS[name](*(self.value(arg, active) for arg in args))

    def shuffled(self, source: Callable[[Any, Any, Any], Any], args: Sequence[Any],
                 active: np.ndarray) -> np.ndarray:
        """Return the values of other threads of the warp: T.tvm_warp_shuffle and its like.

        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#warp-shuffle-functions: the
        value of a thread that does not take part is unknown, here NaN.
        """
        values = np.broadcast_to(self.value(args[1], active), active.shape)
        by, width = (np.broadcast_to(self.value(arg, active), active.shape) for arg in args[2:4])
        lane = self.thread % WARP
        part = lane // width * width
        wanted = source(lane - part, by, width)
        other = np.where((wanted >= 0) & (wanted < width), part + wanted, lane)
        thread = self.thread - lane + other
        there = thread < self.launch.threads
        lanes = np.where(there, self.lanes - self.thread + thread, self.lanes)
        return np.where(there & active[lanes], values[lanes], np.nan).astype(values.dtype)

    def phase(self, lanes: np.ndarray) -> np.ndarray:
        """Return how many barriers the threads' blocks have reached."""
        return self.phases[self.blocks[lanes]]

    def holds(self, condition: Any, active: np.ndarray) -> np.ndarray:
        """Return the threads in which a condition holds."""
        return np.broadcast_to(self.value(condition, active), active.shape).astype(bool)

    # ---- memory ----

    def place(self, buffer: Any, indices: Sequence[Any], active: np.ndarray, what: str = ""
              ) -> tuple[_Memory, np.ndarray, np.ndarray, np.ndarray]:
        """Return a buffer, the threads that access it, and their copies and elements.

        `what`: "read", "write" or "add", which is counted, and recorded for races.
        """
        if buffer not in self.memory:
            raise Unknown(f"the buffer {buffer.name}")
        memory = self.memory[buffer]
        lanes = np.flatnonzero(active)
        # a number for all threads, or one for each
        at = [value[lanes] if np.ndim(value) else value
              for value in (self.value(index, active) for index in indices)]
        if len(lanes) and any(np.any((place < 0) | (place >= extent))
                              for place, extent in zip(at, memory.shape, strict=True)):
            each = np.stack([np.broadcast_to(place, lanes.shape) for place in at])
            outside = ((each < 0) | (each >= np.reshape(memory.shape, (-1, 1)))).any(axis=0)
            first = int(np.argmax(outside))
            raise Refused(_with_shape(_("{thread} is outside {buffer}: element {index}").format(
                thread=thread_name(*self.launch.names(lanes[first])), buffer=memory.name,
                index=", ".join(map(str, each[:, first]))), memory.moved))
        flat = np.zeros(len(lanes), np.int64)
        for place, stride in zip(at, memory.strides, strict=True):
            flat += stride * place
        copies = np.broadcast_to(memory.copy, active.shape)[lanes]
        if what:
            (self.launch.loads if what == "read" else self.launch.stores)[memory.name] += len(lanes)
            self.transfer(memory, lanes, flat, indices)
            if memory.watched:
                self.comes(what, memory, lanes, copies, flat)
        return memory, lanes, copies, flat

    def load(self, buffer: Any, indices: Sequence[Any], active: np.ndarray) -> np.ndarray:
        key = () if self.loaded is None else (buffer, self.text(indices), active.tobytes())
        if self.loaded is not None and key in self.loaded:
            return self.loaded[key]  # a compiler loads it once
        memory, lanes, copies, flat = self.place(buffer, indices, active, "read")
        self.require_number(memory, memory.filled[copies, flat], lanes, flat)
        found = np.zeros(active.shape, memory.data.dtype)
        found[lanes] = memory.data[copies, flat]
        if self.loaded is not None:
            self.loaded[key] = found
        return found

    def require_number(self, memory: _Memory, there: np.ndarray, lanes: np.ndarray,
                       flat: np.ndarray) -> None:
        if not there.all():
            at = int(np.argmin(there))
            raise Refused(_with_shape(_(
                "{thread} reads {buffer}[{index}] before anything was written there").format(
                thread=thread_name(*self.launch.names(lanes[at])), buffer=memory.name,
                index=memory.at(flat[at])), memory.shape))

    def store(self, node: tirx.BufferStore, active: np.ndarray) -> None:
        self.loaded = {}
        value = np.broadcast_to(self.value(node.value, active), active.shape)
        self.loaded = None
        memory, lanes, copies, flat = self.place(node.buffer, node.indices, active, "write")
        memory.data[copies, flat], memory.filled[copies, flat] = value[lanes], True

    def add(self, how: np.ufunc, target: ir.TensorLoad, by: Any, active: np.ndarray) -> None:
        """Do as atomicAdd and its like: each thread's value goes into the element, in any order."""
        values = np.broadcast_to(self.value(by, active), active.shape)
        memory, lanes, copies, flat = self.place(target.source, target.indices, active, "add")
        how.at(memory.data, (copies, flat), values[lanes].astype(memory.data.dtype))

    def transfer(self, memory: _Memory, lanes: np.ndarray, flat: np.ndarray, where: Any) -> None:
        """Count how often the threads of each warp go to global or shared memory for these.

        The lanes of a vector are accessed at once: they are counted when its loop ends.
        """
        if memory.scope == "local" or not len(lanes):
            return
        each = -(-self.launch.threads // WARP)  # warps of a block
        warps = self.blocks[lanes] * each + self.thread[lanes] // WARP
        reached = np.stack([warps, self.thread[lanes] % WARP, flat * memory.data.itemsize])
        if self.vector is None:
            self.count(memory, [reached])
        else:
            self.vector.setdefault((memory.name, self.text(where)), (memory, []))[1].append(reached)

    def count(self, memory: _Memory, reached: list[np.ndarray]) -> None:
        """Count transactions or rounds: of a vector's lanes each has warp, thread, first byte.

        In a round each bank gives one word, to all threads that want it. With 8 or 16 bytes per
        thread, half or a quarter of a warp takes part in a round:
        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#shared-memory
        """
        warps, thread, byte = np.concatenate(reached, axis=1)
        if memory.scope == "global":
            stretches = memory.data.nbytes // SEGMENT + 1
            fetched = np.unique(warps * stretches + byte // SEGMENT)
            self.launch.transactions[memory.name] += len(fetched)
            each, many = np.unique(fetched // stretches, return_counts=True)
            if many.max() > self.most[memory.name]:
                self.most[memory.name] = int(many.max())
                self.launch.together[memory.name] = \
                    byte[warps == each[many.argmax()]] // memory.data.itemsize
            return
        parts = max(1, len(reached) * memory.data.itemsize // WORD)
        words = memory.data.nbytes // WORD + 1
        both = np.sort((warps * parts + thread * parts // WARP) * words + byte // WORD)
        part, word = np.divmod(both[np.diff(both, prepend=-1) > 0], words)
        each = np.bincount(part * BANKS + word % BANKS, minlength=(part[-1] + 1) * BANKS)
        rounds = each.reshape(-1, BANKS).max(axis=1)
        if rounds.max() > self.most[memory.name]:
            self.most[memory.name] = int(rounds.max())
            bank = (part == rounds.argmax()) & (word % BANKS == each.reshape(-1, BANKS)[
                rounds.argmax()].argmax())
            self.launch.together[memory.name] = word[bank] * WORD // memory.data.itemsize
        self.launch.rounds[memory.name] += int(rounds.sum())
        self.launch.conflicts[memory.name] += int((rounds - 1)[rounds > 0].sum())

    def others(self, seen: _Seen, here: tuple, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return where another thread was there with no barrier since then, and which."""
        last, phase = seen.last[here], self.phase(lanes)
        other = (last >= 0) & (last != lanes) & (
            (self.blocks[last] != self.blocks[lanes]) | (seen.when[here] == phase))
        near, far = other | (seen.several[here] == phase), seen.elsewhere[here]
        return near | (far >= 0), np.where(near, np.where(
            last == lanes, seen.before[here], last), far)

    def comes(self, what: str, memory: _Memory, lanes: np.ndarray, copies: np.ndarray,
              flat: np.ndarray) -> None:
        """Record that threads access elements, and name a race with earlier accesses."""
        here = copies, flat
        if what not in memory.seen:  # the first that adds
            memory.seen[what] = _Seen(memory.data.shape)
        for before in (one for one in _BESIDE[what] if one in memory.seen):
            if before == what:
                self.notes(memory.seen[what], here, lanes)
            verbs = ("read" if verb == "read" else "write" for verb in (before, what))
            self.race(memory, " and ".join(verbs), *self.others(memory.seen[before], here, lanes),
                      lanes, flat)
        if what not in _BESIDE[what]:
            if memory.scope != "global":
                self.require_number(memory, memory.seen["write"].last[here] >= 0, lanes, flat)
            self.notes(memory.seen[what], here, lanes)

    def notes(self, seen: _Seen, here: tuple, lanes: np.ndarray) -> None:
        phase = self.phase(lanes)
        for twice in range(2):  # earlier accesses, then those of the same statement
            last = seen.last[here]
            other = (last >= 0) & (last != lanes)
            apart = other & (self.blocks[last] != self.blocks[lanes])
            same = other & ~apart & (seen.when[here] == phase)
            copies, flat = here
            earlier = (last, lanes)[twice]
            seen.elsewhere[copies[apart], flat[apart]] = earlier[apart]
            seen.several[copies[same], flat[same]] = phase[same]
            seen.before[copies[other], flat[other]] = earlier[other]
            seen.last[here], seen.when[here] = lanes, phase

    def race(self, memory: _Memory, what: str, found: np.ndarray, first: np.ndarray,
             second: np.ndarray, flat: np.ndarray) -> None:
        known = {(race.buffer, race.what) for race in self.launch.races}
        if found.any() and (memory.name, what) not in known:
            at = int(np.argmax(found))
            self.launch.races.append(Race(memory.name, memory.at(flat[at]), what,
                                          self.launch.names(first[at]),
                                          self.launch.names(second[at]), memory.moved))

    # ---- statements ----

    def execute(self, node: Any, active: np.ndarray) -> None:
        match node:
            case tirx.SeqStmt():
                for part in node.seq:
                    self.execute(part, active)
            case tirx.BufferStore():
                self.store(node, active)
            case tirx.For():
                self.loop(node, active)
            case tirx.IfThenElse():
                taken = self.holds(node.condition, active)
                self.execute(node.then_case, active & taken)
                if node.else_case is not None:
                    self.execute(node.else_case, active & ~taken)
            case tirx.AllocBuffer(buffer=buffer):
                self.allocate(buffer)
            case tirx.Bind():
                self.at[node.var] = self.value(node.value, active)
            case tirx.AttrStmt(attr_key="thread_extent"):
                self.tags[node.node.var] = node.node.thread_tag
                self.at[node.node.var] = self.index_of(node.node.thread_tag)
                self.execute(node.body, active)
            case tirx.AttrStmt():
                before = self.reducer
                if node.attr_key == "reduce_scope":
                    self.reducer = node.node
                self.execute(node.body, active)
                self.reducer = before
            case tirx.Evaluate(value=ir.Call(op=ir.Op(name=name), args=args)):
                self.together_do(name.rpartition(".")[2], args, node, active)
            case tirx.Evaluate(value=tirx.IntImm()):
                pass
            case tirx.While():
                raise Unknown(f"{node.condition}, of a while loop")
            case _:
                raise Unknown(f"{type(node).__name__}: {node}")

    def together_do(self, name: str, args: Sequence[Any], node: Any, active: np.ndarray) -> None:
        """Do what the threads do together: wait, sum up, add to one element."""
        if name == "tvm_storage_sync" and str(args[0].value).startswith("shared"):
            self.barrier(active)
        elif name == "tvm_storage_sync":
            raise Refused(_("a barrier of scope {scope}; one for the threads of a block is "
                            "T.tvm_storage_sync(\"shared\")").format(scope=args[0].value))
        elif name == "tvm_thread_allreduce":
            self.reduce(args, active)
        elif (atomic := _atomic(node)) is not None:
            self.add(*atomic, active)
        else:
            raise Unknown(str(node.value))

    def loop(self, node: tirx.For, active: np.ndarray) -> None:
        first, extent = (np.broadcast_to(self.value(part, active), active.shape)
                         for part in (node.min, node.extent))
        lanes = node.kind == tirx.ForKind.VECTORIZED and self.vector is None
        if lanes:
            self.vector = {}
        for step in range(int(extent[active].max(initial=0))):
            self.at[node.loop_var] = first + step
            self.execute(node.body, active & (step < extent))
        if lanes:
            for memory, reached in (self.vector or {}).values():
                self.count(memory, reached)
            self.vector = None

    def allocate(self, buffer: Any) -> None:
        scope = buffer.scope()
        shape = tuple(int(extent) for extent in buffer.shape)
        shared = scope.startswith("shared")
        if not shared and scope != "local":
            raise Refused(_("{buffer} is allocated inside a kernel, in {scope} memory: inside a "
                            "kernel, use \"shared\" or \"local\"").format(
                buffer=buffer.name, scope=scope))
        copy = self.blocks if shared else self.lanes
        if buffer not in self.memory:
            strides = tuple(map(int, buffer.strides)) or _strides(shape)
            size = strides[0] * shape[0] if shape else 1
            data = np.zeros((int(copy[-1]) + 1, size), buffer.dtype)
            self.memory[buffer] = _Memory(buffer.name, scope, data, copy, shape, strides, shared,
                                          shape if buffer.name in self.moved else ())
            self.launch.shapes[buffer.name] = *shape[:1], *(
                row // each for row, each in itertools.pairwise(strides))
            if shared:
                self.launch.shared_bytes += data[0].nbytes

    def barrier(self, active: np.ndarray) -> None:
        if not active.any():
            return
        counts = np.bincount(self.blocks[active], minlength=int(self.blocks[-1]) + 1)
        if ((counts > 0) & (counts < self.launch.threads)).any():
            block = int(np.argmax((counts > 0) & (counts < self.launch.threads)))
            raise divergent(int(counts[block]), self.launch.names(block * self.launch.threads)[0])
        self.phases += counts > 0
        self.barriers += counts > 0
        self.launch.barriers = int(self.barriers.max())

    def reduce(self, args: Sequence[Any], active: np.ndarray) -> None:
        """Combine a value over the threads of some axes; each gets the result."""
        value, condition, result, *axes = args[1:]
        ufunc = {tirx.Add: np.add, tirx.Max: np.maximum, tirx.Min: np.minimum,
                 tirx.Mul: np.multiply}.get(type(self.reducer.result[0]))
        if ufunc is None or len(self.reducer.result) != 1:
            raise Unknown("a reduction of several values")
        taken = self.holds(condition, active)
        values = np.broadcast_to(self.value(value, active & taken), active.shape)
        nothing = self.value(self.reducer.identity_element[0], active)
        grid = np.where(active & taken, values, nothing).reshape(-1, *self.launch.block[::-1])
        places = tuple(3 - AXES.index(self.tags[axis][-1]) for axis in axes)
        total = np.broadcast_to(ufunc.reduce(grid, axis=places, keepdims=True), grid.shape)
        if np.prod([grid.shape[place] for place in places]) > WARP:  # else a warp does it alone
            self.phases += 1
        memory, lanes, copies, flat = self.place(result.source, result.indices, active)
        memory.data[copies, flat], memory.filled[copies, flat] = total.reshape(-1)[lanes], True


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(np.prod(shape[axis + 1:])) for axis in range(len(shape)))


def run(func: tirx.PrimFunc, *arrays: np.ndarray) -> list[Launch]:
    """Run a lowered PrimFunc on arrays, outputs as well; return what it did.

    One Launch for each kernel, in order. Raises Refused for an index outside its buffer, a read of
    shared or local memory that was not written, a barrier that not all threads of a block reach;
    Unknown for anything not known here.
    """
    globals_: dict[Any, tuple[str, np.ndarray]] = {
        param: (param.name, array.reshape(1, -1))
        for param, array in zip(func.params, arrays, strict=True)}
    launches = []
    for node in _top(func.body):
        match node:
            case tirx.DeclBuffer(buffer=buffer):  # the same numbers in another shape
                globals_[buffer] = globals_[node.data.args[0]]
            case tirx.AllocBuffer(buffer=buffer):
                count = math.prod(map(int, buffer.shape))
                globals_[buffer] = buffer.name, np.full((1, count), np.nan, buffer.dtype)
            case tirx.AttrStmt(attr_key="thread_extent"):
                launches.append(_launched(node, globals_, func))
            case _:
                if isinstance(node, tirx.For):
                    raise Refused(_("the loop {loop} is next to kernels, and is not bound: bind it "
                                    "to blocks and threads").format(loop=node.loop_var.name))
                raise Unknown(f"not a kernel: {type(node).__name__}")
    return launches


def _top(body: tirx.Stmt) -> Iterator[tirx.Stmt]:
    """Yield the outermost statements, those inside a pragma among them."""
    match body:
        case tirx.SeqStmt():
            for node in body.seq:
                yield from _top(node)
        case tirx.AttrStmt() if body.attr_key != "thread_extent":
            yield from _top(body.body)
        case _:
            yield body


def launches(func: tirx.PrimFunc) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the grid of blocks and the block of threads of each kernel of a lowered PrimFunc.

    x first.
    """
    return [_extents(node) for node in _top(func.body) if isinstance(node, tirx.AttrStmt)]


def _extents(kernel: tirx.AttrStmt) -> tuple[tuple[int, ...], tuple[int, ...]]:
    found = {node.node.thread_tag: int(node.value) for node, _place in walk(kernel)
             if isinstance(node, tirx.AttrStmt) and node.attr_key == "thread_extent"}
    grid, block = (tuple(found.get(f"{kind}.{axis}", 1) for axis in AXES)
                   for kind in ("blockIdx", "threadIdx"))
    return grid, block


def _launched(kernel: tirx.AttrStmt, arrays: Mapping[Any, tuple[str, np.ndarray]],
              func: tirx.PrimFunc) -> Launch:
    """Run one kernel of a lowered PrimFunc on what its buffers in global memory are called."""
    written = set()
    for node, _place in walk(kernel):
        if isinstance(node, tirx.BufferStore):
            written.add(node.buffer)
        elif (atomic := _atomic(node)) is not None:
            written.add(atomic[1].source)
    grid, block = _extents(kernel)
    launch = Launch(grid, block, tuple(param.name for param in func.params))
    memory = {buffer: _Memory(name, "global", data, 0, shape := tuple(map(int, buffer.shape)),
                              _strides(shape), buffer in written)
              for buffer, (name, data) in arrays.items()}
    this = _Run(launch, memory, (func.attrs or {}).get("moved", ()))
    this.execute(kernel, np.ones(this.lanes.shape, bool))
    for held in memory.values():
        if held.watched and held.scope == "global":
            launch.writer[held.name] = wrote = held.seen["write"].last[0]
            if "add" in held.seen:
                launch.writer[held.name] = np.where(wrote < 0, held.seen["add"].last[0], wrote)
    return launch
