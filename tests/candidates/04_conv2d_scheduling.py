# %% shared
def conv_schedule(mod, inline=True, lanes=True, unrolled=True, threads=True, decompose=True, block=None,
                  early=False):
    """The schedule of exercise 4.4 with steps that can be left out."""
    s = tvm.s_tir.Schedule(mod, error_render_level="fast")
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    if inline:
        s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    if early:
        s.decompose_reduction(conv, rc)
    f0, f1 = s.split(f, factors=[None, 4])
    x0, x1 = s.split(x, factors=[None, 2])
    s.reorder(n, f0, y, x0, rc, ry, rx, f1, x1)
    if lanes:
        s.vectorize(x1)
    if unrolled:
        s.unroll(f1)
    if threads:
        s.parallel(s.fuse(n, f0, y, x0))
    if block == "parallel":
        s.parallel(s.get_loops(s.get_sblock("T_add", func_name="conv2d"))[0])
    if block == "both":
        n, f, y, x = s.get_loops(s.get_sblock("T_add", func_name="conv2d"))
        s.parallel(s.fuse(n, f))
        s.vectorize(s.split(x, factors=[None, 13])[1])
    if decompose:
        s.decompose_reduction(conv, rc)
    return s.mod

# %% 4.1 wrong: only the first is inlined -> compute_inline for shifted
def inline_all(schedule):
    schedule.compute_inline(schedule.get_sblock("doubled"))

# %% 4.1 wrong: the output is inlined too -> that your code runs
def inline_all(schedule):
    for name in ["doubled", "shifted", "result"]:
        schedule.compute_inline(schedule.get_sblock(name))

# %% 4.1 wrong: a name that is not there -> that your code runs
def inline_all(schedule):
    schedule.compute_inline(schedule.get_sblock("double"))
    schedule.compute_inline(schedule.get_sblock("shifted"))

# %% 4.1 wrong: a new schedule instead of the given one -> one sblock
def inline_all(schedule):
    own = tvm.s_tir.Schedule(schedule.mod)
    own.compute_inline(own.get_sblock("doubled"))
    own.compute_inline(own.get_sblock("shifted"))

# %% 4.1 right: from the other side
def inline_all(schedule):
    schedule.reverse_compute_inline(schedule.get_sblock("result"))
    schedule.reverse_compute_inline(schedule.get_sblock("shifted"))

# %% 4.2 wrong: lanes down a column -> lanes along a row
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    i0, i1 = schedule.split(i, factors=[None, 8])
    j0, j1 = schedule.split(j, factors=[8, None])
    schedule.reorder(j0, i0, j1, i1)
    schedule.vectorize(i1)
    schedule.parallel(j0)

# %% 4.2 wrong: lanes over a tile of 2 by 4 -> each one column on
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    i0, i1 = schedule.split(i, factors=[None, 2])
    j0, j1 = schedule.split(j, factors=[None, 4])
    schedule.reorder(i0, j0, i1, j1)
    schedule.vectorize(schedule.fuse(i1, j1))
    schedule.parallel(i0)

# %% 4.2 wrong: a serial copy of the whole output is left -> a parallel outermost loop
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    schedule.cache_write(block, 0, "global")
    i, j = schedule.get_loops(block)
    schedule.vectorize(schedule.split(j, factors=[None, 8])[1])
    schedule.parallel(i)

# %% 4.2 wrong: the whole row as one vector -> 8 lanes
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.vectorize(j)
    schedule.parallel(i)

# %% 4.2 wrong: nothing is parallel -> a parallel outermost loop
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.vectorize(schedule.split(j, factors=[None, 8])[1])

# %% 4.2 wrong: nothing is vectorised -> a vectorised innermost loop
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.split(j, factors=[None, 8])
    schedule.parallel(i)

# %% 4.2 wrong: two iterations for the threads -> at least 4 iterations
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    i0, _ = schedule.split(i, factors=[2, None])
    schedule.vectorize(schedule.split(j, factors=[None, 8])[1])
    schedule.parallel(i0)

# %% 4.2 right: all elements in one loop, then split
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    outer, lanes = schedule.split(schedule.fuse(*schedule.get_loops(block)), factors=[None, 8])
    schedule.parallel(outer)
    schedule.vectorize(lanes)

# %% 4.2 right: rows in groups
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    i0, _ = schedule.split(i, factors=[4, None])
    schedule.parallel(i0)
    schedule.vectorize(schedule.split(j, factors=[None, 8])[1])

# %% 4.2 right: the sum is inlined into a copy of it
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "global")
    schedule.compute_inline(block)
    i, j = schedule.get_loops(copy)
    schedule.parallel(i)
    schedule.vectorize(schedule.split(j, factors=[None, 8])[1])

# %% 4.3 wrong: the reduction is not decomposed -> a decomposed reduction
def schedule_matmul(schedule):
    i, j, k = schedule.get_loops(schedule.get_sblock("C"))
    schedule.reorder(i, k, j)
    schedule.vectorize(j)
    schedule.parallel(i)

# %% 4.3 wrong: the reduction is vectorised -> that your code runs
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.vectorize(k)
    schedule.parallel(i)
    schedule.decompose_reduction(block, k)

# %% 4.3 wrong: decomposed too early -> that your code runs
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.decompose_reduction(block, k)
    schedule.vectorize(j)
    schedule.parallel(i)

# %% 4.3 wrong: the columns go to the threads, lanes run along i -> lanes along j
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(j, k, i)
    schedule.vectorize(i)
    schedule.parallel(j)
    schedule.decompose_reduction(block, k)

# %% 4.3 wrong: k stays innermost, nothing is vectorised -> a vectorised innermost loop
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.parallel(i)
    schedule.decompose_reduction(block, k)

# %% 4.3 right: the whole row as lanes, without a split
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.parallel(i)
    schedule.vectorize(j)
    schedule.decompose_reduction(block, k)

# %% 4.3 right: tiles for the threads, k split and unrolled
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    j0, j1 = schedule.split(j, factors=[None, 16])
    k0, k1 = schedule.split(k, factors=[None, 4])
    schedule.reorder(i, j0, k0, k1, j1)
    schedule.unroll(k1)
    schedule.vectorize(j1)
    schedule.parallel(schedule.fuse(i, j0))
    schedule.decompose_reduction(block, k0)

# %% 4.4 wrong: not scheduled at all -> step 2: compute_inline
def schedule_conv2d(mod):
    return mod

# %% 4.4 wrong: the inline is forgotten -> no padding block
def schedule_conv2d(mod):
    return conv_schedule(mod, inline=False)

# %% 4.4 wrong: nothing is parallel -> a parallel outermost loop
def schedule_conv2d(mod):
    return conv_schedule(mod, threads=False)

# %% 4.4 wrong: nothing is vectorised -> a vectorised innermost loop around the convolution
def schedule_conv2d(mod):
    return conv_schedule(mod, lanes=False)

# %% 4.4 wrong: nothing is unrolled -> step 5: unroll
def schedule_conv2d(mod):
    return conv_schedule(mod, unrolled=False)

# %% 4.4 wrong: the decomposition is forgotten -> as the last step
def schedule_conv2d(mod):
    return conv_schedule(mod, decompose=False)

# %% 4.4 wrong: the decomposition comes first -> that your code runs
def schedule_conv2d(mod):
    return conv_schedule(mod, early=True, decompose=False)

# %% 4.4 wrong: func_name is forgotten -> that your code runs
def schedule_conv2d(mod):
    schedule = tvm.s_tir.Schedule(mod)
    schedule.compute_inline(schedule.get_sblock("pad_temp"))
    return schedule.mod

# %% 4.4 wrong: returns the schedule -> the return value: schedule.mod
def schedule_conv2d(mod):
    return tvm.s_tir.Schedule(conv_schedule(mod))

# %% 4.4 wrong: another function is changed as well -> no change besides conv2d
def schedule_conv2d(mod):
    schedule = tvm.s_tir.Schedule(conv_schedule(mod))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("compute", func_name="relu"))[0])
    return schedule.mod

# %% 4.4 wrong: another function is changed in place -> no change besides conv2d
def schedule_conv2d(mod):
    schedule = tvm.s_tir.Schedule(conv_schedule(mod))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("compute", func_name="relu"))[0])
    for variable, func in schedule.mod.functions_items():
        mod[variable] = func
    return mod

# %% 4.4 wrong: the threads race for the sum of one element -> threads that write different elements
def schedule_conv2d(mod):
    conv = helpers.script(conv_schedule(mod)["conv2d"])
    text = conv.replace("for rc, ry, rx in T.grid(T.int64(1), T.int64(3), T.int64(3)):", "RACE")
    lines, out = text.splitlines(), []
    head = next(i for i, line in enumerate(lines) if "T.parallel" in line)
    race = next(i for i, line in enumerate(lines) if "RACE" in line)
    outer = lines[head].replace("T.parallel", "T.serial")
    body = ["    " * 2 + line for line in lines[race + 1:]]
    out = lines[:head] + [outer] + lines[head + 1:race]
    out += ["    for ry in T.parallel(T.int64(3)):", lines[head].replace("    for", "        for", 1).replace("T.parallel", "T.serial")]
    out += ["            for rc, rx in T.grid(T.int64(1), T.int64(3)):"] + ["    " + line for line in lines[race + 1:]]
    mod = tvm.IRModule(dict(mod.functions_items()))
    mod.update_func(mod.get_global_var("conv2d"), tvm.script.from_source("\n".join(out)))
    return mod

# %% 4.4 right: the image is read through a small buffer
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    weight = s.cache_read(conv, 1, "global")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    s.reorder(n, f, y, rc, ry, rx, x)
    s.vectorize(x)
    s.unroll(rx)
    outer = s.fuse(n, f)
    s.parallel(outer)
    s.compute_at(weight, outer)
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 4.4 wrong: a target for another weight order, with wrong results -> layer 0, Conv2d
def schedule_conv2d(mod):
    text = helpers.script(conv_schedule(mod)["conv2d"]).replace("B[v_ff, v_rc, v_ry, v_rx])\n", "B[v_ff, v_rc, v_rx, v_ry])\n")
    text = text.replace("* B[v_ff, v_rc, v_ry, v_rx]", "* B[v_ff, v_rc, v_rx, v_ry]")
    mod = tvm.IRModule(dict(mod.functions_items()))
    mod.update_func(mod.get_global_var("conv2d"), tvm.script.from_source(text))
    return mod

# %% 4.4 right: other tiles, threads over images and channels
def schedule_conv2d(mod):
    return conv_schedule(mod)

# %% 4.4 right: a whole row as lanes, the window unrolled
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    s.reorder(n, f, y, rc, ry, rx, x)
    s.vectorize(x)
    s.unroll(rx)
    s.unroll(ry)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 4.5 wrong: not scheduled at all -> step 2: compute_inline
def schedule_conv2d_with_bias(mod):
    return mod

# %% 4.5 wrong: the bias block is left as it was -> around block T_add
def schedule_conv2d_with_bias(mod):
    return conv_schedule(mod)

# %% 4.5 wrong: the bias block is parallel and not vectorised -> a vectorised innermost loop around block T_add
def schedule_conv2d_with_bias(mod):
    return conv_schedule(mod, block="parallel")

# %% 4.5 wrong: the decomposition is forgotten -> as the last step
def schedule_conv2d_with_bias(mod):
    return conv_schedule(mod, block="both", decompose=False)

# %% 4.5 wrong: the inline is forgotten -> no padding block
def schedule_conv2d_with_bias(mod):
    return conv_schedule(mod, block="both", inline=False)

# %% 4.5 right: lanes of 13 in the bias block
def schedule_conv2d_with_bias(mod):
    return conv_schedule(mod, block="both")
