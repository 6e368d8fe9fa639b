# %% 3.1 wrong: out is rebound -> the memory of out to be written | only the NaN from before
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        out = torch.softmax(torch.from_dlpack(x), 1)

# %% 3.1 wrong: registered under another name -> env.soft_max
# env.softmax => env.soft_max

# %% 3.1 wrong: cannot be registered again -> RuntimeError: Global Function `env.softmax` is already
# , override=True =>

# %% 3.1 wrong: over the batch -> input x: [[0, 0, 0], [0, 0, 0]] | got: [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
# axis=1 => axis=0

# %% 3.1 wrong: the exponentials overflow -> input x: [[1000, 0], [0, 0]] | *nan*
# scores - scores.max(axis=1, keepdims=True) => scores

# %% 3.1 right: NumPy in the memory of out
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        a, y = np.from_dlpack(x), np.from_dlpack(out)
        np.subtract(a, a.max(axis=1, keepdims=True), out=y)
        np.exp(y, out=y)
        y /= y.sum(axis=-1, keepdims=True)

# %% 3.2 wrong: a storage for each tensor in between -> input reads: | expected: 2 | got: 3
def storages_needed(reads):
    return len(reads) - 1

# %% 3.2 wrong: always two in turns -> input reads: [[0], [1], [2], [1, 3]] | expected: 3 | got: 2
def storages_needed(reads):
    return min(2, len(reads) - 1)

# %% 3.2 wrong: the input is counted too -> input reads: [[0]] | expected: 0 | got: 1
def storages_needed(reads):
    last = {n: call for call, numbers in enumerate(reads, 1) for n in numbers}
    return max(sum(n <= call <= until for n, until in last.items())
               for call in range(1, len(reads) + 1))

# %% 3.2 wrong: TVM's own plan is counted -> TVM was called: StaticPlanBlockMemory
def storages_needed(reads):
    return repr(helpers.bindings(planned(chain(reads)))).count("alloc_storage")

# %% 3.2 right: storages are taken and given back, as a planner does
def storages_needed(reads):
    last = {n: call for call, numbers in enumerate(reads, 1) for n in numbers}
    free = storages = 0
    for call, numbers in enumerate(reads[:-1], 1):
        if free:
            free -= 1
        else:
            storages += 1
        free += sum(last[n] == call for n in set(numbers) - {0})
    return storages

# %% 3.3 wrong: topi instead of env.linear -> one call of env.linear when main runs
# bb.emit(relax.op.call_dps_packed("env.linear", (x, w, b), out_type)) => bb.emit_te(topi.add, bb.emit_te(topi.nn.dense, x, w), b)

# %% 3.3 wrong: weight and bias are parameters of main -> main to run on x | main expects 3 arguments (x, w, b), but 1
# relax.const(weight, "float32"), relax.const(bias, "float32") => (relax.Var(name, relax.TensorType(array.shape, "float32")) for name, array in (("w", weight), ("b", bias)))
# "main", [x] => "main", [x, w, b]

# %% 3.3 wrong: the bias is left out of the call -> with (1, 784), (128, 784), (1, 128)
# (x, w, b) => (x, w)

# %% 3.3 wrong: bias before weight -> with (1, 784), (128,), (128, 784), (1, 128)
# (x, w, b) => (x, b, w)

# %% 3.3 wrong: shapes of the example instead of the arrays' -> out (1, 5)
# (1, m) => (1, 128)

# %% 3.3 right: parameters that BindParams makes constants, no dataflow block
def create_linear_module(weight, bias):
    m, k = weight.shape
    x, w, b = (relax.Var(name, relax.TensorType(shape, "float32"))
               for name, shape in [("x", (1, k)), ("w", (m, k)), ("b", (m,))])
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w, b]):
        gv = bb.emit(relax.op.call_dps_packed(
            "env.linear", [x, w, b], relax.TensorType((1, m), "float32")))
        bb.emit_func_output(gv)
    return relax.transform.BindParams("main", {"w": weight, "b": bias})(bb.get())

# %% shared
def torch_conv2d(function, name="env.conv2d"):
    """Register a function of four PyTorch tensors as a library function."""
    @tvm.register_global_func(name, override=True)
    def conv2d(*tensors):
        return function(*map(torch.from_dlpack, tensors))


def numpy_conv2d(function):
    """Register a function of four arrays as a library function."""
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(*tensors):
        return function(*map(np.from_dlpack, tensors))


def windows_of(x, w):
    return np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))

# %% 3.4 wrong: another name -> no such name; new names: env.conv
# env.conv2d => env.conv

# %% 3.4 wrong: bias not flattened for PyTorch -> env.conv2d to run on x (1, 1, 2, 2)
# bias.flatten() => bias

# %% 3.4 wrong: out is rebound -> the memory of out to be written | only the NaN from before
# result.copy_(nn.functional.conv2d(images, kernels, bias.flatten())) => result = nn.functional.conv2d(images, kernels, bias.flatten())

# %% 3.4 wrong: returns instead of writing -> out to be written | out still holds only the NaN from before the call, and a value
# result.copy_(nn.functional.conv2d(images, kernels, bias.flatten())) => return nn.functional.conv2d(images, kernels, bias.flatten())

# %% 3.4 right: bias added in place, slices
def register_conv2d():
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        x, w, b, out = map(torch.from_dlpack, (x, w, b, out))
        out[:] = torch.conv2d(x, w)
        out += b

# %% 3.5 wrong: PyTorch does it -> PyTorch's conv2d was called
def register_conv2d_numpy():
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        product = nn.functional.conv2d(torch.from_dlpack(x), torch.from_dlpack(w))
        np.from_dlpack(out)[...] = np.from_dlpack(product) + np.from_dlpack(b)

# %% 3.5 wrong: PyTorch's unfold, then NumPy -> NumPy alone in env.conv2d
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        columns = nn.functional.unfold(torch.from_numpy(x), w.shape[2:]).numpy()
        product = w.reshape(len(w), -1) @ columns
        out[...] = product.reshape(out.shape) + b
    numpy_conv2d(conv2d)

# %% 3.5 wrong: weight flipped -> as with a flipped kernel (a deep-learning conv2d does not flip it)
# windows, kernels => windows, kernels[:, :, ::-1, ::-1]

# %% 3.5 wrong: bias along the width -> env.conv2d to run on x (1, 1, 2, 2)
# result += bias => result += bias.ravel()

# %% 3.5 right: nine shifts
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        height, width = out.shape[2:]
        out[...] = b
        for p in range(w.shape[2]):
            for q in range(w.shape[3]):
                out += np.einsum("ncij,fc->nfij", x[:, :, p:p + height, q:q + width], w[:, :, p, q])
    numpy_conv2d(conv2d)

# %% shared
def library_cnn(weights, name="env.conv2d", order=("conv2d_weight", "conv2d_bias"),
                out=(4, 32, 26, 26), conv="library", softmax=True, relu=True, pool="max",
                bias_after=False, bias_shape=(1, 32, 1, 1), x_shape=(4, 1, 28, 28),
                linear="topi", weight_dtype="float32", output="last"):
    """The CNN with a library convolution, with room for one mistake."""
    def const(key, *shape, dtype="float32"):
        shapes = {"conv2d_bias": bias_shape, "linear0_bias": (1, 100), "linear1_bias": (1, 10)}
        return relax.const(weights[key].reshape(shapes.get(key, weights[key].shape)), dtype)

    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(x_shape, "float32"))

    def dense(lv, key, size):
        if linear in ("library", "exchanged"):
            given = [const(f"{key}_weight"), const(f"{key}_bias")]
            return bb.emit(relax.op.call_dps_packed(
                "env.linear", (lv, *(given[::-1] if linear == "exchanged" else given)),
                relax.TensorType((4, size), "float32")))
        lv = bb.emit_te(topi.nn.dense, lv, const(f"{key}_weight"))
        return bb.emit_te(topi.add, lv, const(f"{key}_bias"))

    with bb.function("main", [x]):
        with bb.dataflow():
            inputs = (x, *(const(key, dtype=weight_dtype if "weight" in key else "float32")
                           for key in order))
            if conv != "topi":
                lv = bb.emit(relax.op.call_dps_packed(name, inputs, relax.TensorType(out, "float32")))
                if conv == "twice":
                    lv = bb.emit(relax.op.call_dps_packed(name, inputs, relax.TensorType(out, "float32")))
            if conv in ("topi", "both"):
                lv = bb.emit_te(topi.nn.conv2d, x, const("conv2d_weight"), 1, 0, 1)
                lv = bb.emit_te(topi.add, lv, const("conv2d_bias"))
            if bias_after:
                lv = bb.emit_te(topi.add, lv, const("conv2d_bias"))
            if relu:
                lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(topi.nn.pool2d, lv, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), pool)
            lv = bb.emit_te(topi.nn.flatten, lv)
            lv = bb.emit_te(topi.nn.relu, dense(lv, "linear0", 100))
            lv = dense(lv, "linear1", 10)
            if softmax and linear == "library":
                lv = bb.emit(relax.op.call_dps_packed("env.softmax", (lv,), lv.ty))
            elif softmax:
                lv = bb.emit_te(topi.nn.softmax, lv, 1)
            gv = bb.emit_output(lv)
        bb.emit_func_output(gv)
    return bb.get()


def by_operators(weights):
    """The CNN with a library convolution and high-level operators."""
    const = constants(weights)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit(relax.op.call_dps_packed(
                "env.conv2d", (x, const["conv2d_weight"], const["conv2d_bias"]),
                relax.TensorType((4, 32, 26, 26), "float32")))
            lv = bb.emit(relax.op.nn.relu(lv))
            lv = bb.emit(relax.op.nn.max_pool2d(lv, (2, 2), (2, 2)))
            lv = bb.emit(relax.op.reshape(lv, (4, 5408)))
            lv = bb.emit(relax.op.matmul(lv, relax.op.permute_dims(const["linear0_weight"])))
            lv = bb.emit(relax.op.nn.relu(relax.op.add(lv, const["linear0_bias"])))
            lv = bb.emit(relax.op.matmul(lv, relax.op.permute_dims(const["linear1_weight"])))
            lv = bb.emit(relax.op.nn.softmax(relax.op.add(lv, const["linear1_bias"])))
            gv = bb.emit_output(lv)
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.6 wrong: bias forgotten in the call -> with (4, 1, 28, 28), (32, 1, 3, 3), (4, 32, 26, 26)
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, order=("conv2d_weight",))

# %% 3.6 wrong: bias before weight -> with (4, 1, 28, 28), (1, 32, 1, 1), (32, 1, 3, 3), (4, 32,
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, order=("conv2d_bias", "conv2d_weight"))

# %% 3.6 wrong: bias not reshaped -> b (1, 32, 1, 1)
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, bias_shape=(32,))

# %% 3.6 wrong: output type in the shape of the input -> Reduction dimensions of dense do not match
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, out=(4, 32, 28, 28))

# %% 3.6 wrong: weight in float64 -> float64 (32, 1, 3, 3)
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, weight_dtype="float64")

# %% 3.6 right: linear layers and the softmax by the library too
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, linear="library")

# %% more

# %% 3.1 wrong: works in x -> x to stay as it was
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        e = np.from_dlpack(x)
        e -= e.max(1, keepdims=True)
        np.exp(e, out=e)
        np.from_dlpack(out)[...] = e / e.sum(1, keepdims=True)

# %% 3.1 right: loops, and float64 inside
import math

def register_softmax():
    def softmax(scores, result):
        for row, y in zip(np.from_dlpack(scores), np.from_dlpack(result)):
            e = [math.exp(float(v) - float(row.max())) for v in row]
            y[:] = np.array(e) / sum(e)
    tvm.register_global_func("env.softmax", softmax, override=True)

# %% 3.2 right: a matrix of calls and tensors
def storages_needed(reads):
    needed = np.zeros((len(reads) + 1, len(reads) + 1), bool)
    for call, numbers in enumerate(reads, 1):
        for n in numbers:
            needed[n:call + 1, n] = True
    return needed[:, 1:-1].sum(axis=1).max(initial=0)

# %% 3.3 wrong: the output in the shape of x -> with (1, 784), (128, 784), (128,), (1, 784)
# (1, m) => (1, k)

# %% 3.3 wrong: float64 constants -> float64 (128, 784)
# (weight, "float32"), relax.const(bias, "float32") => (weight, "float64"), relax.const(bias, "float64")

# %% 3.3 wrong: the name is misspelt -> Cannot find ffi::Function env.Linear
# env.linear => env.Linear

# %% 3.3 wrong: returns the builder -> an IRModule | BlockBuilder
# return bb.get() => return bb

# %% 3.3 wrong: forgets emit_output -> well-formed
# bb.emit_output(lv) => lv

# %% 3.3 right: the call is emitted as the output
def create_linear_module(weight, bias):
    bb = relax.BlockBuilder()
    x = relax.Var("image", relax.TensorType((1, weight.shape[1]), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(relax.op.call_dps_packed(
                "env.linear", (x, relax.const(weight), relax.const(bias)),
                relax.TensorType((1, weight.shape[0]), "float32")))
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.4 wrong: bias flattened and then added -> env.conv2d to run on x (1, 1, 2, 2)
# kernels, bias.flatten()) => kernels) + bias.flatten()

# %% 3.4 wrong: padding 1 -> env.conv2d to run on x (1, 1, 2, 2)
# bias.flatten() => bias.flatten(), padding=1

# %% 3.4 wrong: padding "same" and cut off at the wrong end -> padding is 1, and the output is cut to its size
# bias.flatten()) => bias.flatten(), padding=1)[:, :, :result.shape[2], :result.shape[3]]

# %% 3.4 wrong: writes image 0 only -> [[[*nan*]]
# result.copy_(nn.functional.conv2d(images => result[0].copy_(nn.functional.conv2d(images[0]

# %% 3.4 wrong: float64 for the images alone -> env.conv2d to run on x (1, 1, 2, 2)
# (images => (images.double()

# %% 3.4 wrong: gives the view other memory -> the memory of out to be written | only the NaN from before
# result.copy_(nn.functional.conv2d(images, kernels, bias.flatten())) => result.data = nn.functional.conv2d(images, kernels, bias.flatten())

# %% 3.4 wrong: no override -> RuntimeError: Global Function `env.conv2d` is already
# , override=True =>

# %% 3.4 right: unfold and a matrix product
def register_conv2d():
    def conv2d(x, w, b, out):
        columns = nn.functional.unfold(x, w.shape[2:])
        torch.add((w.flatten(1) @ columns).reshape(out.shape), b, out=out)
    torch_conv2d(conv2d)

# %% 3.4 right: nn.Conv2d with these weights
def register_conv2d():
    def conv2d(x, w, b, out):
        layer = nn.Conv2d(w.shape[1], w.shape[0], tuple(w.shape[2:]))
        layer.weight.data, layer.bias.data = w, b.flatten()
        with torch.no_grad():
            out.copy_(layer(x))
    torch_conv2d(conv2d)

# %% 3.5 wrong: out is rebound -> the memory of out to be written | only the NaN from before
# np.einsum("ncijpq,fcpq->nfij", windows, kernels, out=result) => result = np.einsum("ncijpq,fcpq->nfij", windows, kernels)

# %% 3.5 wrong: loses the batch -> expected: [[[[0]]], [[[0]]]] | got: [[[[0]]], [[[*nan*]]]]
# "ncijpq,fcpq->nfij", windows, kernels, out=result => "cijpq,fcpq->fij", windows[0], kernels, out=result[0]

# %% 3.5 wrong: adds up in out without setting it to zero -> NaN, because out was full of NaN
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        height, width = out.shape[2:]
        for p in range(w.shape[2]):
            for q in range(w.shape[3]):
                out += np.einsum("ncij,fc->nfij", x[:, :, p:p + height, q:q + width], w[:, :, p, q])
        out += b
    numpy_conv2d(conv2d)

# %% 3.5 wrong: the last row and column are forgotten -> [[0, *nan*], [*nan*, *nan*]], shape (1, 1, 2, 2)
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        for i in range(out.shape[2] - 1):
            for j in range(out.shape[3] - 1):
                window = x[:, None, :, i:i + w.shape[2], j:j + w.shape[3]]
                out[:, :, i, j] = (window * w).sum((2, 3, 4)) + b.reshape(1, -1)
    numpy_conv2d(conv2d)

# %% 3.5 wrong: the sizes of the assignment are built in -> env.conv2d to run on x (1, 1, 2, 2)
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        columns = windows_of(x, w).reshape(len(x), 26 * 26, 9)
        out[...] = (columns @ w.reshape(32, 9).T).transpose(0, 2, 1).reshape(-1, 32, 26, 26) + b
    numpy_conv2d(conv2d)

# %% 3.5 right: tensordot, in float64, then copied
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        windows = windows_of(x.astype("float64"), w)
        out[...] = np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2) + b
    numpy_conv2d(conv2d)

# %% 3.5 right: loops over the places, im2col within
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        for i in range(out.shape[2]):
            for j in range(out.shape[3]):
                window = x[:, :, i:i + w.shape[2], j:j + w.shape[3]].reshape(len(x), -1)
                out[:, :, i, j] = window @ w.reshape(len(w), -1).T + b.reshape(1, -1)
    numpy_conv2d(conv2d)

# %% 3.6 wrong: another name -> Cannot find ffi::Function env.convolution
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, name="env.convolution")

# %% 3.6 wrong: for one image instead of four -> main
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, out=(1, 32, 26, 26), x_shape=(1, 1, 28, 28))

# %% 3.3 wrong: the bias is added outside of the library function -> to be given b as it is
# (x, w, b) => (x, w, relax.const(np.zeros_like(bias)))
# bb.emit_output(lv) => bb.emit_output(bb.emit_te(topi.add, lv, b))

# %% 3.6 wrong: topi.nn.conv2d instead of env.conv2d -> 0 calls in 250 batches
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, conv="topi")

# %% 3.6 wrong: calls env.conv2d and goes on with topi.nn.conv2d -> all of it to come from env.conv2d
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, conv="both")

# %% 3.6 wrong: calls env.conv2d twice -> 2 calls
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, conv="twice")

# %% 3.6 wrong: bias added after the call instead of in it -> with (4, 1, 28, 28), (32, 1, 3, 3), (4, 32, 26, 26)
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, order=("conv2d_weight",), bias_after=True)

# %% 3.6 wrong: bias added after the call as well -> layer 1, ReLU takes lv1 (4, 32, 26, 26) from add instead of lv
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, bias_after=True)

# %% 3.6 wrong: output type 27 by 27, which pools to the same size -> with (4, 1, 28, 28), (32, 1, 3, 3), (1, 32, 1, 1), (4, 32,
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, out=(4, 32, 27, 27))

# %% 3.6 wrong: softmax missing -> main ends after layer 6, Linear
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, softmax=False)

# %% 3.6 wrong: ReLU missing -> layer 1, ReLU: lv
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, relu=False)

# %% 3.6 wrong: average pooling -> layer 2, MaxPool2d
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, pool="avg")

# %% 3.6 right: high-level operators for the rest, lowered
def create_model_with_library_conv2d(weights):
    return relax.transform.LegalizeOps()(by_operators(weights))

# %% 3.6 right: high-level operators for the rest, left for relax.build to lower
def create_model_with_library_conv2d(weights):
    return by_operators(weights)

# %% 3.6 right: registers a convolution of its own on the way
def create_model_with_library_conv2d(weights):
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        np.from_dlpack(out)[...] = 0
    return library_cnn(weights)

# %% 3.1 wrong: returned -> a value was returned
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        return tvm.runtime.tensor(torch.softmax(torch.from_dlpack(x), 1).numpy())

# %% 3.1 wrong: as float64 numbers through PyTorch's out= -> env.softmax to run on x (2, 2)
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        torch.softmax(torch.from_dlpack(x), 1, dtype=torch.float64, out=torch.from_dlpack(out))

# %% 3.1 wrong: arguments in the order out, x -> x to stay as it was | env.softmax wrote into x
# x: tvm.runtime.Tensor, out: tvm.runtime.Tensor => out, x

# %% 3.1 wrong: out is returned too -> env.softmax to return nothing
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        torch.from_dlpack(out).copy_(torch.softmax(torch.from_dlpack(x), dim=1))
        return out

# %% 3.1 wrong: a value is returned too -> env.softmax to return nothing
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        a = np.from_dlpack(x)
        e = np.exp(a - a.max(axis=1, keepdims=True))
        np.from_dlpack(out)[...] = e / e.sum(axis=1, keepdims=True)
        return 0

# %% 3.1 wrong: one argument -> env.softmax to run on
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x):
        pass

# %% 3.1 right: log_softmax and exp
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        torch.exp(torch.log_softmax(torch.from_dlpack(x), dim=-1), out=torch.from_dlpack(out))

# %% 3.1 right: PyTorch's out=
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        torch.softmax(torch.from_dlpack(x), 1, out=torch.from_dlpack(out))

# %% 3.1 right: row by row
def register_softmax():
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        for a, o in zip(torch.from_dlpack(x), torch.from_dlpack(out)):
            o[:] = (a - a.logsumexp(0)).exp()

# %% 3.2 wrong: nothing is returned -> an int | None, of type NoneType
def storages_needed(reads):
    last = {n: call for call, numbers in enumerate(reads, 1) for n in numbers}

# %% 3.2 wrong: takes the lists apart -> reads to stay as it was
def storages_needed(reads):
    free = storages = 0
    reads.reverse()
    while len(reads) > 1:
        numbers = reads.pop()
        storages, free = (storages, free - 1) if free else (storages + 1, 0)
        free += sum(all(n not in later for later in reads) for n in set(numbers) - {0})
    return storages

# %% 3.2 wrong: fails where nothing lies in between -> max()
def storages_needed(reads):
    last = {n: call for call, numbers in enumerate(reads, 1) for n in numbers if n}
    return max(sum(n <= call <= last[n] for n in last) for call in range(1, len(reads)))

# %% 3.2 right: from the end, without noting who reads what last
def storages_needed(reads):
    waiting, most = set(), 0
    for call in range(len(reads), 0, -1):
        waiting |= set(reads[call - 1]) - {0}
        most = max(most, len(waiting | {call} - {len(reads)}))
        waiting.discard(call)
    return most

# %% 3.2 right: intervals, and the starts and ends in order
def storages_needed(reads):
    events = []
    for n in range(1, len(reads)):
        until = max(call for call, numbers in enumerate(reads, 1) if n in numbers)
        events += [(n, 1), (until + 0.5, -1)]
    now = most = 0
    for _, change in sorted(events):
        now += change
        most = max(most, now)
    return most

# %% 3.3 wrong: x of shape (k,) -> main to take x: R.Tensor((1, 1), | R.Tensor((1,), 
# (1, k) => (k,)

# %% 3.3 wrong: m and k exchanged -> input weight: [[0], [0]] | main to take x: R.Tensor((1, 1), | R.Tensor((1, 2),
# m, k = => k, m =

# %% 3.3 wrong: 784 and 128 written into it -> main to take x: R.Tensor((1, 1), | R.Tensor((1, 784),
# m, k = weight.shape => m, k = 128, 784

# %% 3.3 wrong: call_pure_packed -> env.linear with x (1, 784), w (128, 784), b (128,), out (1, 128) | with (1, 784), (128, 784), (128,)
# call_dps_packed("env.linear", (x, w, b), out_type) => call_pure_packed("env.linear", x, w, b, ty_args=out_type)

# %% 3.3 wrong: arrays in the place of constants -> got a numpy.ndarray, expected a relax.Expr
# (x, w, b) => (x, weight, bias)

# %% 3.3 wrong: one of them an array -> relax.const(array) makes one
# (x, w, b) => (x, w, bias)

# %% 3.3 wrong: a tuple is returned -> a tuple of 1
# emit_func_output(gv) => emit_func_output(relax.Tuple([gv]))

# %% 3.3 wrong: the output without its first axis -> with (1, 784), (128, 784), (128,), (128,)
# (1, m) => (m,)

# %% 3.3 wrong: zeros in the place of the weight -> 0 instead of 1 at [0, 0]
# relax.const(weight => relax.const(np.zeros_like(weight)

# %% 3.3 wrong: called twice -> 2 calls
def create_linear_module(weight, bias):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, weight.shape[1]), "float32"))
    arguments = x, relax.const(weight), relax.const(bias)
    with bb.function("main", [x]):
        for _ in range(2):
            gv = bb.emit(relax.op.call_dps_packed(
                "env.linear", arguments, relax.TensorType((1, len(bias)), "float32")))
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.3 wrong: main is float64 -> main to take x: R.Tensor((1, 1), | dtype="float64"
# (1, k), "float32" => (1, k), "float64"

# %% 3.3 right: for any number of rows
# m, k = weight.shape => (m, k), n = weight.shape, tvm.tirx.Var("n", "int64")
# (1, k) => (n, k)
# (1, m) => (n, m)

# %% 3.4 right: in double precision, then copied
def register_conv2d():
    def conv2d(x, w, b, out):
        out.copy_(nn.functional.conv2d(x.double(), w.double()) + b.double())
    torch_conv2d(conv2d)

# %% 3.4 wrong: writes out and returns it too -> env.conv2d to return nothing
# result.copy_ => return result.copy_

# %% 3.4 wrong: with NumPy alone -> the convolution by means of PyTorch
def register_conv2d():
    def conv2d(x, w, b, out):
        out[...] = np.einsum("ncijpq,fcpq->nfij", windows_of(x, w), w) + b
    numpy_conv2d(conv2d)

# %% 3.4 wrong: squeeze, which leaves no axis for one output channel -> env.conv2d to run on x (1, 1, 2, 2), w (1, 1, 2, 1), b (1, 1, 1, 1)
# bias.flatten() => bias.squeeze()

# %% 3.4 wrong: square windows -> env.conv2d to run on x (1, 1, 2, 3)
def register_conv2d():
    def conv2d(x, w, b, out):
        columns = nn.functional.unfold(x, w.shape[2])
        out.copy_((w.flatten(1) @ columns).reshape(out.shape) + b)
    torch_conv2d(conv2d)

# %% 3.4 right: shifts, each times its place of the kernel
def register_conv2d():
    def conv2d(x, w, b, out):
        height, width = out.shape[2:]
        out.copy_(b.expand_as(out))
        for p in range(w.shape[2]):
            for q in range(w.shape[3]):
                part = x[:, None, :, p:p + height, q:q + width] * w[None, :, :, p, q, None, None]
                out.add_(part.sum(2))
    torch_conv2d(conv2d)

# %% 3.4 right: einsum over unfolded windows, in a function without gradients
def register_conv2d():
    @torch.no_grad()
    def conv2d(x, w, b, out):
        windows = x.unfold(2, w.shape[2], 1).unfold(3, w.shape[3], 1)
        out[...] = torch.einsum("ncijpq,fcpq->nfij", windows, w) + b
    torch_conv2d(conv2d)

# %% 3.4 right: NumPy for the bias alone
def register_conv2d():
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        result = np.from_dlpack(out)
        result[...] = nn.functional.conv2d(torch.from_dlpack(x), torch.from_dlpack(w)).numpy()
        result += np.from_dlpack(b)

# %% 3.5 wrong: returns out too -> env.conv2d to return nothing
# result += bias => result += bias; return out

# %% 3.5 wrong: PyTorch in a pool of threads -> NumPy alone in env.conv2d
def register_conv2d_numpy():
    from concurrent.futures import ThreadPoolExecutor
    def conv2d(x, w, b, out):
        with ThreadPoolExecutor(2) as pool:
            out[...] = np.stack(list(pool.map(
                lambda image: nn.functional.conv2d(torch.from_numpy(image), torch.from_numpy(w)), x))) + b
    numpy_conv2d(conv2d)

# %% 3.5 wrong: squeezed axes -> env.conv2d to run on x (1, 1, 2, 2)
def register_conv2d_numpy():
    def conv2d(x, w, b, out):
        out[...] = np.einsum("ijpq,fpq->fij", windows_of(x, w).squeeze(), w.squeeze()) + b.squeeze()
    numpy_conv2d(conv2d)

# %% 3.5 wrong: TVM compiles the convolution -> TVM was called: 
def register_conv2d_numpy():
    from tvm import te, topi
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        places = [te.placeholder(tuple(array.shape)) for array in (x, w, b)]
        result = topi.add(topi.nn.conv2d(*places[:2], 1, 0, 1), places[2])
        tvm.compile(te.create_prim_func([*places, result]))(x, w, b, out)

# %% 3.5 right: images in threads, NumPy in each
def register_conv2d_numpy():
    from concurrent.futures import ThreadPoolExecutor
    def conv2d(x, w, b, out):
        def one(n):
            np.einsum("cijpq,fcpq->fij", windows_of(x, w)[n], w, out=out[n])
            out[n] += b[0]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, range(len(x))))
    numpy_conv2d(conv2d)

# %% 3.6 wrong: another library function for the rest -> is a library call of env.rest
def create_model_with_library_conv2d(weights):
    net = helpers.pytorch_model(weights)

    @tvm.register_global_func("env.rest", override=True)
    def rest(x, out):
        with torch.no_grad():
            torch.from_dlpack(out).copy_(net[1:](torch.from_dlpack(x)))

    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    const = constants(weights)
    with bb.function("main", [x]):
        with bb.dataflow():
            conv = bb.emit(relax.op.call_dps_packed(
                "env.conv2d", (x, const["conv2d_weight"], const["conv2d_bias"]),
                relax.TensorType((4, 32, 26, 26), "float32")))
            gv = bb.emit_output(relax.op.call_dps_packed(
                "env.rest", (conv,), relax.TensorType((4, 10), "float32")))
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.6 wrong: the notebook's weights instead of the argument -> the trained weights again
def create_model_with_library_conv2d(given):
    return library_cnn(cnn_weights)

# %% 3.4 wrong: cached weights of the first call -> input w: 4 x 2 x 3 x 3 zeros
_memo = {}
def register_conv2d():
    @tvm.register_global_func("env.conv2d", override=True)
    def f(x, w, b, out):
        X, W, B, O = map(torch.from_dlpack, (x, w, b, out))
        W = _memo.setdefault(tuple(W.shape), W.clone())
        O.copy_(nn.functional.conv2d(X, W, B.flatten()))

# %% 3.6 wrong: relu6 after the convolution -> layer 1, ReLU: lv1 | but *6*
# topi.nn.relu, conv => topi.clip, conv, 0.0, 6.0

# %% 3.5 wrong: cached weights of the first call -> input w: 4 x 2 x 3 x 3 zeros
def register_conv2d_numpy():
    memo = {}
    @tvm.register_global_func("env.conv2d", override=True)
    def f(x, w, b, out):
        X, W, B, O = map(np.from_dlpack, (x, w, b, out))
        W = memo.setdefault(W.shape, W.copy())
        v = np.lib.stride_tricks.sliding_window_view(X, W.shape[2:], axis=(2, 3))
        O[...] = np.einsum("nchwpq,fcpq->nfhw", v, W) + B

# %% 3.1 wrong: NaN among the scores is taken for 0 -> [[0, 0], [nan, 0]] | expected: [[0.5, 0.5], [nan, nan]] | got: [[0.5, 0.5], [*0.5*, *0.5*]]
def register_softmax():
    def softmax(x, out):
        scores = np.nan_to_num(np.from_dlpack(x), nan=0.0, neginf=0.0)
        powers = np.exp(scores - scores.max(1, keepdims=True))
        np.from_dlpack(out)[...] = powers / powers.sum(1, keepdims=True)
    tvm.register_global_func("env.softmax", softmax, override=True)

# %% 3.1 wrong: the decorator stands on register_softmax itself -> register_softmax is a function of TVM's
@tvm.register_global_func("env.softmax", override=True)
def register_softmax(x, out):
    a, o = np.from_dlpack(x), np.from_dlpack(out)
    e = np.exp(a - a.max(1, keepdims=True))
    o[...] = e / e.sum(1, keepdims=True)

# %% 3.1 wrong: defined and returned, not registered -> a function registered as env.softmax | no such name; new names: none
def register_softmax():
    def softmax(x, out):
        a, o = np.from_dlpack(x), np.from_dlpack(out)
        e = np.exp(a - a.max(1, keepdims=True))
        o[...] = e / e.sum(1, keepdims=True)
    return softmax

# %% 3.2 wrong: the planner by the registry -> TVM was called: sequential
def storages_needed(reads):
    plan = tvm.get_global_func("relax.transform.StaticPlanBlockMemory")()
    passes = [relax.transform.ToNonDataflow(), relax.transform.CallTIRRewrite(), plan]
    return tvm.transform.Sequential(passes)(chain(reads)).script().count("alloc_storage")

# %% 3.2 wrong: the planner by the registry, in a PassContext of its own -> TVM was called: PassContext
def storages_needed(reads):
    plan = tvm.get_global_func("relax.transform.StaticPlanBlockMemory")()
    with tvm.transform.PassContext():
        return plan(lowered(chain(reads))).script().count("alloc_storage")

# %% 3.4 wrong: NumPy convolves, PyTorch multiplies by 1 -> no product of two tensors by PyTorch was seen
def register_conv2d():
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        x, w, b, o = map(np.from_dlpack, (x, w, b, out))
        windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
        o[...] = np.einsum("ncijpq,fcpq->nfij", windows, w) + b
        torch.from_numpy(o).mul_(1)

# %% 3.4 right: one large matrix (Toeplitz) and matmul
def register_conv2d():
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        x, w, b, o = map(torch.from_dlpack, (x, w, b, out))
        n, c, h, wd = x.shape
        f, _, kh, kw = w.shape
        oh, ow = h - kh + 1, wd - kw + 1
        if c * h * wd * f * oh * ow > 2e7:
            return o.copy_(nn.functional.conv2d(x, w, b.flatten())) and None
        big = torch.zeros(f, oh, ow, c, h, wd)
        for i in range(oh):
            for j in range(ow):
                big[:, i, j, :, i:i + kh, j:j + kw] = w
        o.copy_((x.reshape(n, -1) @ big.reshape(f * oh * ow, -1).T).reshape(n, f, oh, ow) + b)

# %% 3.4 right: FFT with PyTorch
def register_conv2d():
    def conv2d(x, w, b, out):
        size = x.shape[2:]
        spectrum = torch.fft.rfft2(x.double())[:, None] * torch.fft.rfft2(w.double(), s=size).conj()
        y = torch.fft.irfft2(spectrum.sum(2), s=size)[:, :, :out.shape[2], :out.shape[3]]
        out.copy_(y + b)
    torch_conv2d(conv2d)

# %% 3.5 right: FFT with NumPy in double precision
def register_conv2d_numpy():
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        x, w, b, o = map(np.from_dlpack, (x, w, b, out))
        h, wd = x.shape[2:]
        X = np.fft.rfft2(x.astype("float64"))
        W = np.fft.rfft2(w.astype("float64"), s=(h, wd)).conj()
        y = np.fft.irfft2((X[:, None] * W[None]).sum(2), s=(h, wd))
        o[...] = y[:, :, :o.shape[2], :o.shape[3]] + b

# %% 3.6 wrong: env.linear with weight and bias exchanged -> env.linear with x (n, k), w (m, k) | with (4, 5408), (1, 100), (100, 5408)
def create_model_with_library_conv2d(weights):
    return library_cnn(weights, linear="exchanged")

# %% 3.3 wrong: a ReLU behind the call -> input x: | input weight: | input bias:
# bb.emit_output(lv) => bb.emit_output(bb.emit_te(topi.nn.relu, lv))

# %% 3.3 wrong: the weight in half precision -> input weight: | env.linear to be given w as it is
# relax.const(weight, "float32") => relax.const(weight.astype("float16").astype("float32"))

# %% 3.3 wrong: x is divided by 255 first -> to be given x as it is | 0.003922 instead of 1 at [0, 0]
def create_linear_module(weight, bias):
    m, k = weight.shape
    w, b = relax.const(weight, "float32"), relax.const(bias, "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, k), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            less = bb.emit_te(topi.divide, x, relax.const(255.0, "float32"))
            gv = bb.emit_output(relax.op.call_dps_packed("env.linear", (less, w, b), relax.TensorType((1, m), "float32")))
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.5 wrong: stops at the first zero of a kernel -> input w:
def register_conv2d_numpy() -> None:
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out) -> None:
        images, kernels, bias, result = map(np.from_dlpack, (x, w, b, out))
        height, width = result.shape[2:]
        result[...] = bias
        for f, c in np.ndindex(kernels.shape[:2]):
            for p, q in np.ndindex(kernels.shape[2:]):
                number = kernels[f, c, p, q]
                if number == 0:
                    break
                result[:, f] += number * images[:, c, p:p + height, q:q + width]

# %% 3.1 wrong: only where the name is free -> the new function registered as env.softmax, where another | the other one still has it
def register_softmax() -> None:
    if tvm.get_global_func("env.softmax", allow_missing=True) is not None:
        return

    @tvm.register_global_func("env.softmax")
    def softmax(x: tvm.runtime.Tensor, out: tvm.runtime.Tensor) -> None:
        scores, probabilities = np.from_dlpack(x), np.from_dlpack(out)
        np.exp(scores - scores.max(axis=1, keepdims=True), out=probabilities)
        probabilities /= probabilities.sum(axis=1, keepdims=True)

# %% 3.2 wrong: frees a tensor once per mention, and returns a number of NumPy -> input reads: | expected: 3 | got: 2
def storages_needed(reads: list[list[int]]) -> int:
    """Return how many storages TVM's plan for chain(reads) has."""
    last = {number: call for call, read in enumerate(reads, start=1) for number in read}
    in_use, history = 0, [0]
    for call, read in enumerate(reads, start=1):
        if call < len(reads):
            in_use += 1  # what this call writes
        history.append(in_use)
        for number in read:
            if number > 0 and last[number] == call:
                in_use -= 1
    return np.max(history)

# %% 3.5 wrong: rows and columns of the window exchanged -> ValueError: window shape cannot be larger | your line 8
def register_conv2d_numpy() -> None:
    """Register env.conv2d(x, w, b, out) with NumPy: stride 1, no padding, with bias."""

    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out) -> None:
        images, kernels, bias, result = map(np.from_dlpack, (x, w, b, out))
        _, _, kw, kh = kernels.shape
        windows = np.lib.stride_tricks.sliding_window_view(images, (kh, kw), axis=(2, 3))
        np.einsum("ncijpq,fcpq->nfij", windows, kernels, out=result)
        result += bias

# %% 3.5 wrong: views made by PyTorch -> PyTorch's Tensor.numpy was called | your line 7
def register_conv2d_numpy() -> None:
    """Register env.conv2d(x, w, b, out) with NumPy: stride 1, no padding, with bias."""

    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out) -> None:
        # without .numpy() of TVM, which copies
        images, kernels, bias, result = (torch.from_dlpack(t).numpy() for t in (x, w, b, out))
        windows = np.lib.stride_tricks.sliding_window_view(
            images, kernels.shape[2:], axis=(2, 3)
        )
        np.einsum("ncijpq,fcpq->nfij", windows, kernels, out=result)
        result += bias

# %% 3.3 wrong: the builder is a default argument -> one function named main
def create_linear_module(weight: np.ndarray, bias: np.ndarray,
                         bb: relax.BlockBuilder = relax.BlockBuilder()) -> tvm.IRModule:
    m, k = weight.shape
    w, b = relax.const(weight, "float32"), relax.const(bias, "float32")
    x = relax.Var("x", relax.TensorType((1, k), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out_type = relax.TensorType((1, m), "float32")
            lv = bb.emit(relax.op.call_dps_packed("env.linear", (x, w, b), out_type))
            gv = bb.emit_output(lv)
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.1 wrong: a sign slip in the logarithm gives NaN everywhere -> got: [[nan, nan], [nan, nan]]
def register_softmax() -> None:
    @tvm.register_global_func("env.softmax", override=True)
    def softmax(x, out):
        a = np.from_dlpack(x)
        total = np.exp(a - a.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)
        np.from_dlpack(out)[...] = np.exp(a - np.log(-total))

# %% 3.4 right: a loop over every weight
def register_conv2d() -> None:
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        x, w, b, out = map(torch.from_dlpack, (x, w, b, out))
        f, c, kh, kw = w.shape
        h, v = out.shape[2:]
        out.copy_(b.expand_as(out))
        for o in range(f):
            for i in range(c):
                for p in range(kh):
                    for q in range(kw):
                        out[:, o] += w[o, i, p, q] * x[:, i, p:p + h, q:q + v]

# %% 3.4 right: torch.vmap over the images
def register_conv2d() -> None:
    @tvm.register_global_func("env.conv2d", override=True)
    def conv2d(x, w, b, out):
        x, w, b, out = map(torch.from_dlpack, (x, w, b, out))
        one = lambda image: nn.functional.conv2d(image, w, b.flatten())
        out.copy_(torch.vmap(one)(x))

# %% 3.6 right: the pooling's rows are split, for threads
def create_model_with_library_conv2d(weights: dict[str, np.ndarray]) -> tvm.IRModule:
    const = constants(weights)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            inputs = (x, const["conv2d_weight"], const["conv2d_bias"])
            out_type = relax.TensorType((4, 32, 26, 26), "float32")
            conv = bb.emit(relax.op.call_dps_packed("env.conv2d", inputs, out_type))
            lv = bb.emit_te(topi.nn.relu, conv)
            lv = bb.emit_te(topi.nn.pool2d, lv, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
            lv = bb.emit_te(topi.nn.flatten, lv)
            lv = bb.emit_te(topi.nn.dense, lv, const["linear0_weight"])
            lv = bb.emit_te(topi.add, lv, const["linear0_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(topi.nn.dense, lv, const["linear1_weight"])
            lv = bb.emit_te(topi.add, lv, const["linear1_bias"])
            lv = bb.emit_te(topi.nn.softmax, lv, axis=1)
            gv = bb.emit_output(lv)
        bb.emit_func_output(gv)
    schedule = tvm.s_tir.Schedule(bb.get())
    block = schedule.get_sblock("pool_max", func_name="pool2d")
    n, c, *_ = schedule.get_loops(block)
    schedule.split(c, factors=[None, 8])
    return schedule.mod

# %% 3.6 wrong: the convolution is an operator of Relax -> 0 calls in 250 batches
def create_model_with_library_conv2d(weights: dict[str, np.ndarray]) -> tvm.IRModule:
    const = constants(weights)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 1, 28, 28), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            conv = bb.emit(relax.op.nn.conv2d(x, const["conv2d_weight"]))
            conv = bb.emit(relax.op.add(conv, const["conv2d_bias"]))
            lv = bb.emit_te(topi.nn.relu, conv)
            lv = bb.emit_te(topi.nn.pool2d, lv, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
            lv = bb.emit_te(topi.nn.flatten, lv)
            lv = bb.emit_te(topi.nn.dense, lv, const["linear0_weight"])
            lv = bb.emit_te(topi.add, lv, const["linear0_bias"])
            lv = bb.emit_te(topi.nn.relu, lv)
            lv = bb.emit_te(topi.nn.dense, lv, const["linear1_weight"])
            lv = bb.emit_te(topi.add, lv, const["linear1_bias"])
            lv = bb.emit_te(topi.nn.softmax, lv, axis=1)
            gv = bb.emit_output(lv)
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.3 wrong: weights divided and multiplied by 255 -> 0.249299988 instead of 0.249300003 at [0, 0]
def create_linear_module(weight: np.ndarray, bias: np.ndarray) -> tvm.IRModule:
    m, k = weight.shape
    w, b = relax.const(weight / np.float32(255) * np.float32(255), "float32"), relax.const(bias, "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, k), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out_type = relax.TensorType((1, m), "float32")
            lv = bb.emit(relax.op.call_dps_packed("env.linear", (x, w, b), out_type))
            gv = bb.emit_output(lv)
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.3 wrong: the bias is scaled in place -> bias to stay as it was
def create_linear_module(weight: np.ndarray, bias: np.ndarray) -> tvm.IRModule:
    m, k = weight.shape
    bias *= 2
    w, b = relax.const(weight, "float32"), relax.const(bias / 2, "float32")
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, k), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out_type = relax.TensorType((1, m), "float32")
            lv = bb.emit(relax.op.call_dps_packed("env.linear", (x, w, b), out_type))
            gv = bb.emit_output(lv)
        bb.emit_func_output(gv)
    return bb.get()

# %% 3.2 wrong: counts by an attribute of a list -> unsupported operand type(s) for +: 'NoneType' and 'int'
def storages_needed(reads):
    last = None
    for call, read in enumerate(reads, start=1):
        last = last + call
    return last
