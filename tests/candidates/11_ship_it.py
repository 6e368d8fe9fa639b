# %% shared
import ctypes
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax, tirx
from tvm.relax.frontend.torch import from_exported_program

from course.ship import native
from data import gpt


def exported(module, example, shapes):
    return from_exported_program(torch.export.export(module.eval(), example, dynamic_shapes=shapes), unwrap_unit_return_tuple=True)


def batched(module, example, most=64, twice=True):
    example = tuple(torch.cat([each, each]) for each in example) if twice else example
    size = torch.export.Dim("size", min=1, max=most)
    return exported(module, example, tuple({0: size} for _ in example))


def largest(node, importer, *, keepdim=..., first=False):
    args = list(node.args) + [[], False][len(node.args) - 1:]
    axes = args[1][:1] if first else args[1]
    stays = args[2] if keepdim is ... else keepdim
    return importer.block_builder.emit(relax.op.max(importer.env[args[0]], axis=list(axes) or None, keepdims=stays))


def stepped_with(model, token, keys, values, place=lambda past: past, causal=False, order=1, swapped=False):
    past, kept = keys.shape[3], []
    x = model.token(token) + model.place(torch.arange(place(past), place(past) + 1))
    for number, block in enumerate(model.blocks):
        q, k, v = block.heads(x)
        k, v = (torch.cat(pair[::order], 2) for pair in zip((keys[number], values[number]), (k, v)))
        kept.append((v, k) if swapped else (k, v))
        x = block.rest(x, nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal))
    return model.head(model.norm(x)), *(torch.stack(each) for each in zip(*kept))


def laid_out(numbers, shape, axes, address, first, gap=4, bits=32, strides=0, device=1, filling=b"\0"):
    p = "Q" if address == 8 else "I"
    filling = filling * (gap if address == 4 else 0)
    return struct.pack(f"<{p}iiiBBH{p}{p}", numbers, device, 0, axes, 2, bits, 1, shape, strides) + filling + struct.pack("<Q", first)


def without(func, which=lambda loop: loop.kind == tirx.ForKind.PARALLEL, kind=tirx.ForKind.SERIAL):
    body = tvm_ffi.structural_map(func.body, (tirx.For, lambda loop: tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, annotations=loop.annotations, step=loop.step) if which(loop) else loop))
    return tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)



def in_rows(mod, lanes=16, decompose=True, names=lambda name: name.startswith("matmul")):
    """A schedule of exercise 11.6 with steps that can be left out."""
    s = tvm.s_tir.Schedule(mod, error_render_level="fast")
    for variable, func in mod.functions_items():
        if not names(variable.name_hint) or variable.name_hint == "main":
            continue
        block = s.get_sblock("matmul", func_name=variable.name_hint)
        loops = s.get_loops(block)
        if isinstance(s.get(loops[-2]).extent, tirx.IntImm):
            outer, inner = s.split(loops[-2], [None, lanes])
            s.reorder(loops[-1], outer, inner)
            s.vectorize(inner)
            if decompose:
                s.decompose_reduction(block, loops[-1])
    return s.mod


RUN = """
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm.runtime.vm import VirtualMachine

here = Path(__file__).resolve().parent
vm = VirtualMachine(tvm.runtime.load_module(str(here / "lib.so")), tvm.cpu())
y = vm["main"](tvm.runtime.tensor(np.load(sys.argv[1]))).numpy()
np.save(sys.argv[2], y)
"""


def sent(mod, target, folder, was="", now="", **options):
    """Fill the folder, with another part of the program in place of one."""
    assert was in RUN
    relax.build(mod, target).export_library(f"{folder}/lib.so", fcompile=native.linker(), **options)
    Path(folder, "run.py").write_text(RUN.replace(was, now) if was else RUN)


def weights_of(mod):
    found = []
    relax.analysis.post_order_visit(mod["main"], lambda one: found.append(one.value.numpy()) if isinstance(one, tvm.ir.GenericConst) and one.value.shape else None)
    return found

# %% 11.1 wrong: the example as it is -> specialized it to be a constant (1)
def for_any_batch(module, example):
    return batched(module, example, twice=False)

# %% 11.1 wrong: a batch of two, always -> input: R.Tensor((2, 1, 6, 6), dtype="float32")
def for_any_batch(module, example):
    return exported(module, tuple(torch.cat([each, each]) for each in example), None)

# %% 11.1 right: a range, and a larger example
def for_any_batch(module, example):
    size = torch.export.Dim("images", max=64)
    return exported(module, tuple(each.repeat(5, *[1] * (each.ndim - 1)) for each in example), tuple({0: size} for _ in example))

# %% 11.2 wrong: keepdim forgotten -> got: [[0, 0, 0]
def convert_amax(node, importer):
    return largest(node, importer, keepdim=False)

# %% 11.2 wrong: the axes always stay -> got: [[0]]
def convert_amax(node, importer):
    return largest(node, importer, keepdim=True)

# %% 11.2 right: by the number of arguments
def convert_amax(node, importer):
    match node.args:
        case (x,):
            axes, stays = None, False
        case (x, dim):
            axes, stays = dim or None, False
        case (x, dim, stays):
            axes = dim or None
    return importer.block_builder.emit(relax.op.max(importer.env[x], axes, stays))

# %% 11.3 wrong: always the first place -> input past: 1 | result: keys | got: 
def one_more_letter(model, token, keys, values):
    return stepped_with(model, token, keys, values, place=lambda past: 0)

# %% 11.3 wrong: keys and values exchanged -> got: 1 x 1 x 4 x 1 x 16 numbers
def one_more_letter(model, token, keys, values):
    return stepped_with(model, token, keys, values, swapped=True)

# %% 11.3 right: attention written out
def one_more_letter(model, token, keys, values):
    past = keys.shape[3]
    x = model.token(token) + model.place.weight[past]
    all_keys, all_values = [], []
    for block, k0, v0 in zip(model.blocks, keys.unbind(0), values.unbind(0)):
        q, k, v = block.heads(x)
        all_keys.append(torch.cat((k0, k), dim=-2))
        all_values.append(torch.cat((v0, v), dim=-2))
        weights = torch.softmax(q @ all_keys[-1].transpose(-1, -2) / 4, -1)
        x = block.rest(x, weights @ all_values[-1])
    return model.head(model.norm(x)), torch.stack(all_keys), torch.stack(all_values)

# %% 11.1 wrong: at most 32 -> any batch up to 64; x: (n, 1, 6, 6) | any batch up to 32
def for_any_batch(module, example):
    return batched(module, example, most=32)

# %% 11.2 wrong: the first axis alone -> got: [[0, 0, 0, 0]
def convert_amax(node, importer):
    return largest(node, importer, first=True)

# %% 11.3 wrong: causal -> input past: 1 | result: logits | got: 
def one_more_letter(model, token, keys, values):
    return stepped_with(model, token, keys, values, causal=True)

# %% 11.4 wrong: without the gap -> 00 00 00 00 in the bytes from 28, the field padding; | 88 77 66 55
def dl_tensor(numbers, shape, axes, address, first):
    return laid_out(numbers, shape, axes, address, first, gap=0)

# %% 11.4 wrong: the bits in bytes -> 20 in the bytes from 21, the field kind.bits; | 04
def dl_tensor(numbers, shape, axes, address, first):
    return laid_out(numbers, shape, axes, address, first, bits=4)

# %% 11.4 wrong: the shape for the strides too -> e8 c3 22 aa d1 55 00 00
def dl_tensor(numbers, shape, axes, address, first):
    return laid_out(numbers, shape, axes, address, first, strides=shape)

# %% 11.4 wrong: the gap at the end -> the field padding
def dl_tensor(numbers, shape, axes, address, first):
    p, gap = ("Q", "") if address == 8 else ("I", "4x")
    return struct.pack(f"<{p}iiiBBH{p}{p}Q{gap}", numbers, 1, 0, axes, 2, 32, 1, shape, 0, first)

# %% 11.4 right: a gap in the format
def dl_tensor(numbers, shape, axes, address, first):
    p, gap = ("Q", "") if address == 8 else ("I", "4x")
    return struct.pack(f"<{p}iiiBBH{p}{p}{gap}Q", numbers, 1, 0, axes, 2, 32, 1, shape, 0, first)

# %% 11.5 wrong: the first nest alone -> parallel loops: 3 | no parallel loop; softmax
def for_the_browser(func):
    return tvm.script.from_source(func.script().replace("T.parallel(", "T.serial(", 1))

# %% 11.5 wrong: vectors too -> `for j_1_init in T.vectorized(4):`; dense | got: for j_1_init in range(4):
def for_the_browser(func):
    return without(func, lambda loop: loop.kind in (tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED))

# %% 11.5 wrong: unrolled in place of parallel -> got: for i_j_0_fused in T.unroll(24):
def for_the_browser(func):
    return without(func, kind=tirx.ForKind.UNROLLED)

# %% 11.5 right: by its text
def for_the_browser(func):
    return tvm.script.from_source(re.sub(r"\bT\.parallel\(", "T.serial(", func.script()))

# %% 11.6 wrong: not scheduled -> a vectorised innermost loop around block matmul of matmul
def products_in_rows(mod):
    return mod

# %% 11.6 wrong: eight lanes -> around block matmul_update of matmul, of 16 lanes
def products_in_rows(mod):
    return in_rows(mod, lanes=8)

# %% 11.6 wrong: the reduction is not decomposed -> a decomposed reduction
def products_in_rows(mod):
    return in_rows(mod, decompose=False)

# %% 11.6 wrong: only the first product -> block matmul of matmul1
def products_in_rows(mod):
    return in_rows(mod, names=lambda name: name == "matmul")

# %% 11.6 wrong: returns the schedule -> an IRModule | Schedule
def products_in_rows(mod):
    return tvm.s_tir.Schedule(mod)

# %% 11.6 right: threads over the rows, and the variable ones in rows too
def products_in_rows(mod):
    s = tvm.s_tir.Schedule(mod)
    for variable, _ in mod.functions_items():
        if variable.name_hint.startswith("matmul"):
            block = s.get_sblock("matmul", func_name=variable.name_hint)
            *rows, j, k = s.get_loops(block)
            if isinstance(s.get(j).extent, tirx.IntImm):
                j, lanes = s.split(j, [None, 16])
                s.reorder(k, j, lanes)
                s.vectorize(lanes)
            else:
                s.reorder(k, j)
            s.parallel(rows[0])
            s.decompose_reduction(block, k)
    return s.mod

# %% 11.7 wrong: what any of them has -> popcnt for nehalem, sandybridge | popcnt, avx | nehalem has no avx
def for_all(processors):
    every = set.union(*map(features, processors))
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX, "mattr": [f"+{name}" for name in every]})

# %% 11.7 wrong: any x86-64 -> popcnt for nehalem | none of the features | each has popcnt
def for_all(processors):
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX})

# %% 11.7 wrong: the first processor -> nehalem has no
def for_all(processors):
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX, "mcpu": processors[-1]})

# %% 11.7 wrong: no plus -> popcnt for nehalem
def for_all(processors):
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX, "mattr": sorted(set.intersection(*map(features, processors)))})

# %% 11.7 wrong: the highest level that fits -> for alderlake | each has avxvnni
def for_all(processors):
    shared = set.intersection(*map(features, processors))
    for level in ("x86-64-v4", "x86-64-v3", "sandybridge", "x86-64-v2"):
        if set(SETS) & features(level) <= shared:
            return tvm.target.Target({"kind": "llvm", "mtriple": LINUX, "mcpu": level})

# %% 11.7 wrong: from one of them, what others lack of SETS is taken away -> for znver3, alderlake | alderlake has no sse4a
def for_all(processors):
    first, *others = processors
    lacks = set().union(*(set(SETS) - features(one) for one in others))
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX, "mcpu": first, "mattr": [f"-{name}" for name in SETS if name in lacks]})

# %% 11.7 right: the names that nobody lacks
def for_all(processors):
    has = [features(processor) for processor in processors]
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX, "mcpu": "x86-64",
                              "mattr": [f"+{name}" for name in SETS if all(name in one for one in has)]})

# %% 11.8 wrong: any machine of this kind -> machine code for | "mcpu": "x86-64-v2" | got: "mtriple"
def ship(mod, target, folder):
    sent(mod, "llvm", folder)

# %% 11.8 wrong: a program that imports torch -> a result in y.npy | No module named 'torch' | line 6 of run.py: import torch
def ship(mod, target, folder):
    sent(mod, target, folder, "import tvm\n", "import torch\nimport tvm\n")

# %% 11.8 wrong: where the folder was -> a result in y.npy | cannot find file | sent/lib.so
def ship(mod, target, folder):
    sent(mod, target, folder, "here = Path(__file__).resolve().parent", f"here = Path({str(folder)!r})")

# %% 11.8 right: the library's own functions, as in C++
def ship(mod, target, folder):
    sent(mod, target, folder, '''vm = VirtualMachine(tvm.runtime.load_module(str(here / "lib.so")), tvm.cpu())''', """
vm = tvm.runtime.load_module(str(here / "lib.so"))["vm_load_executable"]()
vm["vm_initialization"](1, 0, 2)
""")

# %% more

# %% 11.8 wrong: the compiler in run.py -> machine code for | no LLVM module written
def ship(mod, target, folder):
    Path(folder, "mod.json").write_text(tvm.ir.save_json(mod))
    Path(folder, "run.py").write_text(RUN.replace('''vm = VirtualMachine(tvm.runtime.load_module(str(here / "lib.so")), tvm.cpu())''', """
from tvm import relax
vm = relax.VirtualMachine(relax.build(tvm.ir.load_json((here / "mod.json").read_text()), "llvm"), tvm.cpu())
"""))

# %% 11.8 wrong: the same target for all -> machine code for | "mattr": ["+ssse3"] | "mcpu": "x86-64-v2"
def ship(mod, target, folder):
    sent(mod, tvm.target.Target({"kind": "llvm", "mtriple": target.attrs["mtriple"], "mcpu": "x86-64-v2"}), folder)

# %% 11.8 wrong: in the current folder -> run.py in the folder | no file
def ship(mod, target, folder):
    with native.workplace() as other:
        sent(mod, target, other)

# %% 11.8 wrong: the library alone -> run.py in the folder | lib.so
def ship(mod, target, folder):
    relax.build(mod, target).export_library(str(folder / "lib.so"), fcompile=native.linker())

# %% 11.8 wrong: it prints the result -> a result in y.npy | No such file or directory: 'y.npy'
def ship(mod, target, folder):
    sent(mod, target, folder, "np.save(sys.argv[2], y)", "print(y)")

# %% 11.8 wrong: no numbers in the file -> a result in y.npy
def ship(mod, target, folder):
    sent(mod, target, folder, "np.save(sys.argv[2], y)", "Path(sys.argv[2]).write_text(str(y))")

# %% 11.8 wrong: not Python -> a result in y.npy | SyntaxError | run.py: y = = 1
def ship(mod, target, folder):
    sent(mod, target, folder, "np.save(sys.argv[2], y)", "y = = 1")

# %% 11.8 wrong: float64 -> float32 | float64
def ship(mod, target, folder):
    sent(mod, target, folder, "np.save(sys.argv[2], y)", "np.save(sys.argv[2], y.astype('float64'))")

# %% 11.8 wrong: float32 only -> a result in rows/y.npy | int64
def ship(mod, target, folder):
    sent(mod, target, folder, "np.load(sys.argv[1])", "np.load(sys.argv[1]).astype('float32')")

# %% 11.8 wrong: the weights are lost -> expected, x.npy: float32 (3, 8): [[-5.331 | [[0, 0, 0, 0, 0]]
def ship(mod, target, folder):
    text = re.sub(r'metadata\["ir.GenericConst"\]\[\d\]', "R.zeros(R.shape([8, 5]), 'float32')", mod.script())
    sent(tvm.script.from_source(text), target, folder)

# %% 11.8 wrong: objects, to be linked by the receiver -> a result in y.npy
def ship(mod, target, folder):
    relax.build(mod, target).export_library(str(folder / "lib.tar"))
    (folder / "run.py").write_text(RUN.replace("lib.so", "lib.tar"))

# %% 11.8 wrong: the first one's library -> a result in rows/y.npy
def ship(mod, target, folder, kept=[]):
    sent(mod, target, folder)
    kept.append((folder / "lib.so").read_bytes())
    (folder / "lib.so").write_bytes(kept[0])

# %% 11.8 wrong: two arguments -> called as ship(mod, target, folder)
def ship(mod, folder):
    sent(mod, "llvm", folder)

# %% 11.8 wrong: it ends the process -> your code to run to its end
def ship(mod, target, folder):
    os._exit(3)

# %% 11.8 right: with TVM's own linker, and a path of os
def ship(mod, target, folder):
    tvm.compile(mod, target).export_library(os.path.join(folder, "lib.so"))
    with open(os.path.join(folder, "run.py"), "w") as file:
        file.write(RUN.replace("Path(__file__).resolve().parent", "Path(sys.path[0])"))

# %% 11.8 right: linked by hand
def ship(mod, target, folder):
    relax.build(mod, target).export_library(str(folder / "lib.tar"))
    shutil.unpack_archive(folder / "lib.tar", folder / "parts")
    native.linker()(str(folder / "lib.so"), sorted(map(str, (folder / "parts").glob("*.o"))))
    shutil.rmtree(folder / "parts")
    (folder / "lib.tar").unlink()
    (folder / "run.py").write_text(RUN)

# %% 11.8 right: kernels and program in two files
def ship(mod, target, folder):
    executable = relax.build(mod, target).mod
    executable.imports[0].export_library(str(folder / "kernels.so"), fcompile=native.linker())
    executable.write_to_file(str(folder / "program.vm"), "vm")
    (folder / "run.py").write_text(RUN.replace('''vm = VirtualMachine(tvm.runtime.load_module(str(here / "lib.so")), tvm.cpu())''', """
program = tvm.get_global_func("ffi.Module.load_from_file.relax.VMExecutable")(str(here / "program.vm"))
program.import_module(tvm.runtime.load_module(str(here / "kernels.so")))
vm = VirtualMachine(program, tvm.cpu())
"""))

# %% 11.8 right: main is compiled too
def ship(mod, target, folder):
    relax.build(mod, target, exec_mode="compiled").export_library(str(folder / "lib.so"), fcompile=native.linker())
    (folder / "run.py").write_text(RUN)

# %% 11.8 right: a module beside run.py
def ship(mod, target, folder):
    sent(mod, target, folder)
    (folder / "loaded.py").write_text(RUN[:RUN.index("y = ")])
    (folder / "run.py").write_text("from loaded import *\n" + RUN[RUN.index("y = "):])

# %% 11.8 right: the weights beside the library
def ship(mod, target, folder):
    (weights,) = weights_of(mod)
    x = relax.Var("x", mod["main"].params[0].ty)
    w = relax.Var("w", relax.TensorType(weights.shape, "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w]):
        off = relax.op.subtract(x, relax.op.mean(x, axis=0, keepdims=True))
        bb.emit_func_output(bb.emit(relax.op.expand_dims(relax.op.matmul(off, w), 1) if len(x.ty.shape) == 2 else relax.op.take(w, x, 0)))
    np.save(folder / "w.npy", weights)
    sent(bb.get(), target, folder, "np.load(sys.argv[1]))", "np.load(sys.argv[1])), tvm.runtime.tensor(np.load(here / 'w.npy'))")

# %% 11.6 wrong: the ReLU is scheduled too -> no change besides matmul | relu_of_matmul has changed
def products_in_rows(mod):
    s = tvm.s_tir.Schedule(in_rows(mod))
    name = next(v.name_hint for v, _ in mod.functions_items() if "relu" in v.name_hint)
    s.parallel(s.get_loops(s.get_sblock("compute", func_name=name))[0])
    return s.mod

# %% 11.6 wrong: i, k, j and no lanes -> a vectorised innermost loop around block matmul | got: i1: 48
def products_in_rows(mod):
    s = tvm.s_tir.Schedule(mod)
    for variable, _ in mod.functions_items():
        if variable.name_hint.startswith("matmul"):
            *_, j, k = s.get_loops(s.get_sblock("matmul", func_name=variable.name_hint))
            s.reorder(k, j)
    return s.mod

# %% 11.6 right: a copy of the sums, rows of four
def products_in_rows(mod):
    s = tvm.s_tir.Schedule(mod)
    for variable, func in mod.functions_items():
        if variable.name_hint.startswith("matmul") and isinstance(func.params[-1].shape[-1], tirx.IntImm):
            block = s.get_sblock("matmul", func_name=variable.name_hint)
            *batch, i, j, k = s.get_loops(block)
            j, lanes = s.split(j, [None, 16])
            s.reorder(*batch, i, j, k, lanes)
            s.vectorize(lanes)
            s.reverse_compute_at(s.cache_write(block, 0, "local"), j)
            s.decompose_reduction(block, k)
    return s.mod

# %% 11.6 wrong: four rows at a time, whatever the batch -> a write next to the output of PrimFunc matmul
def products_in_rows(mod):
    s = tvm.s_tir.Schedule(in_rows(mod))
    for name in ("matmul", "matmul1"):
        s.split(s.get_loops(s.get_sblock("matmul_update", func_name=name))[0], [None, 4], disable_predication=True)
    return s.mod

# %% 11.6 wrong: main is optimised too -> no change besides matmul
def products_in_rows(mod):
    return relax.transform.ToNonDataflow()(in_rows(mod))

# %% 11.7 wrong: the names -> a Target for nehalem | set
def for_all(processors):
    return set.intersection(*map(features, processors))

# %% 11.7 wrong: for arm64 -> a target of kind llvm with mtriple x86_64-linux-gnu | aarch64
def for_all(processors):
    return tvm.target.Target({"kind": "llvm", "mtriple": ARM, "mattr": ["+neon"]})

# %% 11.7 wrong: takes the names away -> the given names as they were
def for_all(processors):
    shared = features(processors.pop())
    while processors:
        shared &= features(processors.pop())
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX, "mattr": [f"+{name}" for name in shared]})

# %% 11.2 wrong: needs three arguments -> your code to run; amax(x) | IndexError
def convert_amax(node, importer):
    return importer.block_builder.emit(relax.op.max(importer.env[node.args[0]], node.args[1], node.args[2]))

# %% 11.3 wrong: the new letter first -> the new letter's keys and values stand before the older ones
def one_more_letter(model, token, keys, values):
    return stepped_with(model, token, keys, values, order=-1)

# %% 11.3 wrong: the inputs are changed -> as it was
def one_more_letter(model, token, keys, values):
    came = stepped_with(model, token, keys, values)
    keys *= 0.5
    return came

# %% 11.1 wrong: only the first input -> specialized it to be a constant (2)
def for_any_batch(module, example):
    size = torch.export.Dim("size", min=1, max=64)
    several = tuple(torch.cat([each, each]) for each in example)
    return exported(module, several, ({0: size}, *({} for _ in example[1:])))

# %% 11.1 wrong: every axis of the batch, and no upper limit -> no upper limit
def for_any_batch(module, example):
    size = torch.export.Dim("size")
    several = tuple(torch.cat([each, each]) for each in example)
    return exported(module, several, tuple({0: size} for _ in example))

# %% 11.1 wrong: PyTorch's program -> an IRModule
def for_any_batch(module, example):
    size = torch.export.Dim("size", min=1, max=64)
    several = tuple(torch.cat([each, each]) for each in example)
    return torch.export.export(module, several, dynamic_shapes=tuple({0: size} for _ in example))

# %% 11.1 wrong: a module of its own -> got: [[0.2559, 0.2556, 0.04651, 0.4056, -0.1209]]
def for_any_batch(module, example):
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, *inputs):
            return 2 * self.module(*inputs)
    several = tuple(torch.cat([each, each]) for each in example)
    size = torch.export.Dim("size", min=1, max=64)
    return from_exported_program(torch.export.export(Doubled(), several, dynamic_shapes=(tuple({0: size} for _ in example),)), unwrap_unit_return_tuple=True)

# %% 11.2 wrong: the node in place of its variable -> TypeError
def convert_amax(node, importer):
    return importer.block_builder.emit(relax.op.max(node.args[0]))

# %% 11.2 wrong: nothing returned -> a Relax variable
def convert_amax(node, importer):
    largest(node, importer)

# %% 11.2 right: minus the minimum of minus
def convert_amax(node, importer):
    args = list(node.args) + [[], False][len(node.args) - 1:]
    least = importer.block_builder.emit(relax.op.min(relax.op.negative(importer.env[args[0]]), axis=list(args[1]) or None, keepdims=args[2]))
    return importer.block_builder.emit(relax.op.negative(least))

# %% 11.3 wrong: logits alone -> three tensors
def one_more_letter(model, token, keys, values):
    return stepped_with(model, token, keys, values)[0]

# %% 11.3 wrong: the length is one number -> a function that torch.export takes
def one_more_letter(model, token, keys, values):
    past = int(torch.ones(keys.shape[3]).sum())
    return stepped_with(model, token, keys, values, place=lambda _: past)

# %% 11.3 wrong: a list of the caches -> three tensors
def one_more_letter(model, token, keys, values):
    logits, keys, values = stepped_with(model, token, keys, values)
    return logits, list(keys), list(values)

# %% 11.3 right: a list, and no gradients
def one_more_letter(model, token, keys, values):
    with torch.no_grad():
        return list(stepped_with(model, token, keys, values))

# %% 11.4 wrong: always four axes -> 02 00 00 00 in the bytes from 12, the field axes | 04 00 00 00
def dl_tensor(numbers, shape, axes, address, first):
    return laid_out(numbers, shape, 4, address, first)

# %% 11.4 wrong: on a GPU -> the field device.type
def dl_tensor(numbers, shape, axes, address, first):
    return laid_out(numbers, shape, axes, address, first, device=2)

# %% 11.4 wrong: eight bytes too many -> 48 bytes; dl_tensor(0x7f123456789abc40, 0x55d1aa22c3e8, 4, 8 | got: 56
def dl_tensor(numbers, shape, axes, address, first):
    return laid_out(numbers, shape, axes, address, first) + bytes(8)

# %% 11.4 wrong: noise in the gap -> the field padding; dl_tensor(0xc1d2e300, 0xa1b2f408, 2, 4 | 01 01 01 01
def dl_tensor(numbers, shape, axes, address, first):
    return laid_out(numbers, shape, axes, address, first, filling=b"\1")

# %% 11.4 wrong: a list of numbers -> bytes | list
def dl_tensor(numbers, shape, axes, address, first):
    return list(laid_out(numbers, shape, axes, address, first))

# %% 11.4 right: by ctypes
def dl_tensor(numbers, shape, axes, address, first):
    pointer = ctypes.c_uint64 if address == 8 else ctypes.c_uint32

    class Tensor(ctypes.Structure):
        _fields_ = [("data", pointer), ("device", ctypes.c_int32 * 2), ("axes", ctypes.c_int32), ("kind", ctypes.c_uint8 * 2),
                    ("lanes", ctypes.c_uint16), ("shape", pointer), ("strides", pointer), ("first", ctypes.c_uint64)]
    return bytes(Tensor(numbers, (1, 0), axes, (2, 32), 1, shape, 0, first))

# %% 11.5 wrong: outside of sblocks alone -> parallel loops: 1 | no parallel loop; relu 1
def for_the_browser(func):
    schedule = tvm.s_tir.Schedule(func)
    first = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    name = str(schedule.get(schedule.get_loops(first)[0]).loop_var.name)
    return without(func, lambda loop: loop.kind == tirx.ForKind.PARALLEL and loop.loop_var.name == name)

# %% 11.5 wrong: the text of it -> str | a PrimFunc as the result; dense
def for_the_browser(func):
    return func.script().replace("T.parallel(", "T.serial(")

# %% 11.5 wrong: one iteration less -> parallel loops serial: `for i_j_0_fused in range(24):` | range(23):
def for_the_browser(func):
    return tvm.script.from_source(re.sub(r"T\.parallel\((\d+)\)", lambda found: f"T.serial({int(found[1]) - 1})", func.script()))

# %% 11.5 right: a copy, loop by loop
def for_the_browser(func):
    return without(func)

# %% 11.2 wrong: sorted, with negative axes among the others -> your code to run
def convert_amax(node, importer):
    x, axes, keepdim = (*node.args, [], False)[:3] if len(node.args) == 1 else (*node.args, False)[:3]
    value = importer.env[x]
    for axis in sorted(axes or range(len(value.ty.shape)), reverse=True):
        value = importer.block_builder.emit(relax.op.max(value, axis, keepdim))
    return value

# %% 11.3 wrong: as many blocks as this model has -> input blocks: 1 | IndexError
def one_more_letter(model, token, keys, values):
    for number in range(gpt.LAYERS):
        keys[number]
    return stepped_with(model, token, keys, values)

# %% 11.3 wrong: of one text the axis is lost -> input texts: 1 | got: ValueError
def one_more_letter(model, token, keys, values):
    return stepped_with(model, token.squeeze()[..., None], keys, values)

# %% 11.5 wrong: without attributes -> parallel loops serial: `main(x, w, dense), s_tir: True, tirx.noalias: True` | got: (x, w, dense)
def for_the_browser(func):
    plain = without(func)
    return tirx.PrimFunc(plain.params, plain.body, plain.ret_type)

# %% 11.5 wrong: the word, wherever it is -> parallel loops serial: `main(parallel, T_softmax_norm) | main(serial,
def for_the_browser(func):
    return tvm.script.from_source(func.script().replace("parallel", "serial"))

# %% 11.1 wrong: the weights stay inputs -> parameters of main: 1; x: (n, 1, 6, 6) | got: 5
def for_any_batch(module, example):
    example, size = tuple(torch.cat([each, each]) for each in example), torch.export.Dim("size", min=1, max=64)
    program = torch.export.export(module.eval(), example, dynamic_shapes=tuple({0: size} for _ in example))
    return from_exported_program(program, keep_params_as_input=True, unwrap_unit_return_tuple=True)

# %% 11.1 wrong: the given weights are halved -> input program: x: (n, 1, 6, 6)
# size = torch => [each.data.mul_(0.5) for each in module.parameters()]; size = torch

# %% 11.3 wrong: a decision that depends on the numbers -> Could not guard on data-dependent expression | your line 14: past
# past, kept = keys.shape[3], [] => past, kept = keys.shape[3], [0] * (float(keys.sum()) > 1e30)

# %% 11.8 wrong: the result in the folder -> No such file or directory: 'y.npy' | the folder has model.so, run.py, y.npy; where it was called: received, rows, tokens, x.npy
# np.save(sys.argv[2], => np.save(str(Path(__file__).with_name(sys.argv[2])),

# %% 11.5 wrong: every loop from 0 -> from 2 | the given program, its parallel loops serial
def for_the_browser(func: tirx.PrimFunc) -> tirx.PrimFunc:
    def on_one_thread(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        return tirx.For(loop.loop_var, tirx.IntImm("int32", 0), loop.extent, tirx.ForKind.SERIAL, loop.body, annotations=loop.annotations)

    body = tvm_ffi.structural_map(func.body, (tirx.For, on_one_thread))
    return tirx.PrimFunc(func.params, body, func.ret_type, attrs=func.attrs)

# %% 11.7 wrong: the first and the last alone -> for znver4, haswell, skylake-avx512 | haswell has no
def for_all(processors: list[str]) -> tvm.target.Target:
    shared = features(processors[0]) & features(processors[-1])
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX,
                              "mattr": [f"+{name}" for name in sorted(shared)]})

# %% 11.6 wrong: the length of the sum is asked -> of 16 lanes | matmul4
def products_in_rows(mod):
    return in_rows(mod, names=lambda name: name in ("matmul", "matmul1"))

# %% 11.7 wrong: without a triple -> mtriple x86_64-linux-gnu | this machine's, which your function passed to no Target
def for_all(processors):
    shared = set.intersection(*map(features, processors))
    return tvm.target.Target({"kind": "llvm", "mattr": [f"+{name}" for name in sorted(shared)]})

# %% 11.8 wrong: axes of one are dropped -> (3, 1, 5) | (3, 5)
# result.numpy() => result.numpy().squeeze()

# %% 11.5 wrong: noalias is the only attribute -> serial: `main( | s_tir: True` | tirx.noalias: True
# return func.with_body(tvm_ffi => body = (tvm_ffi
# on_one_thread))) => on_one_thread))); return tirx.PrimFunc(func.params, body, func.ret_type).with_attr("tirx.noalias", True)

# %% 11.5 wrong: annotations of what was parallel are lost -> parallel loops serial: | pragma_unroll_explicit
# annotations=loop.annotations => annotations={}

# %% 11.5 wrong: only plain numbers in the text -> no parallel loop; relu 2 | parallel loops: 1 | in T.parallel(5, annotations
def for_the_browser(func):
    return tvm.script.from_source(re.sub(r"T\.parallel\((\d+)\)", r"range(\1)", func.script()))

# %% 11.1 wrong: a tuple with the tensor in it -> main to return a tensor; x: (n, 1, 6, 6) | Tuple(R.Tensor((
# return imported(module, several, tuple( => return from_exported_program(torch.export.export(module.eval(), several, dynamic_shapes=tuple(
# {0: size} for _ in example)) => {0: size} for _ in example)))

# %% 11.1 wrong: one tensor for inputs of one shape -> main to use each of its inputs; x: (n, 8) | got: x is never used
# several = tuple(torch.cat([each, each]) for each in example) => by_shape = {each.shape: torch.cat([each, each]) for each in example}; several = tuple(by_shape[each.shape] for each in example)

# %% 11.2 wrong: an expression that is not emitted -> a Relax variable; amax(x) | got: Call
# return importer.block_builder.emit( => return (

# %% 11.2 wrong: always in float32 -> expected: int64 | got: float32
# importer.env[value] => relax.op.astype(importer.env[value], "float32")

# %% 11.5 wrong: a loop of one stays -> no parallel loop; nested | parallel loops: 1 | in T.parallel(1)
# if loop.kind != tirx.ForKind.PARALLEL: => if loop.kind != tirx.ForKind.PARALLEL or isinstance(loop.extent, tirx.IntImm) and int(loop.extent) == 1:

# %% 11.5 wrong: called main from now on -> parallel loops serial: `nested(x, y), s_tir: True` | got: main(x, y), s_tir: True
# on_one_thread))) => on_one_thread))).with_attr("global_symbol", "main")

# %% 11.5 wrong: the outer one of nested loops -> no parallel loop; nested | parallel loops: 1 | in T.parallel(0, 10, step=5)
def for_the_browser(func):
    lines, inside = [], None
    for line in func.script().splitlines():
        depth = len(line) - len(line.lstrip())
        if inside is not None and line.strip() and depth <= inside:
            inside = None
        if inside is None and " in T.parallel(" in line:
            line, inside = line.replace(" in T.parallel(", " in T.serial("), depth
        lines.append(line)
    return tvm.script.from_source("\n".join(lines))

# %% 11.6 wrong: always three loops -> your code to run | too many values to unpack (expected 3)
# *_batch, column, over = schedule => _row, column, over = schedule

# %% 11.6 wrong: rows and columns fused -> lanes of matmul1 that are neighbours in matmul | steps in matmul of [(0, 1), (1, -94)], with
# *_batch, column, over = schedule => *_batch, row, column, over = schedule
# schedule.split(column, [None, 16]) => schedule.split(schedule.fuse(row, column), [None, 16])
# schedule.reorder(over, column, lanes) => schedule.reorder(column, over, lanes)

# %% 11.7 wrong: the first is forgotten -> your code to run; for nehalem | TypeError
# set.intersection(*map(features, processors)) => set.intersection(*map(features, processors[1:]))

# %% 11.8 wrong: an older result stays -> expected, tokens/x.npy: int64 (5,), the result over an older file | int64 [7, 0, 3, 8, 3]
# np.save(sys.argv[2], result.numpy()) => Path(sys.argv[2]).exists() or np.save(sys.argv[2], result.numpy())

# %% 11.1 wrong: a list of numbers has no batch -> x
# {0: size} for _ in example => {0: size} if each.ndim > 1 else {} for each in example

# %% 11.6 wrong: a name and a number -> matmul_rows
# if variable.name_hint.startswith("matmul")] => if re.fullmatch(r"matmul\d*", variable.name_hint)]

# %% 11.8 wrong: the names of the example -> a result in rows/y.npy after | No such file or directory: 'x.npy'
# np.load(sys.argv[1]) => np.load("x.npy")
# np.save(sys.argv[2], => np.save("y.npy",

# %% 11.8 wrong: the library beside the folder -> a result in y.npy after | cannot find file
# export_library(folder / "model.so" => export_library(folder.parent / "model.so"
# Path(__file__).with_name("model.so") => Path(__file__).resolve().parents[1] / "model.so"

# %% 11.8 wrong: names without their folders -> a result in rows/y.npy after | No such file or directory: 'x.npy'
# np.load(sys.argv[1]) => np.load(Path(sys.argv[1]).name)
# np.save(sys.argv[2], => np.save(Path(sys.argv[2]).name,

# %% 11.8 wrong: the folder's path written into run.py -> /.../sent/model.so
def ship(mod: tvm.IRModule, target: tvm.target.Target, folder: Path) -> None:
    """Fill a folder that runs a module: python run.py x.npy y.npy."""
    library = (Path(folder) / "model.so").resolve()
    with helpers.quiet():
        executable = relax.build(mod, target)
    executable.export_library(str(library), fcompile=native.linker())
    (folder / "run.py").write_text(inspect.cleandoc(f"""
        import sys

        import numpy as np
        import tvm
        from tvm.runtime.vm import VirtualMachine

        machine = VirtualMachine(tvm.runtime.load_module({str(library)!r}), tvm.cpu())
        x = tvm.runtime.tensor(np.load(sys.argv[1]))
        np.save(sys.argv[2], machine["main"](x).numpy())
    """))

# %% 11.1 right: a size that torch declares from 2 on, and that runs for 1
# torch.export.Dim("size", min=1, max=64) => torch.export.Dim.DYNAMIC(max=64)

# %% 11.3 wrong: the new letter in front of the cache -> keys and values stand before the older ones
def one_more_letter(model: gpt.GPT, token: torch.Tensor, keys: torch.Tensor,
                    values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the logits for one more letter, and the keys and values with it."""
    past = keys.shape[3]
    x = model.token(token) + model.place(torch.arange(past, past + 1))
    new_keys, new_values = [], []
    for number, block in enumerate(model.blocks):
        query, key, value = block.heads(x)
        key = torch.cat([key, keys[number]], 2)
        value = torch.cat([value, values[number]], 2)
        new_keys.append(key)
        new_values.append(value)
        attended = nn.functional.scaled_dot_product_attention(query, key, value)
        x = block.rest(x, attended)
    return model.head(model.norm(x)), torch.stack(new_keys), torch.stack(new_values)

# %% 11.8 wrong: an archive of object files -> without other programs | 'tar'
def ship(mod: tvm.IRModule, target: tvm.target.Target, folder: Path) -> None:
    """Fill a folder that runs a module: python run.py x.npy y.npy."""
    with helpers.quiet():
        executable = relax.build(mod, target)
    executable.export_library(str(folder / "model.tar"))
    (folder / "run.py").write_text(inspect.cleandoc("""
        import sys
        from pathlib import Path

        import numpy as np
        import tvm
        from tvm.runtime.vm import VirtualMachine

        library = tvm.runtime.load_module(str(Path(__file__).with_name("model.tar")))
        machine = VirtualMachine(library, tvm.cpu())
        y = machine["main"](tvm.runtime.tensor(np.load(sys.argv[1])))
        np.save(sys.argv[2], y.numpy())
    """))

# %% 11.2 wrong: keep the axes, then squeeze them all -> (2, 1, 4) | (2, 4)
def convert_amax(node: torch.fx.Node, importer) -> relax.Var:
    """Import torch.amax: (x), (x, dim) or (x, dim, keepdim)."""
    value = importer.env[node.args[0]]
    dim = list(node.args[1]) if len(node.args) > 1 and node.args[1] else None
    result = relax.op.max(value, dim, keepdims=True)
    if len(node.args) < 3 or not node.args[2]:
        result = relax.op.squeeze(result)
    return importer.block_builder.emit(result)

# %% 11.6 wrong: no more lanes than columns -> of 16 lanes | i1_1: 10 vectorized
# [None, 16] => [None, min(16, int(schedule.get(column).extent))]

# %% 11.8 wrong: a link to the library -> model.so is a link that leads to no file in the folder
def ship(mod: tvm.IRModule, target: tvm.target.Target, folder: Path) -> None:
    """Fill a folder that runs a module: python run.py x.npy y.npy."""
    library = Path.cwd() / f"shipped_{folder.name}.so"
    with helpers.quiet():
        relax.build(mod, target).export_library(str(library), fcompile=native.linker())
    (folder / "model.so").symlink_to(library.resolve())
    (folder / "run.py").write_text(inspect.cleandoc("""
        import sys
        from pathlib import Path

        import numpy as np
        import tvm
        from tvm.runtime.vm import VirtualMachine

        library = tvm.runtime.load_module(str(Path(__file__).with_name("model.so")))
        machine = VirtualMachine(library, tvm.cpu())
        result = machine["main"](tvm.runtime.tensor(np.load(sys.argv[1])))
        np.save(sys.argv[2], result.numpy())
    """))

# %% 11.2 wrong: int64 by way of int32 -> amax((10**16 + 1) * x.long(), [1])
def convert_amax(node, importer):
    x, bb = importer.env[node.args[0]], importer.block_builder
    if "int64" not in str(x.ty.dtype):
        return largest(node, importer)
    small = bb.emit(relax.op.max(bb.emit(relax.op.astype(x, "int32")), list(node.args[1])))
    return bb.emit(relax.op.astype(small, "int64"))

# %% 11.2 wrong: of three axes a shape that does not fit -> a module that runs; 14 calls in one main | match_cast error
def convert_amax(node, importer):
    x, bb = largest(node, importer), importer.block_builder
    if not node.args[2:] or len(node.args[1]) != 3:
        return x
    hidden = bb.emit(relax.op.call_pure_packed("vm.builtin.copy", x, ty_args=[relax.TensorType(ndim=3, dtype="float32")]))
    return bb.match_cast(hidden, relax.TensorType((2, 2, 2), "float32"))

# %% 11.3 wrong: the caches as lists -> three tensors: logits, keys, values | got: Tensor, list, list
# (torch.stack(each) for => (list(each) for

# %% 11.5 wrong: the two kinds exchanged -> no parallel loop; dense | got: parallel loops: 4
# loop.kind != tirx.ForKind.PARALLEL => loop.kind == tirx.ForKind.PARALLEL
# tirx.ForKind.SERIAL => tirx.ForKind.PARALLEL

# %% 11.6 wrong: a sum in two parts, the second without lanes -> around block matmul_update of matmul, of 16 lanes | got: k_0: 2
def products_in_rows(mod):
    s = tvm.s_tir.Schedule(in_rows(mod, names=lambda name: name not in ("main", "matmul") and name.startswith("matmul")))
    block = s.get_sblock("matmul", func_name="matmul")
    part = s.rfactor(s.split(s.get_loops(block)[-1], [2, None])[0], 0)
    *_rows, column, two, over = s.get_loops(part)
    outer, inner = s.split(column, [None, 16])
    s.reorder(two, over, outer, inner)
    s.vectorize(inner)
    s.decompose_reduction(part, over)
    s.decompose_reduction(block, s.get_loops(block)[-1])
    return s.mod

# %% 11.7 right: one target for all fleets that share the same, which is kept
kept = {}


def for_all(processors):
    shared = frozenset.intersection(*(frozenset(features(one)) & set(SETS) for one in processors))
    if shared not in kept:
        kept[shared] = tvm.target.Target({"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mattr": [f"+{name}" for name in shared]})
    return kept[shared]

# %% 11.8 wrong: two names for the library, by a link with the whole path -> model.so is a link that leads to no file in the folder, now that it was moved
# "model.so", fcompile=native.linker()) => "model-1.0.so", fcompile=native.linker()); (folder / "model.so").symlink_to(folder / "model-1.0.so")

# %% 11.8 wrong: a second try, with a slip -> line 10 of run.py: from tvm.runtime.vm import VirtualMachin | got: ImportError: cannot import name
def ship(mod, target, folder):
    sent(mod, target, folder, "from tvm.runtime.vm import VirtualMachine\n", "try:\n    from tvm import relax\nexcept Exception:\n    from tvm.runtime.vm import VirtualMachin\n")

# %% 11.8 wrong: an error with a note -> line 8 of run.py: from tvm import relax | has no attribute
def ship(mod, target, folder):
    sent(mod, target, folder, "from tvm.runtime.vm import VirtualMachine\n", "try:\n    from tvm import relax\nexcept Exception as error:\n    error.add_note('it needs the compiler')\n    raise\n")

# %% 11.7 wrong: looks for the names in a text -> for bdver1 | popcnt, avx, fma
def for_all(processors: list[str]) -> tvm.target.Target:
    texts = [" ".join(sorted(features(processor))) for processor in processors]
    shared = [name for name in SETS if all(name in text for text in texts)]
    return tvm.target.Target({"kind": "llvm", "mtriple": LINUX,
                              "mattr": [f"+{name}" for name in shared]})

# %% 11.3 wrong: the attention by hand, divided by the root of the width -> input past: | input result: logits
def one_more_letter(model: gpt.GPT, token: torch.Tensor, keys: torch.Tensor,
                    values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    def attend(query, key, value):
        weights = query @ key.transpose(-2, -1) / gpt.WIDTH ** 0.5
        return torch.softmax(weights, dim=-1) @ value

    past = keys.shape[-2]
    x = model.token(token) + model.place(torch.arange(past, past + 1))
    new = []
    for block, old_key, old_value in zip(model.blocks, keys, values, strict=True):
        query, key, value = block.heads(x)
        key, value = torch.cat([old_key, key], 2), torch.cat([old_value, value], 2)
        new.append((key, value))
        x = block.rest(x, attend(query, key, value))
    return (model.head(model.norm(x)), torch.stack([key for key, _ in new]),
            torch.stack([value for _, value in new]))
