"""Notice when an answer has changed what its check relies on.

A check runs in one process with the answer, so an answer could replace numpy.isclose, a method of
IRModule, or the check itself. What is compared: every function, class and method of the modules
that checks use, before the answer's first line and after its last.
"""

import sys
import types
from collections.abc import Iterator
from typing import Any

# whole packages by their first name; of the large ones only what a check calls by itself
WATCHED = ("builtins", "checks", "helpers", "listing", "loops", "kernels", "plots", "versions",
           "numpy", "tvm", "tvm_ffi", "torch", "torch.nn.functional", "torch.nn.modules",
           "torch.testing", "json", "re", "os", "io", "sys", "functools", "itertools",
           "collections", "contextlib", "multiprocessing", "pickle", "traceback", "linecache",
           "warnings", "importlib", "inspect", "math", "time", "signal", "data")
IGNORED = {"torch.manual_seed"}  # torch.export puts a function of its own there
OURS = ("checks", "helpers", "listing", "loops", "kernels", "plots", "versions", "data")
_WHOLE = {name for name in WATCHED if name != "torch"}


def _modules() -> Iterator[tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and (
                name in WATCHED or name.partition(".")[0] in _WHOLE
                or name.startswith("torch.nn.modules")):
            yield name, module


def identity(item: Any) -> tuple:
    """Return what of a function can be replaced without replacing the function."""
    if isinstance(item, types.FunctionType):
        cells = item.__closure__ or ()
        held = tuple(id(cell.cell_contents) for cell in cells
                     if cell_is_set(cell) and callable(cell.cell_contents))
        return id(item), id(item.__code__), id(item.__defaults__), held
    return (id(item),)


def cell_is_set(cell: types.CellType) -> bool:
    """Whether a closure's variable has a value yet."""
    try:
        cell.cell_contents  # noqa: B018 (asking raises where there is none)
    except ValueError:
        return False
    return True


def _content(space: dict[str, Any], every: bool) -> dict[str, tuple]:
    return {name: identity(getattr(value, "__func__", value)) for name, value in list(space.items())
            if every or callable(value) or isinstance(value, (staticmethod, classmethod, property))}


def snapshot() -> dict[str, dict[str, tuple]]:
    """Return the identity of every function, class and method that checks rely on."""
    seen: dict[str, dict[str, tuple]] = {}
    for name, module in _modules():
        seen[name] = _content(vars(module), every=False)
        for item in list(vars(module).values()):
            if isinstance(item, type) and item.__module__ == name:
                seen[f"{name}.{item.__qualname__}"] = _content(dict(vars(item)), every=False)
    return seen


def changed(before: dict[str, dict[str, tuple]]) -> list[str]:
    """Return the names, as numpy.isclose, that are no longer what they were in `before`.

    New names are fine, as modules load parts of themselves when they are needed, except in the
    course's own modules, where they would hide a builtin.
    """
    now, found = snapshot(), []
    for place, names in before.items():
        here = now.get(place, {})
        found += [f"{place}.{name}" for name, content in names.items() if here.get(name) != content]
        if place.partition(".")[0] in OURS:
            found += [f"{place}.{name}" for name in here.keys() - names.keys()]
    return sorted(set(found) - IGNORED)
