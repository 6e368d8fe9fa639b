"""The kernel in which a submission's notebook runs for its page: an ipykernel, closed in.

    python -m tools.grading.kernel -f connection.json

It limits itself before it reads a line of the submission; a process cannot take that back, and
its children have it too. Its working folder is the only place that it can write to.
"""

import os
import sys
from pathlib import Path

from tools.grading import confine


def main() -> None:
    here = Path.cwd()
    confine.clean_environment()
    confine.go_home(here)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    log = os.open(here / ".home" / "kernel.txt", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    confine.lock_in(here)
    sys.path[:] = [place for place in sys.path if place != str(confine.ROOT)]
    from ipykernel.kernelapp import IPKernelApp
    kernel = IPKernelApp.instance()
    kernel.initialize(sys.argv[1:])
    confine.refuse_calls()  # its own sockets are open now
    kernel.start()


if __name__ == "__main__":
    main()
