"""The kernel in which a submission's notebook runs for its page: an ipykernel, closed in.

It is forked, with torch and TVM imported, and waits until Jupyter's client starts it. It limits
itself before it reads a line of the submission; a process cannot take that back, and its children
have it too. Its working folder is the only place that it can write to.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from jupyter_client.provisioning import local_provisioner

from tools.grading import confine


def _main() -> None:
    """Be a kernel in the working folder, once a byte comes on standard input."""
    try:
        here = Path.cwd()
        os.closerange(3, 65536)  # through the last of them its parent gives what came of it
        if not os.read(0, 1):  # its parent has ended
            return
        for name in set(os.environ) - set(confine.KEPT):  # no tokens, no keys
            del os.environ[name]
        confine.go_home(here)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        confine.lock_in(here)
        sys.path[:] = [place for place in sys.path if place not in ("", str(confine.ROOT))]
        from ipykernel.kernelapp import IPKernelApp
        kernel = IPKernelApp.instance()
        kernel.initialize(["-f", ".home/kernel.json", "--log-level=ERROR"])
        confine.refuse_calls()  # its own sockets are open now
        kernel.start()
        os._exit(0)
    finally:
        os._exit(1)


def use() -> None:
    """Let the next kernel of this process be one that is forked now, while it has one thread.

    In its working folder's .home are kernel.json, Jupyter's connection file, and kernel.txt, what
    it prints. subprocess waits until the child has closed its files, and takes that for a program
    that was started; what the child does is `_main`.
    """
    waits, start = os.pipe()
    with open(".home/kernel.txt", "wb") as log:
        forked = subprocess.Popen(["kernel"], stdin=waits, stdout=log, stderr=log,
                                  start_new_session=True, preexec_fn=_main)
    os.close(waits)

    def launch(*_: Any, **__: Any) -> subprocess.Popen:
        with open(start, "wb") as tell:
            tell.write(b"\n")
        return forked

    local_provisioner.launch_kernel = launch
