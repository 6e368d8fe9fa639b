"""Notice when an answer has changed what its check relies on.

A check runs in one process with the answer, so an answer could replace numpy.isclose, a method of
IRModule, or the check itself; or PyTorch's model and results, with which it is compared, and how
close is close enough. What is compared: every function, class and method of the modules that
checks use, also those that no name leads to, and all data of the course's own, before the answer's
first line and after its last. Each of some 100,000 names and functions is held, and compared by
`is` without a line of Python for each: that takes milliseconds.
"""

import builtins
import functools
import gc
import importlib.util
import operator
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
import tvm_ffi

from checks.run import check as running
from data import store

OURS = {"checks", "helpers", "listing", "words", "tir", "kernels", "plots", "data", "tools"}
PACKAGES = OURS | {"numpy", "tvm", "tvm_ffi", *sys.stdlib_module_names}
# of PyTorch, which has as many names as all others, what a check calls by itself
TORCH = {"torch", "torch.nn", "torch.nn.functional", "torch.testing"}
IGNORED = {"torch.manual_seed"}  # torch.export puts a function of its own there
GONE = object()
PARTS = ("__code__", "__defaults__", "__kwdefaults__")  # of a function: these can be assigned


def _ours(name: str) -> bool:
    return name.partition(".")[0] in OURS


def _watched(name: str) -> bool:
    return name.partition(".")[0] in PACKAGES or name in TORCH \
        or name.startswith("torch.nn.modules.")


@functools.cache
def functions() -> list[types.FunctionType]:
    """Return all functions of watched modules, those in closures and registries too.

    For a process in which nothing of an answer was run. What is there then is not looked through
    for garbage again.
    """
    gc.unfreeze()
    found = [item for item in gc.get_objects() if type(item) is types.FunctionType
             and isinstance(item.__module__, str) and _watched(item.__module__)]
    gc.freeze()
    return found


def _different(before: Iterable[Any], now: Iterable[Any]) -> Iterator[bool]:
    return map(operator.is_not, before, now)


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
        return item.shape, item.dtype.str, item.tobytes()
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
    return id(item) if same else type(item)


class _Space:
    """The names of a module or a class, as they were."""

    def __init__(self, place: str, owner: types.ModuleType | type) -> None:
        self.place, self.owner = place, owner
        self.kind = self._kind()
        self.ours = _ours(place)
        self.now: Mapping[str, Any] = vars(owner)
        self.before = dict(self.now)

    def _kind(self) -> tuple:
        """Return what makes other names win over those that are here."""
        return type(self.owner), self.owner.__mro__ if isinstance(self.owner, type) else None

    def changed(self) -> Iterator[str]:
        """Yield the names of functions and classes that are others now, or hide others."""
        now, before = self.now, self.before
        if any(_different(self.kind, self._kind())):
            yield self.place
        if any(_different(before.values(), map(now.get, before))):
            for name, item in before.items():
                other = now.get(name, GONE)
                if other is not item and callable(item):
                    yield f"{self.place}.{name}"
        if len(now) != len(before):
            new = now.keys() - before.keys()
            if not self.ours and isinstance(self.owner, types.ModuleType):
                new &= vars(builtins).keys()  # modules load parts of themselves when needed
            # copy and typing note what they have found in a class, under such names
            yield from (f"{self.place}.{name}" for name in new
                        if callable(now[name]) or not name.startswith("__"))


class Watch:
    """What checks rely on, as it is when this is made."""

    def __init__(self, known: list[types.FunctionType]) -> None:
        """Note everything; `known` is what `functions` gave before the answer came."""
        self.loaded = sys.modules
        self.modules = {name: module for name, module in list(self.loaded.items())
                        if isinstance(module, types.ModuleType) and _watched(name)}
        self.spaces = [_Space(name, module) for name, module in self.modules.items()] + [
            _Space(f"{name}.{item.__qualname__}", item) for name, module in self.modules.items()
            for item in list(vars(module).values())
            if isinstance(item, type) and item.__module__ == name]
        self.known = known
        self.parts = {part: list(map(operator.attrgetter(part), known)) for part in PARTS}
        self.options = [(f, f.__kwdefaults__, dict(f.__kwdefaults__))
                        for f in known if f.__kwdefaults__]
        self.cells = [(f, cell, content) for f in known for cell in f.__closure__ or ()
                      if callable(content := _content(cell)) or _ours(f.__module__)]
        self.data = dict(self._data())

    def add(self, function: types.FunctionType) -> None:
        """Watch a function that holds this Watch, and so was not whole before."""
        self.cells += [(function, cell, _content(cell)) for cell in function.__closure__ or ()]
        self.known = [*self.known, function]
        for part, before in self.parts.items():
            before.append(getattr(function, part))

    def _data(self) -> Iterator[tuple[Any, Any]]:
        """Yield what tells the course's own data, by its name or how it was made."""
        for space in self.spaces:
            if space.ours:
                for name, item in list(space.now.items()):
                    if not name.startswith("__") and item is not running.made_ready \
                            and not callable(item) and not isinstance(item, types.ModuleType):
                        yield f"{space.place}.{name}", value(item)
        for key, made in list(running.made_ready.items()):
            yield key, value(made)
        yield "what was made ready", id(running.made_ready)
        yield "data.store.data_folder()", value(store.data_folder())

    def _functions(self) -> Iterator[types.FunctionType]:
        """Yield the functions that have other code, other defaults, or hold something else."""
        for part, before in self.parts.items():
            now = list(map(operator.attrgetter(part), self.known))
            if any(_different(before, now)):
                yield from (f for f, old, new in zip(self.known, before, now, strict=True)
                            if old is not new)
        for function, live, options in self.options:
            if live.keys() != options.keys() \
                    or any(_different(options.values(), map(live.get, options))):
                yield function
        for function, cell, content in self.cells:
            if _content(cell) is not content:
                yield function

    def changed(self) -> list[str]:
        """Return the names, as numpy.isclose, that are no longer what they were."""
        found = [name for name, module in self.modules.items()
                 if self.loaded.get(name) is not module]
        found += [name for space in self.spaces for name in space.changed()]
        found += [f"{f.__module__}.{f.__qualname__}" for f in self._functions()]
        data = dict(self._data())
        found += [_called(name) for name, told in self.data.items() if data.get(name) != told]
        for make, arguments in [key for key in data.keys() - self.data.keys()
                                if isinstance(key, tuple)]:
            made = running.made_ready[make, arguments]
            if value(made, same=False) != value(make(*arguments), same=False):
                found.append(_called((make, arguments)))
        return sorted(set(found) - IGNORED)


def _content(cell: types.CellType) -> Any:
    """Return a closure's variable, or GONE where it has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return GONE


def _called(name: str | tuple[Callable, tuple]) -> str:
    if isinstance(name, str):
        return name
    make, arguments = name
    return f"{make.__module__}.{make.__qualname__}({', '.join(map(repr, arguments))})"


def sealed() -> types.ModuleType:
    """Return a copy of this module that no name leads to, with builtins of its own.

    An answer that replaces what is in this module changes nothing in the copy.
    """
    spec = importlib.util.spec_from_file_location(__name__, __file__)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = dict(vars(builtins))
    spec.loader.exec_module(module)
    return module
