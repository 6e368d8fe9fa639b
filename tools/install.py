"""Install the pinned packages into an environment, with the small torch: the start of `make lab`.

    python -m tools.install .venv                requirements.txt; .venv is made where it is missing
    python -m tools.install .venv FILE --gpu     FILE's packages too; torch's CUDA build
    python -m tools.install                      into the environment of this Python (Binder)

It imports only the standard library, so it runs before anything is installed. On Linux, torch and
torchvision alone come from PyTorch's own index, or the one that the environment variable
TORCH_INDEX names, if it answers in time; all others come from where this machine's pip gets them.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from course.words import _, listed
from data.versions import ROOT, pins

INDEX = os.environ.get("TORCH_INDEX", "https://download.pytorch.org/whl/cpu")
PATIENCE = 3.0  # seconds for the index to answer
TICK = 10.0  # seconds between two lines that say that pip is working


def answers(index: str) -> bool:
    """Return whether an index serves its page on torch within PATIENCE."""
    came: list[bool] = []

    def ask() -> None:
        # some servers refuse Python's own user agent; any error counts as no answer
        page = urllib.request.Request(f"{index}/torch/", headers={"User-Agent": "pip"})
        with contextlib.suppress(Exception), urllib.request.urlopen(page, timeout=PATIENCE):
            came.append(True)

    # in a thread: urlopen limits neither the name lookup nor the whole time
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return bool(came)


def choose(place: Path, gpu: bool) -> tuple[list[str], str]:
    """Return pip's arguments to install the right torch first, or [], and a line that says which.

    Both are empty if the environment already has the pinned torch.
    """
    pin, vision = pins()["torch"], pins()["torchvision"]
    # the CPU build of PyTorch's index is 2.13.0+cpu: not a CUDA build, and right otherwise
    if any(place.glob(f"lib/python*/site-packages/torch-{pin}{'' if gpu else '*'}.dist-info")):
        return [], ""
    if gpu:  # === accepts no +cpu, neither one that is installed nor one of a mirror
        return (["--no-deps", f"torch==={pin}", f"torchvision==={vision}"],
                _("torch {pin}: from pip's own index, as GPU=1 asks; on Linux that is the CUDA "
                  "build, several GB to download.").format(pin=pin))
    if sys.platform != "linux":
        return [], _("torch {pin}: from pip's own index, which has no CUDA build for this "
                     "system.").format(pin=pin)
    if answers(INDEX):
        return (["--no-deps", "--index-url", INDEX, f"torch=={pin}", f"torchvision=={vision}"],
                _("torch {pin}: the CPU build, about 0.2 GB to download, from {index} "
                  "(GPU=1: the CUDA build).").format(pin=pin, index=INDEX))
    return [], _("torch {pin}: from pip's own index, since {index} does not answer within "
                 "{seconds} seconds; on Linux that is mostly the CUDA build, several GB to "
                 "download.").format(pin=pin, index=INDEX, seconds=f"{PATIENCE:.0f}")


def environment(place: Path) -> Path:
    """Return the Python of the environment in `place`; make it if none with pip runs there.

    Raises:
        SystemExit: it cannot be made. What was in `place` before, or a link, is not removed.
    """
    python = place / "bin" / "python"
    with contextlib.suppress(OSError):
        if not subprocess.run([python, "-m", "pip", "--version"], capture_output=True,
                              check=False).returncode:
            return python
    before, made = os.path.lexists(place), False
    try:
        done = subprocess.run([sys.executable, "-m", "venv", place], capture_output=True,
                              text=True, check=False)
        made = done.returncode == 0
    finally:  # Ctrl-C too
        if not made and not before:
            shutil.rmtree(place, ignore_errors=True)
    if not made:
        reason = (done.stderr + done.stdout).strip().splitlines()[-1:]
        kept = _("What was in {place} is still there: if you do not need it, delete it and "
                 "type the command again. ").format(place=place) if before else ""
        sys.exit(_("This Python cannot make a virtual environment ({reason}). {kept}"
                   "On Debian and Ubuntu: sudo apt install python3-venv").format(
                       reason=" ".join(reason), kept=kept))
    return python


def pip(python: Path, *words: str) -> bool:
    """Let pip install something and show progress: its bars, or elsewhere a line every TICK."""
    bars = sys.stdout.isatty()
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check",
               *([] if bars else ["--quiet"]), *words]
    began = time.monotonic()
    with subprocess.Popen(command) as process:
        while True:
            try:
                return process.wait(None if bars else TICK) == 0
            except subprocess.TimeoutExpired:
                print(_("pip works: {seconds} s").format(
                    seconds=f"{time.monotonic() - began:.0f}"), flush=True)


def main(words: list[str]) -> None:
    """Install what the command line asks for.

    Raises:
        SystemExit: something did not work; its text says what to do.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.install")
    parser.add_argument("place", nargs="?", type=Path, default=Path(sys.prefix))
    parser.add_argument("files", nargs="*")
    parser.add_argument("--gpu", action="store_true")
    asked = parser.parse_args(words)
    files = [str(ROOT / "requirements.txt"), *asked.files]
    print(_("Installing the packages of {files} into {place} (once; some minutes)").format(
        files=listed(["requirements.txt", *asked.files]), place=f"{asked.place}/"),
        flush=True)
    python = environment(asked.place)
    first, line = choose(asked.place, asked.gpu)
    if line:
        print(line, flush=True)
    if first and not pip(python, *first):
        sys.exit(_("torch could not be installed: see the lines above. Type the command again.")
                 if asked.gpu else
                 _("torch could not be installed: see the lines above. Type the command again, or "
                   "add GPU=1 to take it from pip's own index (on Linux several GB)."))
    if not pip(python, *(word for file in files for word in ("-r", file))):
        sys.exit(_("The packages could not be installed: see the lines above; a network is "
                   "needed. Then type the command again."))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(_("Stopped. The same command continues from here."))
