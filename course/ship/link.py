"""Link ship/cnn.wasm again: the module of the site's page "Draw a garment".

    python -m course.ship.link    needs ziglang (pip install ziglang), or clang with wasm-ld

A test says when this is needed: after a change of the kernel or of shim.c.
"""

import sys
import tempfile
from pathlib import Path

import helpers
from course.ship import kernel, native, wasm
from data.store import CourseError


def main() -> None:
    cnn, _packed = kernel.cnn(helpers.load_weights("cnn"), kernel.BROWSER)
    with tempfile.TemporaryDirectory() as folder:
        kernel.write(cnn, kernel.BROWSER, Path(folder))
        native.run(wasm.command(Path(folder)))
        wasm.MODULE.write_bytes(Path(folder, "cnn.wasm").read_bytes())
    wasm.SOURCE.write_text(f"{wasm.source(cnn)}\n", encoding="utf-8")
    print(f"{wasm.MODULE.name}: {wasm.MODULE.stat().st_size:,} B")


if __name__ == "__main__":
    try:
        main()
    except CourseError as error:
        sys.exit(str(error))
