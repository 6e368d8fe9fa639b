"""Kernels for tests that fork from a process in which the course's modules are imported already.

Importing torch, TVM and matplotlib takes three seconds of CPU, in each of some twenty kernels.
multiprocessing's fork server imports them once for a worker of pytest-xdist; nothing was run in it.
Without workers (`pytest -n 0`) kernels start as they do for a student.
"""

import multiprocessing
import os
import sys
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jupyter_client.provisioning import local_provisioner

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = ["-m", "ipykernel_launcher"]
_standard = local_provisioner.launch_kernel


def _kernel(arguments: list[str], env: dict[str, str], folder: str, ready: Connection) -> None:
    """Become a kernel, in a session of its own as Jupyter wants it."""
    os.setsid()
    ready.send(None)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(folder)
    sys.path[:] = [path for path in sys.path if path not in ("", str(ROOT), str(ROOT / "tests"))]
    for number, mode in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)):
        nowhere = os.open(os.devnull, mode)
        os.dup2(nowhere, number)
        os.close(nowhere)
    from ipykernel import kernelapp
    kernelapp.launch_new_instance(argv=arguments)


class _Forked:
    """What jupyter_client asks of a kernel's process, a subprocess.Popen elsewhere."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], env: dict[str, str], folder: str) -> None:
        context = multiprocessing.get_context("forkserver")
        ready, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=_kernel, args=(arguments, env, folder, sender))
        self.process.start()
        sender.close()
        ready.recv()  # from here on it leads its group, which gets the signals
        self.pid: int = self.process.pid or 0
        self.kill, self.terminate = self.process.kill, self.process.terminate

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _launch(cmd: list[str], **options: Any) -> Any:
    """Fork what would be started by `python -m ipykernel_launcher`; start anything else."""
    if cmd[1:3] != LAUNCH:
        return _standard(cmd, **options)
    return _Forked(cmd[3:], dict(options.get("env") or os.environ),
                   str(options.get("cwd") or Path.cwd()))


def use() -> None:
    """Let all kernels of this process be forked ones."""
    multiprocessing.set_forkserver_preload(["helpers", "plots", "checks", "ipykernel.kernelapp"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    forkserver.ensure_running()
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    local_provisioner.launch_kernel = _launch  # type: ignore[assignment]
