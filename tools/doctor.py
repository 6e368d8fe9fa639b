"""Say what is wrong with this machine's set-up, one line a thing, with the fix: `make doctor`.

Works where nothing else does: it imports only the standard library, and tries everything else in
a process of its own, so that a crash is a line too. Exit status 1 if any line says FAIL.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

from data.versions import FIX, line, package, pins

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ((3, 11), (3, 12), (3, 13))


def python_version() -> tuple[bool, str]:
    """The Python that runs the course."""
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info[:2] in PYTHONS:
        return line(True, "Python", found)
    return line(False, "Python", f"{found} does not fit",
                "install Python 3.11, 3.12 or 3.13, then `make lab PYTHON=python3.12`")


def machine() -> tuple[bool, str]:
    """The platform: there are TVM wheels for some only."""
    system, chip = platform.system(), platform.machine()
    if system == "Darwin" and chip == "x86_64":
        return line(False, "platform",
                    "macOS on an Intel processor, apache-tvm has no wheel for it",
                    "use another machine, or Linux in a virtual machine")
    if system == "Windows":
        return line(False, "platform", "Windows", "use WSL2 (a Linux in Windows) and type the "
                    "commands there")
    return line(True, "platform", f"{system} {chip}, {os.cpu_count()} processors")


def environment() -> tuple[bool, str]:
    """Whether this is the course's own environment."""
    if Path(sys.prefix).resolve() == (ROOT / ".venv").resolve():
        return line(True, "environment", ".venv")
    if list((ROOT / ".venv").glob(".ready-*")) and not (ROOT / ".venv/bin/python").exists():
        return line(False, "environment", ".venv has no Python that runs (was the one that made it "
                    "removed?)", "delete it, `rm -r .venv`, then run `make lab`")
    return line(False, "environment", f"is not the course's own .venv but {sys.prefix}",
                "run `make lab`, which makes it")


COMPILE = """
import numpy as np, tvm
from tvm import te
a = te.placeholder((8,), name="a")
func = te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1.0, name="b")])
out = tvm.runtime.tensor(np.full(8, np.nan, "float32"))
tvm.compile(func, target="llvm")(tvm.runtime.tensor(np.zeros(8, "float32")), out)
assert (out.numpy() == 1).all(), "wrong numbers"
print("compiles and runs a PrimFunc for", tvm.target.Target("llvm").kind.name, "with",
      tvm.runtime.num_threads(), "threads")
"""
TORCH = """
import sys, torch
from data import versions
versions.allow_torchvision()
import torchvision
torchvision.datasets.FashionMNIST
cuda = torch.version.cuda
print(torch.__version__, "and torchvision", torchvision.__version__, "import;",
      f"the build for CUDA {cuda} (to save several GB: delete .venv, `make lab`)" if cuda else
      "the CPU build" + " (`make lab GPU=1`: the CUDA build)" * (sys.platform == "linux"))
"""
HTML = """
import nbformat.v4 as v4
from nbconvert import HTMLExporter
cells = [v4.new_markdown_cell("# A heading"), v4.new_code_cell("1 + 1")]
page, _ = HTMLExporter().from_notebook_node(v4.new_notebook(cells=cells))
assert "A heading</h1>" in page.replace('<a class="anchor-link" href="#A-heading">¶</a>', "")
print("export works: `make run` can write pages")
"""
DATA = """
import os
from data import store
if not os.environ.get("MLC_DATA") and store.missing(store.DATA):
    os.environ["MLC_DATA"] = "data/stand_in"  # no download from here
for model in store.WEIGHTS:
    store.load_weights(model)
count, where = len(store.test_images(None)[0]), store.data_folder()
if store.is_real():
    print(f"are the published weights and {count:,} images of Fashion-MNIST, in {where}"
          + ("" if count == 10_000 else " (a part of the 10,000 is fine)"))
elif store.is_stand_in():
    print("are the stand-in, drawn garments: `make data` gets the real ones")
else:
    print(f"in {where}: {store.data_line().removeprefix('Data: ')}")
"""


def attempt(thing: str, code: str, fix: str) -> tuple[bool, str]:
    """Run some code in a process of its own; its printed line, or the last line of its error."""
    threads = {"TVM_NUM_THREADS": str(os.cpu_count())}
    try:
        result = subprocess.run([sys.executable, "-c", code], timeout=120,
                                capture_output=True, text=True, check=False, cwd=ROOT,
                                env={**threads, **os.environ})
    except subprocess.TimeoutExpired:
        return line(False, thing, "does not answer within two minutes", fix)
    if result.returncode < 0:
        return line(False, thing, f"crashes (signal {-result.returncode})", fix)
    if result.returncode == 0:
        return line(True, thing, result.stdout.strip().splitlines()[-1])
    text = result.stderr.strip()
    if "CourseError: " in text:  # written for the reader, with what to try
        return line(False, thing, " ".join(text.rpartition("CourseError: ")[2].split()))
    return line(False, thing, text.splitlines()[-1] if text else "says nothing", fix)


def data() -> tuple[bool, str]:
    """The images and weights: where they are, and whether they are what they should be."""
    return attempt("data", DATA, "see data/README.md")


def main() -> int:
    """Print the report and return the exit status."""
    report = [python_version(), machine(), environment(),
              *(package(name, wanted) for name, wanted in pins().items())]
    print("\n".join(text for _, text in report))
    last = [lambda: attempt("TVM", COMPILE, FIX), lambda: attempt("torch", TORCH, FIX),
            lambda: attempt("HTML", HTML, FIX), data]
    for check in last:
        report.append(check())
        print(report[-1][1], flush=True)
    bad = sum(not good for good, _ in report)
    print(f"\n{bad} of {len(report)} things are wrong: begin with the first FAIL." if bad
          else f"\nAll {len(report)} things are as they should be.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
