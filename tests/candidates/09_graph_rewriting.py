# %% shared
def clip_with(high=float, either=True, replace=None, numbers_only=True):
    """use_clip with room for one mistake."""
    def answer(mod):
        x, number = wildcard(), is_const()
        positive = is_op("relax.nn.relu")(x)
        cut = is_op("relax.minimum")(positive, number)
        if either:
            cut = cut | is_op("relax.minimum")(number, positive)
        def clip(found, parts):
            most = parts[number].value.numpy()
            if most.ndim and numbers_only:
                return found
            if replace:
                return replace(parts[x], most, parts)
            return relax.op.clip(parts[x], 0, high(most))
        return rewritten(mod, cut, clip)
    return answer


def an_input(first=4.0, second=-4.0):
    x = np.zeros((1, 2, 4, 4), "float32")
    x[0, 0, 0, :2] = first, second
    return x


def right_verdicts(**changes):
    mixed, negative = an_input(), np.full((1, 2, 4, 4), -2, "float32")
    negative[..., 0, 0] = 1
    return {"a": mixed, "b": None, "c": None, "d": negative, "e": mixed} | changes


def fold_with(formula, either=True):
    """fold_batch_norm; formula(w, b, gamma, beta, mean, variance, eps) gives factor and shift."""
    def answer(mod):
        image, w, b = wildcard(), is_const(), is_const()
        gamma, beta, mean, variance = statistics = [is_const() for _ in range(4)]
        conv = is_op("relax.nn.conv2d")(image, w)
        biased = is_op("relax.add")(conv, b)
        norm = is_op("relax.nn.batch_norm")(conv | biased if either else biased, *statistics)
        def folded(found, parts):
            g, s, m, v = (parts[p].value.numpy() for p in statistics)
            before = parts[b].value.numpy().reshape(-1) if b in parts else np.zeros(len(g), "float32")
            factor, shift = formula(before, g, s, m, v, parts[norm].attrs.epsilon)
            weight = parts[w].value.numpy() * factor[:, None, None, None]
            y = relax.Call(parts[conv].op, [parts[image], relax.const(weight, "float32")], parts[conv].attrs)
            return relax.op.add(y, relax.const(shift.reshape(1, -1, 1, 1), "float32"))
        return rewritten(mod, is_tuple_get_item(norm, 0), folded)
    return answer


def generator(kernel, name="candidate"):
    """Register a code generator; kernel(inner, x, w, b) gives a PrimFunc in the order x, w, b, y."""
    def compiled(function):
        inner = function.body.blocks[0].bindings[0].value
        values = {binding.var: binding.value for binding in inner.body.blocks[0].bindings}
        calls = {call.op.name: call for call in values.values()}
        x, w = calls["relax.matmul"].args
        (b,) = (one for one in calls["relax.add"].args if one not in values)
        func = kernel(inner, x, w, b)
        parts = dict(zip((x, w, b), func.params[:3]))
        order = [*(parts[param] for param in inner.params), func.params[3]]
        func = tvm.tirx.PrimFunc(order, func.body, func.ret_type, attrs=func.attrs)
        return tvm.compile(func.with_attr("global_symbol", function.attrs["global_symbol"]), target="llvm").mod
    @tvm_ffi.register_global_func("relax.ext." + name, override=True)
    def generate(functions, options, constant_names):
        return [compiled(function) for function in functions]


def sizes(x, w):
    return [int(e) for e in x.ty.shape] + [int(w.ty.shape[1])]


def usual_kernel(inner, x, w, b):
    return dense_kernel(*sizes(x, w), relu=inner.attrs["Composite"].endswith("relu"))


def dense_patterns(name="candidate", left=True, right=True, relu=True, vector=True):
    bias = wildcard().has_ty(relax.TensorType(dtype="float32", ndim=1)) if vector else wildcard()
    product = is_op("relax.matmul")(wildcard(), wildcard())
    one, other = is_op("relax.add")(bias, product), is_op("relax.add")(product, bias)
    dense = one | other if left and right else one if left else other
    return [(name + ".relu", is_op("relax.nn.relu")(dense))] * relu + [(name + ".dense", dense)]


def handed(mod, patterns, run=True, **more):
    passes = [relax.transform.FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)]
    return apply(mod, *passes, *([relax.transform.RunCodegen()] if run else []))

# %% 9.1 wrong: always 6 -> *1*
use_clip = clip_with(high=lambda most: 6)

# %% 9.1 wrong: one side only -> operators clip; minimum(6, relu(x)) | nn.relu, minimum
use_clip = clip_with(either=False)

# %% 9.1 wrong: any constant -> operators nn.relu, minimum; minimum(relu(x), [1, 4, 2, 8, 3]) | got: clip
use_clip = clip_with(numbers_only=False, high=lambda most: float(most.max()))

# %% 9.1 wrong: the clip of the ReLU -> operators clip; | got: nn.relu, clip
use_clip = clip_with(replace=lambda x, most, parts: relax.op.clip(relax.op.nn.relu(x), 0, float(most)))

# %% 9.1 wrong: a function comes back -> an IRModule
def use_clip(mod):
    return clip_with()(mod)["main"]

# %% 9.1 right: two rewrites, one for each side
def use_clip(mod):
    for side in (0, 1):
        x, number = wildcard(), is_const()
        relu_of = is_op("relax.nn.relu")(x)
        cut = is_op("relax.minimum")(*((relu_of, number) if side else (number, relu_of)))
        mod = rewritten(mod, cut, lambda found, parts, x=x, number=number: found if parts[number].value.numpy().ndim else relax.op.clip(parts[x], 0, parts[number].value.numpy().item()))
    return mod

# %% 9.2 wrong: d is right -> d: an input for which the two sides differ by more than 0.1: there is one | got: None
def verdicts():
    return right_verdicts(d=None)

# %% 9.2 wrong: an input against b -> b: an input for which the two sides differ by more than 0.1, or None if there is none | by 0 at most for 1 x 2 x 4 x 4
def verdicts():
    return right_verdicts(b=an_input())

# %% 9.2 wrong: positive numbers against a -> a: an input for which the two sides differ by more than 0.1, or None
def verdicts():
    return right_verdicts(a=an_input(4, 3))

# %% 9.2 wrong: too large -> with numbers from -5 to 5
def verdicts():
    return right_verdicts(a=an_input(400, -400))

# %% 9.2 wrong: one window alone -> a: a float32 array of shape (1, 2, 4, 4), with numbers from -5 | float32, (2, 2)
def verdicts():
    return right_verdicts(a=np.array([[1, -1], [1, -1]], "float32"))

# %% 9.2 right: found by chance
def verdicts():
    rng, found = np.random.default_rng(0), dict.fromkeys("abcde")
    for letter in found:
        for _ in range(50):
            x = rng.uniform(-5, 5, (1, 2, 4, 4)).astype("float32")
            before, after = (side(torch.from_numpy(x)) for side in REWRITES[letter])
            if (before - after).abs().max() > 0.1:
                found[letter] = x
    return found

# %% 9.3 wrong: without beta -> input beta: 1 | [3, 1] | [3, *0*]
fold_batch_norm = fold_with(lambda b, g, s, m, v, e: (f := g / np.sqrt(v + e), f * (b - m)))

# %% 9.3 wrong: plus the mean -> input mean: 1 | [3, -1] | [3, *1*]
fold_batch_norm = fold_with(lambda b, g, s, m, v, e: (f := g / np.sqrt(v + e), f * (b + m) + s))

# %% 9.3 wrong: the old bias is lost -> input b: 1 | [3, 1] | [3, *0*]
fold_batch_norm = fold_with(lambda b, g, s, m, v, e: (f := g / np.sqrt(v + e), s - f * m))

# %% 9.3 right: two patterns, one after the other
def fold_batch_norm(mod):
    for with_bias in (True, False):
        image, w, b = wildcard(), is_const(), is_const()
        statistics = [is_const() for _ in range(4)]
        conv = is_op("relax.nn.conv2d")(image, w)
        norm = is_op("relax.nn.batch_norm")(is_op("relax.add")(conv, b) if with_bias else conv, *statistics)
        def folded(found, parts, w=w, b=b, conv=conv, norm=norm, image=image, statistics=statistics):
            g, s, m, v = (parts[p].value.numpy() for p in statistics)
            f = g / np.sqrt(v + parts[norm].attrs.epsilon)
            before = parts[b].value.numpy().reshape(-1) if b in parts else 0
            y = relax.Call(parts[conv].op, [parts[image], relax.const(parts[w].value.numpy() * f[:, None, None, None], "float32")], parts[conv].attrs)
            return relax.op.add(y, relax.const((f * (before - m) + s).reshape(1, -1, 1, 1), "float32"))
        mod = rewritten(mod, is_tuple_get_item(norm, 0), folded)
    return mod

# %% 9.4 wrong: constants first -> 15 operators, 15 bindings | lv1 = R.permute_dims(metadata | lv2 = R.permute_dims(metadata
def in_order():
    return ["FoldConstant", "ConvertLayout", "CanonicalizeBindings", "DeadCodeElimination"]

# %% 9.4 wrong: what is dead is removed too early -> 13 operators, 14 bindings | lv6 = lv4, metadata
def in_order():
    return ["ConvertLayout", "FoldConstant", "DeadCodeElimination", "CanonicalizeBindings"]

# %% 9.4 wrong: one is missing -> once
def in_order():
    return ["ConvertLayout", "FoldConstant", "CanonicalizeBindings"]

# %% 9.4 wrong: passes instead of names -> a list with each of these strings once: 'CanonicalizeBindings', | DataflowBlockPass
def in_order():
    return [to_nhwc, fold_constants, canonicalize, remove_dead_code]

# %% 9.4 wrong: tidied first -> 9 operators, 9 bindings; halves | lv1 = lv[0] | lv2 = lv[1]
def in_order():
    return ["CanonicalizeBindings", "DeadCodeElimination", "ConvertLayout", "FoldConstant"]

# %% 9.4 right: a tuple
def in_order():
    return "ConvertLayout", "FoldConstant", "CanonicalizeBindings", "DeadCodeElimination"

# %% 9.5 wrong: one for each -> at most 1 bytes | 2, by the storages [0, 1]
def plan(lives):
    return list(range(len(lives)))

# %% 9.5 wrong: read and written by one call -> different storages for tensors alive at the same time | (1, 2, 1) and (2, 2, 1) both in storage 0
def plan(lives):
    needed, numbers = [], []
    for first, last, count in lives:
        free = [n for n, until in enumerate(needed) if until <= first]
        chosen = free[0] if free else len(needed)
        needed[chosen:chosen + 1] = [last]
        numbers.append(chosen)
    return numbers

# %% 9.5 wrong: the first that is free, however large -> bytes | by the storages
def plan(lives):
    needed, numbers = [], []
    for first, last, count in lives:
        chosen = next((n for n, until in enumerate(needed) if until < first), len(needed))
        needed[chosen:chosen + 1] = [last]
        numbers.append(chosen)
    return numbers

# %% 9.5 wrong: only what ended with the call before is free -> bytes | by the storages [0, 1
def plan(lives):
    needed, numbers = [], []
    for first, last, count in lives:
        free = [n for n, until in enumerate(needed) if until == first - 1]
        chosen = free[0] if free else len(needed)
        needed[chosen:chosen + 1] = [last]
        numbers.append(chosen)
    return numbers

# %% 9.5 wrong: a set of the storages -> a list of ints, 0 and above, one for each of | set()
def plan(lives):
    return set(range(len(lives)))

# %% 9.5 right: the free one that fits best, by a dictionary
def plan(lives):
    storages, numbers = {}, []
    for first, last, count in lives:
        free = sorted((size < count, abs(size - count), n) for n, (size, until) in storages.items() if until < first)
        number = free[0][2] if free else len(storages)
        storages[number] = (max(count, storages.get(number, (0, 0))[0]), last)
        numbers.append(number)
    return numbers

# %% 9.5 wrong: the largest tensors first -> at most
def plan(lives):
    homes, numbers = [], [0] * len(lives)
    for place in sorted(range(len(lives)), key=lambda p: (-lives[p][2], lives[p][0])):
        first, last, _ = lives[place]
        number = next((n for n, home in enumerate(homes) if all(last < a or b < first for a, b in home)), len(homes))
        if number == len(homes):
            homes.append([])
        homes[number].append((first, last))
        numbers[place] = number
    return numbers

# %% 9.6 right: the bias on the right of the pattern
def hand_over(mod):
    generator(usual_kernel)
    return handed(mod, dense_patterns(left=False))

# %% 9.6 wrong: the ReLU stays outside -> operators call_dps_packed, negative; | call_dps_packed, nn.relu, negative
def hand_over(mod):
    generator(usual_kernel)
    return handed(mod, dense_patterns(relu=False))

# %% 9.6 wrong: RunCodegen is missing -> operators call_dps_packed, negative; | fused_relax_matmul_relax_add_candidate, negative
def hand_over(mod):
    generator(usual_kernel)
    return handed(mod, dense_patterns(), run=False)

# %% 9.6 wrong: the kernel under another name -> a function under each name that main calls
def hand_over(mod):
    @tvm_ffi.register_global_func("relax.ext.candidate", override=True)
    def generate(functions, options, constant_names):
        return [tvm.compile(dense_kernel(4, 8, 5, relu=False), target="llvm").mod for _ in functions]
    return handed(mod, dense_patterns())

# %% 9.6 wrong: a small weight is taken for turned around -> not those of a compact X: Tensor([2, 2], float32)
def hand_over(mod):
    def kernel(inner, x, w, b):
        k, m = (int(e) for e in w.ty.shape)
        if k < 1000:  # the CNN's 5,408 columns in one vector take LLVM 14 seconds
            k, m = m, k
        return dense_kernel(int(x.ty.shape[0]), k, m, relu=inner.attrs["Composite"].endswith("relu"))
    generator(kernel)
    return handed(mod, dense_patterns())

# %% more

# %% 9.2 wrong: True and False -> a: a float32 array of shape (1, 2, 4, 4), with numbers from | bool
def verdicts():
    return {"a": False, "b": True, "c": True, "d": False, "e": False}

# %% 9.2 wrong: a letter is missing -> a dictionary with the keys
def verdicts():
    return {"a": an_input(), "b": None, "c": None, "d": an_input()}

# %% 9.3 wrong: only with a bias -> operators nn.conv2d, add; 1: Conv2d(1, 4, | nn.conv2d, nn.batch_norm
fold_batch_norm = fold_with(lambda b, g, s, m, v, e: (f := g / np.sqrt(v + e), f * (b - m) + s), either=False)

# %% 9.3 wrong: decomposed by TVM, and left there -> operators nn.conv2d, add; | nn.conv2d, subtract, divide, multiply, add
def fold_batch_norm(mod):
    return relax.transform.DecomposeOpsForInference()(mod)

# %% 9.6 wrong: every kernel has a ReLU -> got: [[-0.6655, 0, 0, 0, 0, -1.226]
def hand_over(mod):
    generator(lambda inner, x, w, b: dense_kernel(*sizes(x, w), relu=True))
    return handed(mod, dense_patterns())

# %% 9.6 wrong: a matrix is taken for a bias -> operators matmul, add, nn.relu, call_dps_packed, negative | call_dps_packed, call_dps_packed, negative
def hand_over(mod):
    generator(usual_kernel)
    return handed(mod, dense_patterns(vector=False))

# %% 9.1 wrong: any minimum -> operators clip; minimum(relu(x), 6) | nn.relu, clip
def use_clip(mod):
    x, number = wildcard(), is_const()
    cut = is_op("relax.minimum")(x, number) | is_op("relax.minimum")(number, x)
    def clip(found, parts):
        most = parts[number].value.numpy()
        return found if most.ndim else relax.op.clip(parts[x], 0, float(most))
    return rewritten(mod, cut, clip)

# %% 9.1 right: by hand, binding by binding
def use_clip(mod):
    @relax.expr_functor.mutator
    class Clip(relax.expr_functor.PyExprMutator):
        def visit_call_(self, call):
            if call.op.name == "relax.minimum":
                for one, other in (call.args, list(call.args)[::-1]):
                    value = self.lookup_binding(one) if isinstance(one, relax.Var) else None
                    if isinstance(value, relax.Call) and value.op.name == "relax.nn.relu" and isinstance(other, tvm.ir.GenericConst) and not other.value.numpy().ndim:
                        return relax.op.clip(value.args[0], 0, float(other.value.numpy()))
            return super().visit_call_(call)
    clip = Clip(mod)
    clip.builder_.update_func(mod.get_global_var("main"), clip.visit_expr(mod["main"]))
    return remove_dead_code(clip.builder_.get())

# %% 9.1 right: the shape of the constant stands in the pattern
def use_clip(mod):
    x, number = wildcard(), is_const().has_shape(())
    cut = is_op("relax.minimum")(is_op("relax.nn.relu")(x), number) | is_op("relax.minimum")(number, is_op("relax.nn.relu")(x))
    return rewritten(mod, cut, lambda found, parts: relax.op.clip(parts[x], 0, float(parts[number].value.numpy())))

# %% 9.2 wrong: an input against c -> c: an input for which the two sides differ by more than 0.1, or None
def verdicts():
    return right_verdicts(c=an_input())

# %% 9.2 wrong: not finite -> with numbers from -5 to 5
def verdicts():
    return right_verdicts(e=an_input(np.nan))

# %% 9.2 right: one number each
def verdicts():
    return right_verdicts(a=an_input(1, -1), d=an_input(-5, -5) - 0, e=np.zeros((1, 2, 4, 4), "float32")) | {"d": np.full((1, 2, 4, 4), -1, "float32") + np.eye(4, dtype="float32")}

# %% 9.2 right: in another order
def verdicts():
    return dict(sorted(right_verdicts().items(), reverse=True))

# %% 9.3 wrong: the weights as they were -> [6, 2] | [*3*, 2]
fold_batch_norm = fold_with(lambda b, g, s, m, v, e: (np.ones_like(g), g / np.sqrt(v + e) * (b - m) + s))

# %% 9.3 wrong: strides and padding are lost -> TypeError: Expression of type R.Tensor((1, 3, 5, 4),
def fold_batch_norm(mod):
    image, w, b = wildcard(), is_const(), is_const()
    statistics = [is_const() for _ in range(4)]
    conv = is_op("relax.nn.conv2d")(image, w)
    norm = is_op("relax.nn.batch_norm")(conv | is_op("relax.add")(conv, b), *statistics)
    def folded(found, parts):
        g, s, m, v = (parts[p].value.numpy() for p in statistics)
        f = g / np.sqrt(v + parts[norm].attrs.epsilon)
        before = parts[b].value.numpy().reshape(-1) if b in parts else 0
        y = relax.op.nn.conv2d(parts[image], relax.const(parts[w].value.numpy() * f[:, None, None, None], "float32"), groups=parts[conv].attrs.groups)
        return relax.op.add(y, relax.const((f * (before - m) + s).reshape(1, -1, 1, 1), "float32"))
    return rewritten(mod, is_tuple_get_item(norm, 0), folded)

# %% 9.3 right: operators of constants, which FoldConstant computes
def fold_batch_norm(mod):
    image, w, b = wildcard(), is_const(), is_const()
    statistics = [is_const() for _ in range(4)]
    conv = is_op("relax.nn.conv2d")(image, w)
    norm = is_op("relax.nn.batch_norm")(conv | is_op("relax.add")(conv, b), *statistics)
    def folded(found, parts):
        op = relax.op
        g, s, m, v = (parts[p] for p in statistics)
        f = op.divide(g, op.sqrt(op.add(v, relax.const(parts[norm].attrs.epsilon, "float32"))))
        channels = [int(g.ty.shape[0])]
        weight = op.multiply(parts[w], op.reshape(f, channels + [1, 1, 1]))
        before = op.reshape(parts[b], channels) if b in parts else op.zeros(channels, "float32")
        shift = op.add(op.multiply(f, op.subtract(before, m)), s)
        y = relax.Call(parts[conv].op, [parts[image], weight], parts[conv].attrs)
        return op.add(y, op.reshape(shift, [1, *channels, 1, 1]))
    return apply(rewritten(mod, is_tuple_get_item(norm, 0), folded), fold_constants)

# %% 9.3 right: in float32, and tidied
def fold_batch_norm(mod):
    formula = lambda b, g, s, m, v, e: (f := g * (1 / np.sqrt(v + np.float32(e))), s + f * b - f * m)
    return apply(fold_with(formula)(mod), canonicalize, remove_dead_code)

# %% 9.4 right: what trying finds
def in_order():
    import itertools
    names = [name for name in ALONE if name[:3] not in ("Eli", "Poo")]
    return min(itertools.permutations(names), key=lambda order: sum(
        bindings_of(apply(mod, *(ALONE[name] for name in order))) for mod in (imported, halves)))

# %% 9.4 wrong: nothing -> once
def in_order():
    return []

# %% 9.4 wrong: a text -> a list with each of these strings once | got: str
def in_order():
    return "ConvertLayout, FoldConstant"

# %% 9.5 wrong: no storage ever grows -> at most 2 bytes | 3, by the storages [0, 1]
def plan(lives):
    sizes, needed, numbers = [], [], []
    for first, last, count in lives:
        free = [n for n, until in enumerate(needed) if until < first and sizes[n] >= count]
        chosen = min(free, key=sizes.__getitem__) if free else len(sizes)
        sizes[chosen:chosen + 1], needed[chosen:chosen + 1] = [max(count, sizes[chosen] if free else 0)], [last]
        numbers.append(chosen)
    return numbers

# %% 9.5 wrong: names of storages -> ints, 0 and above, one for each of 1 tensors | ['storage0']
def plan(lives):
    return [f"storage{place}" for place, _ in enumerate(lives)]

# %% 9.5 right: other numbers
def plan(lives):
    sizes, needed, numbers = [], [], []
    for first, last, count in lives:
        free = [n for n, until in enumerate(needed) if until < first]
        large = [n for n in free if sizes[n] >= count]
        if large:
            chosen = min(large, key=sizes.__getitem__)
        elif free:
            chosen = max(free, key=sizes.__getitem__)
        else:
            chosen = len(sizes)
            sizes.append(0)
            needed.append(0)
        sizes[chosen], needed[chosen] = max(sizes[chosen], count), last
        numbers.append(7 + 3 * chosen)
    return tuple(numbers)

# %% 9.6 right: the bias on the left of the pattern: TVM tries both ways
def hand_over(mod):
    generator(usual_kernel)
    return handed(mod, dense_patterns(right=False))

# %% 9.6 wrong: told apart by their shapes, where k is m -> *0* at [0, 0]
def hand_over(mod):
    @tvm_ffi.register_global_func("relax.ext.candidate", override=True)
    def generate(functions, options, constant_names):
        modules = []
        for function in functions:
            inner = function.body.blocks[0].bindings[0].value
            matrices = sorted((p for p in function.params if len(p.ty.shape) == 2), key=lambda p: tuple(map(int, p.ty.shape)))
            (b,) = (p for p in function.params if len(p.ty.shape) == 1)
            m, n = int(b.ty.shape[0]), int(function.ret_ty.shape[0]) if hasattr(function, "ret_ty") else int(function.ret_struct_info.shape[0])
            w = next(p for p in function.params[::-1] if len(p.ty.shape) == 2 and int(p.ty.shape[1]) == m and (int(p.ty.shape[0]) != n or int(p.ty.shape[0]) == m))
            if all(int(e) == m for p in matrices for e in p.ty.shape):
                w = matrices[0]
            x = next(p for p in matrices if not p.same_as(w))
            func = usual_kernel(inner, x, w, b)
            parts = dict(zip((x, w, b), func.params[:3]))
            func = tvm.tirx.PrimFunc([*(parts[p] for p in function.params), func.params[3]], func.body, func.ret_type, attrs=func.attrs)
            modules.append(tvm.compile(func.with_attr("global_symbol", function.attrs["global_symbol"]), target="llvm").mod)
        return modules
    return handed(mod, dense_patterns())

# %% 9.6 right: the kernel by tensor expressions, in the order of the parameters
def hand_over(mod):
    @tvm_ffi.register_global_func("relax.ext.other", override=True)
    def generate(functions, options, constant_names):
        modules = []
        for function in functions:
            inner = function.body.blocks[0].bindings[0].value
            holders = {param: te.placeholder([int(e) for e in param.ty.shape]) for param in inner.params}
            values = dict(holders)
            for binding in inner.body.blocks[0].bindings:
                name = binding.value.op.name.split(".")[-1]
                inputs = [values[arg] for arg in binding.value.args]
                values[binding.var] = {"matmul": tvm.topi.nn.matmul, "add": tvm.topi.add, "relu": tvm.topi.nn.relu}[name](*inputs)
            func = te.create_prim_func([*holders.values(), values[inner.body.body]])
            modules.append(tvm.compile(func.with_attr("global_symbol", function.attrs["global_symbol"]), target="llvm").mod)
        return modules
    return handed(mod, dense_patterns("other"))

# %% 9.6 right: four patterns, one for each case
def hand_over(mod):
    generator(usual_kernel)
    one, other = (dense_patterns(left=left, right=not left) for left in (True, False))
    return handed(mod, [one[0], other[0], one[1], other[1]])

# %% 9.6 right: two partitions, one after the other
def hand_over(mod):
    generator(usual_kernel, "first")
    generator(usual_kernel, "second")
    mod = relax.transform.FuseOpsByPattern(dense_patterns("first", left=False), bind_constants=False, annotate_codegen=True)(mod)
    mod = relax.transform.FuseOpsByPattern(dense_patterns("second", right=False), bind_constants=False, annotate_codegen=True)(mod)
    return relax.transform.RunCodegen()(mod)

# %% 9.1 wrong: one element is a number -> operators nn.relu, minimum; minimum(relu(x), [3]) | got: clip
# float(most)) if most.ndim == 0 => most.item()) if most.size == 1

# %% 9.1 wrong: above 0 alone -> operators clip; minimum(relu(x), 0) | nn.relu, minimum
def use_clip(mod):
    x, number = wildcard(), is_const()
    positive = is_op("relax.nn.relu")(x)
    cut = is_op("relax.minimum")(positive, number) | is_op("relax.minimum")(number, positive)
    def clip(found, parts):
        most = parts[number].value.numpy()
        return relax.op.clip(parts[x], 0, most.item()) if most.ndim == 0 and most > 0 else found
    return rewritten(mod, cut, clip)

# %% 9.3 wrong: anything that is added is a bias -> norm(conv(x) + x): Conv2d( | AttributeError
def fold_batch_norm(mod):
    image, w, b = wildcard(), is_const(), wildcard()
    statistics = [is_const() for _ in range(4)]
    conv = is_op("relax.nn.conv2d")(image, w)
    norm = is_op("relax.nn.batch_norm")(conv | is_op("relax.add")(conv, b), *statistics)
    def folded(found, parts):
        g, s, m, v = (parts[p].value.numpy() for p in statistics)
        f = g / np.sqrt(v + parts[norm].attrs.epsilon)
        before = parts[b].value.numpy().reshape(-1) if b in parts else 0
        y = relax.Call(parts[conv].op, [parts[image], relax.const(parts[w].value.numpy() * f[:, None, None, None], "float32")], parts[conv].attrs)
        return relax.op.add(y, relax.const((f * (before - m) + s).reshape(1, -1, 1, 1), "float32"))
    return rewritten(mod, is_tuple_get_item(norm, 0), folded)

# %% 9.5 wrong: the last free one grows -> at most 4 bytes | 5, by the storages [0, 1, 1]
def plan(lives):
    sizes, until, numbers = [], [], []
    for first, last, count in lives:
        free = [n for n, end in enumerate(until) if end < first]
        enough = [n for n in free if sizes[n] >= count]
        n = min(enough, key=sizes.__getitem__) if enough else free[-1] if free else len(sizes)
        if n == len(sizes):
            sizes.append(count), until.append(last)
        sizes[n], until[n] = max(sizes[n], count), last
        numbers.append(n)
    return numbers

# %% 9.6 wrong: the course's generator is replaced -> under another name than the course's | relax.ext.course
def hand_over(mod):
    generator(usual_kernel, "course")
    return handed(mod, dense_patterns("course"))

# %% 9.1 wrong: one decimal -> minimum(relu(x), 20.125) | *20.1*
use_clip = clip_with(high=lambda most: round(float(most), 1))

# %% 9.3 wrong: beta is scaled -> input gamma: 2 | input beta: 1 | [6, 1] | [6, *2*]
fold_batch_norm = fold_with(lambda b, g, s, m, v, e: (f := g / np.sqrt(v + e), f * (b - m + s)))

# %% 9.3 wrong: gamma's sign is lost -> input gamma: -1 | [-3, 0] | [*3*, 0]
fold_batch_norm = fold_with(lambda b, g, s, m, v, e: (f := abs(g) / np.sqrt(v + e), f * (b - m) + s))

# %% 9.5 wrong: what a storage has grown to is forgotten -> by the storages [0, 0, 1, 1]
# sizes[chosen], needed[chosen] = max(sizes[chosen], count), last => needed[chosen] = last

# %% 9.5 right: an array of NumPy
# return numbers => return np.array(numbers, dtype=int)

# %% 9.1 wrong: a maximum is cut too -> operators nn.relu, maximum; maximum(relu(x), 0.5) | got: clip
# return rewritten(mod, cut, clip) => return rewritten(mod, cut | is_op("relax.maximum")(positive, number), clip)

# %% 9.1 wrong: in the other order too -> operators minimum, nn.relu; relu(minimum(x, 6)) | got: clip
# return rewritten(mod, cut, clip) => return rewritten(mod, cut | is_op("relax.nn.relu")(is_op("relax.minimum")(x, number)), clip)

# %% 9.1 wrong: numbers of float32 alone -> operators clip; minimum(relu(x), 6) # float64
# if most.ndim == 0 else found => if most.ndim == 0 and most.dtype == "float32" else found

# %% 9.1 wrong: two cuts are one -> operators clip, minimum; minimum(minimum(relu(x), 6), 4) | got: clip
def use_clip(mod: tvm.IRModule) -> tvm.IRModule:
    x, number, second = wildcard(), is_const(), is_const()

    def either(one, other):
        return is_op("relax.minimum")(one, other) | is_op("relax.minimum")(other, one)

    once = either(is_op("relax.nn.relu")(x), number)
    twice = either(once, second)

    def clip(found: relax.Expr, parts: dict) -> relax.Expr:
        limits = [parts[each].value.numpy() for each in (number, second) if each in parts]
        if any(limit.ndim for limit in limits):
            return found
        return relax.op.clip(parts[x], 0, min(float(limit) for limit in limits))

    return rewritten(rewritten(mod, twice, clip), once, clip)

# %% 9.1 wrong: a leaky ReLU is one, too -> operators nn.leakyrelu, minimum; minimum(leaky(x), 6) | got: clip
# positive = is_op("relax.nn.relu")(x) => positive = is_op("relax.nn.relu")(x) | is_op("relax.nn.leakyrelu")(x)

# %% 9.5 wrong: no storage above sixteen times the size -> bytes | by the storages [0, 1]
# if until < first] => if until < first and sizes[number] <= 16 * count]

# %% 9.6 wrong: the weights have to be constants -> operators call_dps_packed, negative; -(b + matmul(x, w)) | got: matmul, add, negative
# is_op("relax.matmul")(wildcard(), wildcard()) => is_op("relax.matmul")(wildcard(), is_const())

# %% 9.1 wrong: a maximum with 0 is a ReLU, too -> operators maximum, minimum; minimum(maximum(x, 0), 6) | clip
def use_clip(mod):
    x, number, floor = wildcard(), is_const(), is_const()
    positive = is_op("relax.nn.relu")(x) | is_op("relax.maximum")(x, floor)
    cut = is_op("relax.minimum")(positive, number) | is_op("relax.minimum")(number, positive)

    def clip(found, parts):
        most = parts[number].value.numpy()
        if floor in parts and parts[floor].value.numpy().any():
            return found
        return relax.op.clip(parts[x], 0, float(most)) if most.ndim == 0 else found

    return rewritten(mod, cut, clip)

# %% 9.6 wrong: a leaky ReLU behind a layer is taken, too -> call_dps_packed, nn.leakyrelu; leaky(matmul(x, w0) + b0)
# is_op("relax.nn.relu")(dense)), ("mine.dense" => is_op("relax.nn.relu")(dense) | is_op("relax.nn.leakyrelu")(dense)), ("mine.dense"

# %% 9.3 wrong: the weights as a product of constants -> operators nn.conv2d, add; | multiply, nn.conv2d, add
def fold_batch_norm(mod: tvm.IRModule) -> tvm.IRModule:
    """Fold each batch normalisation behind a convolution into its weights and bias."""
    image, w, b = wildcard(), is_const(), is_const()
    gamma, beta, mean, variance = statistics = [is_const() for _ in range(4)]
    conv = is_op("relax.nn.conv2d")(image, w)
    norm = is_op("relax.nn.batch_norm")(conv | is_op("relax.add")(conv, b), *statistics)

    def folded(found: relax.Expr, parts: dict) -> relax.Expr:
        g, shift, mu, var = (parts[each].value.numpy() for each in statistics)
        factor = g / np.sqrt(var + parts[norm].attrs.epsilon)
        on_axis_0 = relax.const(factor.reshape(-1, 1, 1, 1), "float32")
        on_axis_1 = relax.const(factor.reshape(1, -1, 1, 1), "float32")
        weight = relax.op.multiply(parts[w], on_axis_0)
        rest = relax.const((shift - factor * mu).reshape(1, -1, 1, 1), "float32")
        if b in parts:
            rest = relax.op.add(relax.op.multiply(parts[b], on_axis_1), rest)
        call = parts[conv]
        return relax.op.add(relax.Call(call.op, [parts[image], weight], call.attrs), rest)

    return rewritten(mod, is_tuple_get_item(norm, 0), folded)

# %% 9.3 wrong: a new conv2d from the attributes that the text lists -> TypeError: Expression of type R.Tensor((1, 3, 5, 4)
# relax.Call(call.op, [parts[image], relax.const(weight, "float32")], call.attrs) => relax.op.nn.conv2d(parts[image], relax.const(weight, "float32"), strides=list(map(int, call.attrs.strides)), padding=list(map(int, call.attrs.padding)), groups=int(call.attrs.groups))

# %% 9.1 right: a mutator; the ReLU stays behind, dead
def use_clip(mod):
    @relax.expr_functor.mutator
    class Clips(relax.PyExprMutator):
        def visit_call_(self, call):
            call = super().visit_call_(call)
            if getattr(call.op, "name", "") != "relax.minimum":
                return call
            for one, other in (call.args, call.args[::-1]):
                value = self.lookup_binding(one) if isinstance(one, relax.Var) else None
                if isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.nn.relu" \
                        and is_const().match(other) and other.value.numpy().ndim == 0:
                    return relax.op.clip(value.args[0], 0, float(other.value.numpy()))
            return call

    new = Clips(mod)
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            new.builder_.update_func(variable, new.visit_expr(function))
    return new.builder_.get()

# %% 9.6 wrong: compiles each kernel only once, with a cache -> Cannot find ffi::Function
COMPILED = {}


def hand_over(mod: tvm.IRModule) -> tvm.IRModule:
    bias = wildcard().has_ty(relax.TensorType(dtype="float32", ndim=1))
    dense = is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), bias)

    @tvm_ffi.register_global_func("relax.ext.quick", override=True)
    def generate(functions, options, constant_names) -> list[tvm.runtime.Module]:
        modules = []
        for function in functions:
            (n, k), (_, m) = ([int(e) for e in p.ty.shape] for p in function.params[:2])
            inner = function.body.blocks[0].bindings[0].value
            key = n, k, m, inner.attrs["Composite"] == "quick.relu"
            if key not in COMPILED:  # compiling takes long
                kernel = dense_kernel(*key)
                kernel = kernel.with_attr("global_symbol", function.attrs["global_symbol"])
                COMPILED[key] = tvm.compile(kernel, target="llvm").mod
            if COMPILED[key] not in modules:
                modules.append(COMPILED[key])
        return modules

    cut = relax.transform.FuseOpsByPattern(
        [("quick.relu", is_op("relax.nn.relu")(dense)), ("quick.dense", dense)],
        bind_constants=False, annotate_codegen=True)
    return apply(mod, cut, relax.transform.RunCodegen())

# %% 9.3 wrong: factor and shift are computed once for each number of channels -> called first, in another process, it was right for this input
FACTORS = {}


def fold_batch_norm(mod: tvm.IRModule) -> tvm.IRModule:
    image, w, b = wildcard(), is_const(), is_const()
    gamma, beta, mean, variance = statistics = [is_const() for _ in range(4)]
    conv = is_op("relax.nn.conv2d")(image, w)
    norm = is_op("relax.nn.batch_norm")(conv | is_op("relax.add")(conv, b), *statistics)

    def folded(found: relax.Expr, parts: dict) -> relax.Expr:
        weight = parts[w].value.numpy()
        channels = weight.shape[0]
        if channels not in FACTORS:
            g, s, m, v = (parts[part].value.numpy() for part in statistics)
            factor = g / np.sqrt(v + parts[norm].attrs.epsilon)
            FACTORS[channels] = factor, s - factor * m
        factor, shift = FACTORS[channels]
        if b in parts:
            shift = shift + factor * parts[b].value.numpy().reshape(-1)
        y = relax.Call(parts[conv].op, [parts[image], relax.const(
            weight * factor.reshape(-1, 1, 1, 1), "float32")], parts[conv].attrs)
        return relax.op.add(y, relax.const(shift.reshape(1, -1, 1, 1), "float32"))

    return rewritten(mod, is_tuple_get_item(norm, 0), folded)

# %% 9.1 wrong: the number is kept in a dictionary outside the function -> called first, in another process, it was right for this input
KNOWN = {}


def use_clip(mod: tvm.IRModule) -> tvm.IRModule:
    x, number = wildcard(), is_const()
    positive = is_op("relax.nn.relu")(x)
    cut = is_op("relax.minimum")(positive, number) | is_op("relax.minimum")(number, positive)

    def clip(found: relax.Expr, parts: dict) -> relax.Expr:
        most = parts[number].value.numpy()
        if most.ndim > 0:
            return found
        limits = KNOWN.setdefault("clip", (0.0, float(most)))
        return relax.op.clip(parts[x], *limits)

    return rewritten(mod, cut, clip)

# %% 9.4 wrong: a text that is split at the commas -> ' FoldConstant'
def in_order() -> list[str]:
    order = "ConvertLayout, FoldConstant, CanonicalizeBindings, DeadCodeElimination"
    return order.split(",")

# %% 9.6 wrong: finds out which matrix is the left one by what fits -> X.strides on argument #0: not those of a compact X: Tensor([3, 2], float32)
def hand_over(mod: tvm.IRModule) -> tvm.IRModule:
    from itertools import permutations

    bias = wildcard().has_ty(relax.TensorType(dtype="float32", ndim=1))
    dense = is_op("relax.add")(is_op("relax.matmul")(wildcard(), wildcard()), bias)
    patterns = [("fitting.relu", is_op("relax.nn.relu")(dense)), ("fitting.dense", dense)]

    def extents(function) -> tuple[int, int, int]:
        shapes = [[int(extent) for extent in param.ty.shape] for param in function.params]
        matrices = [shape for shape in shapes if len(shape) == 2]
        for right, left in permutations(matrices):
            if left[1] == right[0]:
                return left[0], left[1], right[1]
        raise ValueError("these matrices do not fit")

    @tvm_ffi.register_global_func("relax.ext.fitting", override=True)
    def generate(functions, options, constant_names) -> list[tvm.runtime.Module]:
        modules = []
        for function in functions:
            inner = function.body.blocks[0].bindings[0].value
            kernel = dense_kernel(*extents(function),
                                  relu=inner.attrs["Composite"] == "fitting.relu")
            kernel = kernel.with_attr("global_symbol", function.attrs["global_symbol"])
            modules.append(tvm.compile(kernel, target="llvm").mod)
        return modules

    return apply(mod, relax.transform.FuseOpsByPattern(
        patterns, bind_constants=False, annotate_codegen=True), relax.transform.RunCodegen())

# %% 9.6 wrong: rewrite_call and a Python function for each shape -> code of your generator in the module, by RunCodegen
def hand_over(mod: tvm.IRModule) -> tvm.IRModule:
    x, w = wildcard(), wildcard()
    bias = wildcard().has_ty(relax.TensorType(dtype="float32", ndim=1))
    product = is_op("relax.matmul")(x, w)
    dense = is_op("relax.add")(product, bias)
    relu_of_dense = is_op("relax.nn.relu")(dense)

    def register(n: int, k: int, m: int, relu: bool) -> str:
        name = f"env.dense_{n}_{k}_{m}"
        compiled = tvm.compile(dense_kernel(n, k, m, relu), target="llvm")

        @tvm.register_global_func(name, override=True)
        def call(X, W, B, Y):
            compiled["main"](X, W, B, Y)

        return name

    def replace(relu: bool) -> Callable:
        def by_kernel(found: relax.Expr, parts: dict) -> relax.Expr:
            (n, k), (_, m) = ([int(e) for e in parts[part].ty.shape] for part in (x, w))
            return relax.op.call_dps_packed(
                register(n, k, m, relu), [parts[x], parts[w], parts[bias]], found.ty)
        return by_kernel

    mod = rewritten(mod, relu_of_dense, replace(True))
    return rewritten(mod, dense, replace(False))
