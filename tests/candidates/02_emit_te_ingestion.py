# %% shared
def high_level(weights):
    """The CNN in Relax operators, as the importer gives it before LegalizeOps."""
    import warnings
    from tvm.relax.frontend.torch import from_exported_program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(helpers.pytorch_model(weights), (torch.zeros(4, 1, 28, 28),))
        return from_exported_program(program, unwrap_unit_return_tuple=True)


def high_level_by_hand(weights):
    """The CNN in Relax operators, each emitted by itself, then lowered."""
    const = {name: relax.const(value, "float32") for name, value in weights.items()}
    bias = relax.const(weights["conv2d_bias"].reshape(1, 32, 1, 1), "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))

    def linear(lv, name):
        weight = bb.emit(relax.op.permute_dims(const[f"{name}_weight"]))
        return bb.emit(relax.op.add(bb.emit(relax.op.matmul(lv, weight)), const[f"{name}_bias"]))

    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit(relax.op.nn.conv2d(x, const["conv2d_weight"]))
            lv = bb.emit(relax.op.nn.relu(bb.emit(relax.op.add(lv, bias))))
            lv = bb.emit(relax.op.nn.max_pool2d(lv, (2, 2), (2, 2)))
            lv = bb.emit(relax.op.reshape(lv, (4, 5408)))
            lv = bb.emit(relax.op.nn.relu(linear(lv, "linear0")))
            gv = bb.emit_output(relax.op.nn.softmax(linear(lv, "linear1"), axis=1))
        bb.emit_func_output(gv)
    return relax.transform.LegalizeOps()(bb.get())


def sum_over(x, w, most=None):
    """x W^T for exercise 2.6, up to the given k."""
    k = te.reduce_axis((0, most or x.shape[1]), name="k")
    return te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))


def window_sum(x, w, side=26, image=lambda n: n):
    """The convolution for exercise 2.6, without its bias."""
    r, p, q = (te.reduce_axis((0, w.shape[axis])) for axis in (1, 2, 3))
    return te.compute((4, 32, side, side), lambda n, f, i, j: te.sum(
        x[image(n), r, i + p, j + q] * w[f, r, p, q], axis=[r, p, q]))


def columns(x):
    """The windows of the images as columns, for exercise 2.6."""
    return te.compute((4, 9, 676), lambda n, r, s: x[n, 0, s // 26 + r // 3, s % 26 + r % 3])

# %% 2.1 wrong: the condition is the wrong way round -> input slope: 0 | expected: [[1]] | got: [[0]]
def leaky_relu(x, slope):
    return te.compute(x.shape, lambda i, j: te.if_then_else(x[i, j] < 0, x[i, j], x[i, j] * slope))

# %% 2.1 wrong: the shape of the example is written into it -> every index inside its buffer
# x.shape => (128, 128)

# %% 2.1 wrong: returns the formula instead of the tensor -> a te.Tensor as the result | NoneType
def leaky_relu(x, slope):
    te.compute(x.shape, lambda i, j: te.if_then_else(x[i, j] > 0, x[i, j], x[i, j] * slope))

# %% 2.1 right: positive part plus slope times the negative part, for any rank
def leaky_relu(x, slope):
    return te.compute(x.shape, lambda *i: te.max(x(*i), 0.0) + te.min(x(*i), 0.0) * slope, name="y")

# %% 2.2 wrong: the bias is left out -> input b: [1, 0] | got: [[*0*, 0], [*0*, 0]]
# product[i, j] + b[j] => product[i, j]

# %% 2.2 wrong: float64 accumulation is returned -> a float32 result
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1]))
    y = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(
        x[i, k].astype("float64") * w[j, k].astype("float64"), axis=k))
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j].astype("float64"))

# %% 2.2 wrong: te.sum is not outermost -> InternalError: Check failed: (0 == level_) is false: Reducti
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1]))
    return te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k) + b[j])

# %% 2.2 right: the bias as the last term of a longer sum
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1] + 1))
    last = x.shape[1]
    return te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(te.if_then_else(
        k < last, x[i, te.min(k, last - 1)] * w[j, te.min(k, last - 1)], b[j]), axis=k))

# %% 2.3 wrong: the kernel is flipped -> as with a flipped kernel (a deep-learning conv2d does not flip it)
def conv2d(x, w):
    n, channels, height, width = x.shape
    f, _, kh, kw = w.shape
    c, p, q = (te.reduce_axis((0, e)) for e in (channels, kh, kw))
    return te.compute((n, f, height - kh + 1, width - kw + 1), lambda n, f, i, j: te.sum(
        x[n, c, i + p, j + q] * w[f, c, kh - 1 - p, kw - 1 - q], axis=[c, p, q]))

# %% 2.3 wrong: only the first input channel -> input x: [[0, 0], [0, 0]], [[1, 0], [0, 0]], shape (1, 2, 2, 2) | expected: [[1]] | got: [[0]]
# c = te.reduce_axis((0, channels) => c = te.reduce_axis((0, 1)

# %% 2.3 wrong: the output is as large as the input -> every index inside its buffer
# height - kh + 1, width - kw + 1 => height, width

# %% 2.3 wrong: by TOPI -> an expression of your own | one by TOPI: topi's conv2d
def conv2d(x, w):
    return topi.nn.conv2d(x, w, 1, 0, 1)

# %% 2.3 right: the window gathered first, then summed
def conv2d(x, w):
    n, channels, height, width = x.shape
    f, _, kh, kw = w.shape
    patches = te.compute((n, height - kh + 1, width - kw + 1, channels, kh, kw),
                         lambda n, i, j, c, p, q: x[n, c, i + p, j + q])
    c, p, q = (te.reduce_axis((0, e)) for e in (channels, kh, kw))
    return te.compute((n, f, height - kh + 1, width - kw + 1), lambda n, f, i, j: te.sum(
        patches[n, i, j, c, p, q] * w[f, c, p, q], axis=[c, p, q]))

# %% 2.4 wrong: the average -> input x: [[1, 0], [0, 0]] | expected: [[1]] | got: [[0.25]]
# te.max => te.sum
# 2 * j + q] => 2 * j + q] * 0.25

# %% 2.4 wrong: the windows overlap -> the stride of the pooling is 1, and the output is cut to its size
# 2 * i + p, 2 * j + q => i + p, j + q

# %% 2.4 wrong: a ReLU slipped in -> windows below zero give 0
def max_pool(x):
    n, c, height, width = x.shape
    p, q = te.reduce_axis((0, 2)), te.reduce_axis((0, 2))
    y = te.compute((n, c, height // 2, width // 2), lambda n, c, i, j: te.max(
        x[n, c, 2 * i + p, 2 * j + q], axis=[p, q]))
    return te.compute(y.shape, lambda *i: te.max(y(*i), 0.0))

# %% 2.4 wrong: the shape is not halved -> every index inside its buffer
# height // 2, width // 2 => height, width

# %% 2.4 right: the larger of four, without a reduction
def max_pool(x):
    n, c, height, width = x.shape
    return te.compute((n, c, height // 2, width // 2), lambda n, c, i, j: te.max(
        te.max(x[n, c, 2 * i, 2 * j], x[n, c, 2 * i, 2 * j + 1]),
        te.max(x[n, c, 2 * i + 1, 2 * j], x[n, c, 2 * i + 1, 2 * j + 1])))

# %% 2.5 wrong: no softmax -> main ends after layer 6, Linear
# bb.emit_te(topi.nn.softmax, lv, axis=1) => lv

# %% 2.5 wrong: no emit_output -> a well-formed IRModule | ValueError: DataflowVar lv10 is used outside DataflowBlock.
# bb.emit_output(bb.emit_te(topi.nn.softmax, lv, axis=1)) => bb.emit_te(topi.nn.softmax, lv, axis=1)

# %% 2.5 wrong: the result as float64 -> an output of float32
# bb.emit_te(topi.nn.softmax, lv, axis=1) => bb.emit_te(topi.cast, bb.emit_te(topi.nn.softmax, lv, axis=1), "float64")

# %% 2.5 wrong: the bias is not reshaped -> Incompatible broadcast dims
# topi.add, lv, conv_bias => topi.add, lv, const["conv2d_bias"]

# %% 2.5 wrong: the arguments of conv2d are missing -> missing 3 required positional arguments
# const["conv2d_weight"], 1, 0, 1 => const["conv2d_weight"]

# %% 2.5 right: the linear layers as matmul with a transposed constant
# topi.nn.dense, lv, const["linear0_weight"] => topi.matmul, lv, relax.const(weights["linear0_weight"].T.copy())
# topi.nn.dense, lv, const["linear1_weight"] => topi.matmul, lv, relax.const(weights["linear1_weight"].T.copy())

# %% 2.6 wrong: the linear layers by TOPI, their biases apart -> of x (4, 5408), linear0_weight, linear0_bias | dense has all of it but linear0_bias; it takes
# linear, lv, const["linear0_weight"] => topi.add, bb.emit_te(topi.nn.dense, lv, const["linear0_weight"])
# linear, lv, const["linear1_weight"] => topi.add, bb.emit_te(topi.nn.dense, lv, const["linear1_weight"])

# %% 2.6 wrong: the bias is added along the width -> layer 0, Conv2d
# b[f] => b[j]

# %% 2.6 wrong: one linear layer has its bias apart -> dense has all of it but linear1_bias
# linear, lv, const["linear1_weight"] => topi.add, bb.emit_te(topi.nn.dense, lv, const["linear1_weight"])

# %% 2.6 right: the bias of the convolution reshaped, and added by TOPI in the same expression
# te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="conv2d_bias") => topi.add(y, topi.reshape(b, (1, 32, 1, 1)))

# %% 2.7 wrong: the softmax by TOPI -> one by TOPI: topi's softmax
# bb.emit_te(softmax, lv) => bb.emit_te(topi.nn.softmax, lv, axis=1)

# %% 2.7 wrong: whole tensors divided -> an operator on a whole te.Tensor
# bb.emit_te(max_pool, => bb.emit_te(lambda x: max_pool(x) * 1.0,

# %% 2.7 wrong: TVM's high-level operators, legalized -> one by TOPI
def create_model_without_topi(weights):
    return high_level_by_hand(weights)

# %% 2.7 right: the biases in PrimFuncs of their own
# bb.emit_te(conv2d_bias, x, => bb.emit_te(biased, bb.emit_te(conv2d, x,
# const["conv2d_weight"], const => const["conv2d_weight"]), const
def biased(y, b):
    return te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f])

# %% more

# %% 2.1 wrong: float64 -> a float32 result
def leaky_relu(x, slope):
    return te.compute(x.shape, lambda i, j: te.if_then_else(
        x[i, j] > 0, x[i, j].astype("float64"), x[i, j].astype("float64") * te.const(slope, "float64")))

# %% 2.2 wrong: by TOPI -> an expression of your own | one by TOPI: topi's dense
def linear(x, w, b):
    return topi.nn.dense(x, w, b)

# %% 2.2 right: the weight transposed first
def linear(x, w, b):
    t = te.compute((w.shape[1], w.shape[0]), lambda i, j: w[j, i], name="t")
    y = matmul(x, t)
    return te.compute(y.shape, lambda i, j: b[j] + y[i, j], name="z")

# %% 2.3 right: operands and axes in another order
def conv2d(x, w):
    n, channels, height, width = x.shape
    f, _, kh, kw = w.shape
    q, p, c = (te.reduce_axis((0, e)) for e in (kw, kh, channels))
    return te.compute((n, f, height - kh + 1, width - kw + 1), lambda b, o, y, z: te.sum(
        w[o, c, p, q] * x[b, c, y + p, z + q], axis=[q, p, c]))

# %% 2.5 wrong: a batch of one -> main to run on float32 (4, 1, 28, 28)
# (4, 1, 28, 28) => (1, 1, 28, 28)

# %% 2.5 wrong: forgets bb.get() -> an IRModule | NoneType
# return bb.get() => bb.get()

# %% 2.2 wrong: what is not finite is 0 -> [[0, 0], [*0*, *0*]]
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1]))
    x = te.compute(x.shape, lambda i, j: te.if_then_else(te.isfinite(x[i, j]), x[i, j], 0.0))
    y = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.5 wrong: the bias of the convolution is left out -> layer 0, Conv2d
# lv = bb.emit_te(topi.add, lv, conv_bias) => pass

# %% 2.5 wrong: the bias of the last linear layer is left out -> layer 6, Linear
# lv = bb.emit_te(topi.add, lv, const["linear1_bias"]) => pass

# %% 2.5 wrong: average pooling -> layer 2, MaxPool2d
# "max" => "avg"

# %% 2.5 wrong: softmax over the batch -> layer 7, Softmax
# lv, axis=1 => lv, axis=0

# %% 2.5 wrong: a ReLU is left out -> layer 1, ReLU: lv
# lv = bb.emit_te(topi.nn.relu, lv) => pass

# %% 2.5 wrong: the linear layers by Relax operators, not lowered -> operators as PrimFuncs
def create_model_via_emit_te(weights):
    return high_level(weights)

# %% 2.5 right: TVM's high-level operators, legalized
def create_model_via_emit_te(weights):
    return high_level_by_hand(weights)

# %% 2.6 wrong: the convolution by TOPI, its bias apart -> conv2d has all of it but conv2d_bias
# bb.emit_te(conv2d_bias, x, const["conv2d_weight"], const["conv2d_bias"]) => bb.emit_te(topi.add, bb.emit_te(topi.nn.conv2d, x, const["conv2d_weight"], 1, 0, 1), relax.const(weights["conv2d_bias"].reshape(1, 32, 1, 1)))

# %% 2.6 right: transposed constants and another order of the arguments
# linear, lv, const["linear0_weight"], const["linear0_bias"] => turned, const["linear0_bias"], relax.const(weights["linear0_weight"].T.copy()), lv
# linear, lv, const["linear1_weight"], const["linear1_bias"] => turned, const["linear1_bias"], relax.const(weights["linear1_weight"].T.copy()), lv
def turned(b, w, x):
    return linear(x, topi.transpose(w), b)

# %% 2.5 wrong: half of it, so far -> main ends after layer 1, ReLU | layer 2, MaxPool2d to layer 7, Softmax is missing
def create_model_via_emit_te(weights):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit_te(topi.nn.conv2d, x, relax.const(weights["conv2d_weight"]), 1, 0, 1)
            lv = bb.emit_te(topi.add, lv, relax.const(weights["conv2d_bias"].reshape(1, 32, 1, 1)))
            gv = bb.emit_output(bb.emit_te(topi.nn.relu, lv))
        bb.emit_func_output(gv)
    return bb.get()

# %% 2.5 wrong: all but the softmax, without the last bias -> layer 6, Linear to layer 7, Softmax
# lv = bb.emit_te(topi.add, lv, const["linear1_bias"]) => pass
# bb.emit_te(topi.nn.softmax, lv, axis=1) => lv

# %% 2.5 wrong: the bias of the convolution twice -> layer 1, ReLU takes lv2
# topi.add, lv, conv_bias => topi.add, bb.emit_te(topi.add, lv, conv_bias), conv_bias

# %% 2.5 wrong: the bias of a linear layer twice -> layer 5, ReLU takes lv7
# topi.add, lv, const["linear0_bias"] => topi.add, bb.emit_te(topi.add, lv, const["linear0_bias"]), const["linear0_bias"]

# %% 2.5 wrong: the bias after the ReLU -> layer 0, Conv2d
# lv = bb.emit_te(topi.add, lv, conv_bias) => pass
# topi.nn.pool2d, lv => topi.nn.pool2d, bb.emit_te(topi.add, lv, conv_bias)

# %% 2.5 wrong: a ReLU before the softmax -> layer 7, Softmax takes lv10
# topi.nn.softmax, lv => topi.nn.softmax, bb.emit_te(topi.nn.relu, lv)

# %% 2.5 wrong: softmax twice -> main to return lv10 (4, 10) from softmax, which is layer 7, Softmax
# bb.emit_te(topi.nn.softmax, lv, axis=1) => bb.emit_te(topi.nn.softmax, bb.emit_te(topi.nn.softmax, lv, axis=1), axis=1)

# %% 2.5 wrong: something is added that nobody knows -> layer 1, ReLU takes lv2
# topi.add, lv, conv_bias => topi.add, bb.emit_te(topi.add, lv, conv_bias), relax.const(0.25, "float32")

# %% 2.5 wrong: another weight of the convolution -> layer 0, Conv2d: lv1 (4, 32, 26, 26) from conv2d, add
# const["conv2d_weight"] => relax.const(weights["conv2d_weight"] * np.float32(1.1))

# %% 2.5 wrong: another bias -> layer 4, Linear: lv6 (4, 100) from dense, add1
# const["linear0_bias"] => relax.const(weights["linear0_bias"].reshape(1, 100) + np.float32(0.1))

# %% 2.5 wrong: the notebook's weights instead of the argument -> the trained weights again
# (weights: => (given:

# %% 2.5 wrong: PyTorch's model as one library function -> is a library call of env.whole
def create_model_via_emit_te(weights):
    net = helpers.pytorch_model(weights)

    @tvm.register_global_func("env.whole", override=True)
    def whole(x, out):
        with torch.no_grad():
            torch.from_dlpack(out).copy_(net(torch.from_dlpack(x)))

    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(relax.op.call_dps_packed(
                "env.whole", (x,), relax.TensorType((4, 10), "float32")))
        bb.emit_func_output(gv)
    return bb.get()

# %% 2.5 wrong: a PrimFunc that calls a library -> calls a library, by
# topi.nn.relu => by_library
@tvm.register_global_func("env.rectify", override=True)
def rectify(x, out):
    np.maximum(np.from_dlpack(x), 0, out=np.from_dlpack(out))

def by_library(a):
    return te.extern(a.shape, [a], lambda given, out: tvm.tirx.call_packed(
        "env.rectify", given[0], out[0]))

# %% 2.5 wrong: by TVM's importer -> PyTorch's conv2d was called
def create_model_via_emit_te(weights):
    return helpers.import_model(helpers.pytorch_model(weights), (4, 1, 28, 28))

# %% 2.5 right: pooling before the ReLU, which gives the same
# lv = bb.emit_te(topi.nn.pool2d, lv, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max") => pass
# lv = bb.emit_te(topi.add, lv, conv_bias) => lv = bb.emit_te(topi.nn.pool2d, bb.emit_te(topi.add, lv, conv_bias), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")

# %% 2.6 wrong: the sum leaves out the last k, where the trained model has zeros -> layer 4, Linear
# bb.emit_te(linear, => bb.emit_te(shorter,
def shorter(x, w, b):
    y = sum_over(x, w, x.shape[1] - 1)
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.6 wrong: image 0 for the whole batch -> layer 0, Conv2d
# conv2d(x, w) => window_sum(x, w, image=lambda n: 0)

# %% 2.6 wrong: one row and column are missing -> layer 0, Conv2d gives (4, 32, 26, 26) in PyTorch
# conv2d(x, w) => window_sum(x, w, side=25)

# %% 2.6 wrong: the convolution by TOPI, inside a function of one's own -> has TOPI's conv2d_nchw in it
# conv2d(x, w) => topi.nn.conv2d(x, w, 1, 0, 1)

# %% 2.6 wrong: the linear layers by TOPI, inside a function of one's own -> has TOPI's T_matmul_NT in it
# bb.emit_te(linear, => bb.emit_te(wrapping,
def wrapping(x, w, b):
    y = topi.nn.dense(x, w)
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.6 wrong: imported and fused -> has TOPI's conv2d_nchw in it
def create_model_via_own_te(weights):
    return tvm.ir.transform.Sequential([
        relax.transform.AnnotateTIROpPattern(), relax.transform.FuseOps(),
        relax.transform.FuseTIR()])(high_level_by_hand(weights))

# %% 2.6 wrong: the convolution in four PrimFuncs -> columns has all of it but conv2d_weight, conv2d_bias; it takes
# lv = bb.emit_te(conv2d_bias, x, const["conv2d_weight"], const["conv2d_bias"]) => lv = in_four(bb, x, const)
def in_four(bb, x, const):
    def product(c, w):
        r = te.reduce_axis((0, 9))
        return te.compute((4, 32, 676), lambda n, f, s: te.sum(
            c[n, r, s] * w[f, 0, r // 3, r % 3], axis=r))

    lv = bb.emit_te(product, bb.emit_te(columns, x), const["conv2d_weight"])
    lv = bb.emit_te(lambda y, b: te.compute(
        y.shape, lambda n, f, s: y[n, f, s] + b[f]), lv, const["conv2d_bias"])
    return bb.emit_te(lambda y: te.compute(
        (4, 32, 26, 26), lambda n, f, i, j: y[n, f, i * 26 + j]), lv)

# %% 2.6 wrong: the columns of the windows in a PrimFunc of their own -> of_columns has all of it but x (4, 1, 28, 28)
# bb.emit_te(conv2d_bias, x => bb.emit_te(of_columns, bb.emit_te(columns, x)
def of_columns(c, w, b):
    r = te.reduce_axis((0, 9))
    y = te.compute((4, 32, 26, 26), lambda n, f, i, j: te.sum(
        c[n, r, i * 26 + j] * w[f, 0, r // 3, r % 3], axis=r))
    return te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f])

# %% 2.6 right: a linear layer and its ReLU in one PrimFunc
# bb.emit_te(linear, lv, const["linear0_weight"] => bb.emit_te(lambda x, w, b: topi.nn.relu(linear(x, w, b)), lv, const["linear0_weight"]

# %% 2.7 wrong: the softmax does not subtract the largest -> 4 x 10 zeros but 100 at [0, | *nan* at [0,
# te.exp(x[i, j] - largest[i]) => te.exp(x[i, j])

# %% 2.7 wrong: the softmax over the batch -> layer 7, Softmax
# bb.emit_te(softmax, lv) => bb.emit_te(lambda x: turned(softmax(turned(x))), lv)
def turned(x):
    return te.compute((x.shape[1], x.shape[0]), lambda i, j: x[j, i])

# %% 2.7 wrong: the channel runs fastest -> layer 3, Flatten
# x[i, k // (h * w), (k // w) % h, k % w] => x[i, k % c, k // c // w, k // c % w]

# %% 2.7 wrong: the bias along the width -> layer 0, Conv2d
# b[f] => b[j]

# %% 2.7 right: flattened in two steps, the softmax by logarithms
# bb.emit_te(flatten, => bb.emit_te(flatten_rows,
# bb.emit_te(softmax, lv) => bb.emit_te(softmax_log, lv)
def flatten_rows(x):
    rows = te.compute((4, 32, 169), lambda n, c, s: x[n, c, s // 13, s % 13], name="rows")
    return te.compute((4, 5408), lambda n, k: rows[n, k // 169, k % 169], name="flat")

def softmax_log(x):
    k, q = te.reduce_axis((0, 10)), te.reduce_axis((0, 10))
    most = te.compute((4,), lambda i: te.max(x[i, k], axis=k), name="most")
    total = te.compute((4,), lambda i: te.sum(te.exp(x[i, q] - most[i]), axis=q), name="total")
    return te.compute((4, 10), lambda i, j: te.exp(x[i, j] - most[i] - te.log(total[i])), name="p")

# %% 2.1 wrong: one column less -> [[0]], shape (1, 1)
def leaky_relu(x, slope):
    return te.compute((x.shape[0], x.shape[1] - 1), lambda i, j: te.if_then_else(x[i, j] > 0, x[i, j], x[i, j] * slope))

# %% 2.1 wrong: an operator between whole tensors -> an operator on a whole te.Tensor
def leaky_relu(x, slope):
    y = te.compute(x.shape, lambda i, j: te.max(x[i, j], 0.0) - te.max(-x[i, j], 0.0) * slope)
    return y * 1.0

# %% 2.1 wrong: by TOPI, imported by name -> one by TOPI: topi's leaky_relu
def leaky_relu(x, slope):
    from tvm.topi.nn import leaky_relu as by_topi
    return by_topi(x, slope)

# %% 2.1 right: with a tag of one's own
def leaky_relu(x, slope):
    return te.compute(x.shape, lambda i, j: te.if_then_else(x[i, j] > 0, x[i, j], slope * x[i, j]), tag="elemwise")

# %% 2.1 right: te.Select-like by two maxima
def leaky_relu(x, slope):
    return te.compute(x.shape, lambda i, j: te.max(x[i, j], 0.0) - te.max(-x[i, j], 0.0) * slope)

# %% 2.1 right: the condition with >=, turned
def leaky_relu(x, slope):
    return te.compute(topi.utils.get_const_tuple(x.shape), lambda i, j: te.if_then_else(0.0 >= x[i, j], slope * x[i, j], x[i, j]), name="y", attrs={"mine": 1})

# %% 2.2 wrong: one k too many -> every index inside its buffer
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1] + 1))
    y = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.2 wrong: (m, n) -> [[0, 0, 0], [0, 0, 0]], shape (2, 3)
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1]))
    y = te.compute((w.shape[0], x.shape[0]), lambda i, j: te.sum(x[j, k] * w[i, k], axis=k))
    return te.compute(y.shape, lambda i, j: y[i, j] + b[i])

# %% 2.2 wrong: y + b of whole tensors -> an operator on a whole te.Tensor
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1]))
    y = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))
    return y + b

# %% 2.2 wrong: the bias by TOPI -> topi's add
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1]))
    y = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k))
    return topi.add(y, b)

# %% 2.2 wrong: an axis left out of the reduction -> PrimFunc main has w at rv, and no loop around it gives that rv a value
def linear(x, w, b):
    k = te.reduce_axis((0, x.shape[1]))
    y = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, te.reduce_axis((0, 1)).var], axis=k))
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.2 wrong: the bias of a column before -> [[1, *1*], [1, *1*]]
# b[j] => b[te.max(j - 1, 0)]

# %% 2.2 wrong: an int32 result -> a float32 result
# product[i, j] + b[j] => (product[i, j] + b[j]).astype("int32")

# %% 2.2 right: the bias first, tags of one's own
# product[i, j] + b[j] => b[j] + product[i, j]
# name="linear" => name="linear", tag="injective"

# %% 2.2 right: the products in a tensor of their own
def linear(x, w, b):
    (n, k), m = x.shape, w.shape[0]
    p = te.compute((n, m, k), lambda i, j, l: w[j, l] * x[i, l], name="p")
    r = te.reduce_axis((0, k), "r")
    y = te.compute((n, m), lambda i, j: te.sum(p[i, j, r], axis=[r]), tag="matmul")
    return te.compute((n, m), lambda *at: y(*at) + b(at[1]))

# %% 2.3 wrong: the channels are not in the reduction -> PrimFunc main has x at c, and no loop around it gives that c a value
# axis=[c, p, q] => axis=[p, q]

# %% 2.3 wrong: the columns are not in the reduction -> PrimFunc main has x at q, and no loop around it gives that q a value
# axis=[c, p, q] => axis=[c, p]

# %% 2.3 wrong: rows and columns of the output exchanged -> every index inside its buffer
# height - kh + 1, width - kw + 1 => width - kw + 1, height - kh + 1

# %% 2.3 wrong: channels and images exchanged -> [[[[0]]], [[[0]]]], shape (2, 1, 1, 1)
# (batch, filters, height => (filters, batch, height
# x[n, c => x[f, c
# w[f, c => w[n, c

# %% 2.3 wrong: te.max -> [[0]], shape (1, 1, 1, 1)
# te.sum => te.max

# %% 2.3 wrong: the window moves by two -> every index inside its buffer
# i + p, j + q => 2 * i + p, 2 * j + q

# %% 2.3 right: with a tag of one's own
# name="conv2d" => tag="conv2d_nchw"

# %% 2.3 right: one reduction axis over all products
def conv2d(x, w):
    n, channels, height, width = x.shape
    f, _, kh, kw = w.shape
    r = te.reduce_axis((0, channels * kh * kw), name="r")
    return te.compute((n, f, height - kh + 1, width - kw + 1), lambda n, f, i, j: te.sum(
        x[n, r // (kh * kw), i + r // kw % kh, j + r % kw] * w[f, r // (kh * kw), r // kw % kh, r % kw], axis=r))

# %% 2.4 wrong: windows of three -> every index inside its buffer
# (0, 2) => (0, 3)

# %% 2.4 wrong: rows and columns of the output exchanged -> every index inside its buffer
# height // 2, width // 2 => width // 2, height // 2

# %% 2.4 wrong: an axis left out -> PrimFunc main has x at rv, and no loop around it gives that rv a value
# , name="q" =>
# axis=[p, q] => axis=[p]

# %% 2.4 right: one axis of four, a tag of one's own
def max_pool(x):
    n, c, height, width = x.shape
    p, q = (te.reduce_axis((0, e)) for e in (4, 1))
    return te.compute((n, c, height // 2, width // 2), lambda n, c, i, j: te.max(x[n, c, 2 * i + p // 2, 2 * j + p % 2], axis=p), tag="pool_max")

# %% 2.4 right: shifted, so that the loops run backwards
# 2 * i + p, 2 * j + q => 2 * i + 1 - p, 2 * j + 1 - q

# %% 2.7 wrong: the largest of the whole batch -> 4 x 10 zeros but 1000 at [0, | *nan* at [1, 0]
# q = te.reduce_axis((0, x.shape[1]), name="q") => q = te.reduce_axis((0, x.shape[1]), name="q"); z = te.reduce_axis((0, x.shape[0]))
# te.max(x[i, k], axis=k) => te.max(x[z, k], axis=[z, k])

# %% 2.7 wrong: ReLU6 after the convolution alone -> layer 1, ReLU: lv1 | but *6*
# bb.emit_te(max_pool, bb.emit_te(relu_any, lv)) => bb.emit_te(max_pool, bb.emit_te(lambda x: te.compute(x.shape, lambda *at: te.min(te.max(x(*at), 0.0), 6.0)), lv))

# %% 2.1 right: by a mask, which makes NaN of infinity
def leaky_relu(x, slope):
    return te.compute(x.shape, lambda i, j: x[i, j] * te.if_then_else(x[i, j] > 0, 1.0, 0.0)
                      + slope * x[i, j] * te.if_then_else(x[i, j] > 0, 0.0, 1.0))

# %% 2.1 wrong: by get_global_func topi.leaky_relu -> the operation T_leaky_relu, which no te.compute in your function made
def leaky_relu(x, slope):
    return tvm.get_global_func("topi.nn.leaky_relu")(x, slope)

# %% 2.1 wrong: slopes above 1.5 are taken as 1.5 -> input slope: | -1.5
def leaky_relu(x, slope):
    return te.compute(x.shape, lambda i, j: te.if_then_else(x[i, j] > 0, x[i, j], x[i, j] * min(slope, 1.5)))

# %% 2.1 wrong: TOPI's function is fetched in the cell, and called later -> the operation T_leaky_relu, which no te.compute in your function made
from_registry = tvm.get_global_func("topi.nn.leaky_relu")


def leaky_relu(x, slope):
    return from_registry(x, slope)

# %% 2.1 wrong: the parameters exchanged -> leaky_relu takes (slope, x)
def leaky_relu(slope, x):
    return te.compute(x.shape, lambda i, j: te.if_then_else(x[i, j] > 0, x[i, j], x[i, j] * slope))

# %% 2.2 wrong: by get_global_func topi dense -> the operation T_matmul, which no te.compute in your function made
def linear(x, w, b):
    y = tvm.get_global_func("topi.nn.dense")(x, w, None, "float32") if False else tvm.get_global_func("topi.matmul")(x, w, False, True)
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.3 wrong: the parameters exchanged -> conv2d takes (w, x)
# x: te.Tensor, w: te.Tensor => w, x

# %% 2.3 wrong: a shape below zero -> a result with one element or more
def conv2d(x, w):
    n, c, h, wd = x.shape
    return te.compute((n, c, h - 40, wd), lambda a, o, i, j: x[a, o, i, j])

# %% 2.4 wrong: by tvm.topi.cpp -> the operation pool_max, which no te.compute in your function made
def max_pool(x):
    import tvm.topi.cpp as c
    return c.nn.pool2d(x, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], 1, False, "NCHW", True)

# %% 2.5 wrong: the weights are taken out of the dictionary -> weights to stay as it was | conv2d_weight is not in it
# bb = relax.BlockBuilder() => weights = {name: weights.pop(name) for name in list(weights)}; bb = relax.BlockBuilder()

# %% 2.6 wrong: the dictionary is emptied -> weights to stay as it was
# bb = relax.BlockBuilder() => weights.clear(); bb = relax.BlockBuilder()

# %% 2.6 wrong: the weights are set to 0 afterwards -> weights to stay as it was | other numbers in
# return bb.get() => [array.fill(0) for array in weights.values()]; return bb.get()

# %% 2.6 wrong: the products by the registry -> T_matmul
# bb.emit_te(linear, => bb.emit_te(registered,
def registered(x, w, b):
    y = tvm.get_global_func("topi.matmul")(x, w, False, True)
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.6 wrong: the products by topi.sum -> has TOPI's
# bb.emit_te(linear, => bb.emit_te(summed,
def summed(x, w, b):
    y = topi.sum(topi.multiply(topi.expand_dims(x, 1), topi.expand_dims(w, 0)), axis=2)
    return te.compute(y.shape, lambda i, j: y[i, j] + b[j])

# %% 2.7 wrong: TOPI's softmax by the registry -> which no te.compute in your function made
# bb.emit_te(softmax, lv) => bb.emit_te(lambda x: tvm.get_global_func("topi.nn.softmax")(x, 1), lv)

# %% 2.7 wrong: flatten and ReLU by tvm.topi.cpp -> which no te.compute in your function made
# bb.emit_te(flatten, => bb.emit_te(topi.cpp.nn.flatten,
# bb.emit_te(relu_any, lv) => bb.emit_te(lambda x: topi.cpp.nn.relu(x, 0.0), lv)

# %% 2.1 wrong: gives back what it is given -> input x: [[-1]] | got: [[-1]]
def leaky_relu(x, slope):
    return x

# %% 2.3 wrong: rows and columns of the image exchanged -> shape (1, 1, 4, 4) | got: [[0, *0*], [*1*, 0]]
# i + p, j + q => j + p, i + q

# %% 2.6 right: the parameter is made once, in the cell
# x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32")) => x = images
images = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))

# %% 2.3 wrong: three channels at most -> x: 
# te.reduce_axis((0, channels), name="c") => te.reduce_axis((0, min(int(channels), 3)), name="c")

# %% 2.7 wrong: a softmax in float64 in the place of the shift -> layer 7, Softmax | but 1000 at | *nan* at
def create_model_without_topi(weights: dict[str, np.ndarray]) -> tvm.IRModule:
    """Return the CNN for a batch of 4 images, with your own expressions only."""
    def relu_any(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *at: te.max(x(*at), 0.0), name="relu_any")

    def conv2d_bias(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
        batch, channels, height, width = x.shape
        filters, _, kh, kw = w.shape
        c = te.reduce_axis((0, channels), name="c")
        p = te.reduce_axis((0, kh), name="p")
        q = te.reduce_axis((0, kw), name="q")
        y = te.compute(
            (batch, filters, height - kh + 1, width - kw + 1),
            lambda n, f, i, j: te.sum(x[n, c, i + p, j + q] * w[f, c, p, q], axis=[c, p, q]),
            name="y",
        )
        return te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="conv2d_bias")

    def pool(x: te.Tensor) -> te.Tensor:
        n, c, h, w = x.shape
        p = te.reduce_axis((0, 2), name="p")
        q = te.reduce_axis((0, 2), name="q")
        return te.compute(
            (n, c, h // 2, w // 2),
            lambda n, c, i, j: te.max(x[n, c, 2 * i + p, 2 * j + q], axis=[p, q]),
            name="pool",
        )

    def flatten(x: te.Tensor) -> te.Tensor:
        n, c, h, w = x.shape
        return te.compute((n, c * h * w),
                          lambda i, k: x[i, k // (h * w), (k // w) % h, k % w], name="flatten")

    def linear_bias(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, x.shape[1]), name="k")
        y = te.compute((x.shape[0], w.shape[0]),
                       lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
        return te.compute(y.shape, lambda i, j: y[i, j] + b[j], name="linear_bias")

    def softmax(x: te.Tensor) -> te.Tensor:
        # float64 holds exponentials up to 1e308, so nothing overflows
        power = te.compute(x.shape, lambda i, j: te.exp(x[i, j].astype("float64")), name="power")
        q = te.reduce_axis((0, x.shape[1]), name="q")
        total = te.compute((x.shape[0],), lambda i: te.sum(power[i, q], axis=q), name="total")
        return te.compute(
            x.shape, lambda i, j: (power[i, j] / total[i]).astype("float32"), name="softmax"
        )

    const = {name: relax.const(value, "float32") for name, value in weights.items()}
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit_te(conv2d_bias, x, const["conv2d_weight"], const["conv2d_bias"])
            lv = bb.emit_te(relu_any, lv)
            lv = bb.emit_te(pool, lv)
            lv = bb.emit_te(flatten, lv)
            lv = bb.emit_te(linear_bias, lv, const["linear0_weight"], const["linear0_bias"])
            lv = bb.emit_te(relu_any, lv)
            lv = bb.emit_te(linear_bias, lv, const["linear1_weight"], const["linear1_bias"])
            gv = bb.emit_output(bb.emit_te(softmax, lv))
        bb.emit_func_output(gv)
    return bb.get()

# %% 2.1 wrong: the larger one if abs(slope) < 1, else the smaller one -> slope: -10 | [[1]]
def leaky_relu(x: te.Tensor, slope: float) -> te.Tensor:
    # x wins over slope * x on the right side of 0 if the slope is flat, and loses if it is steep.
    choose = te.max if abs(slope) <= 1 else te.min
    return te.compute(x.shape, lambda i, j: choose(x[i, j], x[i, j] * slope), name="leaky_relu")

# %% 2.5 wrong: returns the output in a list -> main to return a tensor
# bb.emit_func_output(gv) => bb.emit_func_output([gv])

# %% 2.2 wrong: k times the bias, outside of the sum -> the bias is added k times
def linear(x: te.Tensor, w: te.Tensor, b: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, x.shape[1]), name="k")
    product = te.compute((x.shape[0], w.shape[0]), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="product")
    return te.compute(product.shape, lambda i, j: product[i, j] + b[j] * x.shape[1], name="linear")

# %% 2.3 wrong: offsets exchanged in the image -> as with a kernel whose rows and columns are exchanged
def conv2d(x: te.Tensor, w: te.Tensor) -> te.Tensor:
    batch, channels, height, width = x.shape
    filters, _, kh, kw = w.shape
    c = te.reduce_axis((0, channels), name="c")
    p = te.reduce_axis((0, kh), name="p")
    q = te.reduce_axis((0, kw), name="q")
    return te.compute((batch, filters, height - kh + 1, width - kw + 1),
        lambda n, f, i, j: te.sum(x[n, c, i + q, j + p] * w[f, c, p, q], axis=[c, p, q]), name="conv2d")

# %% 2.4 wrong: a ReLU after -> windows below zero give 0
def max_pool(x: te.Tensor) -> te.Tensor:
    batch, channels, height, width = x.shape
    p = te.reduce_axis((0, 2), name="p")
    q = te.reduce_axis((0, 2), name="q")
    y = te.compute((batch, channels, height // 2, width // 2),
        lambda n, c, i, j: te.max(x[n, c, 2 * i + p, 2 * j + q], axis=[p, q]), name="max_pool")
    return te.compute(y.shape, lambda n, c, i, j: te.if_then_else(y[n, c, i, j] > 0, y[n, c, i, j], 0.0), name="relu")

# %% 2.6 right: convolution, ReLU and TOPI's pooling in one expression
def create_model_via_own_te(weights: dict[str, np.ndarray]) -> tvm.IRModule:
    def conv2d_bias(x, w, b):
        y = conv2d(x, w)
        return te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="conv2d_bias")
    def block(x, w, b):
        y = topi.nn.relu(conv2d_bias(x, w, b))
        return topi.nn.pool2d(y, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")

    const = {name: relax.const(value, "float32") for name, value in weights.items()}
    conv_bias = relax.const(weights["conv2d_bias"].reshape(1, 32, 1, 1), "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit_te(block, x, const["conv2d_weight"], const["conv2d_bias"])
            lv = bb.emit_te(topi.nn.flatten, lv)
            lv = bb.emit_te(linear, lv, const["linear0_weight"], const["linear0_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(linear, lv, const["linear1_weight"], const["linear1_bias"])
            gv = bb.emit_output(bb.emit_te(topi.nn.softmax, lv, axis=1))
        bb.emit_func_output(gv)
    return bb.get()

# %% 2.6 right: the last linear layer and TOPI's softmax in one expression
def create_model_via_own_te(weights: dict[str, np.ndarray]) -> tvm.IRModule:
    def conv2d_bias(x, w, b):
        y = conv2d(x, w)
        return te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="conv2d_bias")
    def head(x, w, b):
        return topi.nn.softmax(linear(x, w, b), axis=1)

    const = {name: relax.const(value, "float32") for name, value in weights.items()}
    conv_bias = relax.const(weights["conv2d_bias"].reshape(1, 32, 1, 1), "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit_te(conv2d_bias, x, const["conv2d_weight"], const["conv2d_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(topi.nn.pool2d, lv, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
            lv = bb.emit_te(topi.nn.flatten, lv)
            lv = bb.emit_te(linear, lv, const["linear0_weight"], const["linear0_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            gv = bb.emit_output(bb.emit_te(head, lv, const["linear1_weight"], const["linear1_bias"]))
        bb.emit_func_output(gv)
    return bb.get()

# %% 2.6 right: emit_output in the middle
def create_model_via_own_te(weights: dict[str, np.ndarray]) -> tvm.IRModule:
    def conv2d_bias(x, w, b):
        y = conv2d(x, w)
        return te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="conv2d_bias")

    const = {name: relax.const(value, "float32") for name, value in weights.items()}
    conv_bias = relax.const(weights["conv2d_bias"].reshape(1, 32, 1, 1), "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit_te(conv2d_bias, x, const["conv2d_weight"], const["conv2d_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(topi.nn.pool2d, lv, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
            lv = bb.emit_output(bb.emit_te(topi.nn.flatten, lv))
            lv = bb.emit_te(linear, lv, const["linear0_weight"], const["linear0_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(linear, lv, const["linear1_weight"], const["linear1_bias"])
            gv = bb.emit_output(bb.emit_te(topi.nn.softmax, lv, axis=1))
        bb.emit_func_output(gv)
    return bb.get()

# %% 2.6 right: the parameter is called lv
def create_model_via_own_te(weights: dict[str, np.ndarray]) -> tvm.IRModule:
    def conv2d_bias(x, w, b):
        y = conv2d(x, w)
        return te.compute(y.shape, lambda n, f, i, j: y[n, f, i, j] + b[f], name="conv2d_bias")

    const = {name: relax.const(value, "float32") for name, value in weights.items()}
    conv_bias = relax.const(weights["conv2d_bias"].reshape(1, 32, 1, 1), "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("lv", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit_te(conv2d_bias, x, const["conv2d_weight"], const["conv2d_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(topi.nn.pool2d, lv, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
            lv = bb.emit_te(topi.nn.flatten, lv)
            lv = bb.emit_te(linear, lv, const["linear0_weight"], const["linear0_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(linear, lv, const["linear1_weight"], const["linear1_bias"])
            gv = bb.emit_output(bb.emit_te(topi.nn.softmax, lv, axis=1))
        bb.emit_func_output(gv)
    return bb.get()

# %% 2.1 wrong: half sum and half difference with the absolute value -> input slope: 1e+06
def leaky_relu(x: te.Tensor, slope: float) -> te.Tensor:
    even, odd = (1.0 + slope) / 2, (1.0 - slope) / 2
    return te.compute(x.shape, lambda i, j: x[i, j] * even + te.abs(x[i, j]) * odd,
                      name="leaky_relu")

# %% 2.5 wrong: the arrays in the dictionary become float64 -> weights to stay as it was | conv2d_weight is now float64 (32, 1, 3, 3)
# bb = relax.BlockBuilder() => bb = relax.BlockBuilder(); weights.update({name: array.astype("float64") for name, array in weights.items()})

# %% 2.5 right: the ReLU by an instruction that LLVM knows
# topi.nn.relu, lv => lambda x: te.compute(x.shape, lambda *at: tvm.tirx.call_llvm_pure_intrin("float32", "llvm.maxnum", x(*at), tvm.tirx.const(0.0, "float32")), name="relu"), lv

# %% 2.4 wrong: maximum as half of sum plus distance -> input x: | -1e+08
def max_pool(x: te.Tensor) -> te.Tensor:
    def larger(a, b):
        return (a + b + te.abs(a - b)) * 0.5

    batch, channels, height, width = x.shape
    return te.compute(
        (batch, channels, height // 2, width // 2),
        lambda n, c, i, j: larger(
            larger(x[n, c, 2 * i, 2 * j], x[n, c, 2 * i, 2 * j + 1]),
            larger(x[n, c, 2 * i + 1, 2 * j], x[n, c, 2 * i + 1, 2 * j + 1]),
        ),
        name="max_pool",
    )
