"""Name the TVM symbols that the course uses and the installed apache-tvm lacks.

    python tools/symbols.py

For the weekly run on the newest release: it reads every dotted name of TVM in the modules and
the notebooks' cells, looks each up, prints those that are gone, and exits 1 if there are any.
"""

import ast
import importlib
import sys
from importlib import metadata
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
# what the course imports TVM's parts as; TVMScript's T, R and I are modules too
ALIASES = {"tvm": "tvm", "relax": "tvm.relax", "te": "tvm.te", "topi": "tvm.topi",
           "tvm_ffi": "tvm_ffi", "T": "tvm.script.tirx", "R": "tvm.script.relax",
           "I": "tvm.script.ir"}


def sources() -> dict[str, str]:
    """Return the code of each module and notebook, by its name."""
    modules = sorted([*ROOT.glob("*.py"), *ROOT.glob("plots/*.py"),
                      *ROOT.glob("checks/*.py")])
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in modules}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        found[path.name] = "\n\n".join(c.source for c in cells if c.cell_type == "code")
    return found


def names(source: str) -> set[str]:
    """Return the dotted TVM names in some code, such as tvm.s_tir.Schedule."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in ALIASES:
            found.add(".".join([ALIASES[node.id], *parts]))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tvm":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def resolves(name: str) -> bool:
    """Whether a dotted name can be imported or looked up, as far as it is made of modules."""
    module, value = name.split(".")[0], None
    try:
        value = importlib.import_module(module)
        for part in name.split(".")[1:]:
            module = f"{module}.{part}"
            if not hasattr(value, part):
                value = importlib.import_module(module)
            else:
                value = getattr(value, part)
    except ImportError:
        return False
    return True


def gone() -> list[str]:
    """Return "name (where it is used)" for each name that does not resolve."""
    return [f"{name} ({where})" for where, source in sources().items()
            for name in sorted(names(source)) if not resolves(name)]


if __name__ == "__main__":
    broken = gone()
    print(f"apache-tvm {metadata.version('apache-tvm')}, "
          f"apache-tvm-ffi {metadata.version('apache-tvm-ffi')}")
    if broken:
        print(f"The first symbol that broke: {broken[0]}")
        sys.exit("\n".join(["All of them:", *broken]))
    print("Every TVM symbol of the course is there.")
