"""Open JupyterLab on the student's first notebook, on this machine only, with Jupyter's token.

Where there is no screen, over ssh or without a display, it prints the address instead.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def command() -> list[str]:
    """Return the command that starts JupyterLab here."""
    first = min(path.name for path in (ROOT / "work").glob("[0-9]*.ipynb"))
    line = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--ServerApp.root_dir={ROOT}",
            f"--LabApp.default_url=/lab/tree/work/{first}", "--ServerApp.log_level=WARN"]
    headless = sys.platform == "linux" and not (os.environ.get("DISPLAY")
                                                or os.environ.get("WAYLAND_DISPLAY"))
    if headless or "SSH_CONNECTION" in os.environ:
        line.append("--no-browser")
    if os.geteuid() == 0:
        line.append("--allow-root")
    return line


if __name__ == "__main__":
    line = command()
    if "--no-browser" in line:
        print("Open the address that JupyterLab prints below. Over ssh, forward its port first, "
              "on your own machine: ssh -L 8888:127.0.0.1:8888 <this machine>", flush=True)
    try:
        sys.exit(subprocess.call(line))
    except KeyboardInterrupt:
        sys.exit(0)
