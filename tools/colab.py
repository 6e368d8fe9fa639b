"""Make copies of the students' notebooks for Google Colab, in build/colab/.

    python -m tools.colab            all notebooks, in both languages: what the workflow publishes
    python -m tools.colab 02 03      some of them

It needs only the standard library and nbformat; for the Chinese ones also polib and jupytext.

Each begins with a cell that clones the repository and adds TVM's two packages to Colab's own
PyTorch; it then runs in the clone. The address is the git remote `origin`, or the line
`repository-code:` of CITATION.cff.
"""

import sys
from collections.abc import Collection
from pathlib import Path

import nbformat

from data.versions import pins
from tools import lang
from tools.site.project import ROOT, repository
from tools.student import student_version

PACKAGES = ("apache-tvm", "apache-tvm-ffi")
START = """\
# Colab: run this cell first. It fetches the course, and TVM to stand beside Colab's own PyTorch.
import importlib.util
import os
import subprocess
import sys

packages = {packages}
packages += [name for name in ("torch", "torchvision") if importlib.util.find_spec(name) is None]
if not os.path.exists("{up}/helpers.py"):
    if not os.path.isdir("course"):
        subprocess.run(["git", "clone", "--quiet", "--depth=1", "{address}", "course"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
    os.chdir("course/{folder}")
    subprocess.run([sys.executable, "-m", "data.fetch"], cwd="{up}", check=False)
"""


def for_colab(notebook: nbformat.NotebookNode, address: str) -> nbformat.NotebookNode:
    """Return a student's notebook with a first cell that sets up Colab."""
    packages = [f"{name}=={pins()[name]}" for name in PACKAGES]
    chinese = notebook.metadata.get("lang") == "zh"  # checks speak the folder's language
    folder, up = ("paired_md/zh", "../..") if chinese else ("notebooks", "..")
    start = START.format(packages=packages, address=address, folder=folder, up=up)
    cell = nbformat.v4.new_code_cell(start.rstrip(), id="colab")
    notebook.cells.insert(0, cell)
    return notebook


def notebooks(language: str, numbers: Collection[str] = ()) -> dict[str, nbformat.NotebookNode]:
    """Return the students' notebooks of a language by file name.

    They set up Colab if the repository's address is known.
    """
    address = repository()
    made = {master.name: student_version(master, language, keep_given=True)
            for master in lang.chosen(lang.masters(language), numbers)}
    return {name: for_colab(notebook, address) if address else notebook
            for name, notebook in made.items()}


def write(found: dict[str, nbformat.NotebookNode], folder: Path) -> None:
    """Write notebooks into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, notebook in found.items():
        nbformat.write(notebook, folder / name)


def main(*numbers: str) -> None:
    address = repository()
    if not address:
        sys.exit("Where is the repository? Colab clones it, so its address must be known: push it "
                 "to a git remote `origin`, or write it into CITATION.cff, repository-code.")
    for language in ("en", "zh"):
        write(notebooks(language, numbers), ROOT / lang.place("build/colab", language))
    print(f"The students' notebooks for Colab are in build/colab/ and build/colab/zh/; they clone "
          f"{address}. The workflow `site` publishes them on the branch `students`, to which the "
          "site's links lead; by hand: colab.research.google.com, Upload.")


if __name__ == "__main__":
    main(*sys.argv[1:])
