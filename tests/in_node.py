"""Ask the script of a page, which is a module too, by Node.js."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from course import present

ASK = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify((FUNCTION)(require(process.argv[1]), given)));
"""


def answer(script: Path, function: str, given: Any) -> Any:
    """Return what a function of the module and of `given` returns; skip where there is no Node."""
    if not (node := present.tool("node").command):
        pytest.skip(present.tool("node").said)
    done = subprocess.run([*node, "-e", ASK.replace("FUNCTION", function), str(script)],
                          input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
