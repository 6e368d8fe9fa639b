"""Kernels for tests that fork from a process in which the course's modules are imported already.

Importing torch, TVM and matplotlib takes three seconds of CPU, in each of some twenty kernels and
of the ten processes with which notebook 08's tuner compiles and measures. multiprocessing's fork
server imports them once for all workers of pytest-xdist; nothing was run in it.
Without workers (`pytest -n 0`) kernels start as they do for a student.
"""

import gc
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from jupyter_client.provisioning import local_provisioner

ROOT = Path(__file__).resolve().parent.parent
LAUNCH = ["-m", "ipykernel_launcher"]
SERVER = "MLC_FORK_SERVER"  # whose modules, and where it listens
_server: Any = forkserver._forkserver  # a child reuses one that it did not start by these alone
_standard = local_provisioner.launch_kernel


def _kernel(ready: Connection, arguments: list[str], env: dict[str, str], folder: str) -> None:
    """Become a kernel, in a session of its own as Jupyter wants it."""
    gc.freeze()  # nothing of what was imported is garbage
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
    _fork_workers()
    from ipykernel.kernelapp import IPKernelApp

    from course.checks.run.cells import watch_cells
    app = IPKernelApp.instance()
    app.initialize(arguments)
    watch_cells()  # which a kernel's `import checks` does: here it ran before the kernel
    app.start()


def _worker(ready: Connection, reader: Connection, writer: Connection, env: dict[str, str],
            path: list[str]) -> None:
    """Become a process of TVM's that compiles, measures or serves: `-m tvm.exec.popen_worker`."""
    ready.send(None)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:] = path
    _fork_workers()
    from tvm.exec import popen_worker
    sys.argv = [popen_worker.__file__, *(str(os.dup(end.fileno())) for end in (reader, writer))]
    reader.close()
    writer.close()
    popen_worker.main()


def _fork_workers() -> None:
    """Let TVM's PopenWorkers of this process, which was forked itself, be forked ones."""
    from tvm.support import popen_pool
    multiprocessing.current_process().daemon = False  # it ends with its parent, and has children
    _server.ensure_running = _is_running

    def start(self: popen_pool.PopenWorker) -> None:
        if self._proc is None:
            context = multiprocessing.get_context("forkserver")
            (reader, told), (taken, writer) = (context.Pipe(duplex=False) for _ in range(2))
            self._proc = _Forked(_worker, reader, writer, dict(os.environ), sys.path)
            reader.close()
            writer.close()
            self._reader = os.fdopen(os.dup(taken.fileno()), "rb")
            self._writer = os.fdopen(os.dup(told.fileno()), "wb")
            taken.close()
            told.close()

    popen_pool.PopenWorker._start = start


class _Forked:
    """What jupyter_client and TVM ask of a process, a subprocess.Popen elsewhere."""

    stdin = stdout = stderr = None

    def __init__(self, program: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        ready, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=program, args=(sender, *arguments), daemon=True)
        self.process.start()
        sender.close()
        ready.recv()  # from here on it leads its group, which gets the signals
        self.pid: int = self.process.pid or 0
        self.kill, self.terminate = self.process.kill, self.process.terminate

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired("a forked process", timeout or 0)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)


def _launch(cmd: list[str], **options: Any) -> Any:
    """Fork what would be started by `python -m ipykernel_launcher`; start anything else."""
    if cmd[1:3] != LAUNCH:
        return _standard(cmd, **options)
    return _Forked(_kernel, cmd[3:], dict(options.get("env") or os.environ),
                   str(options.get("cwd") or Path.cwd()))


def serve() -> None:
    """Start the fork server, for this process and those that inherit its environment."""
    multiprocessing.set_forkserver_preload(
        ["helpers", "course.plots", "course.checks", "torch.export._trace", "tvm.rpc",
         "ipykernel.kernelapp", "ipykernel.debugger", "forked_kernels"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    forkserver.ensure_running()
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
    key = getattr(_server, "_forkserver_authkey", None) or b""  # since Python 3.14
    os.environ[SERVER] = f"{ROOT}:{key.hex()}:{_server._forkserver_address}"


def use() -> None:
    """Let all kernels of this process be forked ones."""
    root, key, address = ["", "", "", *os.environ.get(SERVER, "").rsplit(":", 2)][-3:]
    if root == str(ROOT):  # not that of another clone, which has other modules
        _server._forkserver_address = address
        _server._forkserver_authkey = bytes.fromhex(key)
        _server._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)
        _server.ensure_running = _is_running
    else:
        serve()
    local_provisioner.launch_kernel = _launch  # type: ignore[assignment]


def _is_running() -> None:
    """Start no fork server: there is one, which was not started by this process."""
