"""The CNN in int8, by an instruction that adds products of neighbours; for notebook 13.

The notebook shows this code and explains it. Numbers stand for themselves times a step (fewbits).
"""

import math
from collections.abc import Callable

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx, topi
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import tirx as T

from course import fewbits, intrinsics

SIDE, CHANNELS, PLACES, HIDDEN, CLASSES = 28, 32, 13 * 13, 100, 10


def requantised(total: tirx.Expr, whole: tirx.Expr, shift: tirx.Expr) -> tirx.Expr:
    """Return an int32 sum times whole / 2**shift as uint8: fewbits.requantised."""
    half = T.int64(1) << (shift - T.int64(1))
    scaled = (total.astype("int64") * whole.astype("int64") + half) >> shift
    return T.max(T.min(scaled, T.int64(255)), T.int64(0)).astype("uint8")


def images(batch: int, lanes: int, width: int) -> tirx.PrimFunc:
    """Return convolution, pooling and ReLU of images float32 (batch, 1, 28, 28) from 0 to 1.

    Of three pixels in a row a fourth is read along, which has the weight 0: W is int8
    (32 // lanes, 3, 4 // width, lanes, width). Bias, whole int32 (32,), shift int64 (32,). The
    result is uint8 (batch, 5408), the 32 channels of a place side by side.
    """
    image = te.placeholder((batch, 1, SIDE, SIDE), name="image")
    W = te.placeholder((CHANNELS // lanes, 3, 4 // width, lanes, width), "int8", name="W")
    bias, whole, shift = (te.placeholder((CHANNELS,), kind, name=name) for name, kind in (
        ("bias", "int32"), ("whole", "int32"), ("shift", "int64")))
    pixel = te.compute((batch, SIDE, SIDE + 4), lambda n, y, x: T.nearbyint(T.max(T.min(
        image[n, 0, y, T.min(x, SIDE - 1)] * T.float32(255), T.float32(255)), T.float32(0))
        ).astype("uint8"), name="pixel")
    row, k = te.reduce_axis((0, 3), name="row"), te.reduce_axis((0, 4), name="k")
    total = te.compute((batch, PLACES, CHANNELS // lanes, 2, 2, lanes),
                       lambda n, p, h, y, x, c: te.sum(
        pixel[n, p // 13 * 2 + y + row, p % 13 * 2 + x + k].astype("int32")
        * W[h, row, k // width, c, k % width].astype("int32"), [row, k]), name="total")
    y, x = te.reduce_axis((0, 2), name="y"), te.reduce_axis((0, 2), name="x")
    pool = te.compute((batch, PLACES, CHANNELS // lanes, lanes), lambda n, p, h, c: te.max(
        total[n, p, h, y, x, c], [y, x]), name="pool")
    biased = te.compute((batch, PLACES, CHANNELS // lanes, lanes), lambda n, p, h, c:
                        pool[n, p, h, c] + bias[h * lanes + c], name="biased")
    return te.create_prim_func([image, W, bias, whole, shift, te.compute(
        (batch, PLACES * CHANNELS), lambda n, i: requantised(
            biased[n, i // CHANNELS, i % CHANNELS // lanes, i % lanes],
            whole[i % CHANNELS], shift[i % CHANNELS]), name="feature")])


def images_in_registers(func: tirx.PrimFunc, intrinsic: str, lanes: int, width: int
                        ) -> tirx.PrimFunc:
    """Return `images` with an intrinsic, one place at a time.

    Each image is one piece of work for some thread.
    """
    schedule = s_tir.Schedule(func)
    pixel, total, pool, biased, feature = map(
        schedule.get_sblock, ("pixel", "total", "pool", "biased", "feature"))
    n, i = schedule.get_loops(feature)
    place, half, lane = schedule.split(i, [PLACES, None, lanes])
    schedule.parallel(n)
    schedule.unroll(half)
    schedule.vectorize(lane)
    schedule.compute_at(biased, half)
    schedule.vectorize(schedule.get_loops(biased)[-1])
    schedule.set_scope(biased, 0, "local")
    schedule.compute_at(pool, half)
    schedule.compute_at(total, half)
    schedule.compute_at(pixel, n)
    inside, _beyond = schedule.loop_partition(schedule.get_loops(pixel)[-1], [SIDE, None])
    schedule.vectorize(inside)
    *_, lane, y, x = schedule.get_loops(pool)
    schedule.reorder(y, x, lane)
    schedule.vectorize(lane)
    for loop in (y, x):
        schedule.unroll(loop)
    *_, y1, x1, lane, row, k = schedule.get_loops(total)
    k0, k1 = schedule.split(k, [None, width])
    schedule.reorder(row, k0, y1, x1, lane, k1)
    for loop in (row, k0, y1, x1):
        schedule.unroll(loop)
    for block, loop in ((total, row), (pool, y)):
        schedule.set_scope(block, 0, "local")
        first = schedule.decompose_reduction(block, loop)
        schedule.vectorize(schedule.get_loops(first)[-1])
    schedule.tensorize(lane, intrinsic)
    return schedule.mod["main"]


def product(batch: int, inputs: int, outputs: int, lanes: int, width: int, intrinsic: str
            ) -> tirx.PrimFunc:
    """Return intrinsics.dense in registers, each tile of results work for some thread.

    The tiles were the best of some that we tried on a Xeon: of fours 16 images by one vector of
    weights (128 µs for 64 images, 4 by 7 took 170), of pairs 4 by 7.
    """
    rows, columns = math.gcd(batch, 4), math.gcd(outputs // lanes, 2 if lanes == 8 else 7)
    if width == 4 and batch % 8 == 0:
        rows, columns = math.gcd(batch, lanes), 1
    return intrinsics.in_registers(
        intrinsics.dense(batch, inputs, outputs, lanes, width), intrinsic, lanes, width,
        rows, columns, parallel=True)


def model(layers: list[tuple[np.ndarray, np.ndarray, np.ndarray]], steps: list[np.float32],
          batch: int, lanes: int, intrinsic: str, width: int) -> tvm.IRModule:
    """Return the CNN from images float32 (batch, 1, 28, 28) to probabilities (batch, 10).

    `layers`: what fewbits.layer returns for the convolution and both products; `steps`: those of
    their inputs, the first 1 / 255: pixels were integers. The intrinsic is one that is registered,
    and adds `width` products to each of `lanes` sums.
    """
    (conv, conv_bias, conv_unit), (wide, wide_bias, wide_unit), (head, head_bias, unit) = layers
    conv = np.pad(conv.reshape(-1, lanes, 3, 3), ((0, 0), (0, 0), (0, 0), (0, 1)))
    conv = conv.reshape(-1, lanes, 3, 4 // width, width).transpose(0, 2, 3, 1, 4)
    wide = wide.reshape(-1, CHANNELS, PLACES).swapaxes(1, 2).reshape(HIDDEN, -1)
    wide, head = (np.pad(each, ((0, -len(each) % 16), (0, 0))) for each in (wide, head))
    fractions = [[relax.const(each, kind) for each, kind in zip(
        fewbits.fractions(before / step), ("int32", "int64"), strict=True)]
        for before, step in zip((conv_unit, wide_unit), steps[1:], strict=True)]

    def hidden(total: te.Tensor, bias: te.Tensor, whole: te.Tensor, shift: te.Tensor) -> te.Tensor:
        return te.compute((batch, HIDDEN), lambda n, j: requantised(
            total[n, j] + bias[j], whole[j], shift[j]), "hidden")

    def probabilities(total: te.Tensor, bias: te.Tensor, unit: te.Tensor) -> te.Tensor:
        return topi.nn.softmax(te.compute((batch, CLASSES), lambda n, j: (
            total[n, j] + bias[j]).astype("float32") * unit[j], "logits"))

    def computed(function: Callable, *given: relax.Expr) -> relax.Expr:
        # bb.call_te's extents are int64, the others' int32, and FuseTIR takes only one kind
        inputs = [te.placeholder(tuple(map(int, each.ty.shape)), str(each.ty.dtype))
                  for each in given]
        return call(function.__name__, te.create_prim_func([*inputs, function(*inputs)]), *given)

    bb = relax.BlockBuilder()
    image = relax.Var("image", relax.TensorType((batch, 1, SIDE, SIDE), "float32"))

    def call(name: str, func: tirx.PrimFunc, *given: relax.Expr) -> relax.Expr:
        kernel = bb.add_func(func.with_attr("global_symbol", name), name)
        result = func.params[-1].ty
        return relax.call_tir(kernel, list(given),
                              relax.TensorType(result.shape, str(result.dtype)))

    with bb.function("main", [image]):
        with bb.dataflow():
            features = bb.emit(call("images", images_in_registers(
                images(batch, lanes, width), intrinsic, lanes, width), image,
                *map(relax.const, (np.ascontiguousarray(conv), conv_bias)), *fractions[0]))
            sums = bb.emit(call("product", product(
                batch, wide.shape[1], len(wide), lanes, width, intrinsic), features,
                relax.const(intrinsics.as_read(wide, lanes, width))))
            found = bb.emit(computed(hidden, sums, relax.const(wide_bias), *fractions[1]))
            sums = bb.emit(call("last", product(
                batch, head.shape[1], len(head), lanes, width, intrinsic), found,
                relax.const(intrinsics.as_read(head, lanes, width))))
            output = bb.emit_output(computed(
                probabilities, sums, relax.const(head_bias), relax.const(unit)))
        bb.emit_func_output(output)
    return bb.get()


@mutator
class _Lifted(PyExprMutator):
    """Replaces constants by variables, and keeps both, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[relax.Var, np.ndarray] = {}

    def visit_generic_const_(self, constant: relax.Expr) -> relax.Var:
        variable = relax.Var(f"constant{len(self.found)}", constant.ty)
        self.found[variable] = constant.value.numpy()
        return variable


def one_program(mod: tvm.IRModule) -> tuple[tirx.PrimFunc, np.ndarray]:
    """Return `model` as one PrimFunc, and its constants as one array, float32 (n,).

    The PrimFunc takes an image, this array, and the probabilities, which it fills: what shim.c
    hands over. The constants have several types: the array only carries their bytes, and each
    begins at a multiple of 64, as TVM expects of tensors. Parallel loops become serial: in C there
    is no pool of threads.
    """
    main, lifted = mod["main"], _Lifted()
    body = lifted.visit_expr(main.body)
    whole = relax.Function([*main.params, *lifted.found], body, main.ret_ty)
    bb = relax.BlockBuilder(tvm.IRModule(
        {variable: func for variable, func in mod.functions_items() if func != main}))
    kernel = bb.add_func(whole.with_attr("Primitive", True), "cnn")
    inputs = [relax.Var(each.name, each.ty) for each in whole.params]
    with bb.function("main", inputs):
        with bb.dataflow():
            output = bb.emit_output(relax.Call(kernel, inputs))
        bb.emit_func_output(output)
    func = relax.transform.FuseTIR()(bb.get())["cnn"]
    image, *constants, probabilities = func.params
    filled = [np.pad(each.ravel().view("uint8"), (0, -each.nbytes % 64))
              for each in lifted.found.values()]
    packed = np.concatenate(filled).view("float32")
    numbers = tirx.decl_buffer(packed.shape, "float32", "numbers")
    places = np.cumsum([0, *map(len, filled[:-1])]).tolist()
    views = [tirx.DeclBuffer(each, data=T.handle_add_byte_offset(numbers.data, place))
             for each, place in zip(constants, places, strict=True)]
    root = func.body.block
    serial = tvm_ffi.structural_map(root.body, (tirx.For, lambda loop: tirx.For(
        loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
        if loop.kind == tirx.ForKind.PARALLEL else loop))
    block = s_tir.SBlock([], [], [], "root", tirx.SeqStmt([*views, serial]),
                         alloc_buffers=root.alloc_buffers)
    return tirx.PrimFunc([image, numbers, probabilities], s_tir.SBlockRealize([], True, block),
                         attrs=func.attrs), packed
