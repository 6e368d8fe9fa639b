"""Check this machine's setup, one line per item, and say how to fix it: `make doctor`.

It works where nothing else does: it imports only the standard library. Everything else is tried in
a second process, because TVM and torch take seconds to import; if that crashes, a line says so and
the rest is tried in another. Exit status 1 if any line says FAIL.
"""

import gc
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from course import present
from course.words import CourseError, _, language
from data.versions import FIX, PYTHONS, line, package, pins

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0  # seconds for a check


def python_version() -> tuple[bool, str]:
    """The Python that runs the course."""
    found = f"{platform.python_version()} ({sys.executable})"
    if "{}.{}".format(*sys.version_info) in PYTHONS:
        return line(True, "Python", found)
    return line(False, "Python", _("{found} does not fit").format(found=found),
                _("install Python {first} to {last}, then `make lab PYTHON=python{first}`").format(
                    first=PYTHONS[0], last=PYTHONS[-1]))


def machine() -> tuple[bool, str]:
    """The platform: only some have TVM wheels."""
    system, chip = platform.system(), platform.machine()
    if system == "Darwin" and chip == "x86_64":
        return line(False, _("platform"),
                    _("macOS on an Intel processor, apache-tvm has no wheel for it"),
                    _("use another machine, or Linux in a virtual machine"))
    if system == "Windows":
        return line(False, _("platform"), "Windows",
                    _("use WSL2 (a Linux in Windows) and type the commands there"))
    return line(True, _("platform"), _("{system}, {count} processors").format(
        system=f"{system} {chip}", count=os.cpu_count()))


def environment() -> tuple[bool, str]:
    """Whether this is the course's environment."""
    if Path(sys.prefix).resolve() == (ROOT / ".venv").resolve():
        return line(True, _("environment"), ".venv")
    if list((ROOT / ".venv").glob(".ready-*")) and not (ROOT / ".venv/bin/python").exists():
        return line(False, _("environment"),
                    _(".venv has no Python that runs (was the one that made it removed?)"),
                    _("delete it, `rm -r .venv`, then run `make lab`"))
    return line(False, _("environment"), _("is not the course's own .venv but {place}").format(
        place=sys.prefix), _("run `make lab`, which makes it") if find_spec("ensurepip") else
        _("on Debian and Ubuntu `sudo apt install python3-venv`, then `make lab`, which makes it"))


# these are tried in the other process, and return what their lines say


def compiles() -> str:
    """Compile a PrimFunc and run it."""
    import numpy as np
    import tvm
    from tvm import te
    a = te.placeholder((8,), name="a")
    func = te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1.0, name="b")])
    out = tvm.runtime.tensor(np.full(8, np.nan, "float32"))
    tvm.compile(func, target="llvm")(tvm.runtime.tensor(np.zeros(8, "float32")), out)
    assert (out.numpy() == 1).all(), "wrong numbers"
    return _("compiles and runs a PrimFunc for {target} with {count} threads").format(
        target=tvm.target.Target("llvm").kind.name, count=tvm.runtime.num_threads())


def torch_imports() -> str:
    """Import torch and torchvision."""
    import torch

    from data import versions
    versions.allow_torchvision()
    import torchvision
    assert torchvision.datasets.FashionMNIST
    cuda = torch.version.cuda
    build = _("the build for CUDA {cuda} (to save several GB: delete .venv, `make lab`)").format(
        cuda=cuda) if cuda else _("the CPU build (`make lab GPU=1`: the CUDA build)") \
        if sys.platform == "linux" else _("the CPU build")
    return _("{torch} and torchvision {vision} import; {build}").format(
        torch=torch.__version__, vision=torchvision.__version__, build=build)


def exports() -> str:
    """Write a small notebook as HTML."""
    import nbformat.v4 as v4
    from nbconvert import HTMLExporter
    cells = [v4.new_markdown_cell("# A heading"), v4.new_code_cell("1 + 1")]
    page = HTMLExporter().from_notebook_node(v4.new_notebook(cells=cells))[0]
    assert "A heading</h1>" in page.replace('<a class="anchor-link" href="#A-heading">¶</a>', "")
    return _("export works: `make run` can write pages")


def reads_data() -> str:
    """Read the images and weights."""
    from data import store
    if not os.environ.get("MLC_DATA") and store.missing(store.DATA):
        os.environ["MLC_DATA"] = "data/stand_in"  # no download from here
    for model in store.WEIGHTS:
        store.load_weights(model)
    count, where = len(store.test_images(None)[0]), store.data_folder()
    if store.is_real():
        found = (_("are the published weights and {count} images of Fashion-MNIST, in {folder}")
                 if count == 10_000 else
                 _("are the published weights and {count} images of Fashion-MNIST, in {folder} "
                   "(a part of the 10,000 is fine)"))
        return found.format(count=f"{count:,}", folder=where)
    if store.is_stand_in():
        return _("are the stand-in, drawn garments: `make data` gets the real ones")
    return _("in {folder}: {line}").format(
        folder=where, line=re.split("[:：] ?", store.data_line(), maxsplit=1)[1])


def writes_chinese() -> str:
    """Find a font for the Chinese words in pictures."""
    from course.plots.figure import chinese_font
    return _("for pictures: {font}").format(font=chinese_font()) if chinese_font() else _(
        "has no Chinese letters, so pictures are in English: install one, on Debian and Ubuntu "
        "`sudo apt install fonts-noto-cjk`, then restart the kernel")


Check = tuple[str, Callable[[], str], str]  # the item, what tries it, how to fix it


def answer(*names: str) -> None:
    """Try checks of this module, in the other process; print whether each passed, and a text."""
    gc.disable()  # imports make no garbage
    answers, sys.stdout = sys.stdout, sys.stderr
    for name in names:
        try:
            said = ["good", globals()[name]()]
        except CourseError as error:  # written for the reader, with what to try
            said = ["told", " ".join(str(error).split())]
        except Exception as error:
            last = traceback.format_exception_only(error)[-1].strip().splitlines()[-1]
            said = ["bad", last]
        print(json.dumps(said), file=answers, flush=True)
    os._exit(0)  # Python would look through all of torch before it ends


def attempts(checks: Iterable[Check]) -> Iterator[tuple[bool, str]]:
    """Try checks in a separate process, and in another what a crash or a hang left untried."""
    left = list(checks)
    while left:
        names = ", ".join(repr(check.__name__) for _thing, check, _fix in left)
        with tempfile.TemporaryFile("w+") as errors, subprocess.Popen(
                [sys.executable, "-c", f"from tools import doctor; doctor.answer({names})"],
                stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
                env={"TVM_NUM_THREADS": str(os.cpu_count()), **os.environ}) as process:
            assert process.stdout
            for thing, _check, fix in [*left]:
                del left[0]
                timer = threading.Timer(PATIENCE, process.kill)
                timer.start()
                text = next((text for text in process.stdout if text.startswith('["')), "")
                late = timer.finished.is_set()
                timer.cancel()
                if not text:
                    errors.seek(0)
                    yield line(False, thing, _("does not answer within two minutes") if late
                               else _ended(process.wait(), errors.read()), fix)
                    break
                how, said = json.loads(text)
                yield line(how == "good", thing, said, fix if how == "bad" else "")


def _ended(status: int, errors: str) -> str:
    """Say how a process without an answer ended."""
    if status < 0:
        return _("crashes (signal {number})").format(number=-status)
    return (errors.strip().splitlines() or [_("says nothing")])[-1]


def used(kind: str) -> str:
    """Return a line about an optional tool: whether it works here, and what it is for."""
    known, found = present.KNOWN[kind], present.tool(kind)
    said = found.said or known.thing
    program = present.name(found.command) if found else ""
    if program not in ("", Path(sys.executable).name, said.lower()):
        said = _("{thing} {says}").format(thing=known.thing, says=program)
    return f"{'yes ' if found else 'no  '} " + _("{use}. {said}").format(use=known.use, said=said)


def main() -> int:
    """Print the report and return the exit status."""
    report = [python_version(), machine(), environment(),
              *(package(name, wanted) for name, wanted in pins().items())]
    print("\n".join(text for _, text in report))
    print(_("Trying these takes some seconds, the first time up to a minute:"),
          flush=True)
    checks: list[Check] = [("TVM", compiles, FIX), ("torch", torch_imports, FIX),
                           ("HTML", exports, FIX), (_("data"), reads_data, _("see data/README.md"))]
    if language() == "zh":
        checks.append((_("font"), writes_chinese, FIX))
    for came in attempts(checks):
        report.append(came)
        print(came[1], flush=True)
    print(_("Optional tools, which the course uses if they work here:"))
    for kind in present.KNOWN:
        print(used(kind), flush=True)
    bad = sum(not good for good, _ in report)
    said = _("\n{bad} of {count} checks failed: start with the first FAIL.") if bad \
        else _("\nAll {count} checks passed.")
    print(said.format(bad=bad, count=len(report)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
