"""Open JupyterLab on a student's notebook, on this machine only, with Jupyter's token.

    python -m tools.lab        on the first notebook
    python -m tools.lab 03     on that one

Without a screen, as over ssh, it prints the address instead.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from course.words import ROOT, _
from tools import lang


def command(number: str = "") -> list[str]:
    """Return the command that starts JupyterLab here, on the notebook of this number."""
    work = lang.place("work")
    first = min(path.name for path in (ROOT / work).glob(f"{number or '[0-9]'}*.ipynb"))
    line = [sys.executable, "-m", "jupyterlab", "--ip=127.0.0.1", f"--ServerApp.root_dir={ROOT}",
            f"--LabApp.default_url=/lab/tree/{work}/{first}", "--ServerApp.log_level=WARN",
            "--ServerApp.answer_yes=True"]  # Ctrl-C stops it: make would not wait for an answer
    headless = sys.platform == "linux" and not (os.environ.get("DISPLAY")
                                                or os.environ.get("WAYLAND_DISPLAY"))
    if headless or "SSH_CONNECTION" in os.environ:
        line.append("--no-browser")
    if os.geteuid() == 0:
        line.append("--allow-root")
    return line


def main(number: str = "") -> int:
    """Run JupyterLab until it ends; return its status."""
    lang.chosen(lang.masters(), [number] if number else [], "NB=03")
    settings = Path(sys.prefix) / "etc" / "jupyter" / "labconfig" / "page_config.json"
    if not settings.exists():  # else it asks whether it may fetch news
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps({"disabledExtensions": {
            "@jupyterlab/apputils-extension:announcements": True}}))
    line = command(number)
    if "--no-browser" in line:
        print(_("Open the address that JupyterLab prints below. Over ssh, forward its port first, "
                "on your own machine: with 127.0.0.1:8888 in the address, type\n"
                "    ssh -L 8888:127.0.0.1:8888 <this machine>"), flush=True)
    print(_("Ctrl-C stops JupyterLab; notebooks that you saved keep everything."), flush=True)
    # plots.show: pictures come with their texts
    lab = subprocess.Popen(line, env={**os.environ, "MLC_LAB": "1"})
    while True:
        try:
            return max(0, lab.wait())  # ended by a signal, as intended
        except KeyboardInterrupt:
            continue  # JupyterLab got it too, and ends its kernels


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
