# %% shared
def pixels(func, side=(16, 16), tags=("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"),
           outer_threads=False, turned=False):
    s = tvm.s_tir.Schedule(func)
    row, column = s.get_loops(s.get_sblock("Y"))
    by, ty = s.split(row, [side[0], None] if outer_threads else [None, side[0]])
    bx, tx = s.split(column, [side[1], None] if outer_threads else [None, side[1]])
    if outer_threads:
        by, ty, bx, tx = ty, by, tx, bx
    s.reorder(*((bx, by, tx, ty) if turned else (by, bx, ty, tx)))
    for loop, tag in zip((by, bx, ty, tx), tags):
        s.bind(loop, tag)
    return s.mod["main"]


def tiles(func, rows=32, columns=32, depth=32, copies=(0, 1), own=1, coalesced=True):
    """Tiles of results, `own` of which are one thread's, in rows; X and W in shared memory."""
    s = tvm.s_tir.Schedule(func)
    sums = s.get_sblock("Y")
    i, j, over = s.get_loops(sums)
    (i, row), (j, column) = s.split(i, [None, rows]), s.split(j, [None, columns])
    row, each = s.split(row, [None, own])
    tile, within = s.split(over, [None, depth])
    s.reorder(i, j, row, column, tile, within, each)
    ty, tx = "threadIdx.y", "threadIdx.x"
    for loop, tag in ((i, "blockIdx.y"), (j, "blockIdx.x"), (row, ty), (column, tx)):
        s.bind(loop, tag)
    s.reverse_compute_at(s.cache_write(sums, 0, "local"), column)
    threads = rows // own, columns
    for number in copies:
        copied = s.cache_read(sums, number, "shared")
        s.compute_at(copied, tile)
        a, b = s.get_loops(copied)[-2:]
        if coalesced:
            fused = s.fuse(a, b)
            _, y, x = s.split(fused, [None, threads[0], threads[1]])
            s.bind(y, ty)
            s.bind(x, tx)
        else:
            s.bind(a, tx)
            s.bind(b, ty)
    s.decompose_reduction(sums, tile)
    return s.mod["main"]


def softmax(func, scopes=("shared",) * 3, neighbours=True,
            bound=("norm", "expsum", "exp", "maxelem"), held=False):
    s = tvm.s_tir.Schedule(func)
    stage = {name: s.get_sblock("T_softmax_" + name) for name in ("norm", "exp", "expsum", "maxelem")}
    row, _ = s.get_loops(stage["norm"])
    s.bind(row, "blockIdx.x")
    for name, scope in zip(("expsum", "exp", "maxelem"), scopes):
        s.compute_at(stage[name], row)
        s.set_scope(stage[name], 0, scope)
    if held:
        stage["held"] = s.cache_read(stage["maxelem"], 0, "shared")
        s.compute_at(stage["held"], row)
        bound = (*bound, "held")
    for name in bound:
        outer, thread = s.split(s.get_loops(stage[name])[-1], [None, 32] if neighbours else [32, None])
        s.bind(thread if neighbours else outer, "threadIdx.x")
    return s.mod["main"]


def smoothing(body):
    """The program that smooths, with another inside: lines of TVMScript."""
    lines = ["@T.prim_func(s_tir=True)",
             "def main(X: T.Buffer((128,), 'float32'), Y: T.Buffer((128,), 'float32')):",
             "    for block in T.thread_binding(4, thread='blockIdx.x'):",
             "        for thread in T.thread_binding(32, thread='threadIdx.x'):",
             "            held = T.sblock_alloc_buffer((32,), scope='shared')",
             "            mean = T.sblock_alloc_buffer((1,), scope='local')"]
    lines[4:6] = [line.replace("sblock_alloc_buffer", "alloc_buffer") for line in lines[4:6]]
    return tvm.script.from_source("\n".join(lines + ["            " + line for line in body]))


FIRST = "held[thread] = X[block * 32 + thread]"
LOOP = "for step in range(3):"
OWN = "    mean[0] = held[thread]"
IF = "    if thread > 0:"
HALF = "        mean[0] = (held[thread] + held[thread - 1]) * T.float32(0.5)"
BACK = "    held[thread] = mean[0]"
OUT = "Y[block * 32 + thread] = held[thread]"
SYNC = "T.tvm_storage_sync('shared')"


def rows(func, width=32, neighbours=True, tags=("blockIdx.x", "threadIdx.x"), rfactor=False):
    s = tvm.s_tir.Schedule(func)
    row, over = s.get_loops(s.get_sblock("Y"))
    serial, thread = s.split(over, [None, width]) if neighbours else s.split(over, [width, None])[::-1]
    if rfactor:
        part = s.rfactor(thread, 1)
        s.bind(s.get_loops(s.get_sblock("Y"))[0], tags[0])
        s.bind(s.get_loops(s.get_sblock("Y"))[1], tags[1])
        s.compute_at(part, s.get_loops(s.get_sblock("Y"))[0])
        s.set_scope(part, 0, "shared")
        s.bind(s.get_loops(part)[1], tags[1])
        return s.mod["main"]
    s.bind(row, tags[0])
    s.bind(thread, tags[1])
    return s.mod["main"]


def register_tile(func, side=4, threads=8, offset=1, scope="shared", sums_local=True):
    """A schedule of exercise 10.7: side x side results for each of threads x threads threads."""
    s = tvm.s_tir.Schedule(func, error_render_level="fast")
    sums = s.get_sblock("Y")
    i, j, over = s.get_loops(sums)
    i, row, i_in = s.split(i, [None, threads, side])
    j, column, j_in = s.split(j, [None, threads, side])
    tile, within = s.split(over, [None, 32])
    s.reorder(i, j, row, column, tile, within, i_in, j_in)
    for loop, tag in {i: "blockIdx.y", j: "blockIdx.x", row: "threadIdx.y", column: "threadIdx.x"}.items():
        s.bind(loop, tag)
    if sums_local:
        s.reverse_compute_at(s.cache_write(sums, 0, "local"), column)
    for which in (0, 1):
        copied = s.cache_read(sums, which, scope)
        s.compute_at(copied, tile)
        s.storage_align(copied, 0, 0, 32, offset)
        _, *inner = s.split(s.fuse(*s.get_loops(copied)[-2:]), [None, threads, threads])
        for loop, tag in zip(inner, ("threadIdx.y", "threadIdx.x")):
            s.bind(loop, tag)
        s.compute_at(s.cache_read(sums, which, "local"), within)
    s.decompose_reduction(sums, tile)
    return s.mod["main"]

def window(n, shared=True, barrier=True, rounds=2, guard=True, blocks=None, turned=False, weights=False):
    """A program of exercise 10.8, as text."""
    blocks = blocks or -(-n // 32)
    at = "b * 32 + t + k" if not shared else "t + k"
    inside = f"if b * 32 + r * 32 + t < {n + 4}:" if guard else "if t >= 0:"
    text = f"""
@T.prim_func(s_tir=True)
def main(X: T.Buffer(({n + 4},), "float32"), W: T.Buffer((5,), "float32"), Y: T.Buffer(({n},), "float32")):
    for b in T.thread_binding({blocks}, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            held = T.alloc_buffer((36,), scope="shared")
            taps = T.alloc_buffer((5,), scope="shared")
            total = T.alloc_buffer((1,), scope="local")
            for r in range({rounds}):
                if r * 32 + t < 36:
                    {inside}
                        {"held[r * 32 + t] = X[b * 32 + r * 32 + t]" if shared else "total[0] = T.float32(0)"}
            {"if t < 5:" if weights else "if t < 0:"}
                taps[t] = W[t]
            {'T.tvm_storage_sync("shared")' if barrier else "total[0] = T.float32(0)"}
            if b * 32 + t < {n}:
                total[0] = T.float32(0)
                for k in range(5):
                    total[0] = total[0] + {"held" if shared else "X"}[{at}] * {"taps" if weights else "W"}[{"4 - k" if turned else "k"}]
                Y[b * 32 + t] = total[0]
"""
    return tvm.script.from_source(text)

# %% 10.1 wrong: x along the rows -> blocks (1, 3, 1), threads (16, 16, 1); X (33, 7) | blocks (3, 1, 1), threads (16, 16, 1)
def thread_for_each_pixel(func):
    return pixels(func, tags=("blockIdx.x", "blockIdx.y", "threadIdx.x", "threadIdx.y"))

# %% 10.1 wrong: threads alone exchanged -> row 0, column 1: thread 1 of block 0; X (33, 7) | thread (0, 1) of block 0
def thread_for_each_pixel(func):
    return pixels(func, tags=("blockIdx.y", "blockIdx.x", "threadIdx.x", "threadIdx.y"))

# %% 10.1 wrong: a row of 256 threads -> threads (16, 16, 1); X (33, 7) | threads (256, 1, 1)
def thread_for_each_pixel(func):
    return pixels(func, side=(1, 256))

# %% 10.1 wrong: nothing is bound -> no loop is bound to blocks or threads
def thread_for_each_pixel(func):
    return func

# %% 10.1 wrong: the schedule comes back -> Schedule
def thread_for_each_pixel(func):
    return tvm.s_tir.Schedule(func)

# %% 10.1 right: loops in another order
def thread_for_each_pixel(func):
    return pixels(func, turned=True)

# %% 10.2 wrong: one for each thread -> input step: 1 | expected: 1 | got: 32
def transactions(first, step):
    return 32

# %% 10.2 wrong: first is left out -> input first: 1 | input step: 1 | expected: 2 | got: 1
def transactions(first, step):
    return len({4 * step * t // 128 for t in range(32)})

# %% 10.2 wrong: elements for bytes -> input step: 2 | expected: 2 | got: 1
def transactions(first, step):
    return len({(first + step * t) // 128 for t in range(32)})

# %% 10.2 wrong: nothing is returned -> an int or a float | None, of type NoneType
def transactions(first, step):
    len({4 * (first + step * t) // 128 for t in range(32)})

# %% 10.2 right: NumPy
def transactions(first, step):
    return np.unique((first + step * np.arange(32)) // 32).size

# %% 10.3 wrong: tiles of eight -> loads of X and W
def dense_in_tiles(func):
    return tiles(func, 8, 8, 8)

# %% 10.3 wrong: sixteen by sixteen, badly read -> transactions of X and W | accesses 0–1, 96–97, 192–193, 288–289, ... of X at once
def dense_in_tiles(func):
    return tiles(func, 16, 16, 16, coalesced=False)

# %% 10.3 wrong: X alone is shared -> loads of X and W
def dense_in_tiles(func):
    return tiles(func, copies=(0,))

# %% 10.3 wrong: no shared memory -> loads of X and W
def dense_in_tiles(func):
    return thread_for_each_result(func, "columns")

# %% 10.3 right: four results for each thread
def dense_in_tiles(func):
    return tiles(func, own=4)

# %% 10.4 wrong: none before reading -> no race; | writes it, | no barrier in between
def with_barriers():
    return smoothing([FIRST, LOOP, OWN, IF, HALF, "    " + SYNC, BACK, OUT])

# %% 10.4 wrong: none before writing -> no race; | reads it, | no barrier in between
def with_barriers():
    return smoothing([FIRST, LOOP, "    " + SYNC, OWN, IF, HALF, BACK, OUT])

# %% 10.4 wrong: the program as it is -> no race;
def with_barriers():
    return smoothed

# %% 10.4 wrong: one barrier too many -> at most 6 barriers
def with_barriers():
    return smoothing([FIRST, LOOP, "    " + SYNC, OWN, IF, HALF, "    " + SYNC, BACK, SYNC, OUT])

# %% 10.4 wrong: behind the if -> threads of block 0 reach a barrier
def with_barriers():
    return smoothing([FIRST, SYNC, LOOP, OWN, IF, HALF, "        " + SYNC, BACK, "    " + SYNC, OUT])

# %% 10.4 right: at the end of the step
def with_barriers():
    return smoothing([FIRST, SYNC, LOOP, OWN, IF, HALF, "    " + SYNC, BACK,
                      "    if step < 2:", "        " + SYNC, OUT])

# %% 10.5 wrong: each thread has neighbours of its own -> one warp accesses 0, 3, 6, 9, ... of X at once
def block_for_each_row(func):
    return rows(func, neighbours=False)

# %% 10.5 wrong: 16 threads -> threads (32, 1, 1)
def block_for_each_row(func):
    return rows(func, width=16)

# %% 10.5 wrong: a thread for each row -> blocks (5, 1, 1), threads (32, 1, 1); X (5, 96) | blocks (1, 1, 1)
def block_for_each_row(func):
    s = tvm.s_tir.Schedule(func)
    row, over = s.get_loops(s.get_sblock("Y"))
    s.bind(row, "threadIdx.x")
    return s.mod["main"]

# %% 10.5 wrong: threads along y -> threads (32, 1, 1)
def block_for_each_row(func):
    return rows(func, tags=("blockIdx.x", "threadIdx.y"))

# %% 10.5 right: rfactor, and the parts in shared memory
def block_for_each_row(func):
    return rows(func, rfactor=True)

# %% 10.6 wrong: the exponentials in global memory -> T_softmax_exp is allocated inside a kernel, in global memory
def softmax_in_one_kernel(func):
    return softmax(func, scopes=("shared", "global", "shared"))

# %% 10.6 wrong: each thread has neighbours of its own -> at most 30 transactions of X; X (5, 96) | 90 | one warp accesses 0, 3, 6, 9
def softmax_in_one_kernel(func):
    return softmax(func, neighbours=False)

# %% 10.6 wrong: a kernel for each sblock -> 4 kernels, not one
def softmax_in_one_kernel(func):
    s = tvm.s_tir.Schedule(func)
    for name in ("maxelem", "exp", "expsum", "norm"):
        row, column = s.get_loops(s.get_sblock("T_softmax_" + name))
        s.bind(row, "blockIdx.x")
        s.bind(s.split(column, [None, 32])[1], "threadIdx.x")
    return s.mod["main"]

# %% 10.6 right: a row of X in shared memory, too
def softmax_in_one_kernel(func):
    return softmax(func, held=True)

# %% 10.7 wrong: tiles of 10.3, a result for each thread -> at most 196,608 reads of shared memory
def tile_for_each_thread(func):
    return register_tile(func, 1, 32)

# %% 10.7 wrong: tiles of 2 x 2 -> at most 196,608 reads of shared memory | X_shared 196,608
def tile_for_each_thread(func):
    return register_tile(func, 2, 16)

# %% 10.7 wrong: rows of 32 numbers -> no rounds for bank conflicts | one warp accesses 0, 128, 256, 384, ... of W_shared at once, all in one bank
def tile_for_each_thread(func):
    return register_tile(func, offset=0)

# %% 10.7 wrong: small tiles in shared memory -> at most 24,576 loads of X and W
def tile_for_each_thread(func):
    return register_tile(func, 4, 4)

# %% 10.7 wrong: the sums in global memory -> stores of Y
def tile_for_each_thread(func):
    return register_tile(func, sums_local=False)

# %% 10.7 right: tiles of 8 x 8
def tile_for_each_thread(func):
    return register_tile(func, 8, 4)

# %% 10.8 wrong: from global memory alone -> at most 11 loads of X; n = 7 | got: 35
def window_of_five(n):
    return window(n, shared=False)

# %% 10.8 wrong: no barrier -> race
def window_of_five(n):
    return window(n, barrier=False)

# %% 10.8 wrong: the halo is not loaded -> n = 33 | reads held[32] before anything was written there
def window_of_five(n):
    return window(n, rounds=1)

# %% 10.8 wrong: no guard beyond X -> outside X: element 11
def window_of_five(n):
    return window(n, guard=False)

# %% 10.8 wrong: a block too many -> blocks (1, 1, 1), threads (32, 1, 1); n = 7 | blocks (2, 1, 1)
def window_of_five(n):
    return window(n, blocks=n // 32 + 2)

# %% 10.8 right: by four loads of the first threads, products unrolled
def window_of_five(n):
    blocks = (n + 31) // 32
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((n + 4,), "float32"), W: T.Buffer((5,), "float32"), Y: T.Buffer((n,), "float32")):
        for b in T.thread_binding(blocks, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                s = T.alloc_buffer((36,), scope="shared")
                if b * 32 + t < n + 4:
                    s[t] = X[b * 32 + t]
                if t < 4 and b * 32 + t + 32 < n + 4:
                    s[t + 32] = X[b * 32 + t + 32]
                T.tvm_storage_sync("shared")
                if b * 32 + t < n:
                    Y[b * 32 + t] = (s[t] * W[0] + s[t + 1] * W[1] + s[t + 2] * W[2] + s[t + 3] * W[3] + s[t + 4] * W[4])
    return main

# %% more

# %% 10.2 right: a count of changes
def transactions(first, step):
    stretches = [(first + step * t) >> 5 for t in range(32)]
    return 1 + sum(a != b for a, b in zip(stretches, stretches[1:]))

# %% 10.4 wrong: without shared memory -> at most 128 loads of X | 1,000
def with_barriers():
    return smoothing([
        "mean[0] = X[block * 32 + thread]", "for step in range(3):", "    mean[0] = X[block * 32 + thread]",
        "if thread == 0:", "    Y[block * 32] = X[block * 32]",
        "if thread == 1:", "    Y[block * 32 + 1] = X[block * 32 + 1] * T.float32(0.125) + X[block * 32] * T.float32(0.875)",
        "if thread == 2:", "    Y[block * 32 + 2] = X[block * 32 + 2] * T.float32(0.125) + X[block * 32 + 1] * T.float32(0.375) + X[block * 32] * T.float32(0.5)",
        "if thread > 2:", "    Y[block * 32 + thread] = (X[block * 32 + thread] + T.float32(3) * X[block * 32 + thread - 1] + T.float32(3) * X[block * 32 + thread - 2] + X[block * 32 + thread - 3]) * T.float32(0.125)"])

# %% 10.7 right: shared.dyn, rows of 37 numbers
def tile_for_each_thread(func):
    return register_tile(func, scope="shared.dyn", offset=5)

# %% 10.8 wrong: the window is turned -> n = 7; inputs of 0, 1, 2, ... | 7 of 7 values differ
def window_of_five(n):
    return window(n, turned=True)

# %% 10.8 right: the weights in shared memory too
def window_of_five(n):
    return window(n, weights=True)

# %% 10.8 wrong: from thread to thread of a warp, without shared memory -> at least 11 stores into shared memory | got: 0
def window_of_five(n):
    blocks = (n + 31) // 32
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((n + 4,), "float32"), W: T.Buffer((5,), "float32"), Y: T.Buffer((n,), "float32")):
        for b in T.thread_binding(blocks, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                own = T.alloc_buffer((2,), scope="local")
                other = T.alloc_buffer((2,), scope="local")
                total = T.alloc_buffer((1,), scope="local")
                total[0] = T.float32(0)
                own[0] = T.float32(0)
                own[1] = T.float32(0)
                if b * 32 + t < n + 4:
                    own[0] = X[b * 32 + t]
                if t < 4 and b * 32 + 32 + t < n + 4:
                    own[1] = X[b * 32 + 32 + t]
                for k in range(5):
                    other[0] = T.tvm_warp_shuffle(T.tvm_warp_activemask(), own[0], (t + k) % 32, 32, 32)
                    other[1] = T.tvm_warp_shuffle(T.tvm_warp_activemask(), own[1], (t + k) % 32, 32, 32)
                    total[0] = total[0] + T.Select(t + k < 32, other[0], other[1]) * W[k]
                if b * 32 + t < n:
                    Y[b * 32 + t] = total[0]
    return main

# %% 10.1 wrong: neighbours in different blocks -> row 1, column 0: thread (0, 1) of block 0 | thread 0 of block (0, 1)
def thread_for_each_pixel(func):
    return pixels(func, outer_threads=True)

# %% 10.1 right: the number of blocks written out, bound from the inside
def thread_for_each_pixel(func):
    s = tvm.s_tir.Schedule(func)
    row, column = s.get_loops(s.get_sblock("Y"))
    rows, columns = (int(extent) for extent in func.params[0].shape)
    by, ty = s.split(row, [-(-rows // 16), 16])
    bx, tx = s.split(column, [-(-columns // 16), 16])
    s.bind(tx, "threadIdx.x")
    s.bind(ty, "threadIdx.y")
    s.reorder(bx, by, ty, tx)
    s.bind(bx, "blockIdx.x")
    s.bind(by, "blockIdx.y")
    return s.mod["main"]

# %% 10.1 right: the columns split in three, and two pieces fused
def thread_for_each_pixel(func):
    s = tvm.s_tir.Schedule(func)
    row, column = s.get_loops(s.get_sblock("Y"))
    by, ty = s.split(row, [None, 16])
    bx, *tx = s.split(column, [None, 4, 4])
    tx = s.fuse(*tx)
    for loop, tag in zip((by, bx, ty, tx), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x")):
        s.bind(loop, tag)
    return s.mod["main"]

# %% 10.2 right: a float
def transactions(first, step):
    return float(len({(first + step * t) // 32 for t in range(32)}))

# %% 10.3 right: sixteen by sixteen, copied along the rows
def dense_in_tiles(func):
    return tiles(func, 16, 16, 32)

# %% 10.3 right: 32 by 16, two results for each thread
def dense_in_tiles(func):
    return tiles(func, 32, 16, 32, own=2)

# %% 10.4 wrong: the neighbour on the right -> of 128 values differ
def with_barriers():
    half = HALF.replace("thread - 1", "(thread + 31) % 32 + 0").replace("held[(", "held[(")
    return smoothing([FIRST, LOOP, "    " + SYNC, OWN, IF, half.replace("+ 31", "+ 30"), "    " + SYNC, BACK, OUT])

# %% 10.4 right: written out without the loop
def with_barriers():
    step = [SYNC] + [line[4:] for line in (OWN, IF, HALF)] + [SYNC, BACK[4:]]
    return smoothing([FIRST, *step, *step, *step, OUT])

# %% 10.4 right: the barrier before the loop and at its end
def with_barriers():
    return smoothing([FIRST, LOOP, "    " + SYNC, IF, HALF, "    if thread == 0:", "        mean[0] = held[0]",
                      "    " + SYNC, BACK, OUT])

# %% 10.5 right: the sum's loop split in three
def block_for_each_row(func):
    s = tvm.s_tir.Schedule(func)
    row, over = s.get_loops(s.get_sblock("Y"))
    a, b, thread = s.split(over, [None, 1, 32])
    s.bind(row, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    return s.mod["main"]

# %% 10.5 right: each thread's part unrolled
def block_for_each_row(func):
    s = tvm.s_tir.Schedule(func)
    row, over = s.get_loops(s.get_sblock("Y"))
    each, thread = s.split(over, [None, 32])
    s.unroll(each)
    s.bind(row, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    return s.mod["main"]

# %% 10.3 right: four results a thread, two by two, and copies by vectors
def dense_in_tiles(func):
    s = tvm.s_tir.Schedule(func)
    sums = s.get_sblock("Y")
    i, j, over = s.get_loops(sums)
    i, row, ii = s.split(i, [None, 16, 2])
    j, column, jj = s.split(j, [None, 16, 2])
    tile, within = s.split(over, [None, 32])
    s.reorder(i, j, row, column, tile, within, ii, jj)
    for loop, tag in ((i, "blockIdx.y"), (j, "blockIdx.x"), (row, "threadIdx.y"), (column, "threadIdx.x")):
        s.bind(loop, tag)
    s.reverse_compute_at(s.cache_write(sums, 0, "local"), column)
    for number in (0, 1):
        copied = s.cache_read(sums, number, "shared")
        s.compute_at(copied, tile)
        _, y, x, v = s.split(s.fuse(*s.get_loops(copied)[-2:]), [None, 16, 16, 4])
        s.bind(y, "threadIdx.y")
        s.bind(x, "threadIdx.x")
        s.vectorize(v)
    s.decompose_reduction(sums, tile)
    return s.mod["main"]

# %% 10.4 right: two buffers in turns, a barrier a step
def with_barriers():
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((128,), "float32"), Y: T.Buffer((128,), "float32")):
        for block in T.thread_binding(4, thread="blockIdx.x"):
            for thread in T.thread_binding(32, thread="threadIdx.x"):
                held = T.alloc_buffer((64,), scope="shared")
                held[thread] = X[block * 32 + thread]
                for step in range(3):
                    T.tvm_storage_sync("shared")
                    held[(step + 1) % 2 * 32 + thread] = T.if_then_else(thread > 0, (held[step % 2 * 32 + thread] + held[step % 2 * 32 + T.max(thread - 1, 0)]) * T.float32(0.5), held[step % 2 * 32 + thread])
                Y[block * 32 + thread] = held[32 + thread]
    return main

# %% 10.1 wrong: z for the rows of blocks -> (1, 1, 3)
def thread_for_each_pixel(func):
    return pixels(func, tags=("blockIdx.z", "blockIdx.x", "threadIdx.y", "threadIdx.x"))

# %% 10.4 wrong: only in the first step -> no race; | reads it, | no barrier in between
def with_barriers():
    return smoothing([FIRST, LOOP, "    if step == 0:", "        " + SYNC, OWN, IF, HALF, "    " + SYNC, BACK, OUT])

# %% 10.4 wrong: a barrier for a warp -> a barrier of scope warp; one for the threads of a block is T.tvm_storage_sync("shared")
def with_barriers():
    return smoothing([FIRST, LOOP, "    T.tvm_storage_sync('warp')", OWN, IF, HALF, "    T.tvm_storage_sync('warp')", BACK, OUT])

# %% 10.5 wrong: the mean -> there, by thread 0 of block 0
def block_for_each_row(func):
    n, k = (int(e) for e in func.params[0].shape)
    X = te.placeholder((n, k), name="X"); over = te.reduce_axis((0, k), name="over")
    return rows(te.create_prim_func([X, te.compute((n,), lambda i: te.sum(X[i, over] / float(k), over), name="Y")]))

# %% 10.6 wrong: the sum not shared out to threads -> no race
def softmax_in_one_kernel(func):
    return softmax(func, bound=("norm", "exp", "maxelem"))

# %% 10.6 wrong: the exponentials computed twice -> at most 960 loads of X; X (5, 96) | 1,440
def softmax_in_one_kernel(func):
    s = tvm.s_tir.Schedule(func)
    s.compute_inline(s.get_sblock("T_softmax_exp"))
    norm = s.get_sblock("T_softmax_norm")
    row, _ = s.get_loops(norm)
    s.bind(row, "blockIdx.x")
    others = [s.get_sblock("T_softmax_" + name) for name in ("expsum", "maxelem")]
    for stage in others:
        s.compute_at(stage, row)
        s.set_scope(stage, 0, "shared")
    for stage in (norm, *others):
        s.bind(s.split(s.get_loops(stage)[-1], [None, 32])[1], "threadIdx.x")
    return s.mod["main"]

# %% 10.6 wrong: without the maximum -> 0.0104167 at [0, 0]; X: 5 x 96 numbers, all -200 | nan there
def softmax_in_one_kernel(func):
    n, k = (int(e) for e in func.params[0].shape)
    X = te.placeholder((n, k), name="X")
    over = te.reduce_axis((0, k), name="over")
    power = te.compute((n, k), lambda i, j: te.exp(X[i, j]), name="T_softmax_exp")
    total = te.compute((n,), lambda i: te.sum(power[i, over], over), name="T_softmax_expsum")
    s = tvm.s_tir.Schedule(te.create_prim_func([X, te.compute((n, k), lambda i, j: power[i, j] / total[i], name="T_softmax_norm")]))
    norm = s.get_sblock("T_softmax_norm")
    s.bind(s.get_loops(norm)[0], "blockIdx.x")
    stages = [s.get_sblock("T_softmax_" + name) for name in ("expsum", "exp")]
    for stage in stages:
        s.compute_at(stage, s.get_loops(norm)[0])
        s.set_scope(stage, 0, "shared")
    for stage in (norm, *stages):
        s.bind(s.split(s.get_loops(stage)[-1], [None, 32])[1], "threadIdx.x")
    return s.mod["main"]

# %% 10.6 right: all three in registers
def softmax_in_one_kernel(func):
    return softmax(func, scopes=("local",) * 3)

# %% 10.6 right: each thread's part unrolled
def softmax_in_one_kernel(func):
    s = tvm.s_tir.Schedule(softmax(func))
    for name in ("norm", "exp"):
        s.unroll(s.get_loops(s.get_sblock("T_softmax_" + name))[1])
    return s.mod["main"]

# %% 10.6 right: the maximum first, and the sum's parts fused from two
def softmax_in_one_kernel(func):
    s = tvm.s_tir.Schedule(func)
    norm = s.get_sblock("T_softmax_norm")
    row = s.get_loops(norm)[0]
    s.bind(row, "blockIdx.x")
    for name in ("expsum", "exp", "maxelem"):
        stage = s.get_sblock("T_softmax_" + name)
        s.compute_at(stage, row)
        s.set_scope(stage, 0, "shared")
        _, a, b = s.split(s.get_loops(stage)[-1], [None, 4, 8])
        s.bind(s.fuse(a, b), "threadIdx.x")
    s.bind(s.split(s.get_loops(norm)[-1], [None, 32])[1], "threadIdx.x")
    return s.mod["main"]

# %% 10.1 wrong: the blocks' rows forgotten -> is around bound ones
def thread_for_each_pixel(func):
    s = tvm.s_tir.Schedule(func)
    row, column = s.get_loops(s.get_sblock("Y"))
    (by, ty), (bx, tx) = s.split(row, [None, 16]), s.split(column, [None, 16])
    s.reorder(by, bx, ty, tx)
    for loop, tag in zip((bx, ty, tx), ("blockIdx.x", "threadIdx.y", "threadIdx.x")):
        s.bind(loop, tag)
    return s.mod["main"]

# %% 10.1 wrong: both loops of blocks are x -> in one kernel an axis has one extent
def thread_for_each_pixel(func):
    return pixels(func, tags=("blockIdx.x", "blockIdx.x", "threadIdx.y", "threadIdx.x"))

# %% 10.3 wrong: a copy of other extents than the threads -> in one kernel an axis has one extent
def dense_in_tiles(func):
    return tiles(func, 16, 16, 32, coalesced=False)

# %% 10.3 wrong: the sums in global memory -> at most 4,096 stores of Y; X (64, 96), W (64, 96) | 397,312
def dense_in_tiles(func):
    s = tvm.s_tir.Schedule(func)
    sums = s.get_sblock("Y")
    i, j, over = s.get_loops(sums)
    (i, row), (j, column), (tile, within) = (s.split(loop, [None, 32]) for loop in (i, j, over))
    s.reorder(i, j, row, column, tile, within)
    for loop, tag in ((i, "blockIdx.y"), (j, "blockIdx.x"), (row, "threadIdx.y"), (column, "threadIdx.x")):
        s.bind(loop, tag)
    for number in (0, 1):
        copied = s.cache_read(sums, number, "shared")
        s.compute_at(copied, tile)
        for loop, tag in zip(s.get_loops(copied)[-2:], ("threadIdx.y", "threadIdx.x")):
            s.bind(loop, tag)
    return s.mod["main"]

# %% 10.3 wrong: four threads a block -> at least 16 threads a block; X (64, 96), W (64, 96) | got: 4
def dense_in_tiles(func):
    return tiles(func, 2, 2, 2)

# %% 10.8 wrong: held is filled, and X is read -> TVM makes no GPU program of it: | held is written and never read
def window_of_five(n):
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((n + 4,), "float32"), W: T.Buffer((5,), "float32"), Y: T.Buffer((n,), "float32")):
        for b in T.thread_binding(-(-n // 32), thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                held = T.alloc_buffer((36,), scope="shared")
                total = T.alloc_buffer((1,), scope="local")
                for r in range(2):
                    here = r * 32 + t
                    if here < 36 and b * 32 + here < n + 4:
                        held[here] = X[b * 32 + here]
                T.tvm_storage_sync("shared")
                if b * 32 + t < n:
                    total[0] = T.float32(0)
                    for k in range(5):
                        total[0] = total[0] + X[b * 32 + t + k] * W[k]
                    Y[b * 32 + t] = total[0]
    return main

# %% 10.3 wrong: the whole rows at once -> at most 49,152 bytes of shared memory a block; X (32, 224)
def dense_in_tiles(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    schedule = tvm.s_tir.Schedule(func)
    sums = schedule.get_sblock("Y")
    i, j, over = schedule.get_loops(sums)
    (i, row), (j, column) = schedule.split(i, [None, 32]), schedule.split(j, [None, 32])
    tile, within = schedule.split(over, [1, None])
    schedule.reorder(i, j, row, column, tile, within)
    for loop, tag in {i: "blockIdx.y", j: "blockIdx.x",
                      row: "threadIdx.y", column: "threadIdx.x"}.items():
        schedule.bind(loop, tag)
    schedule.reverse_compute_at(schedule.cache_write(sums, 0, "local"), column)
    for which in (0, 1):
        copied = schedule.cache_read(sums, which, "shared")
        schedule.compute_at(copied, tile)
        schedule.storage_align(copied, 0, 0, 32, 1)
        each = schedule.fuse(*schedule.get_loops(copied)[-2:])
        _, *threads = schedule.split(each, [None, 32, 32])
        for loop, tag in zip(threads, ("threadIdx.y", "threadIdx.x"), strict=True):
            schedule.bind(loop, tag)
    schedule.decompose_reduction(sums, tile)
    return schedule.mod["main"]

# %% 10.5 wrong: a name that its script does not define -> your code to run; X (5, 96) | Undefined variable: somewhere
def block_for_each_row(func):
    @T.prim_func(s_tir=True)
    def main(X: T.Buffer((5, 96), "float32"), Y: T.Buffer((5,), "float32")):
        for i in T.thread_binding(5, thread="blockIdx.x"):
            Y[i] = X[i, somewhere]
    return main

# %% 10.8 wrong: blocks from a table of two sizes -> your code to run; n = 7 | got:      KeyError: 7
# blocks = -(-n // 32) => blocks = {40: 2, 64: 2}[n]

# %% 10.7 wrong: the tiles are as deep as the rows -> at most 49,152 bytes of shared memory a block; X (32, 224) | got: 57,600
# tile, within = schedule.split(over, [None, 32]) => tile, within = schedule.split(over, [1, None])

# %% 10.3 wrong: an even number of tiles of the sum -> 96 at [0, 0]; X (64, 96), W (64, 96); inputs of 1, 1, 1, ... | got: 64 there, by thread 0 of block 0; 4,096 of 4,096 values differ
def dense_in_tiles(func):
    (n, k), (m, _) = ([int(extent) for extent in param.shape] for param in func.params[:2])
    X, W = te.placeholder((n, k), name="X"), te.placeholder((m, k), name="W")
    over = te.reduce_axis((0, max(32, k // 64 * 64)), name="over")
    return tiles(te.create_prim_func([X, W, te.compute((n, m), lambda i, j: te.sum(X[i, over] * W[j, over], over), name="Y")]))

# %% 10.6 wrong: the minimum is subtracted -> 1 at [0, 95]; X: 5 x 96 zeros but 200 at [0, 95] | nan there, by thread 31 of block 0; 1 of 480 values
def softmax_in_one_kernel(func):
    n, k = (int(extent) for extent in func.params[0].shape)
    X = te.placeholder((n, k), name="X")
    over, again = te.reduce_axis((0, k), name="over"), te.reduce_axis((0, k), name="again")
    least = te.compute((n,), lambda i: te.min(X[i, over], axis=over), name="T_softmax_maxelem")
    power = te.compute((n, k), lambda i, j: te.exp(X[i, j] - least[i]), name="T_softmax_exp")
    total = te.compute((n,), lambda i: te.sum(power[i, again], axis=again), name="T_softmax_expsum")
    return softmax(te.create_prim_func([X, te.compute((n, k), lambda i, j: power[i, j] / total[i], name="T_softmax_norm")]))

# %% 10.2 wrong: counted in float32 -> input first: 16777216
def transactions(first, step):
    elements = np.array([first + step * t for t in range(32)], dtype="float32")
    return len(np.unique(np.floor(elements * 4 / 128)))

# %% 10.5 wrong: four rows in a block -> blocks (5, 1, 1), threads (32, 1, 1); X (5, 96) | blocks (2, 1, 1)
def block_for_each_row(func: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """Share the sum of each row out to the 32 threads of a block."""
    schedule = tvm.s_tir.Schedule(func)
    row, over = schedule.get_loops(schedule.get_sblock("Y"))
    block, warp = schedule.split(row, [None, 4])
    _, lane = schedule.split(over, [None, 32])
    schedule.bind(block, "blockIdx.x")
    schedule.bind(warp, "threadIdx.y")
    schedule.bind(lane, "threadIdx.x")
    return schedule.mod["main"]

# %% 10.2 wrong: addresses in int32 -> 32
def transactions(first: int, step: int) -> int:
    """Return how many transactions a warp needs whose thread t loads element first + step * t."""
    elements = first + step * np.arange(32, dtype="int32")
    addresses = elements * np.int32(4)
    return len(np.unique(addresses // 128))

# %% 10.6 wrong: the exponentials in pieces -> transactions of X
# _, thread = schedule.split(schedule.get_loops(stage)[-1], [None, 32]) => thread = schedule.split(schedule.get_loops(stage)[-1], [32, None])[0] if stage is stages[1] else schedule.split(schedule.get_loops(stage)[-1], [None, 32])[1]

# %% 10.1 right: a pragma at the loop of blocks
def thread_for_each_pixel(func):
    s = tvm.s_tir.Schedule(pixels(func))
    s.annotate(s.get_loops(s.get_sblock("Y"))[0], "pragma_auto_unroll_max_step", 16)
    return s.mod["main"]

# %% 10.1 right: written anew, with other names
def thread_for_each_pixel(func):
    rows, columns = (int(extent) for extent in func.params[0].shape)

    @T.prim_func(s_tir=True)
    def main(image: T.Buffer((rows, columns), "float32"), brighter: T.Buffer((rows, columns), "float32")):
        for by in T.thread_binding(-(-rows // 16), thread="blockIdx.y"):
            for bx in T.thread_binding(-(-columns // 16), thread="blockIdx.x"):
                for ty in T.thread_binding(16, thread="threadIdx.y"):
                    for tx in T.thread_binding(16, thread="threadIdx.x"):
                        if by * 16 + ty < rows and bx * 16 + tx < columns:
                            brighter[by * 16 + ty, bx * 16 + tx] = image[by * 16 + ty, bx * 16 + tx] * T.float32(0.5) + T.float32(0.25)
    return main

# %% 10.4 wrong: the result goes into X -> 1 at [0] | no thread writes it
# Y[block * 32 + thread] = => X[block * 32 + thread] =

# %% 10.4 wrong: room in front, and no barrier -> held[0]: thread 0 of block 0 writes it, thread 1 of block 0 reads it | its shape in the lowered program is (32,)
# alloc_buffer((32,) => alloc_buffer((34,)
# T.tvm_storage_sync("shared") => T.evaluate(0)
# held[thread - 1] => held[thread + 1]
# held[thread] => held[thread + 2]

# %% 10.4 wrong: one block writes what the others read, behind a barrier -> X[0]: thread 31 of block 2 reads it, thread 0 of block 3 writes it, and no barrier makes one block wait
def with_barriers():
    return smoothing([FIRST + " + X[0] * T.float32(1e-30)", SYNC, "if block == 3 and thread == 0:", "    X[0] = held[0]",
                      LOOP, "    " + SYNC, OWN, IF, HALF, "    " + SYNC, BACK, OUT])

# %% 10.7 wrong: rows of 36 numbers -> one warp accesses 0, 288, 576, 864 of W_shared at once | the lowered program lays it out as (32, 36)
# storage_align(copied, 0, 0, 32, 1) => storage_align(copied, 0, 0, 32, 4)

# %% 10.8 wrong: each number of a signal is loaded twice -> at most 11 loads of X; n = 7 | got: 22
# X: T.Buffer => signal: T.Buffer
# held[here] = X[block * 32 + here] => held[here] = signal[block * 32 + here]; held[here] = signal[block * 32 + here]

# %% 10.8 wrong: the sum begins with nothing -> reads total[0] before anything was written there
# total[0] = T.float32(0) => T.evaluate(0)

# %% 10.8 wrong: the numbers in float16 -> 346.127 at [3]; n = 7 | 346.037 there, by thread 3 of block 0
# alloc_buffer((36,), => alloc_buffer((36,), "float16",
# = X[block * 32 + here] => = T.cast(X[block * 32 + here], "float16")
# held[thread + k] => T.cast(held[thread + k], "float32")

# %% 10.8 wrong: without W -> buffers float32 (11,), float32 (5,), float32 (7,); n = 7 | got: float32 (11,), float32 (7,)
# W: T.Buffer((5,), "float32"), =>
# W[k] => T.float32(1)

# %% 10.8 wrong: a while loop -> a while loop
# for k in range(5): => while total[0] < T.float32(0):
# held[thread + k] * W[k] => held[thread] * W[0]
