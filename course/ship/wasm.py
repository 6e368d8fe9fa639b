"""The CNN as a WebAssembly module: linked with shim.c, and run in Node.

    python -m course.ship.wasm    links cnn.wasm again; needs ziglang (pip install ziglang), or
                                  clang with wasm-ld
"""

import hashlib
import sys
import tempfile
from pathlib import Path

import numpy as np
from tvm import tirx

import helpers
from course import present
from course.ship.kernel import BROWSER, SHIM, cnn, layout, write
from course.ship.native import run
from data.store import CourseError

EXPORTS = ("run", "image_at", "weights_at", "probabilities_at", "numbers")
MODULE = SHIM.with_name("cnn.wasm")  # linked in advance by `python -m course.ship.wasm`
SOURCE = SHIM.with_name("cnn.wasm.sha256")  # of what it was made of


def linker() -> bool:
    """Return whether something here links for WebAssembly; print a line if not."""
    return bool(present.need("wasm"))


def command(folder: Path) -> list[str]:
    """Return the command that links `folder`/cnn.o and the shim to `folder`/cnn.wasm.

    Raises CourseError if nothing links for WebAssembly. kernel.write wrote layout.h there.
    """
    found = present.tool("wasm")
    if not found:
        raise CourseError(found.said)
    return [*found.command, "-O2", "-msimd128", "-ffreestanding", "-nostdlib", f"-I{folder}",
            str(SHIM), str(folder / "cnn.o"), "-Wl,--no-entry", "-Wl,--strip-all",
            *(f"-Wl,--export={name}" for name in EXPORTS), "-o", str(folder / "cnn.wasm")]


def source(func: tirx.PrimFunc) -> str:
    """Return the SHA-256 of everything that the module of a PrimFunc is made of."""
    parts = (SHIM.read_text(encoding="utf-8"), layout(func), func.script())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


_NODE = """
const fs = require("fs"), [, folder] = process.argv;
const bytes = (name) => new Uint8Array(fs.readFileSync(`${folder}/${name}`));
const floats = (name) => new Float32Array(bytes(name).buffer);
WebAssembly.instantiate(bytes("cnn.wasm"), {}).then(({ instance }) => {
  const x = instance.exports, images = floats("images.bin"), weights = floats("weights.bin");
  if (x.numbers() !== weights.length) throw new Error("not the numbers of this model");
  const at = (place, count) => new Float32Array(x.memory.buffer, place, count);
  at(x.weights_at(), weights.length).set(weights);
  const count = images.length / 784, out = new Float32Array(10 * count), start = performance.now();
  for (let i = 0; i < count; ++i) {
    at(x.image_at(), 784).set(images.subarray(784 * i, 784 * (i + 1)));
    if (x.run()) throw new Error("the kernel refuses");
    out.set(at(x.probabilities_at(), 10), 10 * i);
  }
  console.log((1000 * (performance.now() - start) / count).toFixed(1));
  fs.writeFileSync(`${folder}/probabilities.bin`, new Uint8Array(out.buffer));
});
"""


def in_node(folder: Path) -> tuple[np.ndarray, float] | None:
    """Run `folder`/cnn.wasm in Node on images.bin with weights.bin, both float32, there.

    Return the probabilities (images, 10), and the microseconds for each image. Without Node, print
    a line that says what is missing and return None. Raises CourseError if the module refuses.
    """
    node = present.need("node").command
    if not node:
        return None
    said, _told = run([*node, "-e", _NODE, str(folder)])
    try:
        came = np.fromfile(folder / "probabilities.bin", "float32")
        return came.reshape(-1, 10), float(said)
    except (OSError, ValueError):
        raise CourseError(present.NOTHING.format(program="node")) from None


def main() -> None:
    """Link the module of the site's page again; a test says so after a change of its source."""
    func, _packed = cnn(helpers.load_weights("cnn"), BROWSER)
    with tempfile.TemporaryDirectory() as folder:
        write(func, BROWSER, Path(folder))
        run(command(Path(folder)))
        MODULE.write_bytes(Path(folder, "cnn.wasm").read_bytes())
    SOURCE.write_text(f"{source(func)}\n", encoding="utf-8")
    print(f"{MODULE.name}: {MODULE.stat().st_size:,} B")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
