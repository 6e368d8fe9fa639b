"""The kernel in which `make grade` runs a submission: an ipykernel with limits.

    python limited_kernel.py -f connection.json

Jupyter starts it through a kernel.json that tools/grade.py writes. It limits itself, then becomes
ipykernel; a process cannot take such limits back, and its children have them too. Its working
folder is the only place it can write to, where the system can do that (Linux with Landlock).
"""

import contextlib
import ctypes
import json
import os
import resource
import struct
import sys
from pathlib import Path

GIGABYTE = 2**30
# TVM and torch need 1.5 GB of addresses; the compiler and matplotlib write small files
LIMITS = {"AS": 4 * GIGABYTE, "FSIZE": GIGABYTE // 16, "CPU": 3600, "CORE": 0}
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "MLC_DATA", "TVM_NUM_THREADS", "TQDM_DISABLE", "MPLBACKEND")

# Landlock, from linux/landlock.h: numbers of the calls (the same on all processors), and flags
CREATE, ADD_RULE, RESTRICT = 444, 445, 446
PATH_BENEATH, NET_PORT = 1, 2
WRITE = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))  # write, remove, make
REFER, TRUNCATE, BIND, CONNECT, SIGNAL_AND_SOCKET = 1 << 13, 1 << 14, 1, 2, 3


def landlock_abi() -> int:
    """Return the version of Landlock in this system, or 0."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(CREATE, None, ctypes.c_size_t(0), 1))


def not_limited() -> list[str]:
    """Say what this system cannot keep a submission from."""
    abi = landlock_abi()
    gaps = [(sys.platform != "linux", "more than 4 GB of memory"),
            (abi < 1, "writing outside its folder"), (abi < 4, "opening TCP connections"),
            (abi < 6, "ending other processes of the same user")]
    return [text for missing, text in gaps if missing]


def limit_resources() -> None:
    """Limit memory, the size of a file, processor seconds and core dumps."""
    for name, most in LIMITS.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses RLIMIT_AS
            resource.setrlimit(kind, (most, most))


def lock_in(folder: Path, ports: list[int]) -> None:
    """Allow writing in `folder` only, and no TCP but listening on `ports`."""
    abi = landlock_abi()
    if not abi:
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result = libc.syscall(number, *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), "Landlock refuses")
        return result

    files = WRITE | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
    handled = struct.pack("QQQ", files, BIND | CONNECT if abi >= 4 else 0,
                          SIGNAL_AND_SOCKET if abi >= 6 else 0)[:8 if abi < 4 else
                                                                16 if abi < 6 else 24]
    rules = call(CREATE, handled, ctypes.c_size_t(len(handled)), 0)
    for place, access in [(folder, files), (Path("/dev/null"), files & (1 << 1 | TRUNCATE))]:
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        call(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", access, opened), 0)
        os.close(opened)
    for port in ports if abi >= 4 else []:
        call(ADD_RULE, rules, NET_PORT, struct.pack("QQ", BIND, port), 0)
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl refuses")
    call(RESTRICT, rules, 0)
    os.close(rules)


def main() -> None:
    here = Path.cwd()
    connection = json.loads(Path(sys.argv[sys.argv.index("-f") + 1]).read_text())
    limit_resources()
    lock_in(here, [port for name, port in connection.items() if name.endswith("_port")])
    homes = dict.fromkeys(("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_RUNTIME_DIR",
                           "XDG_CACHE_HOME"), str(here / ".home"))
    (here / ".home").mkdir(exist_ok=True)
    log = os.open(here / ".home" / "kernel.txt", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}  # no tokens, no keys
    os.execve(sys.executable, [sys.executable, "-m", "ipykernel_launcher", *sys.argv[1:]],
              {**kept, **homes, "PYTHONDONTWRITEBYTECODE": "1"})


if __name__ == "__main__":
    main()
