"""What mypy says of the types; a test, so that it runs beside the others."""

import subprocess
import sys
from pathlib import Path


def test_types() -> None:
    found = subprocess.run([sys.executable, "-m", "mypy"], cwd=Path(__file__).parent.parent,
                           capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
