"""Get Fashion-MNIST and the published weights into data/, and say what the course runs on.

    python -m data.fetch

A download runs in a separate process, which is ended after 10 seconds without progress. Files
appear in data/ only when they are complete and their checksums match.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from course.words import _
from data import store, versions

WEIGHTS_URL = "https://github.com/mlc-ai/web-data/raw/main/models/"
PATIENCE = 10.0  # seconds without progress
STARTUP = 20.0  # seconds more for the process to import torch
SLOWEST = 2_000  # bytes in this time that count as progress

_DAMAGED = _("not the published file (wrong checksum): the download broke off, or the network sent "
             "something else; try again")
_BROKE_OFF = _("the connection broke off ({reason}); try again")
_FULL = _("the disk is full ({reason}); about 90 MB are needed")
_MEANING = {  # words in the last line of an error, and what they mean for the user
    "timed out": _("the network or the server does not answer ({reason})"),
    "urlopen error": _("no network, or the server cannot be reached ({reason})"),
    "HTTP Error": _("the server does not hand it out ({reason})"),
    "Connection reset": _BROKE_OFF, "closed connection": _BROKE_OFF,
    "invalid hash": _DAMAGED, "corrupted": _DAMAGED,
    "No space left": _FULL, "quota exceeded": _FULL, "File too large": _FULL,
}


def _in_words(error: Exception) -> str:
    """Return in one line what an error of torch.hub or torchvision means."""
    last = (str(error).strip() or type(error).__name__).splitlines()[-1]
    detail = last.strip("<>").removeprefix("urlopen error ").rpartition("] ")[2]  # [Errno 111]
    return next((said.format(reason=detail) for part, said in _MEANING.items() if part in last),
                last)


def download(folder: Path) -> None:
    """Download images and weights into `folder`; torchvision and torch.hub check the sums.

    If that fails, end the process with one line that says what happened.
    """
    import socket

    import torch

    versions.allow_torchvision()
    from torchvision.datasets import FashionMNIST

    socket.setdefaulttimeout(PATIENCE)
    (folder / "models").mkdir(parents=True)  # tells fetch() that torch is imported
    try:
        for spec in store.WEIGHTS.values():
            what = spec.file
            torch.hub.download_url_to_file(WEIGHTS_URL + what, str(folder / "models" / what),
                                           hash_prefix=spec.sha256, progress=False)
        what = "Fashion-MNIST"
        FashionMNIST(str(folder), train=False, download=True)
    except Exception as error:
        sys.exit(f"{what}: {_in_words(error)}")
    for archive in folder.rglob("*.gz"):
        archive.unlink()


def _size(folder: Path) -> int:
    """Return the bytes in `folder`; less than 0 while it is empty: torch is being imported."""
    total = 0 if any(folder.iterdir()) else -SLOWEST
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:  # a temporary file, renamed in the meantime
            continue
    return total


def _run(command: list[str], incoming: Path) -> str:
    """Run the process that downloads into `incoming`; return "", or why it failed."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:  # bars would fill a pipe
        child = subprocess.Popen([*command, str(incoming)], cwd=store.ROOT,
                                 stdout=subprocess.DEVNULL, stderr=said)
        try:
            size, since = -SLOWEST, time.monotonic() + STARTUP
            while child.poll() is None:
                time.sleep(0.1)
                if (now := _size(incoming)) >= size + SLOWEST:
                    size, since = now, time.monotonic()
                elif time.monotonic() - since > PATIENCE:
                    return _("no progress for {seconds} seconds: the network or the server is too "
                             "slow, or blocked").format(seconds=f"{PATIENCE:.0f}")
        finally:
            child.kill()
            child.wait()
        said.seek(0)
        lines = said.read().strip().splitlines()
    ended = _("the download ended with status {status}").format(status=child.returncode)
    return (lines or [ended])[-1] if child.returncode else ""


def fetch(target: Path = store.DATA, command: list[str] | None = None) -> str:
    """Download into `target` and return "", or why that failed.

    `command`: the process that downloads into the folder given as its last argument.
    """
    command = command or [sys.executable, "-m", "data.fetch", "--into"]
    place = target
    try:
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=target,
                                         ignore_cleanup_errors=True) as folder:
            incoming = Path(folder)
            if reason := _run(command, incoming):
                return reason
            for path in sorted(incoming.rglob("*")):
                if path.is_file():
                    place = target / path.relative_to(incoming)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(path, place)
    except OSError as error:
        return _("{file} cannot be written: {reason}").format(
            file=place.relative_to(target.parent), reason=error.strerror or error)
    return ""


def main() -> None:
    """Download what is missing, unless MLC_DATA names a folder, and print what the course runs on.

    Raises store.CourseError if that folder is not complete.
    """
    if not os.environ.get("MLC_DATA") and store.missing(store.DATA):
        print(_("Downloading Fashion-MNIST (30 MB) and the trained weights (3 MB) ..."), flush=True)
        if reason := fetch():
            print(_("That did not work: {reason}.").format(reason=reason))
        os.environ["MLC_DATA"] = "data" if not store.missing(store.DATA) else "data/stand_in"
    print(store.data_line())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--into"]:
        download(Path(sys.argv[2]))
    else:
        try:
            main()
        except store.CourseError as error:
            sys.exit(str(error))
        except KeyboardInterrupt:
            sys.exit(_("Stopped. No half-written file is left; the same command starts again."))
