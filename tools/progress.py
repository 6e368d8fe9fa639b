"""Which exercises of each notebook in work/ are solved, by the verdicts in its saved cells.

    python -m tools.progress
"""

import sys
from pathlib import Path

from course.progress import solved
from course.words import ROOT, _
from tools import lang


def table(work: Path) -> list[str]:
    """Return a line for each notebook in a folder."""
    return [solved(path) for path in sorted(work.glob("[0-9]*.ipynb")) if ".old" not in path.name]


def main() -> int:
    """Print the table; return 1 if there is no notebook."""
    work = lang.place("work")
    lines = table(ROOT / work)
    print("\n".join(lines) or _(
        "There is no notebook in {work}/: make lab puts yours there.").format(work=work))
    return not lines


if __name__ == "__main__":
    sys.exit(main())
