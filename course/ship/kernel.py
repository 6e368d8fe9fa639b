"""The packed CNN of notebook 07 as an object file, and what shim.c has to know about it.

It has one thread: a thread pool would be TVM's runtime, and a browser gives a page one.
"""

import math
from pathlib import Path

import numpy as np
import tvm
from tvm import tirx

from course import kernels

SHIM = Path(__file__).with_name("shim.c")
BROWSER = tvm.target.Target({"kind": "llvm", "mtriple": "wasm32-unknown-unknown-wasm",
                             "mattr": ["+simd128"], "vector-width": 128})


def cnn(weights: dict[str, np.ndarray], target: tvm.target.Target, threads: int = 1
        ) -> tuple[tirx.PrimFunc, np.ndarray]:
    """Return the CNN for one image, and its weights, packed, as one float32 array.

    `weights`: helpers.load_weights("cnn"). The PrimFunc takes the image (1, 1, 28, 28), the
    weights in their order, and the probabilities (1, 10), which it fills. For one thread it has
    no parallel loop.
    """
    model = kernels.packed_model(weights, 1, target, threads, regions=3)
    parts, _, _, width = map(int, model["cnn"].params[3].shape)
    packed = kernels.pack(weights, width, parts)
    return model["cnn"], np.concatenate([array.ravel() for array in packed])


def layout(func: tirx.PrimFunc) -> str:
    """Return layout.h for a PrimFunc like cnn's: image, weights, probabilities."""
    shapes = [[int(extent) for extent in param.shape] for param in func.params]
    return "\n".join([
        f"#define TENSORS {len(shapes)}",
        f"#define NUMBERS {sum(map(math.prod, shapes[1:-1]))}",
        f"#define AXES {{{', '.join(str(len(shape)) for shape in shapes)}}}",
        f"#define SHAPES {{{',  '.join(', '.join(map(str, shape)) for shape in shapes)}}}\n"])


def write(func: tirx.PrimFunc, target: tvm.target.Target, folder: Path) -> Path:
    """Compile a PrimFunc like cnn's into `folder`: cnn.o, which is returned, and layout.h."""
    compiled = tvm.compile(func.with_attr("global_symbol", "cnn"), target=target)
    place = folder / "cnn.o"
    compiled.mod.write_to_file(str(place), "o")
    (folder / "layout.h").write_text(layout(func), encoding="utf-8")
    return place
