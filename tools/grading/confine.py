"""Close a process in: no network, nothing to write to but one folder, little to read, few calls.

Three walls, each of which stands without the others. **Namespaces** (Linux, where an ordinary user
may have them): no network at all, every file system read-only but one small folder in memory, and
processes that all end with the first of them. **Landlock**: reading and writing below named folders
only, no TCP, no signals outwards. **seccomp** (libseccomp, by the package pyseccomp): no sockets
but pairs, no change of modes, priorities or limits. `gaps` says what this machine cannot keep.
"""

import contextlib
import ctypes
import errno
import functools
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
from pathlib import Path

try:
    import pyseccomp
except (ImportError, OSError, RuntimeError):  # it, or libseccomp, is missing, as on macOS
    pyseccomp = None

ROOT = Path(__file__).resolve().parents[2]
GIGABYTE = 2**30
# TVM and torch need 1.5 GB of addresses; the compiler and matplotlib write small files
LIMITS = {"AS": 4 * GIGABYTE, "FSIZE": GIGABYTE // 16, "CPU": 3600, "CORE": 0}
SCOPE = 8 * GIGABYTE  # of a server with all below it, where the kernel counts
DISK, FILES = GIGABYTE // 2, 20_000  # of the only folder that can be written to, altogether
# what a submission may read of the course: what its cells import. Not the solved notebooks
COURSE = ("helpers.py", "course", "data", "docs", "requirements.txt")
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/nix/store",
          sys.prefix, sys.base_prefix)
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "MLC_DATA", "OMP_NUM_THREADS", "TVM_NUM_THREADS",
        "TQDM_DISABLE", "PYTHONDONTWRITEBYTECODE")

PDEATHSIG, SUBREAPER, CAPBSET_DROP, NO_NEW_PRIVS = 1, 36, 24, 38  # prctl(2)
NEW = {"mount": 0x20000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000,
       "net": 0x40000000}  # unshare(2), CLONE_NEW*
MOUNT_PRIVATE, MOUNT_NOSUID, MOUNT_NODEV = 0x44000, 2, 4  # mount(2); private with all below
MOUNT_SETATTR, READ_ONLY, RECURSIVE, HERE = 442, 1, 0x8000, -100  # mount_setattr(2)
# Landlock, from linux/landlock.h: numbers of the calls (the same on all processors), and flags
CREATE, ADD_RULE, RESTRICT = 444, 445, 446
READ_FILE, READ_DIR = 1 << 2, 1 << 3
WRITE = sum(1 << bit for bit in (1, 4, 5, 6, 7, 8, 9, 10, 11, 12))  # write, remove, make
REFER, TRUNCATE, TCP, SIGNAL_AND_SOCKET = 1 << 13, 1 << 14, 3, 3
OF_A_FILE = 1 << 1 | READ_FILE | TRUNCATE  # rights that a rule on a file, not a folder, may give
# calls that nobody's answer needs. io_uring and process_vm go round what is refused elsewhere;
# socket is refused altogether: what a kernel listens on is there before
REFUSED = ("socket", "io_uring_setup", "ptrace", "process_vm_readv", "process_vm_writev",
           "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
           "setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr",
           "setpriority", "ioprio_set", "sched_setattr", "keyctl", "add_key", "request_key", "bpf",
           "perf_event_open", "userfaultfd", "mount", "umount2", "unshare", "setns", "kcmp",
           "pidfd_getfd", "memfd_create", "memfd_secret", "shmget")  # memory that is no process's

_libc = ctypes.CDLL(None, use_errno=True)


def _call(function: str, *arguments: object) -> int:
    """Call a function of the C library; raises OSError where it says -1."""
    result = getattr(_libc, function)(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function}: {os.strerror(code)}")
    return result


# ---- processes that end together -------------------------------------------------------------


def end_with_parent(number: signal.Signals) -> None:
    """Send this process a signal when its parent ends, also if that is killed (Linux)."""
    if sys.platform == "linux":
        _call("prctl", PDEATHSIG, int(number), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of every process below this one that loses its own (Linux)."""
    if sys.platform == "linux":
        _call("prctl", SUBREAPER, 1, 0, 0, 0)


def go_below() -> None:
    """Go on in a child of this process, which waits for it, and then ends as it did.

    So the parent of what may be hostile is nobody who is needed.
    """
    end_with_parent(signal.SIGKILL)
    child = os.fork()
    if not child:
        end_with_parent(signal.SIGKILL)  # a fork does not inherit it
        return
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


# ---- memory -----------------------------------------------------------------------------------


@functools.cache
def counted_by_kernel() -> tuple[str, ...]:
    """Return what stands before a command whose memory the kernel limits; () where it cannot.

    systemd gives it a cgroup of its own, if it has a manager for this user, and memory to give.
    """
    scope = ("systemd-run", "--user", "--scope", "--quiet", "--collect",
             f"--property=MemoryMax={SCOPE}", "--property=MemorySwapMax=0")
    shown = "cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup)/memory.max"
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        tried = subprocess.run([*scope, "sh", "-c", shown], capture_output=True, timeout=10,
                               check=True)
        return scope if tried.stdout.strip() == str(SCOPE).encode() else ()
    return ()


def be_ended_first() -> None:
    """Let the kernel choose this process, and all below it, where memory is short (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


# ---- namespaces -------------------------------------------------------------------------------


def enter_namespaces(scratch: Path) -> None:
    """Go on as the first process of new namespaces; the caller's process waits, see go_below.

    No network, no other process to be seen, everything read-only; `scratch` becomes an empty
    folder in memory, DISK bytes and FILES files large. Raises OSError where that is not allowed.
    The process may have one thread only.
    """
    user, group = os.getuid(), os.getgid()
    _call("unshare", sum(NEW.values()))
    for name, text in [("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                       ("gid_map", f"{group} {group} 1")]:
        Path(f"/proc/self/{name}").write_text(text)
    go_below()
    _call("mount", b"none", b"/", None, ctypes.c_ulong(MOUNT_PRIVATE), None)
    attributes = struct.pack("=QQQQ", READ_ONLY, 0, 0, 0)
    _call("syscall", MOUNT_SETATTR, HERE, b"/", RECURSIVE, attributes,
          ctypes.c_size_t(len(attributes)))
    results = [scratch.parents[1] / name for name in ("feedback", "graded")]  # other students'
    for kind, place, options in [
            ("tmpfs", scratch, f"size={DISK},nr_inodes={FILES},mode=700"),
            ("proc", Path("/proc"), ""),
            *(("tmpfs", place, "size=4k,mode=000") for place in results if place.is_dir())]:
        _call("mount", kind.encode(), os.fsencode(place), kind.encode(),
              ctypes.c_ulong(MOUNT_NOSUID | MOUNT_NODEV), options.encode())
    for capability in range(64):  # what the new user namespace gave: it could undo the mounts
        with contextlib.suppress(OSError):  # this kernel has fewer
            _call("prctl", CAPBSET_DROP, capability, 0, 0, 0)
    header, nothing = struct.pack("=Ii", 0x20080522, 0), bytes(24)  # capabilities(7), version 3
    _call("capset", header, nothing)


def namespaces_work(scratch: Path) -> bool:
    """Whether a process of this user may enter namespaces: a child tries."""
    if sys.platform != "linux":
        return False
    child = os.fork()
    if not child:
        with contextlib.suppress(OSError):
            enter_namespaces(scratch)
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- Landlock ---------------------------------------------------------------------------------


def landlock_abi() -> int:
    """Return the version of Landlock in this system, or 0."""
    linux = sys.platform == "linux"
    return max(0, _libc.syscall(CREATE, None, ctypes.c_size_t(0), 1)) if linux else 0


def _libraries() -> set[str]:
    """Return where packages lie that are outside of this Python, as behind links."""
    found = {Path(place).resolve() for place in sys.path if place}
    found |= {Path(file).resolve().parent for name, module in list(sys.modules.items())
              if "." not in name and (file := getattr(module, "__file__", None))}
    return {str(place) for place in found if not ROOT.is_relative_to(place)}


def _lock(folder: Path, data: Path) -> None:
    """Allow reading what a cell of the course needs, writing in `folder` only, and no TCP."""
    abi = landlock_abi()
    if not abi:
        return
    files = READ_FILE | READ_DIR | WRITE | (REFER if abi >= 2 else 0) | (TRUNCATE * (abi >= 3))
    handled = struct.pack("QQQ", files, TCP, SIGNAL_AND_SOCKET)
    handled = handled[:8 if abi < 4 else 16 if abi < 6 else 24]
    rules = _call("syscall", CREATE, handled, ctypes.c_size_t(len(handled)), 0)
    read = dict.fromkeys([*SYSTEM, *_libraries(), *(str(ROOT / name) for name in COURSE),
                          str(data)], READ_FILE | READ_DIR)
    places = read | dict.fromkeys(DEVICES, READ_FILE | 1 << 1) | {str(folder): files}
    for place, access in places.items():
        try:
            opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this system
        access &= files if os.path.isdir(place) else files & OF_A_FILE
        rule = struct.pack("=Qi", access, opened)
        _call("syscall", ADD_RULE, rules, 1, rule, 0)
        os.close(opened)
    _call("prctl", NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("syscall", RESTRICT, rules, 0)
    os.close(rules)


# ---- system calls -----------------------------------------------------------------------------


def refuse_calls() -> None:
    """Refuse the calls of REFUSED to all threads of this process and to its children."""
    if not pyseccomp:
        return
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    rules.set_attr(pyseccomp.Attr.CTL_TSYNC, 1)
    denied = pyseccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        with contextlib.suppress(OSError, ValueError):  # a call that this processor never had
            rules.add_rule(denied, name)
    # limits of one's own process (0) may be lowered, those of others not; ZeroMQ sets the usual
    # scheduling (0) of each of its threads, and ends the process where it may not
    rules.add_rule(denied, "prlimit64", pyseccomp.Arg(0, pyseccomp.NE, 0))
    rules.add_rule(denied, "sched_setscheduler", pyseccomp.Arg(1, pyseccomp.NE, 0))
    rules.load()


# ---- the folder -------------------------------------------------------------------------------


def folder_size(folder: Path) -> int:
    """Return the bytes below a folder; counting stops above DISK bytes or FILES files."""
    total = 0
    paths = (Path(place, name) for place, _, files in os.walk(folder) for name in files)
    for count, path in enumerate(paths, 1):
        with contextlib.suppress(OSError):
            total += path.lstat().st_blocks * 512
        if total > DISK or count > FILES:
            return max(total, DISK + 1)
    return total


def empty(folder: Path) -> None:
    """Take out all that is in a folder, also where a submission took the rights to it."""
    for place, folders, _ in os.walk(folder):
        for path in (Path(place, name) for name in folders):
            with contextlib.suppress(OSError):
                if not path.is_symlink():  # whose rights would be those of what it leads to
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(exist_ok=True)


# ---- all of it --------------------------------------------------------------------------------


def gaps(namespaces: bool) -> list[str]:
    """Say what this system cannot keep a submission from."""
    abi, calls = landlock_abi(), pyseccomp is not None
    found = [
        (sys.platform != "linux", "taking more than 4 GB of memory in one process"),
        (abi < 1, "reading your files and the solutions"),
        (abi < 1 and not namespaces, "writing outside its folder"),
        (not namespaces and not calls and abi < 4, "opening TCP connections"),
        (not namespaces and not calls, "listening on the network, and UDP"),
        (not calls, "talking to local sockets, such as Docker's"),
        (not calls, "taking memory that no process has mapped"),
        (not namespaces and not calls, "changing modes of your files and priorities of your "
                                       "processes"),
        (not namespaces and abi < 6, "ending other processes of the same user")]
    return [text for missing, text in found if missing]


def go_home(folder: Path) -> None:
    """Make `folder` the place for everything that programs keep in a home, and go there."""
    home = folder / ".home"
    (home / "fontconfig").mkdir(parents=True, exist_ok=True)  # it changes modes of what it makes
    for name in ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_RUNTIME_DIR",
                 "XDG_CACHE_HOME"):
        os.environ[name] = str(home)
    os.chdir(folder)


def lock_in(folder: Path) -> None:
    """Limit memory, processor time, files and TCP of this process for good.

    `folder` is what it may write to. Call it while there is one thread. `refuse_calls` comes when
    no socket is needed any more.
    """
    for name, most in LIMITS.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses RLIMIT_AS
            resource.setrlimit(kind, (most, most))
    _lock(folder, Path(os.environ.get("MLC_DATA") or ROOT / "data").resolve())
