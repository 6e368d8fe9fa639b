"""Put the newest release of one package into the course's environment, for the weekly run.

    python -m tests.newest torch

The packages that go with it follow: torchvision with torch, and with apache-tvm the bindings that
it asks for. It prints the version of each, and the course's pin.
"""

import subprocess
import sys
from importlib import metadata

from data.versions import pins
from tools.install import INDEX

ALONG = {"apache-tvm": ["apache-tvm-ffi"], "torch": ["torchvision"], "apache-tvm-ffi": []}


def command(package: str) -> list[str]:
    """Return the command that installs it."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade"]
    if package == "torch":  # Linux takes the CUDA build else
        install += ["--extra-index-url", INDEX]
    return [*install, package, *ALONG[package]]


def main(package: str = "") -> None:
    if package not in ALONG:
        sys.exit(__doc__)
    if subprocess.run(command(package), check=False).returncode:
        sys.exit(f"The newest {package} cannot be installed beside the other packages.")
    for name in (package, *ALONG[package]):
        print(f"{name} {metadata.version(name)}, the course has {pins()[name]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
