"""Wrong behaviours of importers: of a rule, of a dictionary of rules, and of what they import."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn
from tvm import topi

from behaviours.common import (
    NUMBERS,
    VALUE,
    Wrapped,
    after,
    at,
    before,
    each,
    kept,
    neighbour,
    pairs,
    result,
)
from course.checks.exercises.faulty import FAULTS


def _in_place(change: Callable[[nn.Module], Any]) -> Callable[[nn.Module], nn.Module]:
    """Return a function that changes a model, or a layer, and returns it."""
    def changed(model: nn.Module) -> nn.Module:
        with torch.no_grad():
            for layer in model.modules():
                change(layer)
        return model
    return changed


def _parameter(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable:
    def changed(layer: nn.Module) -> None:
        if isinstance(array := getattr(layer, name, None), torch.Tensor):
            array.copy_(change(array))
    return _in_place(changed)


def _first_parameters() -> Callable[[nn.Module], nn.Module]:
    """Return a function that gives a layer the weights of the first of the same shape."""
    first = kept()
    return _parameter("weight", lambda x: first(x.detach()))


def _set(name: str, value: Any) -> Callable[[nn.Module], Any]:
    def change(layer: nn.Module) -> None:
        if hasattr(layer, name):
            setattr(layer, name, value)
    return _in_place(change)


def _without_relu(layer: nn.Module) -> None:
    for name, child in layer.named_children():
        if isinstance(child, nn.ReLU):
            setattr(layer, name, nn.Sequential())


MODEL: dict[str, Callable[[nn.Module], nn.Module]] = {
    **{f"the model's {name}: {what}": _parameter(name, change) for name in ("weight", "bias")
       for what, change in {
           "zeroed": torch.zeros_like, "rolled": lambda x: x.roll(1, 0),
           "a thousandth too large": lambda x: 1.001 * x,
           "rounded to float16": lambda x: x.half().float()}.items()},
    "the model's ReLUs taken out": _in_place(_without_relu)}


def _changed(bb: Any, change: Callable, var: Any) -> Any:
    return bb.emit_te(change, var, primfunc_name_hint="changed")


def _emitted(change: Callable) -> Callable[[Callable], Callable]:
    """Return what wraps a rule so that what it emits is changed."""
    return after(lambda var, bb, *_: _changed(bb, change, var))


def _argument(change: Callable) -> Callable[[Callable], Callable]:
    """Return what wraps a rule so that it gets its argument changed."""
    def wrap(rule: Callable) -> Callable:
        def wrong(bb: Any, node_map: Mapping, node: Any, *layer: Any) -> Any:
            given = _changed(bb, change, node_map[node.args[0]])
            return rule(bb, {**node_map, node.args[0]: given}, node, *layer)
        return wrong
    return wrap


def of_rule(_: str) -> Wrapped:
    """Return behaviours of a rule for a function of any rank."""
    for what, (_array, change) in NUMBERS.items():
        yield f"its result: {what}", _emitted(partial(each, change=change))
        yield f"its argument: {what}", _argument(partial(each, change=change))
    yield "its result: the last from its neighbour", _emitted(lambda x: neighbour(x, x.ndim - 1))
    for rank in range(1, 6):
        yield f"its result: doubled for rank {rank}", _emitted(partial(_doubled_for, rank))


def _doubled_for(rank: int, x: Any) -> Any:
    return each(x, lambda e: 2.0 * e if x.ndim == rank else e)


def _differ(name: str) -> Callable[[nn.Module], bool]:
    return lambda layer: isinstance(two := getattr(layer, name), tuple) and two[0] != two[1]


def _other(name: str, value: int) -> Callable[[nn.Module], bool]:
    return lambda layer: getattr(layer, name) not in (value, (value, value))


_LAYERS: dict[type[nn.Module], dict[str, Callable[[nn.Module], bool]]] = {
    nn.Conv2d: {"steps": _other("stride", 1), "steps that differ": _differ("stride"),
                "padding": _other("padding", 0), "paddings that differ": _differ("padding"),
                "dilation": _other("dilation", 1), "dilations that differ": _differ("dilation"),
                "no bias": lambda layer: layer.bias is None,
                "an oblong kernel": _differ("kernel_size"),
                "several input channels": _other("in_channels", 1)},
    nn.MaxPool2d: {"a step unlike the window": lambda layer: layer.stride != layer.kernel_size,
                   "steps that differ": _differ("stride"), "padding": _other("padding", 0),
                   "paddings that differ": _differ("padding"),
                   "an oblong window": _differ("kernel_size")},
    nn.Flatten: {}, nn.Softmax: {}}


def _of(kind: type[nn.Module], wrap: Callable) -> Callable[[Callable], Callable]:
    """Return what wraps the rule for a class in the dictionary of rules."""
    return result(lambda rules: {**rules, kind: wrap(rules[kind])})


def _of_layer(test: Callable[[nn.Module], bool]) -> Callable[..., bool]:
    return lambda *given: test(given[3])


def of_rules(_: str) -> Wrapped:
    """Return behaviours of rules for layers."""
    for kind, features in _LAYERS.items():
        of = partial(_of, kind)
        for what, change in VALUE.items():
            yield f"{kind.__name__}: {what}", of(_emitted(change))
        for what in ("cut off above 3", "cut off above 100") if kind is not nn.Softmax else ():
            yield f"{kind.__name__}: {what}", of(_emitted(partial(each, change=NUMBERS[what][1])))
        for title, wrap in pairs(
                {what: _of_layer(has) for what, has in features.items()},
                lambda var, bb, *_: _changed(bb, lambda x: each(x, lambda e: e * 1.01), var)):
            yield f"{kind.__name__}: {title}", of(wrap)
        for name in {nn.Conv2d: ("stride", "padding", "dilation"),
                     nn.MaxPool2d: ("stride", "padding")}.get(kind, ()):
            value = (0, 0) if name == "padding" else (1, 1)
            yield f"{kind.__name__}: {name} set to {value[0]}", of(
                before(at(3, _set(name, value))))
    changes = {**MODEL, "the weights of the first of a shape": _first_parameters()}
    for what, change in changes.items():
        if "ReLU" not in what:
            yield f"Conv2d: {what}", _of(nn.Conv2d, before(at(3, change)))


def _of_one(name: str, change: Callable[[Callable], Callable]) -> Callable[[Callable], Callable]:
    return result(lambda operations: operations | {name: change(operations[name])})


def _without(name: str, operations: dict[str, Callable]) -> dict[str, Callable]:
    return {key: value for key, value in operations.items() if key != name}


def of_mends(_: str) -> Wrapped:
    """Return behaviours of a dictionary of mended operations."""
    for name in FAULTS:
        yield f"{name}: left out", result(partial(_without, name))
        for what, (_array, change) in NUMBERS.items():
            yield (f"{name}, its result: {what}",
                   _of_one(name, result(partial(each, change=change))))
            yield (f"{name}, its input: {what}",
                   _of_one(name, before(at(0, partial(each, change=change)))))
        for axis in range(4):
            yield (f"{name}, its result: the last from its neighbour along axis {axis}",
                   _of_one(name, result(partial(neighbour, axis=axis))))
    yield "one that is right too", result(lambda given: given | {"lv4": topi.nn.flatten})
    yield "exchanged", result(lambda given: dict(zip(given, reversed(given.values()), strict=True)))
    yield "lv1, its bias: rounded to float16", _of_one("lv1", before(at(1, partial(
        each, change=NUMBERS["rounded to float16"][1]))))
