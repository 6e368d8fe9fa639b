"""Wrong behaviours of notebook 11: exports, a rule, a cache, bytes, serial loops, a folder."""

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax, tirx

from behaviours.common import Wrapped, before, exchanged, first_kept, result
from behaviours.programs import FUNC, wrong_func

# ---- exports for any batch --------------------------------------------------------------------

_export = torch.export.export


def _with_dims(change: Callable[[dict, int], dict]) -> Callable[[Callable], Callable]:
    """Return what wraps an answer: the Dims of each input, by its place, are changed."""
    def wrap(answer: Callable) -> Callable:
        def wrong(*given: Any) -> Any:
            def export(module: nn.Module, example: tuple, *, dynamic_shapes: Any) -> Any:
                return _export(module, example, dynamic_shapes=tuple(
                    change(dims, place) for place, dims in enumerate(dynamic_shapes)))
            with mock.patch.object(torch.export, "export", export):
                return answer(*given)
        return wrong
    return wrap


def _dims_to(most: int, _dims: dict, _place: int) -> dict:
    return {0: torch.export.Dim("other", min=1, max=most)}


def _with_model(change: Callable[[nn.Module], nn.Module]) -> Callable[[Callable], Callable]:
    def wrap(answer: Callable) -> Callable:
        return lambda module, example: answer(change(module).eval(), example)
    return wrap


class _After(nn.Module):
    """A module, and something done to its result."""

    def __init__(self, module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.module, self.change = module, change
        self.forward = {1: self._one, 2: self._two}[1 if isinstance(module, nn.Sequential) else 2]

    def _one(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self.module(x))

    def _two(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.change(self.module(x, y))


VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cut off above 6": lambda came: came.clamp(max=6),
    "cut off below 0": torch.relu,
    "rounded to float16": lambda came: came.half().float(),
    "without their signs": torch.abs,
    "a thousandth too large": lambda came: came * 1.001,
    "the first's, for the last too": lambda came: torch.cat([came[:-1], came[:1]]),
    "backwards along the batch": lambda came: came.flip(0)}


def of_exports(number: str) -> Wrapped:
    """Return behaviours of a function that imports a module for any batch."""
    for most in (8, 63, 65):
        yield f"a batch of at most {most}", _with_dims(
            functools.partial(_dims_to, most))
    yield "the batch of the example, always", _with_dims(lambda dims, place: {})
    yield "the batch of the first input alone", _with_dims(
        lambda dims, place: {} if place else dims)
    for title, change in VALUES.items():
        yield f"its result: {title}", _with_model(functools.partial(_After, change=change))
    yield "the module of the first call", first_kept(0)


# ---- a rule -----------------------------------------------------------------------------------

_ARGS: dict[str, Callable[[list], list]] = {
    "without keepdim": lambda args: args[:2],
    "without dim": lambda args: args[:1],
    "keepdim, always": lambda args: [args[0], args[1] if len(args) > 1 else [], True],
    "the first axis alone": lambda args: [args[0], *([args[1][:1]] if args[1:] else []), *args[2:]],
    "the last axis alone": lambda args: [args[0], *([args[1][-1:]] if args[1:] else []),
                                         *args[2:]],
    "the axes without their signs": lambda args: [
        args[0], *([[abs(axis) for axis in args[1]]] if args[1:] else []), *args[2:]],
    "the next axis": lambda args: [
        args[0], *([[(axis + 1) % 3 for axis in args[1]]] if args[1:] else []), *args[2:]]}
_EMITTED: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "cut off above 6": lambda came: relax.op.clip(came, -1e9, 6),
    "cut off below 0": relax.op.nn.relu,
    "rounded to float16": lambda came: relax.op.astype(relax.op.astype(came, "float16"),
                                                       "float32"),
    "without their signs": relax.op.abs,
    "a thousandth too large": lambda came: relax.op.multiply(came, relax.const(1.001, "float32"))}


def of_rules(number: str) -> Wrapped:
    """Return behaviours of a rule for an operator with axes."""
    for title, change in _ARGS.items():
        def other(answer: Callable, change: Callable = change) -> Callable:
            return lambda node, importer: answer(
                SimpleNamespace(args=tuple(change(list(node.args))), kwargs={}), importer)
        yield f"its arguments: {title}", other
    for title, change in _EMITTED.items():
        def after(answer: Callable, change: Callable = change) -> Callable:
            return lambda node, importer: importer.block_builder.emit(
                change(answer(node, importer)))
        yield f"its result: {title}", after
    yield "the operand itself", lambda answer: lambda node, importer: importer.env[node.args[0]]
    yield "that of the first call", lambda answer: _first(answer)


def _first(answer: Callable) -> Callable:
    kept: list[Any] = []

    def again(*given: Any) -> Any:
        kept.append(answer(*given))
        return kept[0]
    return again


# ---- a model with a cache ---------------------------------------------------------------------

Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _same(*three: torch.Tensor) -> Three:
    return three[0], three[1], three[2]


def of_caches(number: str) -> Wrapped:
    """Return behaviours of a function that runs a model with a cache."""
    def wrap(given: Callable = _same, came: Callable = _same) -> Callable[[Callable], Callable]:
        return lambda answer: lambda model, *three: came(*answer(model, *given(*three)))

    for title, change in VALUES.items():
        yield f"its logits: {title}", wrap(
            came=lambda logits, k, v, change=change: (change(logits), k, v))
    for title in ("rounded to float16", "a thousandth too large", "backwards along the batch"):
        change = VALUES[title]
        yield f"its values: {title}", wrap(came=lambda logits, k, v, c=change: (logits, k, c(v)))
        yield f"its keys: {title}", wrap(came=lambda logits, k, v, c=change: (logits, c(k), v))
    yield "keys and values exchanged", wrap(came=lambda logits, k, v: (logits, v, k))
    yield "the caches of the blocks exchanged", wrap(
        came=lambda logits, k, v: (logits, k.flip(0), v.flip(0)))
    yield "the last five letters alone", wrap(
        came=lambda logits, k, v: (logits, k[:, :, :, -5:], v[:, :, :, -5:]))
    yield "the next token", wrap(given=lambda token, k, v: ((token + 1) % 95, k, v))
    yield "a cache without its first letter", wrap(
        given=lambda token, k, v: (token, k[:, :, :, 1:], v[:, :, :, 1:]))
    yield "the values in place of the keys", wrap(given=lambda token, k, v: (token, v, v))


# ---- bytes ------------------------------------------------------------------------------------


def _one_more(at: int, came: bytes) -> bytes:
    return came[:at] + bytes([(came[at] + 1) % 256]) + came[at + 1:]


def _shortened(bits: int, given: list[int]) -> list[int]:
    return [given[0] % 2 ** bits, given[1] % 2 ** bits, *given[2:]]


def of_bytes(number: str) -> Wrapped:
    """Return behaviours of a function that returns a struct's bytes."""
    for at in range(0, 40, 4):
        yield f"byte {at}: one more", result(functools.partial(_one_more, at))
    yield "its result: the last byte not written", result(lambda came: came[:-1] + b"\xaa")
    yield "its result: without the last byte", result(lambda came: came[:-1])
    yield "its result: without the last eight", result(lambda came: came[:-8])
    yield "its result: four bytes more", result(lambda came: came + bytes(4))
    yield "its result: backwards", result(lambda came: came[::-1])
    yield "its result: each eight backwards", result(lambda came: b"".join(
        came[at:at + 8][::-1] for at in range(0, len(came), 8)))
    yield "its result: that of the first call", _first
    for at in range(5):
        yield f"argument {at}: that of the first call", first_kept(at)
    yield "arguments 0 and 1 exchanged", before(exchanged(0, 1))
    for bits in (16, 32):
        yield f"addresses cut after {bits} bits", before(functools.partial(_shortened, bits))


# ---- serial loops -----------------------------------------------------------------------------


def _of_kinds(was: tirx.ForKind, now: tirx.ForKind) -> Callable[[Callable], Callable]:
    """Return what wraps an answer: it gets a PrimFunc in which loops of a kind are of another."""
    def changed(given: list[Any]) -> list[Any]:
        func = given[0]
        body = tvm_ffi.structural_map(func.body, (tirx.For, lambda loop: tirx.For(
            loop.loop_var, loop.min, loop.extent, now if loop.kind == was else loop.kind,
            loop.body)))
        return [tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)]
    return before(changed)


def of_serial(number: str) -> Wrapped:
    """Return behaviours of a function that makes the parallel loops of a PrimFunc serial."""
    kinds = tirx.ForKind
    for was, now in ((kinds.VECTORIZED, kinds.SERIAL), (kinds.UNROLLED, kinds.SERIAL),
                     (kinds.PARALLEL, kinds.UNROLLED), (kinds.PARALLEL, kinds.VECTORIZED),
                     (kinds.SERIAL, kinds.UNROLLED)):
        yield f"loops: {now.name.lower()} in place of {was.name.lower()}", _of_kinds(was, now)
    for what in FUNC:
        yield what, result(wrong_func(what))
    yield "the program: as it was", lambda answer: lambda func: func
    yield "the program: that of the first call", _first


# ---- a folder -----------------------------------------------------------------------------------

_CHANGES = {"rounded to float16": "y.astype('float16').astype(y.dtype)",
            "cut off above 6": "y.clip(max=6)", "cut off below 0": "y.clip(min=0)",
            "a thousandth too large": "y * y.dtype.type(1.001)", "its first row alone": "y[:1]",
            "backwards along the batch": "y[::-1]", "as float64": "y.astype('float64')"}
_AFTER = """
y = np.load(sys.argv[2])
np.save(sys.argv[2], {change})
"""


def _finished(change: Callable[[Path], Any]) -> Callable[[Callable], Callable]:
    """Return what wraps an answer: the folder is changed when it is filled."""
    def wrap(answer: Callable) -> Callable:
        def wrong(mod: tvm.IRModule, target: tvm.target.Target, folder: Path) -> None:
            answer(mod, target, folder)
            change(folder)
        return wrong
    return wrap


def _rewritten(before: str, after: str, folder: Path) -> None:
    program = folder / "run.py"
    program.write_text(before + program.read_text() + after)


def _without(ending: str, folder: Path) -> None:
    for file in folder.glob(f"*{ending}"):
        file.unlink()


def of_folders(number: str) -> Wrapped:
    """Return behaviours of a function that fills a folder with a library and its program."""
    for title, change in _CHANGES.items():
        yield f"its result: {title}", _finished(
            functools.partial(_rewritten, "", _AFTER.format(change=change)))
    yield "it imports torch", _finished(functools.partial(_rewritten, "import torch\n", ""))
    for title, at in (("module", 0), ("target", 1)):
        yield f"the {title} of the first call", first_kept(at)
    yield "LLVM's own target", lambda answer: lambda mod, target, folder: answer(
        mod, tvm.target.Target("llvm"), folder)
    for title, ending in (("program", ".py"), ("libraries", ".so")):
        yield f"without its {title}", _finished(functools.partial(_without, ending))
