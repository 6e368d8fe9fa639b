# %% shared
def conv_with(mod, inline=True, rows=2, order="yx", scope="local", under="tile", lanes=True, ry=True, rx=True,
              threads=True, copy_threads=False, decompose="rc", fuse_lanes=False, func="conv2d"):
    """The schedule of exercise 6.2 with steps that can be left out."""
    s = tvm.s_tir.Schedule(mod, error_render_level="fast")
    if inline:
        s.compute_inline(s.get_sblock("pad_temp", func_name=func))
    conv = s.get_sblock("conv2d_nchw", func_name=func)
    n, f, y, x, rc, r, c = s.get_loops(conv)
    y0, y1 = s.split(y, factors=[None, rows])
    inner = (y1, x) if order == "yx" else (x, y1)
    s.reorder(n, f, y0, rc, r, c, *inner)
    last = inner[-1]
    if scope:
        copy = s.cache_write(conv, 0, scope)
        if under != "nothing":
            s.reverse_compute_at(copy, {"tile": y0, "channel": f, "image": n}[under])
    if fuse_lanes:
        s.vectorize(s.fuse(*inner))
    elif lanes:
        s.vectorize(last)
        s.unroll(inner[0])
    if ry:
        s.unroll(r)
    if rx:
        s.unroll(c)
    outer = y0
    if threads:
        outer = s.fuse(n, f) if under != "image" else n
        s.parallel(outer)
    if copy_threads:
        loops = s.get_loops(copy)
        s.parallel(s.fuse(*loops[:2]))
        s.vectorize(loops[-1])
    if decompose:
        s.decompose_reduction(conv, {"rc": rc, "outer": outer, "y0": y0}[decompose])
    return s.mod


def dense_with(mod, name, inline=True, factors=(None, 16), take=1, axis=2, tile=5, scope="local", under=True,
               lanes=True, threads=True, decompose="partial", images="inside", local_by="cache_write"):
    """The schedule of exercise 6.3 with steps that can be left out or done otherwise."""
    s = tvm.s_tir.Schedule(mod, error_render_level="fast")
    matmul = s.get_sblock("matmul", func_name=name)
    if inline:
        s.compute_inline(s.get_sblock("T_transpose", func_name=name))
    k = s.get_loops(matmul)[-1]
    partial = s.rfactor(s.split(k, factors=list(factors))[take], axis)
    i, j, *ks = s.get_loops(partial)
    vector = ks.pop(take)
    (k,) = ks
    j0, j1 = s.split(j, factors=[None, tile])
    s.reorder(*{"inside": (j0, k, j1, i), "outside": (j0, i, k, j1), "first": (i, j0, k, j1),
                "alone": (j0, j1, k, i), "all outside": (j0, j1, i, k)}[images], vector)
    copy = None
    if local_by == "set_scope":
        s.set_scope(partial, 0, scope)
    elif scope:
        copy = s.cache_write(partial, 0, scope)
        if under:
            s.reverse_compute_at(copy, j0)
    if lanes:
        s.vectorize(vector)
    s.unroll(j1)
    s.unroll(i)
    if under:
        s.reverse_compute_at(matmul, j0)
    if threads:
        s.parallel(i if images == "first" else j0)
    if decompose == "partial":
        s.decompose_reduction(partial, j1 if images == "all outside" else k)
    if decompose == "matmul":
        s.decompose_reduction(matmul, s.get_loops(matmul)[-3])
    return s.mod


def model_with(mod, names, dense=True, inline=("pad_temp", "T_add", "compute"), under="y", lanes=True,
               pool_lanes=True, window=True, threads=True, conv_init=True, pool_init=True, conv_pool=True,
               fuse_lanes=False):
    """The schedule of exercise 6.4 with steps that can be left out."""
    s = tvm.s_tir.Schedule(fast_dense(mod, names["dense"]) if dense else mod, error_render_level="fast")
    if not conv_pool:
        return s.mod
    conv, pool = (s.get_sblock(block, func_name=names["conv_pool"]) for block in ("conv2d_nchw", "pool_max"))
    for block in inline:
        s.compute_inline(s.get_sblock(block, func_name=names["conv_pool"]))
    n, f, y, x, py, px = s.get_loops(pool)
    if under:
        s.compute_at(conv, {"y": y, "f": f, "x": x}[under])
    *_, rows, columns, ry, rx = (s.get_loops(conv) if under else
                                 [*s.get_loops(conv)[:4], *s.get_loops(conv)[5:]])
    if under:
        s.reorder(ry, rx, rows, columns)
    else:
        nn, ff, yy, xx, rc, ry, rx = s.get_loops(conv)
        s.reorder(nn, ff, yy, rc, ry, rx, xx)
        rows, columns = yy, xx
        s.parallel(s.fuse(nn, ff))
    if under != "x":
        s.reorder(py, px, x)
        if pool_lanes:
            s.vectorize(x)
    if fuse_lanes:
        s.vectorize(s.fuse(rows, columns))
    elif lanes:
        s.vectorize(columns)
    if window:
        s.unroll(ry)
        s.unroll(rx)
    if threads:
        s.parallel(s.fuse(n, f))
    if conv_init:
        s.decompose_reduction(conv, ry if under else rc)
    if pool_init:
        s.decompose_reduction(pool, py)
    return s.mod


def roof(per_term=2, size=4, images=1, weights=1, results=1, combine=max, by=1e3, swap=False):
    def least_time(batch, inputs, outputs, peak, bandwidth):
        if swap:
            peak, bandwidth = bandwidth, peak
        repeat = batch if weights == "each image" else weights
        moved = size * (images * batch * inputs + repeat * outputs * inputs + results * batch * outputs)
        return combine(per_term * batch * inputs * outputs / peak, moved / bandwidth) / by
    return least_time

# %% 6.1 wrong: the factor 2 is forgotten -> the operations: the factor 2 is missing
def least_time(batch, inputs, outputs, peak, bandwidth):
    operations = batch * inputs * outputs
    moved = 4 * (batch * inputs + outputs * inputs + batch * outputs)
    return max(operations / peak, moved / bandwidth) / 1e3

# %% 6.1 wrong: numbers instead of bytes -> a float32 has 4 bytes
least_time = roof(size=1)

# %% 6.1 wrong: eight bytes, as for a Python float -> a float32 has 4 of them, not 8
least_time = roof(size=8)

# %% 6.1 wrong: bits -> not 32
least_time = roof(size=32)

# %% 6.1 wrong: the sum -> they run side by side
least_time = roof(combine=lambda a, b: a + b)

# %% 6.1 wrong: the smaller -> the smaller of the two times
least_time = roof(combine=min)

# %% 6.1 wrong: in seconds -> the unit: these are seconds
def least_time(batch, inputs, outputs, peak, bandwidth):
    operations = 2 * batch * inputs * outputs
    moved = 4 * (batch * inputs + outputs * inputs + batch * outputs)
    return max(operations / (peak * 1e9), moved / (bandwidth * 1e9))

# %% 6.1 wrong: in nanoseconds -> the unit: these are nanoseconds
least_time = roof(by=1)

# %% 6.1 wrong: in milliseconds -> the unit: these are milliseconds
least_time = roof(by=1e6)

# %% 6.1 wrong: the giga is forgotten -> single operations and bytes in a second
least_time = roof(by=1e-6)

# %% 6.1 wrong: a giga of 2**30 -> not 2**30
least_time = roof(by=2**30 / 1e6)

# %% 6.1 wrong: the weights for each image -> counted once for each image
least_time = roof(weights="each image")

# %% 6.1 wrong: the images are left out -> the images are left out
least_time = roof(images=0)

# %% 6.1 wrong: the results are left out -> the results are left out
least_time = roof(results=0)

# %% 6.1 wrong: only the weights move -> images and results are left out
least_time = roof(images=0, results=0)

# %% 6.1 wrong: the arithmetic alone -> arithmetic alone: what of the bytes
least_time = roof(combine=lambda a, b: a)

# %% 6.1 wrong: the bytes alone -> the bytes alone: what of the arithmetic
least_time = roof(combine=lambda a, b: b)

# %% 6.1 wrong: peak and bandwidth exchanged -> they are exchanged
least_time = roof(swap=True)

# %% 6.1 wrong: whole numbers -> // drops
def least_time(batch, inputs, outputs, peak, bandwidth):
    operations = 2 * batch * inputs * outputs
    moved = 4 * (batch * inputs + outputs * inputs + batch * outputs)
    return max(operations // peak, moved // bandwidth) / 1e3

# %% 6.1 wrong: nothing is returned -> one number, in microseconds
def least_time(batch, inputs, outputs, peak, bandwidth):
    max(2 * batch * inputs * outputs / peak, 4 * inputs * outputs / bandwidth) / 1e3

# %% 6.1 wrong: both times -> one number, in microseconds
def least_time(batch, inputs, outputs, peak, bandwidth):
    return 2 * batch * inputs * outputs / peak / 1e3, 4 * inputs * outputs / bandwidth / 1e3

# %% 6.1 wrong: the bias is counted -> the bias: it is left out
def least_time(batch, inputs, outputs, peak, bandwidth):
    operations = 2 * batch * inputs * outputs + batch * outputs
    moved = 4 * (batch * inputs + outputs * inputs + outputs + batch * outputs)
    return max(operations / peak, moved / bandwidth) / 1e3

# %% 6.1 wrong: one addition less -> not one less
def least_time(batch, inputs, outputs, peak, bandwidth):
    operations = batch * outputs * (2 * inputs - 1)
    moved = 4 * (batch * inputs + outputs * inputs + batch * outputs)
    return max(operations / peak, moved / bandwidth) / 1e3

# %% 6.1 wrong: multiplied by a thousand instead of divided -> too large by a million
least_time = roof(by=1e-3)

# %% 6.1 wrong: one of two units is turned -> transport in nanoseconds
def least_time(batch, inputs, outputs, peak, bandwidth):
    compute = 2 * batch * inputs * outputs / (peak * 1e3)
    transport = 4 * (batch * inputs + outputs * inputs + batch * outputs) / bandwidth
    return max(compute, transport)

# %% 6.1 wrong: a GB of 2**30 bytes -> a GB is 10**9 bytes here
def least_time(batch, inputs, outputs, peak, bandwidth):
    compute = 2 * batch * inputs * outputs / (peak * 1e9)
    transport = 4 * (batch * inputs + outputs * inputs + batch * outputs) / (bandwidth * 2**30)
    return max(compute, transport) * 1e6

# %% 6.1 wrong: operations and bytes are compared, not times -> before either is a time
def least_time(batch, inputs, outputs, peak, bandwidth):
    operations = 2 * batch * inputs * outputs
    moved = 4 * (batch * inputs + outputs * inputs + batch * outputs)
    return (operations / peak if operations > moved else moved / bandwidth) / 1e3

# %% 6.1 wrong: two mistakes at once -> operations, bytes and units, one after the other
least_time = roof(per_term=1, size=1)

# %% 6.1 right: by the intensity and the knee of the roofline
def least_time(batch, inputs, outputs, peak, bandwidth):
    operations = 2.0 * batch * inputs * outputs
    moved = 4.0 * (batch * inputs + outputs * inputs + batch * outputs)
    attainable = min(peak, bandwidth * operations / moved)
    return operations / (attainable * 1e9) * 1e6

# %% 6.1 right: with NumPy
def least_time(batch, inputs, outputs, peak, bandwidth):
    shapes = [(batch, inputs), (outputs, inputs), (batch, outputs)]
    moved = sum(np.empty(shape, "float32").nbytes for shape in shapes)
    return np.maximum(2 * batch * inputs * outputs / peak, moved / bandwidth) * 1e-3

# %% 6.2 wrong: not scheduled at all -> no block pad_temp
def fast_conv2d(mod):
    return mod

# %% 6.2 wrong: the inline is forgotten -> no block pad_temp
def fast_conv2d(mod):
    return conv_with(mod, inline=False)

# %% 6.2 wrong: nothing is parallel -> a parallel outermost loop
def fast_conv2d(mod):
    return conv_with(mod, threads=False)

# %% 6.2 wrong: nothing is vectorised -> a vectorised innermost loop around the convolution
def fast_conv2d(mod):
    return conv_with(mod, lanes=False)

# %% 6.2 wrong: lanes along y -> lanes of the convolution along x
def fast_conv2d(mod):
    return conv_with(mod, order="xy")

# %% 6.2 wrong: lanes over two rows -> lanes of the convolution along x
def fast_conv2d(mod):
    return conv_with(mod, fuse_lanes=True)

# %% 6.2 wrong: one loop of the window is not unrolled -> ry: 3, around
def fast_conv2d(mod):
    return conv_with(mod, ry=False)

# %% 6.2 wrong: the window is not unrolled -> for both loops of the window
def fast_conv2d(mod):
    return conv_with(mod, ry=False, rx=False)

# %% 6.2 wrong: no buffer for the sums -> a buffer of scope "local"
def fast_conv2d(mod):
    return conv_with(mod, scope=None)

# %% 6.2 wrong: the buffer is global -> of scope "global"
def fast_conv2d(mod):
    return conv_with(mod, scope="global")

# %% 6.2 wrong: the copy stays where cache_write puts it -> has loops of its own
def fast_conv2d(mod):
    return conv_with(mod, under="nothing", copy_threads=True)

# %% 6.2 wrong: the copy stays where cache_write puts it, serial -> 86,528 in conv2d_nchw_local
def fast_conv2d(mod):
    return conv_with(mod, under="nothing")

# %% 6.2 wrong: the copy under the channel -> both are under nn_ff_fused: 128 parallel
def fast_conv2d(mod):
    return conv_with(mod, under="channel")

# %% 6.2 wrong: the copy under the image -> no more than 256 sums at a time
def fast_conv2d(mod):
    return conv_with(mod, under="image")

# %% 6.2 wrong: a tile of 13 rows -> the size of the tile: the loops yy_1: 13 unrolled, xx: 26 vectorized
def fast_conv2d(mod):
    return conv_with(mod, rows=13)

# %% 6.2 wrong: the init at the outermost loop -> decompose_reduction: the loop that it gets is outside the tile
def fast_conv2d(mod):
    return conv_with(mod, decompose="outer")

# %% 6.2 wrong: the decomposition is forgotten -> as the last step
def fast_conv2d(mod):
    return conv_with(mod, decompose=None)

# %% 6.2 wrong: returns the schedule -> the return value: schedule.mod
def fast_conv2d(mod):
    return tvm.s_tir.Schedule(conv_with(mod))

# %% 6.2 wrong: func_name is forgotten -> that your code runs
def fast_conv2d(mod):
    schedule = tvm.s_tir.Schedule(mod)
    schedule.compute_inline(schedule.get_sblock("pad_temp"))
    return schedule.mod

# %% 6.2 wrong: another function is changed as well -> no change besides conv2d
def fast_conv2d(mod):
    schedule = tvm.s_tir.Schedule(conv_with(mod))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("compute", func_name="relu"))[0])
    return schedule.mod

# %% 6.2 wrong: the sums of two channels share one kernel -> expected: layer 0, Conv2d, (4, 32, 26, 26), as in PyTorch
def fast_conv2d(mod):
    text = helpers.script(conv_with(mod)["conv2d"])
    text = text.replace("B[v_ff, v_rc, v_ry, v_rx]", "B[v_ff // 2 * 2, v_rc, v_ry, v_rx]")
    mod = tvm.IRModule(dict(mod.functions_items()))
    mod.update_func(mod.get_global_var("conv2d"), tvm.script.from_source(text))
    return mod

# %% 6.2 wrong: the image is copied first, serially -> around block input_global
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(conv_with(mod, decompose=None))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    s.cache_read(conv, 0, "global")
    s.decompose_reduction(conv, s.get_loops(conv)[2])
    return s.mod

# %% 6.2 wrong: unrolling is left to a pragma -> an unrolled window of 3 by 3
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(conv_with(mod, ry=False, rx=False, decompose=None))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    outer, y0, rc, ry, rx, rows, x = s.get_loops(conv)
    s.annotate(outer, "pragma_auto_unroll_max_step", 64)
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 6.2 right: one row at a time, lanes of 13
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    copy = s.cache_write(conv, 0, "local")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    x0, x1 = s.split(x, factors=[None, 13])
    s.reorder(n, f, y, rc, ry, rx, x0, x1)
    s.unroll(s.fuse(rc, ry, rx))
    s.unroll(x0)
    s.vectorize(x1)
    s.reverse_compute_at(copy, y)
    s.vectorize(s.get_loops(copy)[-1])
    s.parallel(s.fuse(n, f, y))
    s.decompose_reduction(conv, s.get_loops(conv)[1])
    return s.mod

# %% 6.2 right: a tile of four channels, eight lanes that do not divide the row
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    f0, f1 = s.split(f, factors=[None, 4])
    x0, x1 = s.split(x, factors=[None, 8])
    s.reorder(n, f0, y, x0, rc, ry, rx, f1, x1)
    copy = s.cache_write(conv, 0, "local")
    s.reverse_compute_at(copy, x0)
    for loop in (ry, rx, f1):
        s.unroll(loop)
    s.vectorize(x1)
    s.parallel(s.fuse(n, f0))
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 6.2 right: images in the tile, each thread a pair of rows; the copy is one loop
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    n0, n1 = s.split(n, factors=[None, 2])
    s.reorder(f, y, n0, ry, rx, rc, n1, x)
    copy = s.cache_write(conv, 0, "local")
    s.reverse_compute_at(copy, n0)
    s.vectorize(x)
    s.unroll(ry)
    s.unroll(rx)
    s.parallel(f)
    s.decompose_reduction(conv, ry)
    return s.mod

# %% 6.2 right: the weights are read through a buffer of their own
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    weights = s.cache_read(conv, 1, "local")
    copy = s.cache_write(conv, 0, "local")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    y0, y1 = s.split(y, factors=[None, 2])
    s.reorder(n, f, y0, rc, ry, rx, y1, x)
    s.compute_at(weights, f)
    s.reverse_compute_at(copy, y0)
    for loop in (ry, rx, y1):
        s.unroll(loop)
    s.vectorize(x)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 6.2 right: threads over pairs of rows, all outer loops in one, the copy as one vector
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    y0, y1 = s.split(y, factors=[13, 2])
    s.reorder(n, f, y0, rc, ry, rx, y1, x)
    outer = s.fuse(n, f, y0)
    s.parallel(outer)
    copy = s.cache_write(conv, 0, "local")
    s.reverse_compute_at(copy, outer, preserve_unit_loops=True)
    s.vectorize(s.fuse(*s.get_loops(copy)[-2:]))
    s.unroll(s.fuse(ry, rx))
    s.vectorize(x)
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 6.3 wrong: not scheduled at all -> no block T_transpose
def fast_dense(mod, name):
    return mod

# %% 6.3 wrong: the transpose is kept -> no block T_transpose
def fast_dense(mod, name):
    return dense_with(mod, name, inline=False)

# %% 6.3 wrong: no rfactor, lanes along the outputs -> adds everything up
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("T_transpose", func_name=name))
    matmul = s.get_sblock("matmul", func_name=name)
    i, j, k = s.get_loops(matmul)
    j0, j1 = s.split(j, factors=[None, 10])
    s.reorder(j0, k, i, j1)
    s.vectorize(j1)
    s.unroll(i)
    s.parallel(j0)
    s.decompose_reduction(matmul, k)
    return s.mod

# %% 6.3 wrong: k itself is vectorised -> that your code runs
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod, error_render_level="fast")
    s.compute_inline(s.get_sblock("T_transpose", func_name=name))
    k = s.get_loops(s.get_sblock("matmul", func_name=name))[-1]
    s.vectorize(s.split(k, factors=[None, 16])[1])
    return s.mod

# %% 6.3 wrong: rfactor of the outer loop -> each 338 weights from the next
def fast_dense(mod, name):
    return dense_with(mod, name, factors=(16, None), take=0)

# %% 6.3 wrong: rfactor of the outer loop of 338 -> the inner one of the loops that k is split into
def fast_dense(mod, name):
    return dense_with(mod, name, take=0)

# %% 6.3 wrong: the lanes are the first axis of the partial sums -> rfactor's second argument
def fast_dense(mod, name):
    return dense_with(mod, name, axis=0)

# %% 6.3 wrong: the lanes are the middle axis -> neighbours among the partial sums
def fast_dense(mod, name):
    return dense_with(mod, name, axis=1)

# %% 6.3 wrong: 26 lanes -> 8 or 16 lanes
def fast_dense(mod, name):
    return dense_with(mod, name, factors=(None, 26))

# %% 6.3 wrong: 4 lanes -> 8 or 16 lanes
def fast_dense(mod, name):
    return dense_with(mod, name, factors=(None, 4))

# %% 6.3 wrong: nothing is vectorised -> a vectorised innermost loop around block matmul_rf
def fast_dense(mod, name):
    return dense_with(mod, name, lanes=False)

# %% 6.3 wrong: no local tile -> a buffer of scope "local"
def fast_dense(mod, name):
    return dense_with(mod, name, scope=None)

# %% 6.3 wrong: the tile is global -> of scope "global"
def fast_dense(mod, name):
    return dense_with(mod, name, scope="global")

# %% 6.3 wrong: the copy stays where cache_write puts it -> has loops of its own
def fast_dense(mod, name):
    return dense_with(mod, name, under=False)

# %% 6.3 wrong: the images outside the loop over k -> all four images inside
def fast_dense(mod, name):
    return dense_with(mod, name, images="outside")

# %% 6.3 wrong: the images are shared out to the threads -> all four images inside
def fast_dense(mod, name):
    return dense_with(mod, name, images="first")

# %% 6.3 wrong: one output at a time -> 8 to 40 results at a time
def fast_dense(mod, name):
    return dense_with(mod, name, tile=1)

# %% 6.3 wrong: two outputs in the tile, one after the other -> inside the loop over the inputs too
def fast_dense(mod, name):
    return dense_with(mod, name, images="alone")

# %% 6.3 wrong: five threads for 20 outputs each -> the size of the tile: the loops i1_1: 20 unrolled, i0: 4
def fast_dense(mod, name):
    return dense_with(mod, name, tile=20)

# %% 6.3 wrong: nothing is parallel -> a parallel outermost loop
def fast_dense(mod, name):
    return dense_with(mod, name, threads=False)

# %% 6.3 wrong: the decomposition is forgotten -> block matmul_rf still has its T.init
def fast_dense(mod, name):
    return dense_with(mod, name, decompose=None)

# %% 6.3 wrong: the last block is decomposed instead -> block matmul_rf still has its T.init
def fast_dense(mod, name):
    return dense_with(mod, name, decompose="matmul")

# %% 6.3 wrong: returns the schedule -> the return value: schedule.mod
def fast_dense(mod, name):
    return tvm.s_tir.Schedule(dense_with(mod, name))

# %% 6.3 wrong: another function is changed as well -> no change besides the dense layer
def fast_dense(mod, name):
    schedule = tvm.s_tir.Schedule(dense_with(mod, name))
    pool = schedule.get_sblock("pool_max", func_name=names["conv_pool"])
    schedule.parallel(schedule.get_loops(pool)[0])
    return schedule.mod

# %% 6.3 wrong: the last block gets the local buffer -> cache_write(block, 0, "local") for block matmul_rf
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(dense_with(mod, name, scope=None))
    s.cache_write(s.get_sblock("matmul", func_name=name), 0, "local")
    return s.mod

# %% 6.3 wrong: the first values of all tiles are written before the parallel loop -> decompose_reduction: the loop that it gets
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(dense_with(mod, name, decompose=None))
    partial = s.get_sblock("matmul_rf", func_name=name)
    s.decompose_reduction(partial, s.get_loops(partial)[0])
    return s.mod

# %% 6.3 wrong: lanes along the images -> all of the same weight
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(dense_with(mod, name, lanes=False, decompose=None))
    partial = s.get_sblock("matmul_rf", func_name=name)
    j0, k, j1, i, lanes = s.get_loops(partial)
    s.reorder(lanes, i)
    s.vectorize(i)
    s.decompose_reduction(partial, k)
    return s.mod

# %% 6.3 wrong: lanes along the outputs, beside rfactor -> each of another output
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(dense_with(mod, name, lanes=False, decompose=None))
    partial = s.get_sblock("matmul_rf", func_name=name)
    j0, k, j1, i, lanes = s.get_loops(partial)
    s.reorder(lanes, i, j1)
    s.vectorize(j1)
    s.decompose_reduction(partial, k)
    return s.mod

# %% 6.3 right: eight lanes, four outputs in the tile
def fast_dense(mod, name):
    return dense_with(mod, name, factors=(None, 8), tile=4)

# %% 6.3 right: the partial sums themselves are local, without a copy
def fast_dense(mod, name):
    return dense_with(mod, name, local_by="set_scope", tile=2)

# %% 6.3 right: k in three parts, one of them unrolled, bias and ReLU in the parallel loop too
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("T_transpose", func_name=name))
    matmul, add, relu = (s.get_sblock(block, func_name=name) for block in ("matmul", "T_add", "compute"))
    s.compute_inline(add)
    k = s.get_loops(matmul)[-1]
    partial = s.rfactor(s.split(k, factors=[None, 2, 8])[2], 2)
    i, j, k0, k1, lanes = s.get_loops(partial)
    j0, j1 = s.split(j, factors=[25, 4])
    s.reorder(j0, k0, k1, i, j1, lanes)
    tile = s.cache_write(partial, 0, "local")
    s.reverse_compute_at(tile, j0)
    s.reverse_compute_at(matmul, j0)
    s.reverse_compute_at(relu, j0)
    for loop in (k1, i, j1):
        s.unroll(loop)
    s.vectorize(lanes)
    s.vectorize(s.get_loops(tile)[-1])
    s.parallel(j0)
    s.decompose_reduction(partial, k0)
    s.decompose_reduction(matmul, s.get_loops(matmul)[1])
    return s.mod

# %% 6.3 right: forty results at a time, for ten threads, eight lanes
def fast_dense(mod, name):
    return dense_with(mod, name, factors=(None, 8), tile=10)

# %% 6.3 right: the inputs are shared out to the threads by a second rfactor
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("T_transpose", func_name=name))
    matmul = s.get_sblock("matmul", func_name=name)
    parts, _, lanes = s.split(s.get_loops(matmul)[-1], factors=[26, None, 8])
    chunk = s.rfactor(parts, 2)
    partial = s.rfactor(s.get_loops(chunk)[-1], 3)
    loops = s.get_loops(partial)
    i, j, p, k, lanes = loops
    j0, j1 = s.split(j, factors=[None, 5])
    s.reorder(p, j0, k, i, j1, lanes)
    tile = s.cache_write(partial, 0, "local")
    s.reverse_compute_at(tile, j0)
    s.vectorize(lanes)
    s.parallel(p)
    s.decompose_reduction(partial, k)
    return s.mod

# %% 6.3 right: 32 partial sums of each result, in two vectors
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("T_transpose", func_name=name))
    matmul = s.get_sblock("matmul", func_name=name)
    partial = s.rfactor(s.split(s.get_loops(matmul)[-1], factors=[None, 32])[1], 2)
    i, j, k, lanes = s.get_loops(partial)
    vectors, lanes = s.split(lanes, factors=[2, 16])
    j0, j1 = s.split(j, factors=[None, 2])
    s.reorder(j0, k, j1, i, vectors, lanes)
    tile = s.cache_write(partial, 0, "local")
    s.reverse_compute_at(tile, j0)
    for loop in (j1, i, vectors):
        s.unroll(loop)
    s.vectorize(lanes)
    s.reverse_compute_at(matmul, j0)
    s.parallel(j0)
    s.decompose_reduction(partial, k)
    return s.mod

# %% 6.3 right: the images are read through a buffer, and nothing of the tile is unrolled
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("T_transpose", func_name=name))
    matmul = s.get_sblock("matmul", func_name=name)
    partial = s.rfactor(s.split(s.get_loops(matmul)[-1], factors=[None, 16])[1], 2)
    i, j, k, lanes = s.get_loops(partial)
    j0, j1 = s.split(j, factors=[None, 4])
    s.reorder(j0, k, i, j1, lanes)
    image = s.cache_read(partial, 0, "local")
    s.compute_at(image, k)
    tile = s.cache_write(partial, 0, "local")
    s.reverse_compute_at(tile, j0)
    s.vectorize(lanes)
    s.parallel(j0)
    s.decompose_reduction(partial, k)
    return s.mod

# %% 6.4 wrong: not scheduled at all -> conv_pool is as it was
def fast_model(mod, names):
    return mod

# %% 6.4 wrong: the dense layer is left as it was -> begin with fast_dense
def fast_model(mod, names):
    return model_with(mod, names, dense=False)

# %% 6.4 wrong: conv_pool is left as it was -> conv_pool is as it was
def fast_model(mod, names):
    return model_with(mod, names, conv_pool=False)

# %% 6.4 wrong: the padding is kept -> no block pad_temp
def fast_model(mod, names):
    return model_with(mod, names, inline=("T_add", "compute"))

# %% 6.4 wrong: the ReLU is kept -> Not all required blocks are under the loop scope
def fast_model(mod, names):
    return model_with(mod, names, inline=("pad_temp", "T_add"))

# %% 6.4 wrong: bias and ReLU under the pooling too, as blocks -> no block T_add
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(fast_dense(mod, names["dense"]))
    padding, conv, add, relu, pool = (s.get_sblock(b, func_name=names["conv_pool"]) for b in
                                      ("pad_temp", "conv2d_nchw", "T_add", "compute", "pool_max"))
    s.compute_inline(padding)
    n, f, y, x, py, px = s.get_loops(pool)
    for block in (relu, add, conv):
        s.compute_at(block, y)
    *_, rows, columns, ry, rx = s.get_loops(conv)
    s.reorder(ry, rx, rows, columns)
    s.reorder(py, px, x)
    for loop in (columns, x, s.get_loops(add)[-1], s.get_loops(relu)[-1]):
        s.vectorize(loop)
    for loop in (ry, rx, rows, py, px):
        s.unroll(loop)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, ry)
    s.decompose_reduction(pool, py)
    return s.mod

# %% 6.4 wrong: the convolution is copied to memory as a whole -> 86,528 in conv2d_nchw_intermediate
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(fast_dense(mod, names["dense"]))
    conv, pool = (s.get_sblock(b, func_name=names["conv_pool"]) for b in ("conv2d_nchw", "pool_max"))
    for b in ("pad_temp", "T_add", "compute"):
        s.compute_inline(s.get_sblock(b, func_name=names["conv_pool"]))
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    copy = s.cache_write(conv, 0, "local")
    s.reorder(n, f, y, rc, ry, rx, x)
    s.reverse_compute_at(copy, y)
    s.unroll(ry)
    s.unroll(rx)
    s.vectorize(x)
    s.parallel(s.fuse(n, f))
    n, f, y, x, py, px = s.get_loops(pool)
    s.reorder(py, px, x)
    s.vectorize(x)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, rc)
    s.decompose_reduction(pool, py)
    return s.mod

# %% 6.4 wrong: the convolution has loops of its own -> has loops of its own: compute_at
def fast_model(mod, names):
    return model_with(mod, names, under=None)

# %% 6.4 wrong: the convolution under the channel -> 676 in
def fast_model(mod, names):
    return model_with(mod, names, under="f")

# %% 6.4 wrong: the convolution under x, so that it has two columns -> innermost loop around the pooling
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(model_with(mod, names, under="x", threads=False, conv_init=False, pool_init=False))
    conv, pool = (s.get_sblock(block, func_name=names["conv_pool"]) for block in ("conv2d_nchw", "pool_max"))
    *_, py, px = s.get_loops(pool)
    s.unroll(px)
    s.parallel(s.fuse(*s.get_loops(pool)[:2]))
    return s.mod

# %% 6.4 wrong: the convolution is not vectorised -> a vectorised innermost loop around the convolution
def fast_model(mod, names):
    return model_with(mod, names, lanes=False)

# %% 6.4 wrong: lanes of the convolution over two rows -> lanes of the convolution along x
def fast_model(mod, names):
    return model_with(mod, names, fuse_lanes=True)

# %% 6.4 wrong: the pooling is not vectorised -> a vectorised innermost loop around the pooling
def fast_model(mod, names):
    return model_with(mod, names, pool_lanes=False)

# %% 6.4 wrong: the window is not unrolled -> an unrolled window of 3 by 3
def fast_model(mod, names):
    return model_with(mod, names, window=False)

# %% 6.4 wrong: nothing is parallel in conv_pool -> a parallel outermost loop
def fast_model(mod, names):
    return model_with(mod, names, threads=False)

# %% 6.4 wrong: the convolution is not decomposed -> block conv2d_nchw still has its T.init
def fast_model(mod, names):
    return model_with(mod, names, conv_init=False)

# %% 6.4 wrong: the pooling is not decomposed -> block pool_max still has its T.init
def fast_model(mod, names):
    return model_with(mod, names, pool_init=False)

# %% 6.4 wrong: the dense layer is only parallel -> of dense
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(model_with(mod, names, dense=False))
    s.parallel(s.get_loops(s.get_sblock("matmul", func_name=names["dense"]))[0])
    return s.mod

# %% 6.4 wrong: returns the schedule -> the return value: schedule.mod
def fast_model(mod, names):
    return tvm.s_tir.Schedule(model_with(mod, names))

# %% 6.4 wrong: func_name is forgotten -> that your code runs
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(fast_dense(mod, names["dense"]))
    s.compute_inline(s.get_sblock("pad_temp"))
    return s.mod

# %% 6.4 right: the dense layer with lanes along the outputs
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(model_with(mod, names, dense=False))
    transpose, matmul = (s.get_sblock(b, func_name=names["dense"]) for b in ("T_transpose", "matmul"))
    a, b = s.get_loops(transpose)
    s.vectorize(b)
    s.parallel(a)
    i, j, k = s.get_loops(matmul)
    j0, j1 = s.split(j, factors=[None, 20])
    s.reorder(j0, i, k, j1)
    s.vectorize(j1)
    s.parallel(s.fuse(j0, i))
    s.decompose_reduction(matmul, k)
    return s.mod

# %% 6.4 right: one row of the pooling for each thread, conv in a local buffer, lanes of 13
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(fast_dense(mod, names["dense"]))
    conv, pool = (s.get_sblock(b, func_name=names["conv_pool"]) for b in ("conv2d_nchw", "pool_max"))
    for b in ("pad_temp", "T_add", "compute"):
        s.compute_inline(s.get_sblock(b, func_name=names["conv_pool"]))
    n, f, y, x, py, px = s.get_loops(pool)
    outer = s.fuse(n, f, y)
    s.compute_at(conv, outer)
    s.set_scope(conv, 0, "local")
    loops = s.get_loops(conv)
    rows, columns, ry, rx = loops[-4:]
    c0, c1 = s.split(columns, factors=[None, 13])
    s.reorder(ry, rx, rows, c0, c1)
    s.reorder(py, px, x)
    s.vectorize(c1)
    s.vectorize(x)
    for loop in (ry, rx, rows, c0, py, px):
        s.unroll(loop)
    s.parallel(outer)
    s.decompose_reduction(conv, ry)
    s.decompose_reduction(pool, py)
    return s.mod

# %% 6.4 right: the pooling goes under the convolution
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(fast_dense(mod, names["dense"]))
    conv, pool = (s.get_sblock(b, func_name=names["conv_pool"]) for b in ("conv2d_nchw", "pool_max"))
    for b in ("pad_temp", "T_add", "compute"):
        s.compute_inline(s.get_sblock(b, func_name=names["conv_pool"]))
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    y0, y1 = s.split(y, factors=[None, 2])
    s.reorder(n, f, y0, rc, ry, rx, y1, x)
    s.reverse_compute_at(pool, y0)
    *_, px_, py, px = s.get_loops(pool)
    s.reorder(py, px, px_)
    s.vectorize(px_)
    s.vectorize(x)
    for loop in (ry, rx, y1):
        s.unroll(loop)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, rc)
    s.decompose_reduction(pool, py)
    return s.mod

# %% 6.4 right: bias and ReLU go into the copy of the convolution, pooling in a local buffer
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(mod)
    padding, conv, add, relu, pool = (s.get_sblock(b, func_name=names["conv_pool"]) for b in
                                      ("pad_temp", "conv2d_nchw", "T_add", "compute", "pool_max"))
    s.compute_inline(padding)
    copy = s.cache_write(conv, 0, "local")
    s.reverse_compute_inline(add)
    s.reverse_compute_inline(relu)
    out = s.cache_write(pool, 0, "local")
    n, f, y, x, py, px = s.get_loops(pool)
    s.reorder(n, f, y, py, px, x)
    s.compute_at(copy, y)
    s.compute_at(conv, y)
    s.reverse_compute_at(out, y)
    *_, rows, columns, ry, rx = s.get_loops(conv)
    s.reorder(ry, rx, rows, columns)
    for loop in (columns, x, s.get_loops(copy)[-1]):
        s.vectorize(loop)
    for loop in (ry, rx, rows):
        s.unroll(loop)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, ry)
    s.decompose_reduction(pool, py)
    return fast_dense(s.mod, names["dense"])

# %% 6.4 right: the last layer is scheduled too
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(model_with(mod, names))
    s.compute_inline(s.get_sblock("T_transpose", func_name=names["head"]))
    s.parallel(s.get_loops(s.get_sblock("matmul", func_name=names["head"]))[0])
    return s.mod


# %% more

# %% 6.1 right: a NumPy array without axes
def least_time(batch, inputs, outputs, peak, bandwidth):
    return np.asarray(roof()(batch, inputs, outputs, peak, bandwidth))

# %% 6.2 wrong: columns 26 to 31 are written too -> its loops run it from 0 to 31
def fast_conv2d(mod):                            # 32 of 26 columns
    s = tvm.s_tir.Schedule(mod); s.work_on("conv2d")
    s.compute_inline("pad_temp")
    conv = s.get_sblock("conv2d_nchw")
    copy = s.cache_write(conv, 0, "local")
    n, f, y, x = s.get_loops(copy)
    x0, x1 = s.split(x, [None, 16], disable_predication=True)
    s.compute_at(conv, x0)
    *_, cx, ry, rx = s.get_loops(conv)
    s.reorder(ry, rx, cx)
    s.vectorize(cx); s.vectorize(x1); s.unroll(ry); s.unroll(rx)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, ry)
    return s.mod

# %% 6.2 wrong: the copy inside the window -> block conv2d_nchw_local takes them out 9 times
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    y0, y1 = s.split(y, [None, 2])
    s.reorder(n, f, y0, rc, ry, rx, y1, x)
    copy = s.cache_write(conv, 0, "local")
    s.reverse_compute_at(copy, rx)
    for rows, lanes in ((y1, x), s.get_loops(copy)[-2:]):
        s.unroll(rows)
        s.vectorize(lanes)
    s.unroll(ry)
    s.unroll(rx)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 6.2 wrong: mod is returned -> the return value: schedule.mod
def fast_conv2d(mod):
    conv_with(mod)
    return mod

# %% 6.2 wrong: one lane -> at least two lanes
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(conv_with(mod, lanes=False, decompose=None))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    loops = s.get_loops(conv)
    s.vectorize(s.split(loops[-1], [None, 1])[1])
    s.decompose_reduction(conv, loops[2])
    return s.mod

# %% 6.2 right: a tile of four channels and whole rows, 104 sums
def fast_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    f0, f1 = s.split(f, factors=[None, 4])
    s.reorder(n, f0, y, rc, ry, rx, f1, x)
    copy = s.cache_write(conv, 0, "local")
    s.reverse_compute_at(copy, y)
    for channels, lanes in ((f1, x), s.get_loops(copy)[-2:]):
        s.unroll(channels)
        s.vectorize(lanes)
    s.unroll(ry)
    s.unroll(rx)
    s.parallel(s.fuse(n, f0))
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 6.3 wrong: the copy inside the loop over the inputs -> takes them out 338 times, under k_0: 338
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod)
    s.work_on(name)
    s.compute_inline("T_transpose")
    matmul = s.get_sblock("matmul")
    partial = s.rfactor(s.split(s.get_loops(matmul)[-1], [None, 16])[1], 2)
    i, j, k, lanes = s.get_loops(partial)
    jo, ji = s.split(j, [None, 5])
    s.reorder(jo, k, ji, i, lanes)
    copy = s.cache_write(partial, 0, "local")
    s.reverse_compute_at(copy, k)
    s.vectorize(lanes)
    s.parallel(jo)
    s.decompose_reduction(partial, k)
    return s.mod

# %% 6.3 wrong: the notebook's module is scheduled, not the one that is given -> not a variable of the notebook
import kernels
notebooks_module, _ = kernels.fuse_layers(helpers.import_operators(helpers.pytorch_model(helpers.load_weights("cnn")), (4, 1, 28, 28)))
def fast_dense(mod, name):
    return dense_with(notebooks_module, name)

# %% 6.3 wrong: outputs beyond the last one -> outside the range
def fast_dense(mod, name):
    s = tvm.s_tir.Schedule(mod)
    s.work_on(name)
    s.compute_inline("T_transpose")
    matmul = s.get_sblock("matmul")
    partial = s.rfactor(s.split(s.get_loops(matmul)[-1], [None, 16])[1], 2)
    i, j, k, lanes = s.get_loops(partial)
    jo, ji = s.split(j, [None, 6], disable_predication=True)
    s.reorder(jo, k, ji, i, lanes)
    s.set_scope(partial, 0, "local")
    s.reverse_compute_at(matmul, jo)
    s.vectorize(lanes)
    s.parallel(jo)
    s.decompose_reduction(partial, k)
    return s.mod

# %% 6.4 wrong: columns 13 to 15 of the pooling are written too -> its loops run it from 0 to 15
def fast_model(mod, names):                      # 16 of 13 columns in the pooling
    s = tvm.s_tir.Schedule(mod); s.work_on(names["dense"])
    m = s.get_sblock("matmul")
    s.compute_inline("T_transpose")
    i, j, k = s.get_loops(m)
    jo, ji = s.split(j, [None, 10]); s.reorder(jo, k, i, ji); s.vectorize(ji); s.parallel(jo)
    s.decompose_reduction(m, k)
    s.work_on(names["conv_pool"])
    for b in ("pad_temp", "T_add", "compute"): s.compute_inline(b)
    conv, pool = s.get_sblock("conv2d_nchw"), s.get_sblock("pool_max")
    n, f_, y, x, py, px = s.get_loops(pool)
    x0, x1 = s.split(x, [None, 8], disable_predication=True)
    s.compute_at(conv, y)
    *_, cy, cx, ry, rx = s.get_loops(conv)
    s.reorder(ry, rx, cy, cx); s.reorder(x0, py, px, x1)
    s.vectorize(cx); s.vectorize(x1)
    for l in (ry, rx, py, px): s.unroll(l)
    s.parallel(s.fuse(n, f_))
    s.decompose_reduction(conv, ry); s.decompose_reduction(pool, py)
    return s.mod

# %% 6.4 wrong: lanes over the images -> a lane for each image
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(model_with(mod, names, dense=False))
    matmul = s.get_sblock("matmul", func_name=names["dense"])
    i, j, k = s.get_loops(matmul)
    s.reorder(j, k, i)
    s.vectorize(i)
    s.parallel(j)
    s.decompose_reduction(matmul, k)
    return s.mod

# %% 6.4 wrong: lanes over outputs and images, neighbours of one weight -> several of one weight
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(model_with(mod, names, dense=False))
    matmul = s.get_sblock("matmul", func_name=names["dense"])
    i, j, k = s.get_loops(matmul)
    j0, j1 = s.split(j, [None, 4])
    s.reorder(j0, k, j1, i)
    s.vectorize(s.fuse(j1, i))
    s.parallel(j0)
    s.decompose_reduction(matmul, k)
    return s.mod

# %% 6.4 wrong: one lane in dense -> at least two lanes
def fast_model(mod, names):
    s = tvm.s_tir.Schedule(model_with(mod, names, dense=False))
    matmul = s.get_sblock("matmul", func_name=names["dense"])
    i, j, k = s.get_loops(matmul)
    j0, j1 = s.split(j, [None, 1])
    s.reorder(j0, i, k, j1)
    s.vectorize(j1)
    s.parallel(j0)
    s.decompose_reduction(matmul, k)
    return s.mod
