"""Which course is this, on which packages and data: what a result depends on besides its job."""

import functools
import hashlib
import platform
import re
from importlib import metadata
from pathlib import Path

from data import store

ROOT = Path(__file__).resolve().parents[2]
# what runs when a notebook is graded; the notebook itself comes with its job
FILES = ("*.py", "checks/**/*.py", "checks/say/zh.po", "data/*.py", "plots/*.py", "tir/*.py",
         "tools/__init__.py", "tools/student.py", "tools/grading/*.py", "requirements.txt",
         "instructor/requirements.txt")


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of the course, its data, Python, and each pinned package, by name.

    Files count by their content. A local version label, as in torch 2.13.0+cpu, does not count.
    Raises store.CourseError where the data are not what they should be.
    """
    ours = [path for pattern in FILES for path in sorted(ROOT.glob(pattern)) if path.is_file()]
    data = store.data_folder()
    used = [*sorted(data.glob("FashionMNIST/raw/t10k*")), *sorted(data.glob("models/*"))]
    found = {"the course": _digest(ours), "the data": _digest(used),
             "Python": ".".join(platform.python_version_tuple()[:2])}
    for file in ("requirements.txt", "instructor/requirements.txt"):
        for name in re.findall(r"^([\w-]+)(?:\[.*\])?==", (ROOT / file).read_text(), re.MULTILINE):
            try:
                found[name] = metadata.version(name).partition("+")[0]
            except metadata.PackageNotFoundError:
                found[name] = "not installed"
    return found


def differs(wanted: dict[str, str]) -> str:
    """Say in what this machine's versions are not the wanted ones, or ""."""
    here = versions()
    return ", ".join(f"{name} is {here.get(name, 'unknown')} there and {version} here"
                     for name, version in wanted.items() if here.get(name) != version)
