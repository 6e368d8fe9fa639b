# %% shared
def conv_schedule(mod, inline=True, lanes=True, unrolled=True, threads=True, decompose=True, early=False):
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
    if decompose:
        s.decompose_reduction(conv, rc)
    return s.mod

def rows_with(s, scope="local", under=0):
    """The schedule of exercise 4.6, with another scope, or the copy under another loop."""
    block = s.get_sblock("C")
    copy = s.cache_write(block, 0, scope)
    s.reverse_compute_at(copy, s.get_loops(block)[under])


def partial_with(s, factors=(None, 8), of=1, axis=1, last=-1, lanes=True):
    """The schedule of exercise 4.7, with room for one mistake."""
    pieces = s.split(s.get_loops(s.get_sblock("total"))[-1], factors=list(factors))
    partial = s.rfactor(pieces[of], axis)
    if last == 0:
        loops = s.get_loops(partial)
        s.reorder(loops[0], loops[2], loops[1])
    if lanes:
        s.vectorize(s.get_loops(partial)[-1])
    return partial

# %% 4.1 wrong: only the first is inlined -> 2: shifted, result
def inline_all(schedule):
    schedule.compute_inline(schedule.get_sblock("doubled"))

# %% 4.1 wrong: the output is inlined too -> your code to run
def inline_all(schedule):
    for name in ["doubled", "shifted", "result"]:
        schedule.compute_inline(schedule.get_sblock(name))

# %% 4.1 wrong: a name that is not there -> your code to run
def inline_all(schedule):
    schedule.compute_inline(schedule.get_sblock("double"))
    schedule.compute_inline(schedule.get_sblock("shifted"))

# %% 4.1 wrong: a new schedule instead of the given one -> a change of the schedule that is given | the program is as it was
def inline_all(schedule):
    own = tvm.s_tir.Schedule(schedule.mod)
    own.compute_inline(own.get_sblock("doubled"))
    own.compute_inline(own.get_sblock("shifted"))

# %% 4.1 right: from the other side
def inline_all(schedule):
    schedule.reverse_compute_inline(schedule.get_sblock("result"))
    schedule.reverse_compute_inline(schedule.get_sblock("shifted"))

# %% 4.2 wrong: lanes down a column -> lanes that are neighbours in C | steps in C of [(1, 0)]
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    i0, i1 = schedule.split(i, factors=[None, 8])
    j0, j1 = schedule.split(j, factors=[8, None])
    schedule.reorder(j0, i0, j1, i1)
    schedule.vectorize(i1)
    schedule.parallel(j0)

# %% 4.2 wrong: a serial copy of the whole output is left -> a parallel outermost loop
# i, j = => schedule.cache_write(schedule.get_sblock("C"), 0, "global"); i, j =

# %% 4.2 wrong: the whole row as one vector -> 8 lanes
# _, lanes = schedule.split(j, factors=[None, 8]) => lanes = j

# %% 4.2 wrong: nothing is vectorised -> a vectorised innermost loop
# schedule.vectorize(lanes) => pass

# %% 4.2 wrong: two iterations for the threads -> a parallel outermost loop, with 4 iterations or more
# parallel(i) => parallel(schedule.split(i, factors=[2, None])[0])

# %% 4.2 right: all elements in one loop, then split
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    outer, lanes = schedule.split(schedule.fuse(*schedule.get_loops(block)), factors=[None, 8])
    schedule.parallel(outer)
    schedule.vectorize(lanes)

# %% 4.3 wrong: the reduction is not decomposed -> a decomposed reduction
# schedule.decompose_reduction(block, k) => pass

# %% 4.3 wrong: the reduction is vectorised -> your code to run
# vectorize(lanes) => vectorize(k)

# %% 4.3 wrong: decomposed too early -> does not have compact dataflow | schedule.decompose_reduction(block, k); schedule.vectorize(lanes) | read: docs/tvm_errors.md#does-not-have-compact-dataflow-to-be-written-by-single-block
# schedule.decompose_reduction(block, k) => pass
# schedule.vectorize => schedule.decompose_reduction(block, k); schedule.vectorize

# %% 4.3 wrong: decomposed before the tiles -> the loops are not in a chain | schedule.reorder(i, outer, k, lanes) | read: docs/tvm_errors.md#loops-are-not-in-a-chain-not-the-parent-of-the-inner-loop
# schedule.decompose_reduction(block, k) => pass
# outer, lanes => schedule.decompose_reduction(block, k); outer, lanes

# %% 4.3 wrong: the columns go to the threads, lanes run along i -> lanes that are neighbours in B | steps in A of [(1, 0)], with i: 32 vectorized; steps in B of [(0, 0)]
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(j, k, i)
    schedule.vectorize(i)
    schedule.parallel(j)
    schedule.decompose_reduction(block, k)

# %% 4.3 right: the whole row as lanes, without a split
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.parallel(i)
    schedule.vectorize(j)
    schedule.decompose_reduction(block, k)

# %% 4.4 wrong: not scheduled at all -> block pad_temp still writes pad_temp; conv2d is as it was
def schedule_conv2d(mod):
    return mod

# %% 4.4 wrong: nothing is parallel -> a parallel outermost loop
def schedule_conv2d(mod):
    return conv_schedule(mod, threads=False)

# %% 4.4 wrong: nothing is vectorised -> a vectorised innermost loop around the convolution
def schedule_conv2d(mod):
    return conv_schedule(mod, lanes=False)

# %% 4.4 wrong: nothing is unrolled -> nn_ff_0_yy_xx_0_fused: 10816 parallel, rc: 1, ry: 3, rx: 3,
def schedule_conv2d(mod):
    return conv_schedule(mod, unrolled=False)

# %% 4.4 wrong: the decomposition is forgotten -> block conv2d_nchw still has its T.init
def schedule_conv2d(mod):
    return conv_schedule(mod, decompose=False)

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

# %% 4.5 wrong: nothing is done -> the program is as it was
def sums_where_needed(schedule):
    schedule.get_loops(schedule.get_sblock("pooled"))

# %% 4.5 wrong: the pooling moves, which reads -> your code to run
def sums_where_needed(schedule):
    schedule.compute_at(schedule.get_sblock("pooled"), schedule.get_loops(schedule.get_sblock("sums"))[0])

# %% 4.5 wrong: all rows at a time -> at most 16 numbers of sums at a time | got: 64
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("pooled"))
    outer, _ = schedule.split(row, factors=[1, None])
    schedule.compute_at(schedule.get_sblock("sums"), outer)

# %% 4.5 wrong: loops cut, and no block moved -> at most 16 numbers of sums at a time | got: 64
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("sums"))
    schedule.split(row, factors=[None, 2])

# %% 4.5 right: for each number of the pooling
def sums_where_needed(schedule):
    schedule.compute_at(schedule.get_sblock("sums"), schedule.get_loops(schedule.get_sblock("pooled"))[1])

# %% 4.6 wrong: no buffer of its own -> the sums of block C in a buffer of scope "local"
def row_in_registers(schedule):
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("C"))[-1])

# %% 4.6 wrong: the copy stays behind -> at most 8 numbers of C_local at a time | got: 64
def row_in_registers(schedule):
    schedule.cache_write(schedule.get_sblock("C"), 0, "local")

# %% 4.6 wrong: a buffer of the scope global -> buffer of scope "local"
def row_in_registers(schedule):
    rows_with(schedule, scope="global")

# %% 4.6 wrong: copied for each k -> the sums to leave C_local once, when they are complete | C in i: 8 > k: 4 > j: 8; C_local in i: 8 > k: 4 > ax0: 8
def row_in_registers(schedule):
    rows_with(schedule, under=1)

# %% 4.6 wrong: the rows change places with the sums -> sums side by side, inside the loop over k
def row_in_registers(schedule):
    rows_with(schedule)
    i, k, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.reorder(j, k)

# %% 4.6 right: a vector of the row, and the reduction decomposed
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "local")
    i, k, j = schedule.get_loops(block)
    schedule.reverse_compute_at(copy, i)
    schedule.vectorize(j)
    schedule.decompose_reduction(block, k)

# %% 4.7 wrong: no partial sums -> block total adds up each row
def eight_partial_sums(schedule):
    _, k = schedule.get_loops(schedule.get_sblock("total"))
    schedule.split(k, factors=[None, 8])

# %% 4.7 wrong: of the other loop -> eight partial sums for each of 4 rows | 16 in all
def eight_partial_sums(schedule):
    partial_with(schedule, of=0, lanes=False)

# %% 4.7 wrong: the partial sums come first in memory -> neighbours in total.rf | of [(1, 0)]
def eight_partial_sums(schedule):
    partial_with(schedule, axis=0)

# %% 4.7 wrong: neighbours are added up -> neighbours in A | of [(0, 4)]
def eight_partial_sums(schedule):
    partial_with(schedule, factors=(8, None), of=0, last=0)

# %% 4.7 wrong: no vector -> a vectorised innermost loop around the partial sums
def eight_partial_sums(schedule):
    partial_with(schedule, lanes=False)

# %% 4.7 right: rows inside, and the sums of a row follow at once
def eight_partial_sums(schedule):
    block = schedule.get_sblock("total")
    i, k = schedule.get_loops(block)
    k, lanes = schedule.split(k, factors=[None, 8])
    partial = schedule.rfactor(lanes, 1)
    i, k, lanes = schedule.get_loops(partial)
    schedule.reverse_compute_at(block, i)
    schedule.vectorize(lanes)
    schedule.decompose_reduction(partial, k)

# %% more

# %% 4.2 wrong: lanes over a tile of 2 by 4 -> lanes that are neighbours in C | steps in C of [(0, 1), (1, -3)]
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    i0, i1 = schedule.split(i, factors=[None, 2])
    j0, j1 = schedule.split(j, factors=[None, 4])
    schedule.reorder(i0, j0, i1, j1)
    schedule.vectorize(schedule.fuse(i1, j1))
    schedule.parallel(i0)

# %% 4.2 wrong: nothing is parallel -> a parallel outermost loop
# schedule.parallel(i) => pass

# %% 4.2 right: rows in groups
# parallel(i) => parallel(schedule.split(i, factors=[4, None])[0])

# %% 4.3 wrong: k stays innermost, nothing is vectorised -> a vectorised innermost loop
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    schedule.parallel(i)
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

# %% 4.4 wrong: the inline is forgotten -> block pad_temp still writes pad_temp
def schedule_conv2d(mod):
    return conv_schedule(mod, inline=False)

# %% 4.4 wrong: the decomposition comes first -> loops are not in a chain | your line 2
def schedule_conv2d(mod):
    return conv_schedule(mod, early=True, decompose=False)

# %% 4.4 wrong: func_name is forgotten -> your code to run
def schedule_conv2d(mod):
    schedule = tvm.s_tir.Schedule(mod)
    schedule.compute_inline(schedule.get_sblock("pad_temp"))
    return schedule.mod

# %% 4.4 wrong: returns the schedule -> an IRModule | Schedule
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

# %% 4.4 wrong: a target for another weight order, with wrong results -> input B: 32 x 1 x 3 x 3 zeros but 1 at | the PrimFunc as it was: 4 x 32 x 26 x 26 zeros but 1 at | *0* at
def schedule_conv2d(mod):
    text = helpers.script(conv_schedule(mod)["conv2d"]).replace("B[v_ff, v_rc, v_ry, v_rx])\n", "B[v_ff, v_rc, v_rx, v_ry])\n")
    text = text.replace("* B[v_ff, v_rc, v_ry, v_rx]", "* B[v_ff, v_rc, v_rx, v_ry]")
    mod = tvm.IRModule(dict(mod.functions_items()))
    mod.update_func(mod.get_global_var("conv2d"), tvm.script.from_source(text))
    return mod

# %% 4.4 wrong: the target that is given, pasted in -> buffers (8, 1, 28, 28) | (4, 1, 28, 28)
def schedule_conv2d(mod):
    new = tvm.IRModule(dict(mod.functions))
    new.update_func(mod.get_global_var("conv2d"), target_func)
    return new

# %% 4.4 wrong: tiles for four images alone -> a schedule for 4 images and for 8: here for buffers (8, 1, 28, 28)
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(conv_schedule(mod, threads=False, decompose=False), error_render_level="fast")
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f0, y, x0, rc, *_ = s.get_loops(conv)
    s.parallel(s.split(n, factors=[2, 2])[0])
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 4.5 right: the pooling follows each pair of rows
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("sums"))
    pair, _ = schedule.split(row, factors=[None, 2])
    schedule.reverse_compute_at(schedule.get_sblock("pooled"), pair)

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

# %% 4.4 right: other tiles, threads over images and channels
def schedule_conv2d(mod):
    return conv_schedule(mod)

# %% 4.5 wrong: a pair of rows, and no block moved under it -> at most 16 numbers of sums at a time
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("pooled"))
    schedule.parallel(row)

# %% 4.5 wrong: two rows of pooled at a time -> at most 16 numbers of sums at a time
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("pooled"))
    outer, _ = schedule.split(row, factors=[None, 2])
    schedule.compute_at(schedule.get_sblock("sums"), outer)

# %% 4.5 wrong: inlined, which a sum cannot be -> your code to run
def sums_where_needed(schedule):
    schedule.compute_inline(schedule.get_sblock("sums"))

# %% 4.5 wrong: columns outside -> at most 16 numbers of sums at a time
def sums_where_needed(schedule):
    i, j, p, q = schedule.get_loops(schedule.get_sblock("pooled"))
    schedule.reorder(q, p, j, i)
    schedule.compute_at(schedule.get_sblock("sums"), q)

# %% 4.5 wrong: for the shape of the example alone -> a schedule for any shape
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("pooled"))
    schedule.compute_at(schedule.get_sblock("sums"), row)
    if schedule.get(row).extent.value != 4:
        schedule.compute_at(schedule.get_sblock("pooled"), row)

# %% 4.5 right: a buffer more, for the pooling
def sums_where_needed(schedule):
    pooled = schedule.get_sblock("pooled")
    copy = schedule.cache_write(pooled, 0, "local")
    row, *_ = schedule.get_loops(pooled)
    schedule.compute_at(schedule.get_sblock("sums"), row)
    schedule.reverse_compute_at(copy, row)

# %% 4.6 wrong: a buffer for what it reads -> the sums of block C in a buffer of scope "local"
def row_in_registers(schedule):
    schedule.cache_read(schedule.get_sblock("C"), 0, "local")

# %% 4.6 wrong: one sum at a time -> 8 sums side by side
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    i, k, j = schedule.get_loops(block)
    schedule.reorder(i, j, k)
    copy = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(copy, j)

# %% 4.6 wrong: half a row -> 8 sums side by side
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    i, k, j = schedule.get_loops(block)
    j0, j1 = schedule.split(j, factors=[None, 4])
    schedule.reorder(i, j0, k, j1)
    copy = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(copy, j0)

# %% 4.6 wrong: two rows at a time -> at most 8 numbers of C_local at a time
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    pair, _ = schedule.split(schedule.get_loops(block)[0], factors=[None, 2])
    copy = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(copy, pair)

# %% 4.6 wrong: the wrong one of the two blocks moves -> your code to run
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(block, schedule.get_loops(block)[0])

# %% 4.6 right: C moves under the rows of the copy
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "local")
    schedule.compute_at(block, schedule.get_loops(copy)[0])
    i, j, k = schedule.get_loops(block)
    schedule.reorder(k, j)

# %% 4.6 right: the row in two vectors
def row_in_registers(schedule):
    rows_with(schedule)
    i, k, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.split(j, factors=[2, None])

# %% 4.7 wrong: four partial sums -> eight partial sums for each of 4 rows
def eight_partial_sums(schedule):
    partial_with(schedule, factors=(None, 4))

# %% 4.7 wrong: eight numbers in each partial sum -> eight partial sums for each of 4 rows
def eight_partial_sums(schedule):
    partial_with(schedule, factors=(None, 8), of=0, last=0)

# %% 4.7 wrong: an axis that is not there -> your code to run
def eight_partial_sums(schedule):
    partial_with(schedule, axis=2)

# %% 4.7 wrong: the first block is vectorised, not the new one -> a vectorised innermost loop around the partial sums
def eight_partial_sums(schedule):
    partial_with(schedule, lanes=False)
    schedule.unroll(schedule.get_loops(schedule.get_sblock("total"))[-1])

# %% 4.7 wrong: vectorised before rfactor -> your code to run
def eight_partial_sums(schedule):
    _, k = schedule.get_loops(schedule.get_sblock("total"))
    _, lanes = schedule.split(k, factors=[None, 8])
    schedule.vectorize(lanes)
    schedule.rfactor(lanes, 1)

# %% 4.7 wrong: a schedule of its own -> the program is as it was
def eight_partial_sums(schedule):
    partial_with(schedule.copy())

# %% 4.7 right: threads over the rows
def eight_partial_sums(schedule):
    partial = partial_with(schedule)
    schedule.parallel(schedule.get_loops(partial)[0])

# %% 4.7 right: the new loop counted from the end
def eight_partial_sums(schedule):
    block = schedule.get_sblock("total")
    k, lanes = schedule.split(schedule.get_loops(block)[-1], factors=[None, 8])
    partial = schedule.rfactor(lanes, 1)
    schedule.vectorize(schedule.get_loops(partial)[2])

# %% 4.1 wrong: a copy of the schedule is changed -> a change of the schedule that is given | the program is as it was
def inline_all(schedule):
    schedule = schedule.copy()
    schedule.compute_inline("doubled")
    schedule.compute_inline("shifted")

# %% 4.1 wrong: it waits for somebody at the keyboard -> take it out
def inline_all(schedule):
    breakpoint()
    schedule.compute_inline("doubled")
    schedule.compute_inline("shifted")

# %% 4.1 wrong: a name is asked for -> input(), in your code
def inline_all(schedule):
    try:
        schedule.compute_inline(input("block? "))
    except Exception:
        pass

# %% 4.2 wrong: columns beyond the end of the row are written -> goes from 0 to 23, but is 24
# _, lanes = schedule.split(j, factors=[None, 8]) => *_, lanes = schedule.split(j, factors=[None, 2, 8], disable_predication=True)

# %% 4.2 wrong: rows beyond the last one are written -> outside the range
# parallel(i) => parallel(schedule.split(i, factors=[5, None], disable_predication=True)[0])

# %% 4.2 wrong: the extents of the first shape are in the answer -> here for buffers (136, 264)
# [None, 8] => [16, 8]
# parallel(i) => parallel(schedule.split(i, factors=[8, 8])[0])

# %% 4.2 right: the sum is computed in its own copy
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "global")
    schedule.compute_inline(block)
    i, j = schedule.get_loops(copy)
    schedule.vectorize(schedule.split(j, [None, 8])[1])
    schedule.parallel(i)

# %% 4.2 right: rows in groups that do not divide, with TVM's guard
# parallel(i) => parallel(schedule.split(i, factors=[5, None])[0])

# %% 4.2 right: the sum is inlined into a copy of it
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "global")
    schedule.compute_inline(block)
    i, j = schedule.get_loops(copy)
    schedule.parallel(i)
    schedule.vectorize(schedule.split(j, factors=[None, 8])[1])

# %% 4.3 wrong: the extents of the first shape are in the answer -> here for buffers (72, 80)
def schedule_matmul(schedule):
    c = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(c)
    (i0, i1), (j0, j1), (k0, k1) = (schedule.split(loop, factors) for loop, factors in
                                    [(i, [4, 8]), (j, [8, 8]), (k, [8, 4])])
    schedule.reorder(i0, i1, j0, k0, k1, j1)
    schedule.parallel(i0)
    schedule.vectorize(j1)
    schedule.decompose_reduction(c, k0)

# %% 4.3 wrong: terms beyond the end of the sum are read -> goes from 0 to 23, but is 24
def schedule_matmul(schedule):
    c = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(c)
    k0, k1 = schedule.split(k, [None, 16], disable_predication=True)
    schedule.reorder(i, k0, k1, j)
    schedule.parallel(i)
    schedule.vectorize(j)
    schedule.decompose_reduction(c, k0)

# %% 4.3 wrong: one lane -> at least two lanes
# [None, 8] => [None, 1]

# %% 4.3 wrong: eight vectors of as many lanes as fit: one lane where there are eight columns -> at least two lanes
# [None, 8] => [8, None]

# %% 4.3 right: partial sums by rfactor, lanes along j in both blocks
def schedule_matmul(schedule):
    c = schedule.get_sblock("C")
    partial = schedule.rfactor(schedule.split(schedule.get_loops(c)[2], [None, 4])[1], 1)
    i, j, k0, k1 = schedule.get_loops(partial)
    schedule.reorder(i, k1, k0, j)
    schedule.vectorize(j)
    schedule.parallel(i)
    schedule.decompose_reduction(partial, k0)
    i, j, k1 = schedule.get_loops(c)
    schedule.reorder(i, k1, j)
    schedule.vectorize(j)
    schedule.parallel(i)
    schedule.decompose_reduction(c, k1)

# %% 4.3 right: threads share groups of columns
# reorder(i, outer => reorder(outer, i
# parallel(i) => parallel(outer)

# %% 4.4 wrong: columns 26 to 31 are written too -> goes from 0 to 25, but is 26
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    x0, x1 = s.split(x, [None, 8], disable_predication=True)
    s.reorder(n, f, y, x0, rc, ry, rx, x1)
    s.vectorize(x1)
    s.unroll(rx)
    s.parallel(s.fuse(n, f, y))
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 4.4 wrong: one sblock declares less than its loops do, by hand -> outside the range
def schedule_conv2d(mod):
    text = helpers.script(conv_schedule(mod)["conv2d"])
    assert "T.axis.spatial(T.int64(32), " in text
    text = text.replace("T.axis.spatial(T.int64(32), ", "T.axis.spatial(T.int64(31), ")
    mod = tvm.IRModule(dict(mod.functions_items()))
    mod.update_func(mod.get_global_var("conv2d"), tvm.script.from_source(text))
    return mod

# %% 4.4 wrong: threads over the rows of the window, in an axis that is called spatial -> threads that write different elements
from tvm.script import tirx as T

@T.prim_func(private=True, s_tir=True)
def conv2d(image: T.Buffer((T.int64(4), T.int64(1), T.int64(28), T.int64(28)), "float32"),
           weight: T.Buffer((T.int64(32), T.int64(1), T.int64(3), T.int64(3)), "float32"),
           conv: T.Buffer((T.int64(4), T.int64(32), T.int64(26), T.int64(26)), "float32")):
    T.func_attr({"tirx.noalias": True})
    for n in T.parallel(T.int64(4)):
        for f, y in T.grid(T.int64(32), T.int64(26)):
            for x in T.vectorized(T.int64(26)):
                with T.sblock("init"):
                    vn, vf, vy, vx = T.axis.remap("SSSS", [n, f, y, x])
                    conv[vn, vf, vy, vx] = T.float32(0)
    for p in T.parallel(T.int64(3)):
        for n, f, y in T.grid(T.int64(4), T.int64(32), T.int64(26)):
            for q in T.unroll(T.int64(3)):
                for x in T.vectorized(T.int64(26)):
                    with T.sblock("update"):
                        vp, vn, vf, vy, vx, vq = T.axis.remap("SSSSSR", [p, n, f, y, x, q])
                        conv[vn, vf, vy, vx] = conv[vn, vf, vy, vx] + image[vn, T.int64(0), vy + vp, vx + vq] * weight[vf, T.int64(0), vp, vq]


def schedule_conv2d(mod):
    out = tvm.IRModule(dict(mod.functions_items()))
    out.update_func(out.get_global_var("conv2d"), conv2d)
    return out

# %% 4.4 wrong: a loop without sblocks -> no block with a reduction axis
def schedule_conv2d(mod):
    text = helpers.script(mod["conv2d"])
    head = text[:text.index("        # with T.sblock")] if "        # with T.sblock" in text else text
    lines = [line for line in head.splitlines() if "alloc_buffer" not in line]
    first = next(i for i, line in enumerate(lines) if line.lstrip().startswith("for "))
    lines = [*lines[:first], "    for n in T.parallel(T.int64(4)):", "        for f, y, x in T.grid(T.int64(32), T.int64(26), T.int64(26)):",
             "            conv2d_nchw[n, f, y, x] = T.float32(0)"]
    out = tvm.IRModule(dict(mod.functions_items()))
    out.update_func(out.get_global_var("conv2d"), tvm.script.from_source("\n".join(lines)))
    return out

# %% 4.4 wrong: a vector of one lane -> at least two lanes
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(conv_schedule(mod, lanes=False, decompose=False))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    loops = s.get_loops(conv)
    s.vectorize(s.split(loops[-1], [None, 1])[1])
    s.decompose_reduction(conv, loops[1])
    return s.mod

# %% 4.4 wrong: the unrolled loop has one iteration -> of two iterations or more
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(conv_schedule(mod, unrolled=False, decompose=False))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    s.unroll(s.get_loops(conv)[1])
    s.decompose_reduction(conv, s.get_loops(conv)[1])
    return s.mod

# %% 4.4 wrong: the notebook's module is scheduled, not the one that is given -> the same module where an empty one is given
notebooks_module = helpers.import_model(helpers.pytorch_model(helpers.load_weights("cnn")), (4, 1, 28, 28))
def schedule_conv2d(mod):
    return conv_schedule(notebooks_module)

# %% 4.4 wrong: mod is returned -> conv2d is as it was
def schedule_conv2d(mod):
    conv_schedule(mod)
    return mod

# %% 4.4 wrong: too much is unrolled -> make 7,488 copies of block conv2d_nchw
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    s.reorder(n, rc, ry, rx, f, y, x)
    s.vectorize(x)
    s.parallel(n)
    for loop in (rx, f, y, ry):
        s.unroll(loop)
    s.decompose_reduction(conv, rc)
    return s.mod

# %% 4.3 wrong: decomposed inside the sum, which is refused itself -> your code to run
# reduction(block, k) => reduction(block, lanes)

# %% 4.3 wrong: decomposed too early, and k as lanes -> your code to run
# schedule.decompose_reduction(block, k) => pass
# schedule.reorder(i, outer, k, lanes) => schedule.decompose_reduction(block, k)
# vectorize(lanes) => vectorize(k)

# %% 4.2 wrong: no predicate, rows of 16 a thread -> PrimFunc main: axis v_i of block C goes from 0 to 16, but is 17
# parallel(i) => parallel(schedule.split(i, factors=[4, None], disable_predication=True)[0])

# %% 4.1 wrong: inlined, then the nest blockized: two sblocks -> one sblock | result_o
def inline_all(schedule):
    schedule.compute_inline(schedule.get_sblock("doubled"))
    schedule.compute_inline(schedule.get_sblock("shifted"))
    i, j = schedule.get_loops(schedule.get_sblock("result"))
    schedule.blockize(j)

# %% 4.1 wrong: a generator, so that nothing runs -> runs none of its lines
def inline_all(schedule):
    for name in ("doubled", "shifted"):
        yield schedule.compute_inline(schedule.get_sblock(name))

# %% 4.1 wrong: called instead of handed over -> inline_all is None
inline_all = None

# %% 4.2 wrong: the output's layout transposed -> as the one that is given | (24, 16)
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    i, j = schedule.get_loops(block)
    _, lanes = schedule.split(j, factors=[None, 8])
    schedule.vectorize(lanes)
    schedule.parallel(i)
    schedule.transform_layout(block, ("write", 0), lambda i, j: (j, i))

# %% 4.2 wrong: B in half precision -> expected, the PrimFunc as it was: | 138.3 at [0, 1] | *138.25* at [0, 1]
def schedule_add(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_read(block, 1, "global")
    schedule.unsafe_set_dtype(copy, 0, "float16")
    i, j = schedule.get_loops(block)
    _, lanes = schedule.split(j, factors=[None, 8])
    schedule.vectorize(lanes)
    schedule.parallel(i)
    schedule.compute_at(copy, i)

# %% 4.3 wrong: B in half precision -> expected, the PrimFunc as it was: 32 x 32 zeros but -71.34 | *-71.3125*
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_read(block, 1, "global")
    schedule.unsafe_set_dtype(copy, 0, "float16")
    i, j, k = schedule.get_loops(block)
    j0, lanes = schedule.split(j, factors=[None, 8])
    schedule.reorder(i, j0, k, lanes)
    schedule.compute_at(copy, i)
    schedule.vectorize(lanes)
    schedule.parallel(i)
    schedule.decompose_reduction(block, k)

# %% 4.3 right: rfactor, threads over k in the partial sums, the small final sum serial
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    k0, k1 = schedule.split(k, factors=[None, 4])
    partial = schedule.rfactor(k0, 0)
    i, j, k0, k1 = schedule.get_loops(partial)
    schedule.reorder(k0, i, k1, j)
    schedule.vectorize(j)
    schedule.parallel(k0)
    schedule.decompose_reduction(partial, k1)
    i, j, k0 = schedule.get_loops(block)
    schedule.decompose_reduction(block, k0)

# %% 4.3 wrong: rfactor, the partial sums serial -> a parallel outermost loop
def schedule_matmul(schedule):
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    k0, k1 = schedule.split(k, factors=[None, 4])
    partial = schedule.rfactor(k0, 0)
    i, j, k0, k1 = schedule.get_loops(partial)
    schedule.reorder(k0, i, k1, j)
    schedule.vectorize(j)
    schedule.decompose_reduction(partial, k1)
    i, j, k0 = schedule.get_loops(block)
    schedule.decompose_reduction(block, k0)

# %% 4.4 wrong: scheduled, then dead code and constants cleaned up in main -> main has changed
def schedule_conv2d(mod):
    s = tvm.s_tir.Schedule(mod)
    conv = s.get_sblock("conv2d_nchw", func_name="conv2d")
    s.compute_inline(s.get_sblock("pad_temp", func_name="conv2d"))
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    x0, x1 = s.split(x, factors=[None, 2])
    s.reorder(n, f, y, x0, rc, ry, rx, x1)
    s.vectorize(x1)
    s.unroll(rx)
    s.parallel(s.fuse(n, f))
    s.decompose_reduction(conv, rc)
    return relax.transform.ToNonDataflow()(s.mod)

# %% 4.5 wrong: two columns at a time, not two rows -> at most 12 numbers
def sums_where_needed(schedule):
    pooled = schedule.get_sblock("pooled")
    i, j, p, q = schedule.get_loops(pooled)
    schedule.reorder(j, i)
    schedule.compute_at(schedule.get_sblock("sums"), j)

# %% 4.5 right: the first matrix, four rows of it, read through a copy
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops("pooled")
    schedule.compute_at("sums", row)
    schedule.cache_read("sums", 0, "global")

# %% 4.5 right: the second matrix read through a copy
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops("pooled")
    schedule.compute_at("sums", row)
    schedule.cache_read("sums", 1, "global")

# %% 4.5 wrong: all sums are copied out of a small buffer -> numbers of sums at a time
def sums_where_needed(schedule):
    copy = schedule.cache_write("sums", 0, "local")
    schedule.reverse_compute_at(copy, schedule.get_loops("sums")[0])

# %% 4.5 wrong: the second input in half precision -> expected, the PrimFunc as it was: | 132.4 | *132.375*
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops("pooled")
    schedule.compute_at("sums", row)
    schedule.unsafe_set_dtype(schedule.cache_read("sums", 1, "global"), 0, "float16")

# %% 4.6 wrong: B in half precision -> expected, the PrimFunc as it was: 8 x 8 zeros but -148.6 | *-148.625*
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "local")
    i, k, j = schedule.get_loops(block)
    schedule.reverse_compute_at(copy, i)
    schedule.unsafe_set_dtype(schedule.cache_read(block, 1, "global"), 0, "float16")

# %% 4.7 right: the row read through a copy
def eight_partial_sums(schedule):
    i, k = schedule.get_loops("total")
    _, lanes = schedule.split(k, factors=[None, 8])
    partial = schedule.rfactor(lanes, 1)
    i, groups, lanes = schedule.get_loops(partial)
    schedule.vectorize(lanes)
    copy = schedule.cache_read(partial, 0, "global")
    schedule.compute_at(copy, i)

# %% 4.7 wrong: the rows are the lanes -> around the partial sums, of 8 lanes | i: 4 vectorized
def eight_partial_sums(schedule):
    i, k = schedule.get_loops("total")
    _, lanes = schedule.split(k, factors=[None, 8])
    partial = schedule.rfactor(lanes, 1)
    i, groups, lanes = schedule.get_loops(partial)
    schedule.reorder(groups, lanes, i)
    schedule.vectorize(i)

# %% 4.2 wrong: a row's lanes lie far apart -> lanes that are neighbours in C | steps in C of [(0, 3)]
# _, lanes = schedule.split(j, factors=[None, 8]) => lanes, outer = schedule.split(j, factors=[8, None])
# schedule.vectorize => schedule.reorder(outer, lanes); schedule.vectorize

# %% 4.4 wrong: a module of conv2d alone -> the functions that are given, and no others | missing: add, add1
def schedule_conv2d(mod):
    return tvm.IRModule({"conv2d": conv_schedule(mod)["conv2d"]})

# %% 4.6 wrong: all rows wait in a second buffer -> at most 8 numbers of C_local at a time | 64
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "local")
    schedule.cache_write(copy, 0, "local")
    schedule.reverse_compute_at(copy, schedule.get_loops(block)[0])

# %% 4.7 wrong: lanes of four, twice -> a vectorised innermost loop around the partial sums, of 8 lanes | 4 vectorized
# schedule.vectorize(schedule.get_loops(partial)[-1]) => schedule.vectorize(schedule.split(schedule.get_loops(partial)[-1], [2, 4])[1])

# %% 4.7 wrong: the partial sums in half precision -> input A: 4 x 32 zeros but 128.969 at [1, 1] | [0, 128.969, 0, 0] | *129*
# schedule.vectorize(schedule.get_loops(partial)[-1]) => schedule.vectorize(schedule.get_loops(partial)[-1]); schedule.unsafe_set_dtype(partial, 0, "float16")

# %% 4.1 wrong: fused afterwards, for matrices alone -> a schedule for any shape: here for buffers (7,), (7,) | i, j = schedule.get_loops
def inline_all(schedule):
    schedule.compute_inline(schedule.get_sblock("doubled"))
    schedule.compute_inline(schedule.get_sblock("shifted"))
    i, j = schedule.get_loops(schedule.get_sblock("result"))
    schedule.fuse(i, j)

# %% 4.2 wrong: threads inside of threads -> a program that compiles | C in i: 16 parallel > j_0: 3 parallel > | docs/tvm_errors.md#nested
# schedule.parallel(i) => schedule.parallel(i); schedule.parallel(_)

# %% 4.2 wrong: six rows for each thread -> with 4 iterations or more; for buffers (16, 24) | i_0: 3 parallel
# schedule.parallel(i) => schedule.parallel(schedule.split(i, factors=[None, 6])[0])

# %% 4.4 wrong: the fast function gets a name of its own -> the functions that are given, and no others | new: conv2d_tiled
def schedule_conv2d(mod):
    new = tvm.IRModule(dict(mod.functions_items()))
    new["conv2d_tiled"] = conv_schedule(mod)["conv2d"]
    return new

# %% 4.4 wrong: decomposed under a loop of the sum -> docs/tvm_errors.md#to-be-higher-than
def schedule_conv2d(mod):
    schedule = tvm.s_tir.Schedule(mod, error_render_level="fast")
    conv = schedule.get_sblock("conv2d_nchw", func_name="conv2d")
    schedule.decompose_reduction(conv, schedule.get_loops(conv)[-1])
    return schedule.mod

# %% 4.5 wrong: small programs stay as they are -> at most 8 numbers of sums at a time; for buffers (4, 3) | got: 16
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("pooled"))
    if schedule.get(row).extent.value > 2:
        schedule.compute_at(schedule.get_sblock("sums"), row)

# %% 4.5 wrong: the pooling goes into the sums -> read: docs/tvm_errors.md#has-init-statement
def sums_where_needed(schedule):
    schedule.reverse_compute_inline(schedule.get_sblock("pooled"))

# %% 4.5 right: a program of two rows stays as it is
def sums_where_needed(schedule):
    row, *_ = schedule.get_loops(schedule.get_sblock("pooled"))
    if schedule.get(row).extent.value > 1:
        schedule.compute_at(schedule.get_sblock("sums"), row)

# %% 4.2 wrong: a third of the rows for each thread -> a parallel outermost loop | 3
def schedule_add(schedule):
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    _, lanes = schedule.split(j, factors=[None, 8])
    groups, _ = schedule.split(i, factors=[None, schedule.get(i).extent.value // 3])
    schedule.vectorize(lanes)
    schedule.parallel(groups)

# %% 4.6 wrong: strips of eight where eight divides the row -> 16 sums side by side
def row_in_registers(schedule):
    block = schedule.get_sblock("C")
    copy = schedule.cache_write(block, 0, "local")
    place, k, j = schedule.get_loops(block)
    if schedule.get(j).extent.value % 8 == 0:
        strip, eight = schedule.split(j, factors=[None, 8])
        schedule.reorder(place, strip, k, eight)
        place = strip
    schedule.reverse_compute_at(copy, place)

# %% 4.2 wrong: the lanes come from the rows -> lanes that are neighbours in C | steps in C of [(1, 0)]
def schedule_add(schedule: tvm.s_tir.Schedule) -> None:
    """Make the addition in block C parallel over rows and vectorised along rows."""
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    rows, lanes = schedule.split(i, factors=[None, 8])
    schedule.reorder(rows, j, lanes)
    schedule.vectorize(lanes)
    schedule.parallel(rows)

# %% 4.3 wrong: partial sums along k as the lanes -> lanes that are neighbours in B | steps in A of [(0, 1)]
def schedule_matmul(schedule: tvm.s_tir.Schedule) -> None:
    """Vectorise a matrix product along j, share i among threads, decompose the reduction."""
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    k0, k1 = schedule.split(k, factors=[None, 8])
    partial = schedule.rfactor(k1, 2)
    i, j, k0, k1 = schedule.get_loops(partial)
    schedule.vectorize(k1)
    schedule.parallel(i)
    schedule.decompose_reduction(partial, k0)
    schedule.parallel(schedule.get_loops(block)[0])

# %% 4.7 wrong: neighbours are added up, and decomposed -> neighbours in A | of [(0, 4)]
def eight_partial_sums(schedule):
    partial = partial_with(schedule, factors=(8, None), of=0, last=0)
    schedule.decompose_reduction(partial, schedule.get_loops(partial)[1])

# %% 4.3 wrong: parallel where there is more than one iteration -> a parallel outermost loop; for buffers (16, 24) | i_0: 1, around block C_init
def schedule_matmul(schedule: tvm.s_tir.Schedule) -> None:
    block = schedule.get_sblock("C")
    i, j, k = schedule.get_loops(block)
    threads, rest = schedule.split(i, factors=[None, 16])
    outer, lanes = schedule.split(j, factors=[None, 8])
    schedule.reorder(threads, rest, outer, k, lanes)
    schedule.vectorize(lanes)
    if schedule.get(threads).extent.value > 1:
        schedule.parallel(threads)
    schedule.decompose_reduction(block, k)
