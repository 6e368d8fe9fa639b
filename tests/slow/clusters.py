"""A Dask cluster as instructor/README.md starts it by hand: TLS, on this machine."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from submissions import ROOT, family

# the same three files for everybody who belongs to the cluster
CERTIFICATE = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
               "/CN=mlc", "-addext", "keyUsage=critical,digitalSignature,keyCertSign", "-keyout",
               "key.pem", "-out", "cert.pem"]


def certificate(place: Path) -> Path:
    """Make the keys of a cluster in a folder; return it."""
    place.mkdir()
    subprocess.run(CERTIFICATE, cwd=place, capture_output=True, check=True)
    (place / "ca.pem").write_bytes((place / "cert.pem").read_bytes())
    return place


@dataclass
class Cluster:
    """A scheduler and its workers, each a process that was started; the scheduler's address."""

    tls: Path
    place: Path
    address: str = ""
    processes: list[subprocess.Popen] = field(default_factory=list)

    def start(self, what: str, *words: str, cwd: Path = ROOT) -> None:
        keys = ["--tls-ca-file", "ca.pem", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]
        keys = [str(self.tls / word) if word.endswith(".pem") else word for word in keys]
        with (self.place / f"{what} {len(self.processes)}").open("wb") as out:
            self.processes.append(subprocess.Popen(
                [sys.executable, "-m", "dask", what, *words, "--no-dashboard", *keys], cwd=cwd,
                stdout=out, stderr=out,
                env={**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "2"}))

    def worker(self, cwd: Path = ROOT) -> None:
        """Start a worker, which its nanny starts again when it is killed."""
        self.start("worker", self.address, "--nthreads", "1", "--host", "127.0.0.1", cwd=cwd)

    def options(self) -> list[str]:
        """Return what `python -m tools.grade` takes to use it."""
        return ["--cluster", self.address, "--tls", str(self.tls)]


@contextlib.contextmanager
def cluster(place: Path, workers: int) -> Iterator[Cluster]:
    """Start a cluster in an empty folder, and end it with all its processes."""
    place.mkdir()
    made = Cluster(certificate(place / "tls"), place)
    about = place / "scheduler.json"
    try:
        made.start("scheduler", "--host", "tls://127.0.0.1", "--port", "0",
                   "--scheduler-file", str(about))
        end = time.monotonic() + 60
        while not made.address:
            assert time.monotonic() < end, (place / "scheduler 0").read_text()
            time.sleep(0.1)
            with contextlib.suppress(OSError, ValueError):
                made.address = json.loads(about.read_text())["address"]
        for _ in range(workers):
            made.worker()
        yield made
    finally:
        below = [child for process in made.processes for child in family(process)]
        for process in made.processes:
            process.kill()
        for child in below:
            with contextlib.suppress(psutil.Error):
                child.kill()
        for process in made.processes:
            process.wait()
