"""Name the TVM symbols that the course uses and the installed apache-tvm lacks.

    python -m tests.symbols

For the weekly run on the newest release: it reads every dotted name of TVM in the modules and
the notebooks' cells, looks each up, prints those that are gone, and exits 1 if there are any.
"""

import ast
import pkgutil
import sys
from importlib import metadata
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent


def sources() -> dict[str, str]:
    """Return the code of each module and notebook, by its name."""
    rooms = ("", "data/**/", "course/**/", "tools/**/")
    modules = sorted(path for room in rooms for path in ROOT.glob(f"{room}*.py"))
    found = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in modules}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        found[path.name] = "\n\n".join(c.source for c in cells if c.cell_type == "code")
    return found


def names(source: str) -> set[str]:
    """Return the dotted TVM names in some code, such as tvm.s_tir.Schedule.

    What a name stands for is taken from the imports of the same code, wherever they are:
    `from tvm.s_tir import meta_schedule as ms` makes ms.tune_tir tvm.s_tir.meta_schedule.tune_tir.
    """
    tree = ast.parse(source)
    found, stands_for = set(), {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom | ast.Import):
            continue
        inside = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = inside + alias.name
            if name.split(".")[0] in ("tvm", "tvm_ffi"):
                found.add(name)
                meant = name if inside or alias.asname else name.split(".")[0]
                stands_for[alias.asname or (alias.name if inside else meant)] = meant
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in stands_for:
            found.add(".".join([stands_for[node.id], *parts]))
    return found


def resolves(name: str) -> bool:
    """Whether a dotted name can be imported or looked up, as far as it is made of modules."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
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
