"""Notice when an answer has changed what its check relies on.

A check runs in one process with the answer, so an answer could replace numpy.isclose, a method of
IRModule, or the check itself; or PyTorch's model and results, with which it is compared, and how
close is close enough. What is compared: every function, class and method of the modules that
checks use, and all data of the course's own, before the answer's first line and after its last.
"""

import hashlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi

from checks import answers
from data import store

# whole packages by their first name; of the large ones only what a check calls by itself
WATCHED = ("builtins", "checks", "helpers", "listing", "loops", "kernels", "plots", "versions",
           "numpy", "tvm", "tvm_ffi", "torch", "torch.nn.functional", "torch.nn.modules",
           "torch.testing", "json", "re", "os", "io", "sys", "functools", "itertools",
           "collections", "contextlib", "multiprocessing", "pickle", "traceback", "linecache",
           "warnings", "importlib", "inspect", "math", "time", "signal", "data")
IGNORED = {"torch.manual_seed",  # torch.export puts a function of its own there
           "checks.answers._cells"}  # each check notes the answer's there
OURS = ("checks", "helpers", "listing", "loops", "kernels", "plots", "versions", "data")
MADE = "made ready"  # what checks compare with: answers.made_ready
_WHOLE = {name for name in WATCHED if name != "torch"}


def _modules() -> Iterator[tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and (
                name in WATCHED or name.partition(".")[0] in _WHOLE
                or name.startswith("torch.nn.modules")):
            yield name, module


def identity(item: Any) -> Any:
    """Return what of a function can be replaced without replacing the function."""
    if type(item) is not types.FunctionType:
        return id(item)
    known = id(item), id(item.__code__), id(item.__defaults__)
    if item.__closure__ is None:
        return known
    return known, [id(cell.cell_contents) for cell in item.__closure__
                   if cell_is_set(cell) and callable(cell.cell_contents)]


def cell_is_set(cell: types.CellType) -> bool:
    """Whether a closure's variable has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 (asking raises where there is none)
    except ValueError:
        return False
    return True


def value(item: Any, same: bool = True, inside: tuple[int, ...] = ()) -> Any:
    """Return what tells data that was changed: it differs then.

    Arrays, models and IRModules by their contents, what cannot be looked into by its identity;
    without `same`, by its type, so that what was made twice is equal.
    """
    if item is None or isinstance(item, bool | int | float | complex | str | bytes | Path):
        return type(item), item
    if id(item) in inside:  # it holds itself
        return "..."
    inside = (*inside, id(item))
    if isinstance(item, torch.Tensor):
        item = item.detach().numpy()
    if isinstance(item, np.ndarray):
        digest = hashlib.sha256(item.tobytes()).digest()
        return item.shape, item.dtype.str, digest
    if isinstance(item, dict):
        return [(value(key, same, inside), value(held, same, inside))
                for key, held in list(item.items())]
    if isinstance(item, list | tuple):
        return type(item), [value(held, same, inside) for held in item]
    if isinstance(item, set | frozenset):
        return type(item), {repr(value(held, same, inside)) for held in item}
    if isinstance(item, torch.nn.Module):
        return type(item), value(vars(item), same, inside)
    if isinstance(item, tvm.IRModule | tvm.ir.BaseFunc):
        return type(item), tvm_ffi.structural_hash(item)
    return identity(item) if same else type(item)


_HOLD = (staticmethod, classmethod, types.MethodType)
_USUAL = (types.FunctionType, type, *_HOLD, property)  # most are one of these: asked first


def _content(space: dict[str, Any]) -> dict[str, Any]:
    return {name: identity(item.__func__ if isinstance(item, _HOLD) else item)
            for name, item in list(space.items())
            if isinstance(item, _USUAL) or callable(item)}


def _data(space: dict[str, Any]) -> dict[str, Any]:
    return {name: value(item) for name, item in list(space.items())
            if not name.startswith("__") and item is not answers.made_ready
            and not callable(item) and not isinstance(item, types.ModuleType)}


def snapshot() -> dict[str, dict[Any, Any]]:
    """Return what tells every function, class, method and datum that checks rely on."""
    seen: dict[str, dict[Any, Any]] = {}
    for name, module in _modules():
        seen[name] = _content(vars(module))
        if name.partition(".")[0] in OURS:
            seen[name] |= _data(vars(module))
        for item in list(vars(module).values()):
            if isinstance(item, type) and item.__module__ == name:
                seen[f"{name}.{item.__qualname__}"] = _content(dict(vars(item)))
    seen[MADE] = {key: value(made) for key, made in list(answers.made_ready.items())}
    seen["checks.answers"]["made_ready"] = id(answers.made_ready)
    seen["data.store"]["data_folder()"] = value(store.data_folder())
    return seen


def _called(make: Callable, arguments: tuple) -> str:
    return f"{make.__module__}.{make.__qualname__}({', '.join(map(repr, arguments))})"


def _spoiled(before: dict[Any, Any]) -> Iterator[tuple]:
    """Yield what was made ready for a check since `before`, and is not as made."""
    for (make, arguments), made in list(answers.made_ready.items()):
        if (make, arguments) not in before \
                and value(made, same=False) != value(make(*arguments), same=False):
            yield make, arguments


def changed(before: dict[str, dict[Any, Any]]) -> list[str]:
    """Return the names, as numpy.isclose, that are no longer what they were in `before`.

    New names are fine, as modules load parts of themselves when they are needed, except in the
    course's own modules, where they would hide a builtin.
    """
    now, found = snapshot(), []
    for place, names in before.items():
        here = now.get(place, {})
        other = [name for name, content in names.items() if here.get(name) != content]
        if place == MADE:
            found += [_called(*key) for key in [*other, *_spoiled(names)]]
            continue
        found += [f"{place}.{name}" for name in other]
        if place.partition(".")[0] in OURS:
            found += [f"{place}.{name}" for name in here.keys() - names.keys()]
    return sorted(set(found) - IGNORED)
