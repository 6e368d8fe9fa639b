# %% shared
import statistics


def draws_with(func, seed, most, seeded=True, inline=True, limit="left", used=True, parts=2, threads=True,
               lanes=True, order="x", window=True, decompose=True, cut="xyf", gives="schedule"):
    """The schedule of exercise 8.1 with steps that can be left out or done otherwise."""
    s = tvm.s_tir.Schedule(func, seed=seed, error_render_level="fast") if seeded is True else \
        tvm.s_tir.Schedule(func, seed=seeded) if seeded else tvm.s_tir.Schedule(func)
    if inline:
        s.compute_inline(s.get_sblock("pad_temp"))
    conv = s.get_sblock("conv2d_nchw")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    pieces, left = {}, most
    for name, loop in {"x": x, "y": y, "f": f}.items():
        extent = s.get(loop).extent.value
        if name not in cut:
            factors = [None, 2]
        else:
            factors = s.sample_perfect_tile(loop, parts, max_innermost_factor={
                "left": left, "each": min(extent, most)}[limit])
            left = max(1, left // int(s.get(factors[-1])))
        pieces[name] = s.split(loop, factors if used else [None, 2])
    outer = [pieces[name][0] for name in "fyx"]
    inner = [loop for name in ("fyx" if order == "x" else "fxy") for loop in pieces[name][1:]]
    s.reorder(n, *outer, rc, ry, rx, *inner)
    if lanes:
        s.vectorize(inner[-1])
    if window:
        s.unroll(ry)
        s.unroll(rx)
    if threads:
        s.parallel(s.fuse(n, outer[0]))
    if decompose:
        s.decompose_reduction(conv, rc)
    return {"schedule": s, "mod": s.mod, "func": s.mod["main"]}[gives]


def tuner_with(statistic=np.median, guard=True, back=False, repeats_are=None, gives="name", empty=None, once=True):
    def tune(candidates, is_correct, time_of, repeats=5):
        repeats = repeats_are or repeats
        correct = {}
        for name, candidate in candidates.items():
            try:
                if is_correct(candidate) and (once or is_correct(candidate)):
                    correct[name] = candidate
            except Exception:
                if not guard:
                    raise
        times = {name: [] for name in correct}
        for i in range(repeats):
            for name in list(correct)[::-1 if back and i % 2 else 1]:
                times[name].append(time_of(correct[name]))
        if not times:
            return empty
        best = min(times, key=lambda name: statistic(times[name]))
        return {"name": best, "candidate": candidates[best], "nothing": None}[gives]
    return tune


def late_check(is_correct, candidate):
    try:
        return is_correct(candidate)
    except Exception:
        return False


def replaying(place=False, post=True, gives="func", all_kinds=False):
    """A replay as in exercise 8.3, with room for one mistake."""
    def replay(record, func):
        instructions, decisions = record
        drawn = {"tiles": [], "unrolled": None}
        for number, decision in decisions:
            kind, _, attributes, _ = instructions[number]
            if kind == "SamplePerfectTile" or all_kinds:
                drawn["tiles"].append(decision)
            if kind == "SampleCategorical":
                drawn["unrolled"] = decision if place else attributes[0][decision]
        if not post:
            kinds = [inst[0] for inst in instructions]
            end = kinds.index("EnterPostproc") if "EnterPostproc" in kinds else len(kinds)
            record = [instructions[:end], decisions]
        s = tvm.s_tir.Schedule(func)
        tvm.s_tir.Trace.apply_json_to_schedule(record, s)
        return {"func": (drawn, s.mod["main"]), "mod": (drawn, s.mod), "drawn": drawn}[gives]
    return replay

# %% 8.1 wrong: nothing is drawn -> no sample_perfect_tile in the trace
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, cut="")

# %% 8.1 wrong: x is cut by hand -> draws for loops of [26, 32]
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, cut="fy")

# %% 8.1 wrong: the seed is not handed on -> the same program for the same seed
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, seeded=None)

# %% 8.1 wrong: the seed is the hash of a text -> the same program in another process | two different ones for seed 400,000,000
def random_conv2d(func, seed, most):
    return draws_with(func, abs(hash(f"seed {seed}")) % 2**31, most)

# %% 8.1 right: the seed is the hash of numbers
def random_conv2d(func, seed, most):
    return draws_with(func, abs(hash((seed, 1))) % 2**31, most)

# %% 8.1 wrong: each draw alone has the limit -> numbers of a tile: at most 128 | 26 x 2 x 4 = 208
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, limit="each")

# %% 8.1 wrong: drawn again until the vector has two lanes -> 1 x 1 x 1 is never drawn
def random_conv2d(func, seed, most):
    while (s := draws_with(func, seed, most)) and int(s.trace.decisions[s.trace.insts[4]][-1]) < 2:
        seed += 7919
    return s

# %% 8.1 right: drawn until it fits
def random_conv2d(func, seed, most):
    for step in range(1000):
        s = tvm.s_tir.Schedule(func, seed=(seed + step * 100_000_007) % (2**31 - 2) + 1)
        conv = s.get_sblock("conv2d_nchw")
        n, f, y, x, rc, ry, rx = s.get_loops(conv)
        drawn = [s.sample_perfect_tile(loop, 2, max_innermost_factor=100) for loop in (f, y, x)]
        if np.prod([int(s.get(factors[1])) for factors in drawn]) <= most:
            break
    (f0, f1), (y0, y1), (x0, x1) = (s.split(loop, factors) for loop, factors in zip((f, y, x), drawn))
    s.compute_inline(s.get_sblock("pad_temp"))
    s.reorder(n, f0, y0, x0, rc, ry, rx, f1, y1, x1)
    s.vectorize(x1)
    s.unroll(ry)
    s.unroll(rx)
    s.parallel(s.fuse(n, f0))
    s.decompose_reduction(conv, rc)
    return s

# %% 8.2 wrong: nothing is checked -> expected: is_correct: a, wrong, broken, b; time_of: a, b, a, b | got: time_of: a, wrong, broken, b, a, wrong, broken, b
def tune(candidates, is_correct, time_of, repeats=5):
    times = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, candidate in candidates.items():
            times[name].append(time_of(candidate))
    return min(times, key=lambda name: np.median(times[name]), default=None)

# %% 8.2 wrong: an exception goes through -> expected: 'b', 6 the median of 6, 6 | RuntimeError: is_correct(<Candidate broken>)
tune = tuner_with(guard=False)

# %% 8.2 wrong: only RuntimeError is caught -> expected: 'b', 4 the median of 20, 3, 4 | ValueError: is_correct(<Candidate broken>)
def tune(candidates, is_correct, time_of, repeats=5):
    correct = {}
    for name, candidate in candidates.items():
        try:
            if is_correct(candidate):
                correct[name] = candidate
        except RuntimeError:
            pass
    times = {name: [] for name in correct}
    for _ in range(repeats):
        for name, candidate in correct.items():
            times[name].append(time_of(candidate))
    return min(times, key=lambda name: np.median(times[name]), default=None)

# %% 8.2 wrong: the minimum -> expected: 'b', 6 the median of 6, 6 | got: 'a', 7 the median of 9, 5
tune = tuner_with(min)

# %% 8.2 wrong: the mean -> 'steady', 30 the median of 30, 30, 15, 30, 60
tune = tuner_with(np.mean)

# %% 8.2 right: with lists, and a table of times
def tune(candidates, is_correct, time_of, repeats=5):
    names = []
    for name in candidates:
        try:
            good = is_correct(candidates[name])
        except Exception:
            good = False
        if good:
            names.append(name)
    if not names:
        return None
    table = np.array([[time_of(candidates[name]) for name in names] for _ in range(repeats)])
    return names[int(np.argmin(np.median(table, axis=0)))]

# %% 8.3 wrong: the place in the list -> 'unrolled': 64} | 'unrolled': 2}
replayed = replaying(place=True)

# %% 8.3 wrong: all decisions are taken for tiles -> {'tiles': [[2, 6]] | {'tiles': [0, [2, 6], [3, 2]]
replayed = replaying(all_kinds=True)

# %% 8.3 wrong: the last steps are left out -> all steps of the record | the program without those after EnterPostproc
replayed = replaying(post=False)

# %% 8.3 wrong: the module -> dict, IRModule
replayed = replaying(gives="mod")

# %% 8.3 right: the kinds first, then a dictionary of the decisions
def replayed(record, func):
    decisions = dict(map(tuple, record[1]))
    kinds = [instruction[0] for instruction in record[0]]
    tiles = [decisions[i] for i, kind in enumerate(kinds) if kind == "SamplePerfectTile"]
    unrolled = None
    if "SampleCategorical" in kinds:
        at = kinds.index("SampleCategorical")
        unrolled = record[0][at][2][0][decisions[at]]
    s = tvm.s_tir.Schedule(tvm.IRModule({"main": func}))
    tvm.s_tir.Trace.apply_json_to_schedule(record, s)
    return {"tiles": tiles, "unrolled": unrolled}, s.mod["main"]

# %% more

# %% 8.1 wrong: three parts, two of them inside -> numbers of a tile: at most 128 | 338
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, parts=3)

# %% 8.2 wrong: each is checked twice -> expected: is_correct: a, wrong, broken, b; time_of: a, b, a, b | got: is_correct: a, a, wrong, broken, b, b; time_of: a, b, a, b
tune = tuner_with(once=False)

# %% 8.2 wrong: the last round counts -> expected: 'b', 6 the median of 6, 6 | got: 'a', 7 the median of 9, 5
def tune(candidates, is_correct, time_of, repeats=5):
    correct = [name for name in candidates if late_check(is_correct, candidates[name])]
    for _ in range(repeats):
        times = {name: time_of(candidates[name]) for name in correct}
    return min(times, key=times.get, default=None)

# %% 8.2 wrong: the upper of two middle times -> 'c', 5.25 the median of 6, 3, 5.5, 5
tune = tuner_with(lambda times: sorted(times)[len(times) // 2])

# %% 8.2 wrong: there and back -> expected: is_correct: a, wrong, broken, b; time_of: a, b, a, b | got: is_correct: a, wrong, broken, b; time_of: a, b, b, a
tune = tuner_with(back=True)

# %% 8.2 wrong: always five rounds -> expected: is_correct: a, wrong, broken, b; time_of: a, b, a, b | got: is_correct: a, wrong, broken, b; time_of: a, b, a, b, a, b, a, b, a, b
tune = tuner_with(repeats_are=5)

# %% 8.2 wrong: the candidate instead of its name -> expected: 'b', 6 the median of 6, 6 | got: <Candidate b>
tune = tuner_with(gives="candidate")

# %% 8.2 wrong: nothing is returned -> expected: 'b', 6 the median of 6, 6 | got: None
tune = tuner_with(gives="nothing")

# %% 8.2 wrong: none is correct, and min fails -> ValueError: min() arg is an empty sequence
def tune(candidates, is_correct, time_of, repeats=5):
    correct = [name for name in candidates if late_check(is_correct, candidates[name])]
    times = {name: [] for name in correct}
    for _ in range(repeats):
        for name in correct:
            times[name].append(time_of(candidates[name]))
    return min(times, key=lambda name: np.median(times[name]))

# %% 8.2 wrong: an empty name where none is correct -> None; tune({'wrong': ..., 'broken': ...}, ...) | ''
tune = tuner_with(empty="")

# %% 8.2 wrong: the medians of the rounds, not of the candidates -> 'steady' | 'steady', 30 the median of 30, 30, 15, 30, 60
def tune(candidates, is_correct, time_of, repeats=5):
    names = [name for name in candidates if late_check(is_correct, candidates[name])]
    table = np.array([[time_of(candidates[name]) for name in names] for _ in range(repeats)])
    return names[int(np.argmin(np.median(table, axis=1)))] if names else None

# %% 8.2 wrong: broken candidates are taken out of the dict while it is read -> dictionary changed size
def tune(candidates, is_correct, time_of, repeats=5):
    for name, candidate in candidates.items():
        if not late_check(is_correct, candidate):
            del candidates[name]
    rounds = [{name: time_of(c) for name, c in candidates.items()} for _ in range(repeats)]
    return min(candidates, key=lambda name: np.median([times[name] for times in rounds]), default=None)

# %% 8.2 wrong: sorted by name -> expected: is_correct: steady, wrong, spiky, lucky, broken, even, hasty, late, slow; time_of: steady, spiky, lucky, even, hasty, ... | got: is_correct: steady, wrong, spiky, lucky, broken, even, hasty, late, slow; time_of: even, hasty, late, lucky, slow, ...
def tune(candidates, is_correct, time_of, repeats=5):
    correct = sorted(name for name in candidates if late_check(is_correct, candidates[name]))
    rounds = [{name: time_of(candidates[name]) for name in correct} for _ in range(repeats)]
    return min(correct, key=lambda name: np.median([times[name] for times in rounds]), default=None)

# %% 8.2 right: with the standard library, and a loop of one's own
def tune(candidates, is_correct, time_of, repeats=5):
    good = {name: c for name, c in candidates.items() if late_check(is_correct, c)}
    rounds = [[time_of(c) for c in good.values()] for _ in range(repeats)]
    best = least = None
    for name, times in zip(good, zip(*rounds)):
        if least is None or statistics.median(times) < least:
            best, least = name, statistics.median(times)
    return best

# %% 8.2 right: a table in order of the dict, filled round by round
def tune(candidates, is_correct, time_of, repeats=5):
    times = {}
    for name in candidates:
        try:
            assert is_correct(candidates[name])
            times[name] = np.zeros(repeats)
        except Exception:
            pass
    for i in range(repeats):
        for name, row in times.items():
            row[i] = time_of(candidates[name])
    ranked = sorted(times, key=lambda name: float(np.quantile(times[name], 0.5)))
    return ranked[0] if ranked else None

# %% 8.3 wrong: the dictionary alone -> a dictionary, and a PrimFunc
replayed = replaying(gives="drawn")

# %% 8.3 wrong: what the first record drew, whatever is given -> {'tiles': [[
kept = {}

def replayed(record, func):
    drawn, program = replaying()(record, func)
    return kept.setdefault("drawn", drawn), program

# %% 8.3 wrong: drawn anew by the space -> the first loop that differs: for i_0, i_1 in T.grid(2, 6): | for i_0, i_1 in T.grid(
def replayed(record, func):
    drawn, _ = replaying()(record, func)
    undecided = [record[0], [d for d in record[1] if record[0][d[0]][0] != "SamplePerfectTile"]]
    s = tvm.s_tir.Schedule(func, seed=7)
    tvm.s_tir.Trace.apply_json_to_schedule(undecided, s)
    return drawn, s.mod["main"]

# %% 8.3 wrong: a key has another name -> 'unrolled': None} | 'unroll': None}
def replayed(record, func):
    drawn, program = replaying()(record, func)
    return {"tiles": drawn["tiles"], "unroll": drawn["unrolled"]}, program

# %% 8.3 right: a tuple of tuples
def replayed(record, func):
    drawn, program = replaying()(record, func)
    return {"tiles": tuple(map(tuple, drawn["tiles"])), "unrolled": drawn["unrolled"]}, program

# %% 8.3 right: by the class of MetaSchedule that reads records
def replayed(record, func):
    mod = tvm.IRModule({"main": func})
    known = ms.database.TuningRecord.from_json([record, None, None, None], ms.database.Workload(mod))
    s = tvm.s_tir.Schedule(mod)
    known.trace.apply_to_schedule(s, remove_postproc=False)
    return replaying()(record, func)[0], s.mod["main"]

# %% 8.1 wrong: always the same seed -> never drawn with 400 seeds; 1 of the 16
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, seeded=7)

# %% 8.1 wrong: what was drawn is not used -> no split takes the factors of the draw (13 x 2) themselves | seed 400,000,000
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, used=False)

# %% 8.1 wrong: the module is returned -> a Schedule, which knows its trace | IRModule
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, gives="mod")

# %% 8.1 wrong: the padding stays -> no block pad_temp
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, inline=False)

# %% 8.1 wrong: nothing is parallel -> a parallel outermost loop
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, threads=False)

# %% 8.1 wrong: nothing is vectorised -> a vectorised innermost loop around the convolution
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, lanes=False)

# %% 8.1 wrong: lanes along y -> lanes that are neighbours in conv2d_nchw | steps in conv2d_nchw of [(0, 0, 1, 0)]
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, order="y")

# %% 8.1 wrong: the window is not unrolled -> ry: 3, around block conv2d_nchw
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, window=False)

# %% 8.1 wrong: the decomposition is forgotten -> block conv2d_nchw still has its T.init
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most, decompose=False)

# %% 8.1 right: threads over images alone, another order outside
def random_conv2d(func, seed, most):
    s = tvm.s_tir.Schedule(func, seed=seed)
    s.compute_inline(s.get_sblock("pad_temp"))
    conv = s.get_sblock("conv2d_nchw")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    f0, f1 = s.split(f, s.sample_perfect_tile(f, 2, most))
    x0, x1 = s.split(x, s.sample_perfect_tile(x, 2, most // s.get(f1).extent.value))
    y0, y1 = s.split(y, s.sample_perfect_tile(y, 2, most // s.get(f1).extent.value // s.get(x1).extent.value))
    s.reorder(n, y0, f0, x0, rc, ry, rx, y1, f1, x1)
    s.unroll(rx)
    s.unroll(ry)
    s.vectorize(x1)
    s.parallel(n)
    s.decompose_reduction(conv, rc)
    return s

# %% 8.1 wrong: for the shape of the model alone -> draws for loops of
def random_conv2d(func, seed, most):
    if func.params[1].shape[0] == 32:
        return draws_with(func, seed, most)
    return draws_with(func, seed, most, cut="xy")

# %% 8.1 wrong: a limit of its own -> numbers of a tile: at most 1
def random_conv2d(func, seed, most):
    return draws_with(func, seed, 128)

# %% 8.2 wrong: nothing above 1000 can be the least -> None | 'slow', 5.5e+09 the median of 4e+09, 5e+09, 6e+09, 7e+09;
def tune(candidates, is_correct, time_of, repeats=5):
    names = [name for name in candidates if late_check(is_correct, candidates[name])]
    rounds = [{name: time_of(candidates[name]) for name in names} for _ in range(repeats)]
    best, least = None, 1000
    for name in names:
        if (median := np.median([times[name] for times in rounds])) < least:
            best, least = name, median
    return best

# %% 8.2 wrong: the caller's dict loses what is not correct -> `candidates` to stay as it was
def tune(candidates, is_correct, time_of, repeats=5):
    for name in list(candidates):
        if not late_check(is_correct, candidates[name]):
            del candidates[name]
    rounds = [{name: time_of(c) for name, c in candidates.items()} for _ in range(repeats)]
    return min(candidates, key=lambda name: np.median([times[name] for times in rounds]), default=None)

# %% 8.2 wrong: a single correct one is not measured -> expected: is_correct: wrong, slow; time_of: slow, slow, slow, slow | got: is_correct: wrong, slow
def tune(candidates, is_correct, time_of, repeats=5):
    names = [name for name in candidates if late_check(is_correct, candidates[name])]
    if len(names) == 1:
        return names[0]
    rounds = [{name: time_of(candidates[name]) for name in names} for _ in range(repeats)]
    return min(names, key=lambda name: np.median([times[name] for times in rounds]), default=None)

# %% 8.2 wrong: names are handed to is_correct -> expected: is_correct and time_of to get a candidate | got: 'b'
def tune(candidates, is_correct, time_of, repeats=5):
    names = [name for name in candidates if late_check(is_correct, name)]
    rounds = [{name: time_of(candidates[name]) for name in names} for _ in range(repeats)]
    return min(names, key=lambda name: np.median([times[name] for times in rounds]), default=None)

# %% shared
def full(func, seed):
    s = tvm.s_tir.Schedule(func, seed=seed)
    s.compute_inline(s.get_sblock("pad_temp"))
    conv = s.get_sblock("conv2d_nchw")
    return s, conv, s.get_loops(conv)

# %% 8.1 wrong: the draw of y is used for x too (typo), x's own draw unused -> no split takes the factors of the draw
def random_conv2d(func, seed, most):
    s, conv, (n, f, y, x, rc, ry, rx) = full(func, seed)
    tf = s.sample_perfect_tile(f, 2, 1)
    ty = s.sample_perfect_tile(y, 2, 1)
    tx = s.sample_perfect_tile(x, 2, 1)
    f0, f1 = s.split(f, tf); y0, y1 = s.split(y, ty); x0, x1 = s.split(x, ty)
    s.reorder(n, f0, y0, x0, rc, ry, rx, f1, y1, x1)
    s.vectorize(x1); s.unroll(ry); s.unroll(rx)
    s.parallel(s.fuse(n, f0)); s.decompose_reduction(conv, rc)
    return s

# %% 8.1 wrong: inner pieces outside the window -> the inner pieces
def random_conv2d(func, seed, most):
    s, conv, (n, f, y, x, rc, ry, rx) = full(func, seed)
    pieces = []
    for loop in (f, y, x):
        drawn = s.sample_perfect_tile(loop, 2, most)
        most //= int(s.get(drawn[1]))
        pieces.append(s.split(loop, drawn))
    (f0, f1), (y0, y1), (x0, x1) = pieces
    s.reorder(n, f0, y0, x0, f1, y1, rc, ry, rx, x1)
    s.vectorize(x1); s.unroll(ry); s.unroll(rx)
    s.parallel(s.fuse(n, f0)); s.decompose_reduction(conv, rc)
    return s

# %% 8.1 right: channels first, threads over images, channels and rows
def random_conv2d(func, seed, most):
    s, conv, (n, f, y, x, rc, ry, rx) = full(func, seed)
    pieces = []
    for loop in (f, y, x):
        drawn = s.sample_perfect_tile(loop, 2, most)
        most //= int(s.get(drawn[1]))
        pieces.append(s.split(loop, drawn))
    (f0, f1), (y0, y1), (x0, x1) = pieces
    s.reorder(n, f0, y0, x0, rc, ry, rx, y1, f1, x1)
    s.vectorize(x1); s.unroll(ry); s.unroll(rx)
    s.parallel(s.fuse(n, f0, y0)); s.decompose_reduction(conv, rc)
    return s

# %% 8.2 wrong: trimmed mean -> 'dip', 12 the median of 12, 2, 3, 12, 13
def tune(candidates, is_correct, time_of, repeats=5):
    good = {}
    for n, c in candidates.items():
        try:
            if is_correct(c): good[n] = c
        except Exception: pass
    ts = {n: [] for n in good}
    for r in range(repeats):
        for n in good: ts[n].append(time_of(good[n]))
    trim = lambda t: np.mean(sorted(t)[1:-1]) if len(t) > 2 else np.mean(t)
    return min(ts, key=lambda n: trim(ts[n]), default=None)

# %% 8.1 wrong: the weights in half precision, copied under the threads -> expected, the PrimFunc as it was: | 176.4 at | *176.375* at
def _draw2(func, seed, most, extra):
    s = tvm.s_tir.Schedule(func, seed=seed)
    s.compute_inline(s.get_sblock("pad_temp"))
    conv = s.get_sblock("conv2d_nchw")
    n, f, y, x, rc, ry, rx = s.get_loops(conv)
    left, pieces = most, []
    for loop in (x, y, f):
        t = s.sample_perfect_tile(loop, 2, max_innermost_factor=left)
        pieces.append(s.split(loop, t))
        left //= int(s.get(t[1]))
    (x0, x1), (y0, y1), (f0, f1) = pieces
    s.reorder(n, f0, y0, x0, rc, ry, rx, f1, y1, x1)
    p = s.fuse(n, f0)
    extra(s, conv, p)
    s.vectorize(x1); s.unroll(ry); s.unroll(rx)
    s.parallel(p)
    s.decompose_reduction(conv, rc)
    return s

def random_conv2d(func, seed, most):
    def extra(s, conv, p):
        w = s.cache_read(conv, 1, "local")
        s.unsafe_set_dtype(w, 0, "float16")
        s.compute_at(w, p)
    return _draw2(func, seed, most, extra)

# %% 8.2 wrong: repeats has no default -> tune takes (candidates, is_correct, time_of, repeats)
def tune(candidates, is_correct, time_of, repeats):
    right = {}
    for n, c in candidates.items():
        try:
            if is_correct(c): right[n] = c
        except Exception: pass
    times = {n: [] for n in right}
    for _ in range(repeats):
        for n, c in right.items(): times[n].append(time_of(c))
    return min(times, key=lambda n: np.median(times[n]), default=None)

# %% 8.1 wrong: one less than fits -> 1 x 1 x 74 is never drawn
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most - 1)

# %% 8.2 wrong: nothing is called yet -> time_of: a, b, a, b | got: nothing
def tune(candidates, is_correct, time_of, repeats=5):
    correct = [name for name in candidates]

# %% 8.3 wrong: whatever decision is a list is taken for a tile -> {'tiles': [[2, 6]] | {'tiles': [[2, 6], [3, 2]]
def replayed(record, func):
    drawn, program = replaying()(record, func)
    return drawn | {"tiles": [decision for _, decision in record[1] if isinstance(decision, list)]}, program

# %% 8.1 wrong: one more than fits -> numbers of a tile: at most 1 | = 2
def random_conv2d(func, seed, most):
    return draws_with(func, seed, most + 1)

# %% 8.3 wrong: no key where nothing was drawn -> {'tiles': [[2, 6]], 'unrolled': None} | got: {'tiles': [[2, 6]]}
# {"tiles": [], "unrolled": None} => {"tiles": []}

# %% 8.3 wrong: other decisions too -> {'tiles': [[2, 6]], 'unrolled': None} | 'others': [0, [3, 2]]
def replayed(record, func):
    drawn, program = replaying()(record, func)
    return drawn | {"others": [decision for number, decision in record[1] if record[0][number][0] not in (
        "SamplePerfectTile", "SampleCategorical")]}, program

# %% 8.3 right: NumPy's arrays, and the numbers that TVM's trace has
def replayed(record, func):
    drawn, program = replaying()(record, func)
    s = tvm.s_tir.Schedule(func)
    tvm.s_tir.Trace.apply_json_to_schedule(record, s)
    tiles = [s.trace.decisions[inst] for inst in s.trace.insts if inst.kind.name == "SamplePerfectTile"]
    return drawn | {"tiles": [*map(np.array, drawn["tiles"][:1]), *tiles[1:]]}, program

# %% 8.2 wrong: an empty candidate is none -> expected: is_correct: a, wrong, broken, b
# if is_correct(candidate): => if candidate and is_correct(candidate):

# %% 8.2 wrong: times are kept from one search to the next -> 'a', 7.5 the median of 8, 7; tune({'a': ..., 'b': ...}, ..., repeats=2); a second call | 'b', 8 the median of 6.5, 9.5
kept_times: dict[str, list[float]] = {}


def tune(candidates: dict[str, Any], is_correct: Callable[[Any], bool],
         time_of: Callable[[Any], float], repeats: int = 5) -> str | None:
    correct = {}
    for name, candidate in candidates.items():
        try:
            if is_correct(candidate):
                correct[name] = candidate
        except Exception:
            continue
    for _turn in range(repeats):
        for name, candidate in correct.items():
            kept_times.setdefault(name, []).append(time_of(candidate))
    return min(correct, key=lambda name: np.median(kept_times[name]), default=None)

# %% 8.3 wrong: under the function's own name -> your code to run
# return drawn, schedule.mod["main"] => return drawn, schedule.mod[func.attrs["global_symbol"]]

# %% 8.3 wrong: the decisions beside the draws that count -> expected, {'tiles': [[2, 6]], 'unrolled': None} | {'tiles': [0], 'unrolled': None}
def replayed(record, func):
    instructions, decisions = record
    drawing = [step for step in instructions
               if step[0] in ("SamplePerfectTile", "SampleCategorical")]
    drawn = {"tiles": [], "unrolled": None}
    for step, (_number, decision) in zip(drawing, decisions):
        if step[0] == "SamplePerfectTile":
            drawn["tiles"].append(decision)
        else:
            drawn["unrolled"] = step[2][0][decision]
    schedule = tvm.s_tir.Schedule(func)
    tvm.s_tir.Trace.apply_json_to_schedule(record, schedule)
    return drawn, schedule.mod["main"]

# %% 8.3 wrong: takes the decisions out of the record while reading -> record[1][0] to stay as it was | none
def replayed(record: list, func: tvm.tirx.PrimFunc) -> tuple[dict[str, Any], tvm.tirx.PrimFunc]:
    """Return what a record drew, and the PrimFunc that it makes of `func`."""
    steps, decisions = record
    drawn = {"tiles": [], "unrolled": None}
    while decisions:
        number, decision = decisions.pop(0)
        if steps[number][0] == "SamplePerfectTile":
            drawn["tiles"].append(list(decision))
        if steps[number][0] == "SampleCategorical":
            drawn["unrolled"] = steps[number][2][0][decision]
    schedule = tvm.s_tir.Schedule(func)
    tvm.s_tir.Trace.apply_json_to_schedule(record, schedule)
    return drawn, schedule.mod["main"]

# %% 8.3 wrong: the four values of MetaSchedule's rule, written down -> 'unrolled': 5
def replayed(record: list, func: tvm.tirx.PrimFunc) -> tuple[dict[str, Any], tvm.tirx.PrimFunc]:
    """Return what a record drew, and the PrimFunc that it makes of `func`."""
    instructions, decisions = record
    tiles, unrolled = [], None
    for number, decision in decisions:
        kind = instructions[number][0]
        if kind == "SamplePerfectTile":
            tiles.append(list(decision))
        elif kind == "SampleCategorical":
            unrolled = [0, 16, 64, 512][decision]
    schedule = tvm.s_tir.Schedule(func)
    tvm.s_tir.Trace.apply_json_to_schedule(record, schedule)
    return {"tiles": tiles, "unrolled": unrolled}, schedule.mod["main"]

# %% 8.3 wrong: the trace applied once more, as apply_to_schedule does by remove_postproc=True -> the program without those after EnterPostproc
def replayed(record: list, func: tvm.tirx.PrimFunc) -> tuple[dict[str, Any], tvm.tirx.PrimFunc]:
    """Return what a record drew, and the PrimFunc that it makes of `func`."""
    instructions, decisions = record
    drawn: dict[str, Any] = {"tiles": [], "unrolled": None}
    for number, decision in decisions:
        kind, _inputs, attributes, _outputs = instructions[number]
        if kind == "SamplePerfectTile":
            drawn["tiles"].append(decision)
        if kind == "SampleCategorical":
            drawn["unrolled"] = attributes[0][decision]
    first = tvm.s_tir.Schedule(func)
    tvm.s_tir.Trace.apply_json_to_schedule(record, first)
    schedule = tvm.s_tir.Schedule(func)
    first.trace.apply_to_schedule(schedule, remove_postproc=True)
    return drawn, schedule.mod["main"]

# %% 8.3 wrong: decisions are popped from the record -> record[1][0] to stay as it was | none
def replayed(record: list, func: tvm.tirx.PrimFunc) -> tuple[dict[str, Any], tvm.tirx.PrimFunc]:
    """Return what a record drew, and the PrimFunc that it makes of `func`."""
    instructions, decisions = record
    drawn: dict[str, Any] = {"tiles": [], "unrolled": None}
    while decisions:
        number, decision = decisions.pop(0)
        kind, _, attributes, _ = instructions[number]
        if kind == "SamplePerfectTile":
            drawn["tiles"].append(decision)
        elif kind == "SampleCategorical":
            drawn["unrolled"] = attributes[0][decision]
    schedule = tvm.s_tir.Schedule(func)
    tvm.s_tir.Trace.apply_json_to_schedule(record, schedule)
    return drawn, schedule.mod["main"]

# %% 8.1 wrong: divisors chosen by a generator of NumPy -> sample_perfect_tile | no sample_perfect_tile in the trace
def random_conv2d(func: tvm.tirx.PrimFunc, seed: int, most: int) -> tvm.s_tir.Schedule:
    """Return a schedule of a conv2d with tiles drawn by chance, of at most so many numbers."""
    rng = np.random.default_rng(seed)
    schedule = tvm.s_tir.Schedule(func, seed=seed)
    schedule.compute_inline(schedule.get_sblock("pad_temp"))
    conv = schedule.get_sblock("conv2d_nchw")
    n, f, y, x, rc, ry, rx = schedule.get_loops(conv)
    pieces, left = [], most
    for loop in (x, y, f):
        extent = int(schedule.get(loop).extent)
        fitting = [d for d in range(1, extent + 1) if extent % d == 0 and d <= left]
        inner = int(rng.choice(fitting))
        pieces.append(schedule.split(loop, [extent // inner, inner]))
        left //= inner
    (x0, x1), (y0, y1), (f0, f1) = pieces
    schedule.reorder(n, f0, y0, x0, rc, ry, rx, f1, y1, x1)
    schedule.vectorize(x1)
    schedule.unroll(ry)
    schedule.unroll(rx)
    schedule.parallel(schedule.fuse(n, f0))
    schedule.decompose_reduction(conv, rc)
    return schedule

# %% 8.1 wrong: never more than 64 in one direction -> 74 is never drawn
# max_innermost_factor=left => max_innermost_factor=min(left, 64)

# %% 8.1 wrong: draws without a limit, and again if the tile is too large -> numbers of a tile: at most 1
def random_conv2d(func: tvm.tirx.PrimFunc, seed: int, most: int) -> tvm.s_tir.Schedule:
    """Return a schedule of a conv2d with tiles drawn by chance, of at most so many numbers."""
    def attempt(number: int) -> tuple[tvm.s_tir.Schedule, int]:
        schedule = tvm.s_tir.Schedule(func, seed=number)
        schedule.compute_inline(schedule.get_sblock("pad_temp"))
        conv = schedule.get_sblock("conv2d_nchw")
        n, f, y, x, rc, ry, rx = schedule.get_loops(conv)
        pieces, tile = [], 1
        for loop in (x, y, f):
            whole = int(schedule.get(loop).extent)
            factors = schedule.sample_perfect_tile(loop, 2, max_innermost_factor=whole)
            pieces.append(schedule.split(loop, factors))
            tile *= int(schedule.get(factors[1]))
        (x0, x1), (y0, y1), (f0, f1) = pieces
        schedule.reorder(n, f0, y0, x0, rc, ry, rx, f1, y1, x1)
        schedule.vectorize(x1)
        schedule.unroll(ry)
        schedule.unroll(rx)
        schedule.parallel(schedule.fuse(n, f0))
        schedule.decompose_reduction(conv, rc)
        return schedule, tile

    for number in range(seed, seed + 21):
        schedule, tile = attempt(number)
        if tile <= most:
            break
    return schedule

# %% 8.1 right: each draw asks for its loop anew
# for loop in (x, y, f): => for place, loop in ((3, x), (2, y), (1, f)):
# sample_perfect_tile(loop, => sample_perfect_tile(schedule.get_loops(conv)[place],

# %% 8.1 wrong: split by the numbers that were drawn -> each loop to be split by what was drawn for it; seed 400,000,000 | no split takes the factors of the draw (13 x 2) themselves
# schedule.split(loop, factors) => schedule.split(loop, [*map(schedule.get, factors)])

# %% 8.1 right: drawn again until it fits, on the same schedule
# schedule.sample_perfect_tile(loop, 2, max_innermost_factor=left) => drawn_until(schedule, loop, left)
def drawn_until(schedule, loop, left):
    while schedule.get((factors := schedule.sample_perfect_tile(loop, 2, 128))[1]) > left:
        pass
    return factors

# %% 8.1 right: a function of its own called hash
# seed=seed => seed=hash(seed)
def hash(seed):
    return seed * 48271 % (2**31 - 1)

# %% 8.2 wrong: three kinds of exceptions are caught -> None; tune({'wrong': ..., 'broken': ...}, ...) | Broken: is_correct(<Candidate broken>)
# except Exception: => except (RuntimeError, ValueError, LookupError):

# %% 8.3 wrong: the decisions are taken off the record -> record to stay as it was | [list]
# return drawn, => return record.pop() and drawn,

# %% 8.3 wrong: a copy of the output in a loop more -> the first loop that differs: no loop | for ax0 in range(12):
# return drawn, => return schedule.cache_write("C", 0, "global") and drawn,

# %% 8.3 wrong: a loop has another name, a constant another value -> the first line of TVMScript that differs
# schedule.mod["main"] => tvm.script.from_source(schedule.mod["main"].script().replace("i_0", "outer").replace("(1.0)", "(3.0)"))
