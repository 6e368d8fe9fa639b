"""The pinned versions, the installed ones, and a line that says what is wrong.

Only the standard library is imported here: `make doctor` works where nothing is installed.
"""

import sys
import types
from importlib import metadata

from course.words import ROOT, _

PYTHONS = ("3.11", "3.12", "3.13", "3.14")  # a test compares them with what make and CI say
FIX = _("run `make lab` (it installs what is pinned in requirements.txt)")


def pins() -> dict[str, str]:
    """Return the pinned version of each package in requirements.txt."""
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("#")[0].strip().split("==") for line in lines if "==" in line)


def line(good: bool, thing: str, says: str, fix: str = "") -> tuple[bool, str]:
    """Return one line of the doctor's report, e.g. "FAIL numpy is not installed: run ..."."""
    said = _("{thing} {says}: {fix}") if fix else _("{thing} {says}")
    return good, f"{'OK  ' if good else 'FAIL'} {said.format(thing=thing, says=says, fix=fix)}"


def package(name: str, wanted: str) -> tuple[bool, str]:
    """Return whether a package has its pinned version, and the line that says so.

    The notebooks' setup cell stops with this line if it is a FAIL. A local version label, as
    in torch 2.13.0+cpu, does not count.
    """
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return line(False, name, _("is not installed, {wanted} is needed").format(wanted=wanted),
                    FIX)
    if found.partition("+")[0] != wanted:
        return line(False, name, _("is {found}, the course needs {wanted}").format(
            found=found, wanted=wanted), FIX)
    return line(True, name, found)


def wrong(prefix: str) -> str:
    """Return the line of the first wrong package whose name begins like this, or ""."""
    lines = (package(name, wanted) for name, wanted in pins().items() if name.startswith(prefix))
    return next((text for good, text in lines if not good), "")


def allow_torchvision() -> None:
    """Make `import torchvision` work with a CPU-only torch, without the operators made for CUDA."""
    import torch
    if torch.version.cuda is None and "torchvision" not in sys.modules:
        name = "torchvision._meta_registrations"
        sys.modules.setdefault(name, types.ModuleType(name))
