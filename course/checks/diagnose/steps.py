"""What PyTorch computes, step by step: each layer and each function between layers, with its value.

A step is a function of earlier values, so that it can be run on other ones: on those of a module.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from course.checks.observe.spies import name_of
from course.words import _

Values = list[Tensor]


class Step(NamedTuple):
    """A layer, or a function between layers, and the positions of the values that it takes.

    Values are counted from the inputs of the model on: step n gives the value len(inputs) + n.
    `layer` is None for a function. `says` names it: "layer 4, Linear", "block.add"; `path` is the
    layer's in the model.
    """

    says: str
    path: str
    layer: nn.Module | None
    takes: tuple[int, ...]
    run: Callable[..., Tensor]


def is_pytorchs(layer: nn.Module) -> bool:
    """Whether a layer is one of PyTorch's."""
    return type(layer).__module__.startswith("torch.nn.")


def _is_own(layer: nn.Module) -> bool:
    """Whether a layer is one of PyTorch's, and not made of others."""
    return is_pytorchs(layer) and not any(layer.children())


class _Recorder(TorchFunctionMode):
    """Notes each call that takes a known value: of PyTorch's layers, and of functions outside them.

    A tensor keeps its name in `known` while it lives, and all of them live as long as this.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.inside: list[str] = []  # the paths of the modules that run
        self.own = 0  # how many layers of PyTorch's run
        self.known = {id(value): place for place, value in enumerate(inputs)}
        self.alive: list[Any] = list(inputs)
        self.count = len(inputs)
        self.numbered = type(model).forward is nn.Sequential.forward
        # a layer that stands twice has two numbers, and one path
        self.order = iter([path for path, _layer in model.named_modules(remove_duplicate=False)
                           if self.numbered and path and "." not in path])

    def note(self, says: str, path: str, layer: nn.Module | None, run: Callable[..., Any],
             args: tuple, kwargs: dict[str, Any], came: Any) -> None:
        """Note a call: `run` of args and kwargs gave `came`, a tensor or several."""
        given = list({id(leaf): leaf for leaf in tree_leaves((args, kwargs))
                      if isinstance(leaf, Tensor) and id(leaf) in self.known}.values())
        takes = tuple(self.known[id(leaf)] for leaf in given)
        names = {id(leaf): place for place, leaf in enumerate(given)}
        several = isinstance(came, tuple | list)
        for place, tensor in enumerate(came if several else [came]):
            if not given or not isinstance(tensor, Tensor):
                continue

            def again(*values: Tensor, place: int = place) -> Tensor:
                fresh = [value.clone() for value in values]  # a function may work in place
                some, named = tree_map(lambda leaf: fresh[names[id(leaf)]] if id(leaf) in names
                                       else leaf, (args, kwargs))
                result = run(*some, **named)
                return result[place] if several else result

            self.steps.append(Step(says, path, layer, takes, again))
            self.known[id(tensor)] = self.count
            self.alive.append(tensor)
            self.count += 1

    def __torch_function__(self, func: Any, types: Any, args: tuple = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        came = func(*args, **(kwargs or {}))
        if not self.own:
            name = name_of(func).strip("_")
            says = ".".join([*self.inside[-1:], name])
            if name == "setitem":
                self.note(says, "", None, _with_items, args, {}, args[0])
            else:
                self.note(says, "", None, func, args, kwargs or {}, came)
        return came

    def before(self, path: str, layer: nn.Module) -> Callable[..., None]:
        """Return the hook that a layer calls before it runs."""
        def hook(_layer: nn.Module, _given: Any) -> None:
            self.inside.append(path if self.inside else next(self.order, path))
            self.own += _is_own(layer)
        return hook

    def after(self, path: str, layer: nn.Module) -> Callable[..., None]:
        """Return the hook that a layer calls when it has run."""
        def hook(_layer: nn.Module, args: tuple, kwargs: dict[str, Any], came: Any) -> None:
            number = self.inside.pop()
            self.own -= _is_own(layer)
            if not self.own and _is_own(layer):
                says = (_("layer {layer}, {name}") if self.numbered else "{layer}, {name}").format(
                    layer=number, name=type(layer).__name__)
                self.note(says, path, layer, layer.forward, args, kwargs, came)
        return hook


def _with_items(tensor: Tensor, place: Any, items: Any) -> Tensor:
    """Return a tensor in which items were set."""
    tensor[place] = items
    return tensor


@torch.no_grad()
def steps(model: nn.Module, inputs: Sequence[Tensor]) -> list[Step]:
    """Return the steps of a model in evaluation mode that PyTorch takes up to what it returns.

    None, where the steps do not give what the model does for other inputs: it may branch by a
    number, take one out of a tensor, or write through a view.
    """
    found = _recorded(model, [one.clone() for one in inputs])  # a layer may work in place
    for scale in (1, -1.5):
        other = [scale * one if one.is_floating_point() else one for one in inputs]
        came = run(found, other)[-1]
        wanted = model(*(one.clone() for one in other))
        if came.shape != wanted.shape or not torch.allclose(came, wanted, 1e-3, 1e-3,
                                                            equal_nan=True):
            return []
    return found


def _recorded(model: nn.Module, inputs: Sequence[Tensor]) -> list[Step]:
    recorder, hooks = _Recorder(model, inputs), []
    for path, layer in model.named_modules():
        if path:
            hooks += [layer.register_forward_pre_hook(recorder.before(path, layer)),
                      layer.register_forward_hook(recorder.after(path, layer), with_kwargs=True)]
    try:
        with recorder:
            returned = model(*inputs)
    finally:
        for each in hooks:
            each.remove()
    return recorder.steps[:recorder.known.get(id(returned), recorder.count) - len(inputs) + 1]


@torch.no_grad()
def run(every: Sequence[Step], inputs: Sequence[Tensor]) -> Values:
    """Return the inputs and the value of each step."""
    values = list(inputs)
    for step in every:
        values.append(step.run(*(values[place] for place in step.takes)))
    return values
