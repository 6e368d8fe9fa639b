"""The kernel in which a submission's notebook runs for its page: an ipykernel, closed in.

It is forked, with torch and TVM imported, and waits until Jupyter's client starts it. It limits
itself before it reads a line of the submission; a process cannot take that back, and its children
have it too. Its working folder is the only place that it can write to.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from jupyter_client.provisioning import local_provisioner

from tools.grading import confine


def _main(arguments: list[str]) -> NoReturn:
    """Be a kernel in the working folder, in a session of its own as Jupyter wants it."""
    here = Path.cwd()
    confine.clean_environment()
    confine.go_home(here)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    log = os.open(here / ".home" / "kernel.txt", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 65536)  # through the last of them its parent gives what came of it
    confine.lock_in(here)
    sys.path[:] = [place for place in sys.path if place not in ("", str(confine.ROOT))]
    from ipykernel.kernelapp import IPKernelApp
    kernel = IPKernelApp.instance()
    kernel.initialize(arguments)
    confine.refuse_calls()  # its own sockets are open now
    kernel.start()
    os._exit(0)


class Forked:
    """What jupyter_client asks of a kernel's process, a subprocess.Popen elsewhere."""

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        take, self.give = os.pipe()
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid:
            os.close(take)
            return
        try:
            os.setsid()
            os.close(self.give)
            with open(take) as told:
                arguments = json.load(told)
            _main(arguments)
        finally:
            os._exit(1)

    def start(self, command: list[str], **_: Any) -> "Forked":
        """Start what waits; `command` as of a KernelSpec, of which it takes the arguments."""
        with open(self.give, "w") as tell:
            json.dump(command[1:], tell)
        return self

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(9)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(15)


def use() -> None:
    """Let the next kernel of this process be one that is forked now, while it has one thread."""
    local_provisioner.launch_kernel = Forked().start  # type: ignore[assignment]
