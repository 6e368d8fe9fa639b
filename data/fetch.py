"""Get Fashion-MNIST and the published weights into data/, and say what the course runs on.

    python data/fetch.py

A download runs in a process of its own and is ended when 10 seconds pass without progress: a
network that drops packets would block it for minutes, since neither torchvision nor torch.hub
takes a time limit. Files appear in data/ only when they are complete and their checksums match.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(__file__).resolve().parent
sys.path.insert(0, str(DATA.parent))
WEIGHTS_URL = "https://github.com/mlc-ai/web-data/raw/main/models/"
PATIENCE = 10.0  # seconds without progress
STARTUP = 20.0  # seconds more for the process to import torch
SLOWEST = 2_000  # bytes in this time that count as progress


def download(folder: Path) -> None:
    """Download images and weights into `folder`; torchvision and torch.hub check the sums."""
    import socket

    import torch

    import helpers

    socket.setdefaulttimeout(PATIENCE)
    (folder / "models").mkdir(parents=True)
    for spec in helpers.WEIGHTS.values():
        torch.hub.download_url_to_file(WEIGHTS_URL + spec.file, str(folder / "models" / spec.file),
                                       hash_prefix=spec.sha256, progress=False)
    helpers.torchvision.datasets.FashionMNIST(str(folder), train=False, download=True)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # a temporary file that was renamed meanwhile
            continue
    return total


def _in_words(errors: str, status: int) -> str:
    """Return the last line of a traceback, or what it means for somebody without a network."""
    lines = errors.strip().splitlines() or [f"the download ended with status {status}"]
    if "urlopen error" in lines[-1] and "timed out" not in lines[-1]:
        return "no network, or the server cannot be reached"
    return lines[-1]


def fetch(target: Path = DATA, command: list[str] | None = None) -> str:
    """Download into `target` and return "", or the reason why nothing was changed there.

    `command`: the process that downloads into the folder given as its last argument.
    """
    try:
        incoming = Path(tempfile.mkdtemp(prefix=".incoming-", dir=target))
    except OSError as error:
        return f"{error.strerror}: {target.name}/ cannot be written"
    command = command or [sys.executable, __file__, "--into"]
    try:
        child = subprocess.Popen([*command, str(incoming)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, text=True)
        size, since = 0, time.monotonic() + STARTUP
        while child.poll() is None:
            time.sleep(0.1)
            if (now := _size(incoming)) >= size + SLOWEST:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                child.kill()
                child.communicate()
                return f"no progress for {PATIENCE:.0f} seconds"
        if child.returncode:
            return _in_words(child.communicate()[1], child.returncode)
        for path in sorted(incoming.rglob("*")):
            if path.is_file():
                place = target / path.relative_to(incoming)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, place)
    except OSError as error:
        return f"{error.strerror}: {error.filename or target.name}"
    finally:
        shutil.rmtree(incoming, ignore_errors=True)
    return ""


def main() -> None:
    import helpers
    if not os.environ.get("MLC_DATA") and helpers.missing(DATA):
        print("Downloading Fashion-MNIST (30 MB) and the trained weights (3 MB) ...", flush=True)
        if reason := fetch():
            print(f"That did not work ({reason}).")
        os.environ["MLC_DATA"] = "data" if not helpers.missing(DATA) else "data/stand_in"
    print(helpers.data_line())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--into"]:
        download(Path(sys.argv[2]))
    else:
        try:
            main()
        except Exception as error:
            if not hasattr(error, "_render_traceback_"):  # a CourseError is for the reader
                raise
            sys.exit(str(error))
