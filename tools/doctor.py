"""Say what is wrong with this machine's set-up, one line a thing, with the fix: `make doctor`.

Works where nothing else does: it imports only the standard library, and tries everything else in
a process of its own, so that a crash is a line too. Exit status 1 if any line says FAIL.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from course import present
from course.words import _, language
from data.versions import FIX, PYTHONS, line, package, pins

ROOT = Path(__file__).resolve().parent.parent


def python_version() -> tuple[bool, str]:
    """The Python that runs the course."""
    found = f"{platform.python_version()} ({sys.executable})"
    if "{}.{}".format(*sys.version_info) in PYTHONS:
        return line(True, "Python", found)
    return line(False, "Python", _("{found} does not fit").format(found=found),
                _("install Python {first} to {last}, then `make lab PYTHON=python{first}`").format(
                    first=PYTHONS[0], last=PYTHONS[-1]))


def machine() -> tuple[bool, str]:
    """The platform: there are TVM wheels for some only."""
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
    """Whether this is the course's own environment."""
    if Path(sys.prefix).resolve() == (ROOT / ".venv").resolve():
        return line(True, _("environment"), ".venv")
    if list((ROOT / ".venv").glob(".ready-*")) and not (ROOT / ".venv/bin/python").exists():
        return line(False, _("environment"),
                    _(".venv has no Python that runs (was the one that made it removed?)"),
                    _("delete it, `rm -r .venv`, then run `make lab`"))
    return line(False, _("environment"), _("is not the course's own .venv but {place}").format(
        place=sys.prefix), _("run `make lab`, which makes it") if find_spec("ensurepip") else
        _("on Debian and Ubuntu `sudo apt install python3-venv`, then `make lab`, which makes it"))


# each in a process of its own: what it prints is the line


def compiles() -> None:
    """Compile a PrimFunc and run it."""
    import numpy as np
    import tvm
    from tvm import te
    a = te.placeholder((8,), name="a")
    func = te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1.0, name="b")])
    out = tvm.runtime.tensor(np.full(8, np.nan, "float32"))
    tvm.compile(func, target="llvm")(tvm.runtime.tensor(np.zeros(8, "float32")), out)
    assert (out.numpy() == 1).all(), "wrong numbers"
    print(_("compiles and runs a PrimFunc for {target} with {count} threads").format(
        target=tvm.target.Target("llvm").kind.name, count=tvm.runtime.num_threads()))


def torch_imports() -> None:
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
    print(_("{torch} and torchvision {vision} import; {build}").format(
        torch=torch.__version__, vision=torchvision.__version__, build=build))


def exports() -> None:
    """Write a small notebook as HTML."""
    import nbformat.v4 as v4
    from nbconvert import HTMLExporter
    cells = [v4.new_markdown_cell("# A heading"), v4.new_code_cell("1 + 1")]
    page = HTMLExporter().from_notebook_node(v4.new_notebook(cells=cells))[0]
    assert "A heading</h1>" in page.replace('<a class="anchor-link" href="#A-heading">¶</a>', "")
    print(_("export works: `make run` can write pages"))


def reads_data() -> None:
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
        print(found.format(count=f"{count:,}", folder=where))
    elif store.is_stand_in():
        print(_("are the stand-in, drawn garments: `make data` gets the real ones"))
    else:
        print(_("in {folder}: {line}").format(
            folder=where, line=re.split("[:：] ?", store.data_line(), maxsplit=1)[1]))


def writes_chinese() -> None:
    """Find a font for the Chinese words in pictures."""
    from course.plots.figure import chinese_font
    print(_("for pictures: {font}").format(font=chinese_font()) if chinese_font() else _(
        "has no Chinese letters, so pictures are in English: install one, on Debian and Ubuntu "
        "`sudo apt install fonts-noto-cjk`, then restart the kernel"))


def attempt(thing: str, code: str, fix: str) -> tuple[bool, str]:
    """Run some code in a process of its own; its printed line, or the last line of its error."""
    threads = {"TVM_NUM_THREADS": str(os.cpu_count())}
    try:
        result = subprocess.run([sys.executable, "-c", code], timeout=120,
                                capture_output=True, text=True, check=False, cwd=ROOT,
                                env={**threads, **os.environ})
    except subprocess.TimeoutExpired:
        return line(False, thing, _("does not answer within two minutes"), fix)
    if result.returncode < 0:
        return line(False, thing, _("crashes (signal {number})").format(
            number=-result.returncode), fix)
    if result.returncode == 0:
        return line(True, thing, result.stdout.strip().splitlines()[-1])
    text = result.stderr.strip()
    if "CourseError: " in text:  # written for the reader, with what to try
        return line(False, thing, " ".join(text.rpartition("CourseError: ")[2].split()))
    return line(False, thing, text.splitlines()[-1] if text else _("says nothing"), fix)


def own(thing: str, check: Callable[[], None], fix: str = FIX) -> tuple[bool, str]:
    """Attempt one of the checks above."""
    return attempt(thing, f"from tools import doctor; doctor.{check.__name__}()", fix)


def used(kind: str) -> str:
    """Return a line on what the course uses where it is here and works: what it is, what for."""
    known, found = present.KNOWN[kind], present.tool(kind)
    said = found.said or known.thing
    if found and (program := present.name(found.command)) != Path(sys.executable).name:
        said = _("{thing} {says}").format(thing=known.thing, says=program)
    return f"{'yes ' if found else 'no  '} " + _("{use}. {said}").format(use=known.use, said=said)


def main() -> int:
    """Print the report and return the exit status."""
    report = [python_version(), machine(), environment(),
              *(package(name, wanted) for name, wanted in pins().items())]
    print("\n".join(text for _, text in report))
    last: list[tuple] = [("TVM", compiles), ("torch", torch_imports), ("HTML", exports),
                         (_("data"), reads_data, _("see data/README.md"))]
    if language() == "zh":
        last.append((_("font"), writes_chinese))
    for check in last:
        report.append(own(*check))
        print(report[-1][1], flush=True)
    print(_("What the course uses where it is here and works:"))
    for kind in present.KNOWN:
        print(used(kind), flush=True)
    bad = sum(not good for good, _ in report)
    said = _("\n{bad} of {count} things are wrong: begin with the first FAIL.") if bad \
        else _("\nAll {count} things are as they should be.")
    print(said.format(bad=bad, count=len(report)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
