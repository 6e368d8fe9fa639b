"""Wrong behaviours of schedules for a GPU, and of programs with barriers of their own."""

from typing import Any

import tvm_ffi
from tvm import s_tir, tirx

from behaviours import schedules
from behaviours.common import Wrapped, after, first_kept, result
from behaviours.programs import FUNC, wrong_func

_Schedule = s_tir.Schedule
_bind, _read, _set = _Schedule.bind, _Schedule.cache_read, _Schedule.set_scope
_TURNED = {"x": "y", "y": "x"}
_METHODS: dict[str, tuple[str, Any]] = {
    **{title: method for title, method in schedules.METHODS.items() if method[0] == "split"},
    "bind: x and y exchanged": ("bind", lambda s, loop, tag: _bind(
        s, loop, tag[:-1] + _TURNED[tag[-1]])),
    "bind: x and y of threads exchanged": ("bind", lambda s, loop, tag: _bind(
        s, loop, tag[:-1] + _TURNED[tag[-1]] if tag.startswith("thread") else tag)),
    "bind: blocks and threads exchanged": ("bind", lambda s, loop, tag: _bind(
        s, loop, ("threadIdx" if tag.startswith("block") else "blockIdx") + tag[-2:])),
    "bind: no blocks": ("bind", lambda s, loop, tag: tag.startswith("block") or _bind(
        s, loop, tag)),
    "bind: no threads": ("bind", lambda s, loop, tag: tag.startswith("thread") or _bind(
        s, loop, tag)),
    "cache_read: into registers": ("cache_read", lambda s, block, place, scope: _read(
        s, block, place, "local")),
    "cache_read: into global memory": ("cache_read", lambda s, block, place, scope: _read(
        s, block, place, "global")),
    "set_scope: left out": ("set_scope", lambda *_: None),
    "set_scope: into registers": ("set_scope", lambda s, block, place, scope: _set(
        s, block, place, "local")),
    "compute_at: left out": ("compute_at", lambda *_: None)}
_USED = {"10.1": ("split", "bind"), "10.5": ("split", "bind"),
         "10.6": ("split", "bind", "set_scope", "compute_at"),
         "10.3": ("split", "bind", "cache_read", "compute_at")}


def of_schedules(number: str) -> Wrapped:
    """Return behaviours of a function that schedules a PrimFunc for a GPU."""
    for title, (name, method) in _METHODS.items():
        if name in _USED[number] and not (number in ("10.5", "10.6") and "x and y" in title):
            yield title, schedules.with_method(name, method)
    yield "the program that it was given", after(lambda func, given: given)
    yield "that of the first call", first_kept(0)
    for what in FUNC:
        yield what, result(wrong_func(what))


def of_barriers(number: str) -> Wrapped:
    """Return behaviours of a function that returns a program with barriers: one of them less."""
    def is_barrier(node: Any) -> bool:
        return isinstance(node, tirx.Evaluate) and "storage_sync" in str(node.value)

    def without(place: int) -> Any:
        def changed(func: tirx.PrimFunc) -> tirx.PrimFunc:
            seen = iter(range(99))

            def left(node: tirx.Evaluate) -> tirx.Evaluate:
                return tirx.Evaluate(0) if is_barrier(node) and next(seen) == place else node
            body = tvm_ffi.structural_map(func.body, (tirx.Evaluate, left))
            return tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)
        return changed

    def doubled(func: tirx.PrimFunc) -> tirx.PrimFunc:
        body = tvm_ffi.structural_map(func.body, (tirx.Evaluate, lambda node: tirx.SeqStmt(
            [node, node]) if is_barrier(node) else node))
        return tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)

    yield "without the first barrier of a step", result(without(0))
    yield "without the second barrier of a step", result(without(1))
    yield "each barrier twice", result(doubled)
    for what in FUNC:
        yield what, result(wrong_func(what))
