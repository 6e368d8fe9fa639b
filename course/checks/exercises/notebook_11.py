"""The checks of notebook 11: models for any input, what ships them, and targets."""

import functools
import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax, te, tirx, topi
from tvm.relax.frontend.torch import from_exported_program
from tvm.target.codegen import llvm_get_cpu_features

import helpers
from course.checks.compare.tolerance import random, to_numpy
from course.checks.diagnose.equivalence import build
from course.checks.exercises import schedules
from course.checks.observe.guard_pages import guarded
from course.checks.observe.primfuncs import run_prim_func
from course.checks.run.check import exercise, prepared
from course.checks.say.messages import CheckFailed, reason
from course.checks.spec.spec import Cases, Spec, check
from course.checks.spec.trials import Mistakes, judged, require_equal
from course.tir.loops import nests
from course.tir.walk import Loop, walk
from course.words import _
from data import gpt

# ---- any batch -----------------------------------------------------------------------------

_MOST, _BATCHES = 64, (1, 2, 7, 64)


class _Joined(nn.Module):
    """Two inputs, a residual, a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(8, 8), nn.Linear(3, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x + torch.relu(self.wide(x))
        return torch.cat([x + self.wide(x), self.narrow(y)], 1)


class _Modelled(NamedTuple):
    """A model, and the shapes of its inputs in a batch of 1."""

    title: str
    model: nn.Module
    shapes: tuple[tuple[int, ...], ...]


@prepared
def _exporting() -> bool:
    """Export and import something: the first time loads modules for seconds, once in a kernel."""
    with helpers.quiet():
        program = torch.export.export(nn.ReLU(), (torch.zeros(2),))
        build(from_exported_program(program, unwrap_unit_return_tuple=True))
    return True


@prepared
def _models() -> list[_Modelled]:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        images = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 5))
        return [_Modelled(_("a model of images"), images.eval(), ((1, 1, 6, 6),)),
                _Modelled(_("a model of two inputs"), _Joined().eval(), ((1, 8), (1, 3)))]


def _inputs(shapes: Sequence[tuple[int, ...]], batch: int) -> list[torch.Tensor]:
    return [torch.from_numpy(3 * random(batch, *shape[1:], seed=batch + place))
            for place, shape in enumerate(shapes)]


@exercise("11.1", "for_any_batch(module, example)", seconds=30, prepare=[_exporting, _models])
def exercise_11_1(for_any_batch: Callable) -> str:
    """a module for any batch."""
    for title, model, shapes in _models():
        example = tuple(_inputs(shapes, 1))
        with helpers.quiet():
            mod = for_any_batch(model, example)
            machine = build(mod)
        params = mod["main"].params
        if len(params) != len(shapes):
            raise CheckFailed(_("main with {count} parameters; {title}").format(
                count=len(shapes), title=title), f"{len(params)}")
        for batch in _BATCHES:
            given = _inputs(shapes, batch)
            with torch.no_grad():
                right = model(*given).numpy()
            words = _("a batch of {batch}; {title}").format(batch=batch, title=title)
            try:
                came = to_numpy(machine["main"](*(tvm.runtime.tensor(one.numpy())
                                                  for one in given)))
            except (ValueError, TypeError, RuntimeError) as error:
                fixed = [int(param.ty.shape[0]) for param in params
                         if not isinstance(param.ty.shape[0], tvm.tirx.Var)]
                raise CheckFailed(
                    _("main to take {words}").format(words=words), reason(error),
                    _("the Dim of each input's first axis: {fixed} is a number in main").format(
                        fixed=fixed[0]) if fixed else "") from None
            if came.shape != right.shape or not np.allclose(came, right, 1e-4, 1e-4):
                raise CheckFailed(_("PyTorch's result for {words}").format(words=words),
                                  _("{came} in place of {right}").format(
                                      came=came.shape, right=right.shape)
                                  if came.shape != right.shape else
                                  _("|difference| up to {largest}").format(
                                      largest=f"{np.abs(came - right).max():.2g}"))
        _require_range(mod, title)
    return _("{count} models, one with two inputs, for batches of {batches}").format(
        count=len(_models()), batches=", ".join(map(str, _BATCHES)))


def _require_range(mod: tvm.IRModule, title: str) -> None:
    """Raise CheckFailed unless main says that the batch is at most as large as asked for."""
    upper = mod["main"].attrs.get("tir_var_upper_bound") or {}
    largest = {int(most) for most in upper.values()}
    if largest != {_MOST}:
        raise CheckFailed(_("a batch of at most {most}; {title}").format(most=_MOST, title=title),
                          _("at most {came}").format(came=sorted(largest)) if largest
                          else _("no upper limit"))


# ---- an operator ---------------------------------------------------------------------------

_AMAX: dict[str, Callable[..., torch.Tensor]] = {
    "amax(x)": lambda x, f: f(x), "amax(x, [1])": lambda x, f: f(x, [1]),
    "amax(x, [-1], True)": lambda x, f: f(x, [-1], True),
    "amax(x, [0, 2])": lambda x, f: f(x, [0, 2]),
    "amax(x, [2], False)": lambda x, f: f(x, [2], False),
    "amax(x, [], True)": lambda x, f: f(x, [], True),
    "amax(x * x, [1, -1], True)": lambda x, f: f(x * x, [1, -1], True),
    "amax(x, [2, 0])": lambda x, f: f(x, [2, 0]),
    "amax(x, [0, 1])": lambda x, f: f(x, [0, 1]),
    "amax(x, [-2])": lambda x, f: f(x, [-2]),
    "amax(x, [0, 1, 2], True)": lambda x, f: f(x, [0, 1, 2], True),
    "amax(x[:, None], [-1, 1, 2])": lambda x, f: f(x[:, None], [-1, 1, 2]),
    "amax(100 * x[0], [1])": lambda x, f: f(100 * x[0], [1])}
_OF_AMAX: Mistakes = {
    # cause: keepdim-true
    _("keepdim: with True the axes stay, with 1 element each"):
        lambda x, f: f(x, lambda a, dim=(), keepdim=False: torch.amax(a, dim)),
    # cause: keepdim-false
    _("keepdim is False where it is not given"): (
        lambda x, f: f(x, lambda a, dim=(), keepdim=True: torch.amax(a, dim, keepdim=keepdim)),
        lambda x, f: f(x, lambda a, dim=(), keepdim=True: torch.amax(a, dim, keepdim=True))),
    _("dim: without it, all axes; with it, those alone"):
        lambda x, f: f(x, lambda a, dim=(), keepdim=False: torch.amax(a, (), keepdim)),
    # cause: several-axes
    _("dim may have several axes"):
        lambda x, f: f(x, lambda a, dim=(), keepdim=False: torch.amax(a, dim[:1], keepdim)),
    _("amax is the largest, not the smallest"):
        lambda x, f: f(x, lambda a, dim=(), keepdim=False: torch.amin(a, dim, keepdim))}


class _Largest(nn.Module):
    """All ways to call amax, in one module."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(call(x, torch.amax) for call in _AMAX.values())


def _largest(main: Callable) -> Callable[..., np.ndarray]:
    """Return a compiled module of all calls as a function of the call and its input."""
    return lambda call, x: main(tvm.runtime.tensor(x))[list(_AMAX).index(call)].numpy()


def _calls() -> Cases:
    x = random(2, 3, 4, seed=2) * 500 - 300
    return ((_("the call {call}").format(call=call), {"call": call, "x": x}) for call in _AMAX)


_CALLS = Spec(_largest, lambda call, x: _AMAX[call](torch.from_numpy(x), torch.amax).numpy(),
              _calls, named=_OF_AMAX,
              formula=lambda given: (torch.from_numpy(given["x"]), _AMAX[given["call"]]))


@exercise("11.2", "convert_amax(node, importer)", prepare=[_exporting])
def exercise_11_2(convert_amax: Callable) -> str:
    """a rule for amax."""
    def rule(node: torch.fx.Node, importer: Any) -> relax.Expr:
        came = convert_amax(node, importer)
        if not isinstance(came, relax.Expr):
            raise CheckFailed(_("a Relax variable for {node}").format(node=node),
                              type(came).__name__)
        return came

    with helpers.quiet():
        program = torch.export.export(_Largest().eval(), (torch.zeros(2, 3, 4),))
        mod = from_exported_program(program, custom_convert_map={"amax.default": rule})
        machine = build(mod)
    return _("right for {count} ways to call it").format(count=check(_CALLS, machine["main"]))


# ---- a cache -------------------------------------------------------------------------------

_TEXTS, _PAST = 2, (*range(9), 17, 40, 63)  # letters that stand before the new one


@prepared
def _gpt(blocks: int = gpt.LAYERS) -> gpt.GPT:
    """Return a model of random weights, so large that each part of it matters."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = gpt.GPT()
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.4, 0.4)
        nn.init.uniform_(model.norm.weight, 4, 8)  # logits beyond 6, of both signs
        model.blocks = model.blocks[:blocks]
    return model.eval().requires_grad_(requires_grad=False)


def _stepped(token: torch.Tensor, keys: torch.Tensor | None, values: torch.Tensor | None, *,
             place: Callable[[int], int] = int, causal: bool = False, itself: bool = True,
             ) -> torch.Tensor | None:
    """Return the logits of the next letter, with a mistake; None where no logits are asked for."""
    if keys is None or values is None:
        return None
    model, past = _gpt(), keys.shape[3]
    x = model.token(token) + model.place(torch.tensor([place(past)]))
    for number, block in enumerate(model.blocks):
        query, *pair = block.heads(x)
        key, value = (torch.cat([old[number], new], 2)
                      for old, new in zip((keys, values), pair, strict=True))
        seen = slice(None) if itself or not past else slice(0, past)
        x = block.rest(x, nn.functional.scaled_dot_product_attention(
            query, key[:, :, seen], value[:, :, seen], is_causal=causal))
    return model.head(model.norm(x))


_OF_STEPS: Mistakes = {
    _("the letter's place: as many stand before it as the cache has"): (
        functools.partial(_stepped, place=lambda past: 0),
        functools.partial(_stepped, place=lambda past: past + 1),
        functools.partial(_stepped, place=lambda past: max(past - 1, 0))),
    _("is_causal takes the one query for the first letter's: it may see all keys"):
        functools.partial(_stepped, causal=True),
    _("the new letter sees itself, too"): functools.partial(_stepped, itself=False)}


def _right_cache(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the keys and values of all letters of texts (b, t), from the whole model."""
    model, kept = _gpt(), []
    x = model.token(tokens) + model.place(torch.arange(tokens.shape[1]))
    for block in model.blocks:
        kept.append(block.heads(x)[1:])
        x = block(x)
    keys, values = (torch.stack(each) for each in zip(*kept, strict=True))
    return keys, values


def _require_three(came: Any, words: str) -> Sequence[torch.Tensor]:
    if not isinstance(came, tuple | list) or len(came) != 3 \
            or not all(isinstance(one, torch.Tensor) for one in came):
        raise CheckFailed(_("three tensors: logits, keys, values; {words}").format(words=words),
                          type(came).__name__ if not isinstance(came, tuple | list)
                          else _("{count} of them").format(count=len(came)))
    return came


@torch.no_grad()
def _require_steps(answer: Callable) -> None:
    """Raise CheckFailed unless an answer writes as the whole model does, from empty caches."""
    drawn = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 95, (_TEXTS, max(_PAST) + 1), generator=drawn)
    # what a letter adds to the caches, and its logits, do not depend on the letters behind it
    right, every = _gpt()(tokens), _right_cache(tokens)
    with judged(_OF_STEPS) as note:
        for past in _PAST:
            keys, values = (cache[:, :, :, :past] for cache in every)
            words = _("past = {past}").format(past=past)
            token = tokens[:, past:past + 1]
            given = token.clone(), keys.clone(), values.clone()
            came = _require_three(answer(*given), words)
            for name, before, after in zip(("token", "keys", "values"),
                                           (token, keys, values), given, strict=True):
                if not torch.equal(before, after):
                    raise CheckFailed(_("{name} as it was; {words}").format(
                        name=name, words=words), _("another one"),
                        _("torch.cat makes a new tensor; += and [...] = change the input"))
            note(came[0].numpy(), right[:, past:past + 1].numpy(), token, keys, values,
                 words=words)
            for name, one, cache in zip(("keys", "values"), came[1:], every, strict=True):
                note(one.numpy(), cache[:, :, :, :past + 1].numpy(), token, None, None,
                     words=_("{name}, {words}").format(name=name, words=words))


class _Stepped(nn.Module):
    """An answer as a module, for torch.export."""

    def __init__(self, model: gpt.GPT, answer: Callable) -> None:
        super().__init__()
        self.model, self.answer = model, answer

    def forward(self, token: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        return self.answer(self.model, token, keys, values)


@exercise("11.3",
          "one_more_letter(model, token, keys, values)", seconds=20, prepare=[_exporting, _gpt])
def exercise_11_3(one_more_letter: Callable) -> str:
    """a transformer with a cache."""
    _require_steps(functools.partial(one_more_letter, _gpt()))
    small, past = _gpt(1), torch.export.Dim("past", min=1, max=gpt.LONGEST - 1)
    cache = torch.zeros(1, 1, gpt.HEADS, 5, gpt.WIDTH // gpt.HEADS)  # of a block, of a text
    given = torch.zeros(1, 1, dtype=torch.int64), cache, cache.clone()
    try:
        with helpers.quiet():
            torch.export.export(_Stepped(small, one_more_letter).eval(), given,
                                dynamic_shapes=(None, {3: past}, {3: past}))
    except Exception as error:  # torch.export raises many kinds
        raise CheckFailed(_("a function that torch.export takes, for any past"),
                          reason(error)) from None
    return _("{steps} letters of {texts} texts as the whole model has them, and exported for any "
             "past").format(steps=len(_PAST), texts=_TEXTS)


# ---- a tensor struct -----------------------------------------------------------------------

# numbers, shape, axes, bytes of an address, first; each byte of an address another one
_TENSORS = [(0x7F123456789ABC40, 0x55D1AA22C3E8, 4, 8, 0x0102030405060708),
            (0xC1D2E300, 0xA1B2F408, 2, 4, 0x1122334455667788), (4096, 0x1FF0, 1, 8, 0),
            (0x10040, 0xFF20, 3, 4, 64), (0x7FFE00000080, 0x10, 0, 8, 4),
            (0x10040, 0xFF20, 6, 8, 0)]
_FIELDS = {"data": "a", "device.type": "i", "device.id": "i", "axes": "i", "kind.code": "B",
           "kind.bits": "B", "kind.lanes": "H", "shape": "a", "strides": "a", "first": "Q"}


def _laid_out(numbers: int, shape: int, axes: int, address: int, first: int, *, order: str = "<",
              gaps: bool = True, code: int = 2, bits: int = 32, strides: int = 0
              ) -> dict[str, tuple[int, bytes]]:
    """Return where each field of a DLTensor begins, and its bytes; by default as C has them."""
    values = (numbers, 1, 0, axes, code, bits, 1, shape, strides, first)
    found: dict[str, tuple[int, bytes]] = {}
    at = 0
    for (name, kind), value in zip(_FIELDS.items(), values, strict=True):
        kind = kind.replace("a", "Q" if address == 8 else "I")
        size = struct.calcsize("<" + kind)
        at += -at % size if gaps else 0
        found[name] = at, struct.pack(order + kind, value)
        at += size
    return found


def _joined(fields: dict[str, tuple[int, bytes]]) -> bytes:
    """Return the bytes of a struct, with zeros between its fields where they leave gaps."""
    joined = b""
    for at, field in fields.values():
        joined = joined.ljust(at, b"\0") + field
    return joined


def _of_kind(code: int, bits: int, case: tuple[int, int, int, int, int]) -> dict:
    return _laid_out(*case, code=code, bits=bits)


_OF_STRUCTS: dict[str, list[Callable[[Any], dict]]] = {
    _("a number begins at a multiple of its size, and zeros fill the gap before it"):
        [lambda case: _laid_out(*case, gaps=False)],
    _("the lowest byte comes first"): [lambda case: _laid_out(*case, order=">")],
    # cause: address-width
    _("an address has as many bytes as the argument says"):
        [lambda case: _laid_out(case[0], case[1], case[2], 8, case[4])],
    _("kind: its code is 2 for float, and its bits are bits"): [
        functools.partial(_of_kind, code, bits)
        for code, bits in ((0, 32), (1, 32), (2, 4), (0, 4), (1, 4))],
    _("strides: 0 where the numbers lie without gaps"):
        [lambda case: _laid_out(*case, strides=case[1])]}


def _hex(some: bytes) -> str:
    return some.hex(" ")


@exercise("11.4", "dl_tensor(numbers, shape, axes, address, first)", seconds=5)
def exercise_11_4(dl_tensor: Callable) -> str:
    """the bytes of a tensor struct."""
    came = []
    for case in _TENSORS:
        one = dl_tensor(*case)
        if not isinstance(one, bytes | bytearray):
            raise CheckFailed(_("bytes"), type(one).__name__)
        came.append(bytes(one))
    right = [_laid_out(*case) for case in _TENSORS]
    cause = next((text for text, wrong in _OF_STRUCTS.items() for each in wrong
                  if came == [_joined(each(case)) for case in _TENSORS]), "")
    for case, one, fields in zip(_TENSORS, came, right, strict=True):
        given = _("dl_tensor({numbers}, {shape}, {axes}, {address}, {first})").format(
            numbers=hex(case[0]), shape=hex(case[1]), axes=case[2], address=case[3],
            first=hex(case[4]))
        for name, (at, field) in fields.items():
            if (there := one[at:at + len(field)]) != field:
                raise CheckFailed(
                    _("{bytes} in the bytes from {first}, the field {name}; {given}").format(
                        bytes=_hex(field), first=at, name=name, given=given),
                    _hex(there) or _("they end before it, after {count}").format(count=len(one)),
                    cause)
        if one != (whole := _joined(fields)):
            raise CheckFailed(_("{count} bytes; {given}").format(count=len(whole), given=given),
                              _("{count}, and those between the fields: {bytes}").format(
                                  count=len(one), bytes=_hex(_between(one, fields)) or "-"))
    return _("right for {count} tensors, with addresses of 8 and of 4 bytes").format(
        count=len(_TENSORS))


def _between(some: bytes, fields: dict[str, tuple[int, bytes]]) -> bytes:
    inside = {at + i for at, field in fields.values() for i in range(len(field))}
    return bytes(byte for at, byte in enumerate(some) if at not in inside)


# ---- without threads -----------------------------------------------------------------------


class _Threaded(NamedTuple):
    """A PrimFunc with parallel loops, and the shapes of its parameters, the output's last."""

    title: str
    func: tirx.PrimFunc
    shapes: tuple[tuple[int, ...], ...]


@prepared
def _threaded() -> list[_Threaded]:
    """Return PrimFuncs with parallel loops: one, several, inside of others, none."""
    x, w = te.placeholder((6, 10), name="x"), te.placeholder((16, 10), name="w")
    k = te.reduce_axis((0, 10), name="k")
    dense = tvm.s_tir.Schedule(te.create_prim_func([x, w, te.compute(
        (6, 16), lambda i, j: te.sum(x[i, k] * w[j, k], k), name="dense")]))
    block = dense.get_sblock("dense")
    i, j, over = dense.get_loops(block)
    outer, inner = dense.split(j, [None, 4])
    dense.reorder(i, outer, over, inner)
    dense.vectorize(inner)
    dense.parallel(dense.fuse(i, outer))
    dense.decompose_reduction(block, over)

    rows = te.placeholder((5, 12), name="parallel")
    softmax = tvm.s_tir.Schedule(te.create_prim_func([rows, topi.nn.softmax(rows)]))
    for child in softmax.get_child_blocks(softmax.get_sblock("root")):
        softmax.parallel(softmax.get_loops(child)[0])

    sums = tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.relu(x)]))
    row, column = sums.get_loops(sums.get_sblock("compute"))
    outer, inner = sums.split(column, [None, 5])
    sums.parallel(outer)
    sums.unroll(inner)
    inside = tvm.s_tir.Schedule(te.create_prim_func([x, topi.nn.relu(x)]))
    row, column = inside.get_loops(inside.get_sblock("compute"))
    outer, inner = inside.split(column, [None, 5])
    inside.annotate(row, "pragma_auto_unroll_max_step", 4)
    inside.parallel(inner)
    plain = te.create_prim_func([x, topi.abs(x)])
    return [_Threaded(_("a dense layer in vectors"), dense.mod["main"], ((6, 10), (16, 10),
                                                                         (6, 16))),
            _Threaded(_("a softmax of four nests"), softmax.mod["main"], ((5, 12), (5, 12))),
            _Threaded(_("a ReLU whose second loop is parallel"), sums.mod["main"],
                      ((6, 10), (6, 10))),
            _Threaded(_("a ReLU whose third loop is parallel"), inside.mod["main"],
                      ((6, 10), (6, 10))),
            _Threaded(_("absolute values, without a parallel loop"), plain, ((6, 10), (6, 10)))]


def _kinds(func: tirx.PrimFunc) -> list[tuple[str, Any]]:
    """Return the kind and the extent of each loop of a PrimFunc."""
    loops = [Loop.of(node) for node, _place in walk(func.body) if isinstance(node, tirx.For)]
    return [(loop.kind, loop.extent) for loop in loops]


@exercise("11.5", "for_the_browser(func)", prepare=[_threaded])
def exercise_11_5(for_the_browser: Callable) -> str:
    """a program without threads."""
    for title, func, shapes in _threaded():
        before, given = _kinds(func), func.script()
        wanted = Counter((kind.replace("parallel", "serial"), extent) for kind, extent in before)
        came = for_the_browser(func)
        if not isinstance(came, tirx.PrimFunc):
            raise CheckFailed(_("a PrimFunc; {title}").format(title=title), type(came).__name__)
        if func.script() != given:
            raise CheckFailed(_("the given PrimFunc as it was; {title}").format(title=title),
                              _("another one"))
        after = _kinds(came)
        if parallel := sum(kind == "parallel" for kind, _extent in after):
            raise CheckFailed(
                _("no parallel loop; {title}").format(title=title),
                _("{count} of {all}").format(
                    count=parallel, all=sum(kind == "parallel" for kind, _extent in before)))
        if (found := Counter(after)) != wanted:
            raise CheckFailed(
                _("the other loops as they were: {loops}; {title}").format(
                    loops=_listed(wanted - found) or _("no more than these"), title=title),
                _listed(found - wanted) or _("nothing in their place"))
        other = _("all else as it was; {title}").format(title=title)
        if (name := came.params[0].name) != func.params[0].name:
            raise CheckFailed(other, _("a parameter {name}").format(name=name))
        if gone := _noted(func) - _noted(came):
            raise CheckFailed(other, _("{names} is missing or another one").format(
                names=", ".join(map(str, gone))))
        kept = _attributes(came)
        if lost := [key for key, value in _attributes(func).items() if kept.get(key) != value]:
            raise CheckFailed(_("the attributes as they were; {title}").format(title=title),
                              _("{names} is missing or another one").format(
                                  names=", ".join(lost)),
                              _("tirx.PrimFunc takes attributes too: attrs=func.attrs"))
        arrays = [random(*shape, seed=place) * 300 for place, shape in enumerate(shapes[:-1])]
        right, result = (run_prim_func(one, arrays, shapes[-1]) for one in (func, came))
        if not np.allclose(result, right, 1e-4, 1e-5 * float(np.abs(right).max())):
            raise CheckFailed(_("the same numbers; {title}").format(title=title),
                              _("|difference| up to {largest}").format(
                                  largest=f"{np.abs(result - right).max():.2g}"))
    return _("{count} programs without a parallel loop, and else as they were").format(
        count=len(_threaded()))


def _noted(func: tirx.PrimFunc) -> set[tuple[str, str]]:
    """Return the annotations of loops that are not parallel."""
    return {(str(key), str(value)) for node, _place in walk(func.body)
            if isinstance(node, tirx.For) and node.kind != tirx.ForKind.PARALLEL
            for key, value in node.annotations.items()}


def _attributes(func: tirx.PrimFunc) -> dict[str, str]:
    return {key: str(value) for key, value in (func.attrs or {}).items()
            if key != "global_symbol"}


def _listed(loops: Counter) -> str:
    return ", ".join(f"{kind} {extent}" for kind, extent in sorted(loops, key=str))


# ---- products ------------------------------------------------------------------------------

_LANES = 16


@prepared
def _products() -> tvm.IRModule:
    """Return x (n, 8) times (8, 48), ReLU, times (48, 95), and that times its transpose."""
    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 8), "float32"))
    w, v = (relax.const(random(*shape, seed=sum(shape))) for shape in ((8, 48), (48, 95)))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            hidden = bb.emit(relax.op.nn.relu(bb.emit(relax.op.matmul(x, w))))
            logits = bb.emit(relax.op.matmul(hidden, v))
            turned = bb.emit(relax.op.permute_dims(logits))
            output = bb.emit_output(bb.emit(relax.op.matmul(logits, turned)))
        bb.emit_func_output(output)
    return relax.transform.LegalizeOps()(bb.get())


@exercise("11.6", "products_in_rows(mod)", seconds=20, prepare=[_products])
def exercise_11_6(products_in_rows: Callable) -> str:
    """products of matrices with lanes along their rows."""
    original = _products()
    mod = schedules.returned(products_in_rows, original)
    products = sorted(name for name in (one.name_hint for one in original.get_global_vars())
                      if name.startswith("matmul"))
    functions = schedules.only_changed(mod, original, products, "matmul")
    for name in products:
        if isinstance(original[name].params[-1].shape[-1], tirx.IntImm):
            _require_rows(functions[name], name)
    before, after = build(original), build(mod)
    for size in (1, 3, 17):
        given = tvm.runtime.tensor(random(size, 8, seed=size))
        right = before["main"](given).numpy()
        with guarded(after, mod, at_start=True):  # of extents that vary, a run shows it
            came = after["main"](given).numpy()
        require_equal(came, right, {}, words=_("a batch of {size}").format(size=size), atol=1e-3)
    return _("two products in lanes of 16 along their rows, the same results for batches of 1, 3 "
             "and 17")


def _require_rows(func: tirx.PrimFunc, name: str) -> None:
    """Raise CheckFailed unless a product has 16 lanes along a row, and its reduction is apart."""
    told = schedules.told(nests(func))
    update = schedules.summing(func)[0]
    lanes = schedules.require_lanes(update, _("block {block} of {name}").format(
        block=update.block, name=name))
    steps = schedules.moves(update, lanes, schedules.stored(update))
    if lanes.extent != _LANES or steps != [(*[0] * (len(steps[0]) - 1), 1)]:
        raise CheckFailed(_("16 lanes along a row of the result of {name}").format(name=name),
                          _("{lanes}, with steps of {steps}").format(lanes=lanes, steps=steps),
                          told)
    schedules.require_decomposed(func)


# ---- what processors share -----------------------------------------------------------------

_SETS = ("popcnt", "avx", "f16c", "avx2", "fma", "bmi2", "avx512f", "avx512bw", "avx512vnni",
         "avxvnni")
_PROCESSORS = ("nehalem", "sandybridge", "haswell", "znver3", "alderlake", "skylake-avx512",
               "cascadelake", "znver4", "sapphirerapids")


def _fleets() -> Iterator[tuple[str, ...]]:
    """Yield one processor each, then two, then all of some kinds: the smallest come first."""
    for size in (1, 2):
        yield from itertools.combinations(_PROCESSORS, size)
    yield from (_PROCESSORS, _PROCESSORS[3:6], _PROCESSORS[:1:-1], _PROCESSORS[5:])


def _has(target: tvm.target.Target) -> set[str]:
    return set(_SETS) & llvm_get_cpu_features(target)


@exercise("11.7", "for_all(processors)")
def exercise_11_7(for_all: Callable) -> str:
    """a target for several processors."""
    machine = {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}
    known = {name: _has(tvm.target.Target({**machine, "mcpu": name})) for name in _PROCESSORS}
    for fleet in _fleets():
        given = _("for {processors}").format(processors=", ".join(fleet))
        names = list(fleet)
        target = for_all(names)
        if names != list(fleet):
            raise CheckFailed(_("the given names as they were; {given}").format(given=given),
                              ", ".join(map(str, names)))
        if not isinstance(target, tvm.target.Target):
            raise CheckFailed(_("a Target {given}").format(given=given), type(target).__name__)
        kind, triple = target.kind.name, str(target.attrs.get("mtriple", ""))
        if kind != "llvm" or not triple.startswith("x86_64") or "linux" not in triple:
            raise CheckFailed(_("a target of kind llvm with mtriple {triple}").format(
                triple=machine["mtriple"]), _("{kind} with mtriple {triple}").format(
                    kind=kind, triple=triple or None))
        shared, came = set.intersection(*(known[name] for name in fleet)), _has(target)
        if came != shared:
            lacks = next((name for name in fleet if came - known[name]), None)
            raise CheckFailed(
                _("{features} {given}").format(features=_in_order(shared), given=given),
                _in_order(came),
                _("{processor} has no {features}").format(
                    processor=lacks, features=_in_order(came - known[lacks])) if lacks
                else _("each has {features}").format(features=_in_order(shared - came)))
    return _("{count} fleets of up to {most} processors: each gets what its processors share"
             ).format(count=len(list(_fleets())), most=len(_PROCESSORS))


def _in_order(names: set[str]) -> str:
    return ", ".join(name for name in _SETS if name in names) or _("none of the features")
