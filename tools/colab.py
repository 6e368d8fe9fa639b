"""Copies of the students' notebooks that Google Colab opens, in build/colab/.

    python -m tools.colab            all notebooks; LANG=zh: make colab LANG=zh
    python -m tools.colab 02 03      some of them

Each begins with a cell that clones the repository and installs TVM's two packages beside Colab's
own PyTorch, and goes on in the clone. The address is that of the git remote `origin`, or the line
`repository-code:` of CITATION.cff.
"""

import sys

import nbformat

from data.versions import pins
from tools import lang
from tools.site.project import ROOT, repository
from tools.student import student_version

PACKAGES = ("apache-tvm", "apache-tvm-ffi")
START = """\
# Colab: run this cell first. It fetches the course, and TVM to stand beside Colab's own PyTorch.
import os
import subprocess
import sys

packages = {packages}
if not os.path.exists("{up}/helpers.py"):
    if not os.path.isdir("course"):
        subprocess.run(["git", "clone", "--quiet", "--depth=1", "{address}", "course"], check=True)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)
    os.chdir("course/{folder}")
    subprocess.run([sys.executable, "-m", "data.fetch"], cwd="{up}", check=False)
"""


def for_colab(notebook: nbformat.NotebookNode, address: str) -> nbformat.NotebookNode:
    """Return a student's notebook with the cell that sets Colab up in front of it."""
    packages = [f"{name}=={pins()[name]}" for name in PACKAGES]
    chinese = notebook.metadata.get("lang") == "zh"  # checks speak the folder's language
    folder, up = ("paired_md/zh", "../..") if chinese else ("notebooks", "..")
    start = START.format(packages=packages, address=address, folder=folder, up=up)
    cell = nbformat.v4.new_code_cell(start.rstrip(), id="colab")
    notebook.cells.insert(0, cell)
    return notebook


def main(*numbers: str) -> None:
    address = repository()
    if not address:
        sys.exit("Where is the repository? Colab clones it, so its address must be known: push it "
                 "to a git remote `origin`, or write it into CITATION.cff, repository-code.")
    masters = lang.chosen(lang.masters(), numbers)
    folder = ROOT / lang.place("build/colab")
    folder.mkdir(parents=True, exist_ok=True)
    for master in masters:
        notebook = for_colab(student_version(master, lang.CHOSEN, keep_given=True), address)
        nbformat.write(notebook, folder / master.name)
    print(f"{len(masters)} notebooks for Colab are in {folder.relative_to(ROOT)}/; they clone "
          f"{address}. Open them by colab.research.google.com, Upload.")


if __name__ == "__main__":
    main(*sys.argv[1:])
