"""The sandbox of one notebook of one submission, by bubblewrap, or else by Podman or Docker.

A box sees Python, what a notebook imports, and one folder in memory; no network, no other process,
none of your files. It answers in lines of JSON, MOST_GIVEN bytes in all, which are not trusted.
"""

import contextlib
import errno
import functools
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

import psutil

from course.words import ROOT, Sentence, _
from data import store

try:
    import pyseccomp
except (ImportError, OSError, RuntimeError):  # it, or libseccomp, is missing, as on macOS
    pyseccomp = None

CONTAINERS = ("podman", "docker")
IMAGE = "mlc-grader"  # made by instructor/Containerfile
USER = 47_251  # the box's user if you are root: one that does not exist
# what a notebook imports, and what runs it; neither solutions nor tests
COURSE = ("helpers.py", "course", "data", "docs", "requirements.txt", "tools/__init__.py",
          "tools/grading")
ETC = ("ld.so.cache", "alternatives", "fonts", "localtime")
DISK, SMALL = 512 << 20, 16 << 20  # bytes of its folder, and of each of /tmp and /dev/shm
MEMORY, PROCESSES = 6 << 30, 100  # of all processes in a box together
MOST_GIVEN = 64_000_000
LOOK = 0.25  # seconds between two looks
# what bubblewrap leaves open: the caller's keys; memory that no process has; big attack surfaces
REFUSED = ("keyctl", "add_key", "request_key", "memfd_create", "memfd_secret", "shmget", "semget",
           "msgget", "bpf", "io_uring_setup", "perf_event_open", "userfaultfd")
NEWUSER = 0x10000000  # clone(2)
SCOPE = ["systemd-run", *([] if os.geteuid() == 0 else ["--user"]), "--scope", "--quiet",
         "--collect", f"-pMemoryMax={MEMORY}", "-pMemorySwapMax=0", f"-pTasksMax={2 * PROCESSES}"]
AS_USER = ["/usr/bin/setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
           "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
_numbers = count()


class Lost(Exception):
    """Nothing can be graded, or nothing more; the text says why."""


def _tried(*command: str, **options: Any) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@functools.cache
def keeper() -> str:
    """Return what isolates a box: "bwrap", "podman", "docker", "user" or "UNSAFE"; raises Lost.

    "user": another user, without namespaces, if run_autograder says that this whole container is
    for one submission.
    """
    if os.environ.get("UNSAFE"):
        return "UNSAFE"
    why = ""
    if shutil.which("bwrap"):
        with tempfile.TemporaryDirectory() as empty, rules() as file:
            tried = _tried(*_bwrap(["/usr/bin/true"], file.fileno()), env={}, cwd=empty,
                           pass_fds=[file.fileno()])
        if not tried.returncode:
            return "bwrap"
        why = f" ({tried.stderr.strip()[-200:]})"
    if os.environ.get("ONE_SUBMISSION_ALONE") and os.geteuid() == 0:
        return "user"
    for name in CONTAINERS:
        if shutil.which(name) and not _tried(name, "info").returncode:
            if _tried(name, "image", "inspect", IMAGE).returncode:
                raise Lost(_("{keeper} is here, but not the image to grade in. Make it once:\n"
                             "{command}").format(keeper=name, command=f"{name} build -t {IMAGE} "
                                                 "-f instructor/Containerfile ."))
            return name
    raise Lost(_("Nothing here can isolate a submission{why}. Install bubblewrap 0.8 or later "
                 "(apt-get install bubblewrap), or Podman or Docker.\nWhere you trust all who hand "
                 "in as you trust yourself, UNSAFE=1 grades without a sandbox.").format(why=why))


@functools.cache
def counted() -> bool:
    """Whether systemd can count what a box uses: it runs a manager here that can limit memory."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return keeper() == "bwrap" and not _tried(*SCOPE, "true", timeout=10).returncode
    return False


def in_words() -> Sentence:
    """Say what isolates submissions, and what counts their resources."""
    who = {"UNSAFE": _("UNSAFE: nothing keeps submissions from your files and your network"),
           "user": _("Submissions run as another user of this container")}.get(
        keeper(), _("{keeper} keeps submissions in").format(keeper=keeper()))
    how = _("its limits count memory and processes") if keeper() in CONTAINERS \
        else _("a scope of systemd counts memory and processes") if counted() \
        else _("four looks a second count memory and processes")
    return _("{who}; {how}.").format(who=who, how=how)


def rules() -> Any:
    """Return an open file with the system calls to refuse, in bubblewrap's format."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    filtered(socket_families=16).export_bpf(file)
    file.seek(0)
    return file


def filtered(socket_families: int) -> Any:
    """Return pyseccomp's filter. A refused call looks missing; a foreign ABI ends the process."""
    made = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, pyseccomp.KILL_PROCESS)
    no = pyseccomp.ERRNO(errno.EPERM)
    for name in REFUSED:
        with contextlib.suppress(OSError, ValueError):  # a call that this processor does not have
            made.add_rule(no, name)
    # a container may make user namespaces; of clone3's flags, in memory, nothing can be seen
    made.add_rule(no, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, NEWUSER, NEWUSER))
    made.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    # no namespace holds AF_VSOCK; larger socket buffers are memory that is not counted
    made.add_rule(no, "socket", pyseccomp.Arg(0, pyseccomp.GT, socket_families))
    for option in (socket.SO_SNDBUF, 32, socket.SO_RCVBUF, 33):
        made.add_rule(no, "setsockopt", pyseccomp.Arg(1, pyseccomp.EQ, socket.SOL_SOCKET),
                      pyseccomp.Arg(2, pyseccomp.EQ, option))
    return made


def _binds() -> list[tuple[str, str]]:
    """Return what a box may read: (here, there)."""
    site = [path for path in sys.path if "site-packages" in path]
    python = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *site)} - {"/usr"}
    return [("/usr", "/usr"), *((path, path) for path in sorted(python)),
            *((str(ROOT / name), f"/course/{name}") for name in COURSE),
            (str(store.data_folder().resolve()), "/data")]


def _program(python: str, root: str, home: str, data: str, *more: str) -> list[str]:
    """Return the command that works in a box, with its whole environment: nothing of yours."""
    return ["env", "-i", f"PATH={python}/bin:/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
            f"HOME={home}", "USER=student", f"TMPDIR={home}", f"MLC_DATA={data}",
            f"PYTHONPATH={root}", "PYTHONDONTWRITEBYTECODE=1", "OMP_NUM_THREADS=1",
            "TVM_NUM_THREADS=1", "TVM_BIND_THREADS=0",  # or all boxes may share the first CPU
            "MPLBACKEND=module://matplotlib_inline.backend_inline", *more,
            f"{python}/bin/python", "-m", "tools.grading.inside"]


def _bwrap(program: list[str], filter_file: int) -> list[str]:
    """Return the command that runs a program in bubblewrap; if you are root, in two of them.

    The outer one shows what another user may not read, such as a Python below /root; the inner one
    isolates as that user. Limits of processes do not count root's. What that user started may
    survive its parent, which is root's: so the outer one has a process namespace, whose end ends
    everything in it.
    """
    links = (("--symlink", f"usr/{name}", f"/{name}") for name in ("bin", "lib", "lib64", "sbin")
             if os.path.islink(f"/{name}"))
    binds = _binds()  # bubblewrap's own folders above them would be closed to others
    above = {"/etc", *(str(path) for _here, there in binds for path in Path(there).parents)}
    shown = ["--perms", "1777", "--size", str(SMALL), "--tmpfs", "/tmp",  # a clone may be below it
             *chain(*links, *(("--dir", path) for path in sorted(above)),
                    *(("--ro-bind", *bind) for bind in binds),
                    *(("--ro-bind-try", f"/etc/{name}", f"/etc/{name}") for name in ETC)),
             "--perms", "1777", "--size", str(DISK), "--tmpfs", "/course/work"]
    walls = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent",
             "--new-session", "--cap-drop", "ALL", "--hostname", "box", "--seccomp",
             str(filter_file)]
    last = ["--proc", "/proc", "--dev", "/dev", "--size", str(SMALL), "--perms", "1777",
            "--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--remount-ro", "/",
            "--chdir", "/course/work", *program]
    bwrap = shutil.which("bwrap") or "bwrap"
    if os.geteuid():
        return [bwrap, *walls, *shown, *last]
    return [bwrap, *shown, "--dev-bind", "/proc", "/proc", "--dev-bind", "/dev", "/dev",
            "--die-with-parent", "--unshare-pid", *AS_USER,
            bwrap, *walls, "--bind", "/", "/", *last]


def _container(name: str, user: int) -> list[str]:
    """Return the command of a box in Podman or Docker.

    `user` has no other container: of two, one with a bomb would leave the other no process.
    """
    binds = [(here, there) for here, there in _binds() if there.startswith(("/course", "/data"))]
    most = 2 * PROCESSES
    return [keeper(), "run", "--rm", "--interactive", f"--name={name}", f"--user={user}:{user}",
            "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges",
            f"--memory={MEMORY}", f"--pids-limit={most}", f"--ulimit=nproc={most}:{most}",
            "--ulimit=nofile=1024:1024", f"--shm-size={SMALL}",
            f"--tmpfs=/course/work:rw,exec,mode=1777,size={DISK}",
            f"--tmpfs=/tmp:rw,mode=1777,size={SMALL}", "--workdir=/course/work",
            *(f"--volume={here}:{there}:ro" for here, there in binds), IMAGE,
            *_program("/venv", "/course", "/course/work", "/data", f"KEEPER={keeper()}")]


class Box:
    """A box that runs until it is closed; `tell` it something, and take its `lines`.

    Once these have ended, `why` says what ended it; "" if it ended by itself.
    """

    def __init__(self) -> None:
        self.ending, self.why, number = contextlib.ExitStack(), "", next(_numbers)
        self.name, self.pid = f"mlc-{os.getpid()}-{number}", 0
        python, data = os.path.realpath(sys.prefix), str(store.data_folder().resolve())
        passed, where = [], None
        environment = {} if keeper() == "bwrap" and not counted() else dict(os.environ)
        if keeper() == "bwrap":
            passed = [self.ending.enter_context(rules()).fileno()]
            command = _bwrap(_program(python, "/course", "/course/work", "/data"), *passed)
            if counted():
                command = [*SCOPE, "env", "-i", *command]
        elif keeper() in CONTAINERS:
            command = _container(self.name, USER + 1 + (31 * os.getpid() + number) % 10_000)
        else:
            (ROOT / "build").mkdir(exist_ok=True)  # in the course: notebooks look for it above
            where = self.ending.enter_context(tempfile.TemporaryDirectory(
                prefix="box-", dir=ROOT / "build", ignore_cleanup_errors=True))
            os.chmod(where, 0o777)
            command = _program(python, str(ROOT), where, data, f"KEEPER={keeper()}",
                               *(AS_USER if keeper() == "user" else []))
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=passed, env=environment, cwd=where, start_new_session=True)

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_: object) -> None:
        """End it, and all in it."""
        for process in [*self._family(), self.process]:
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        if keeper() in CONTAINERS:  # its processes may not be ours to kill, or not be here
            _tried(keeper(), "kill", self.name)
        for process in psutil.process_iter() if keeper() == "user" else ():
            with contextlib.suppress(psutil.Error, OSError):
                if process.uids().real == USER:
                    process.kill()
        with contextlib.suppress(OSError), self.process:
            pass  # wait for it, and close its pipes
        self.ending.close()

    def _family(self) -> list[psutil.Process]:
        """Return the processes in the box, as far as they can be seen from here."""
        with contextlib.suppress(psutil.Error, ValueError):
            if keeper() not in CONTAINERS:
                return psutil.Process(self.process.pid).children(recursive=True)
            # a container is not below the command that runs it; on macOS it is in another machine
            self.pid = self.pid or int(_tried(keeper(), "inspect", "--format={{.State.Pid}}",
                                              self.name).stdout)
            first = psutil.Process(self.pid)
            if self.pid and "tools.grading.inside" in first.cmdline():
                return [first, *first.children(recursive=True)]
        return []

    def tell(self, value: Any) -> None:
        """Send a line; do not wait for a reader."""
        def write() -> None:
            with contextlib.suppress(OSError, ValueError):
                self.process.stdin.write(line)  # type: ignore[union-attr]
                self.process.stdin.flush()  # type: ignore[union-attr]

        line = json.dumps(value).encode() + b"\n"
        threading.Thread(target=write, daemon=True).start()

    def lines(self, seconds: float) -> Iterator[list[Any]]:
        """Yield its lines, until it has ended or has done nothing for this many `seconds`."""
        assert self.process.stdout
        source, poll = self.process.stdout.fileno(), selectors.DefaultSelector()
        poll.register(source, selectors.EVENT_READ)
        self.heard = self.awake = looked = time.monotonic()
        self.used, begun, left = 0.0, bytearray(), MOST_GIVEN
        while not self.why:
            if poll.select(LOOK):
                part = os.read(source, 1 << 20)
                left -= len(part)
                *whole, rest = part.split(b"\n")
                for line in whole:
                    with contextlib.suppress(ValueError, RecursionError):
                        value = json.loads(begun + line)
                        if isinstance(value, list) and value and isinstance(value[0], str):
                            yield value
                    begun.clear()
                begun += rest
                if not part:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.why = of_code(self.process.wait(5))
                        return
                    self.why = _("closed the pipe for its verdict")
                    return
                self.heard = time.monotonic()
            if left < 0:
                self.why = _("gave more than {size} MB").format(size=MOST_GIVEN // 1_000_000)
            elif time.monotonic() - looked > LOOK:
                self.why, looked = self._looked(seconds), time.monotonic()

    def _looked(self, seconds: float) -> Sentence | str:
        """Say which limit the processes in the box together have passed, or ""."""
        now, family = time.monotonic(), self._family()
        if len(family) > PROCESSES:
            return _("started more than {count} processes").format(count=PROCESSES)
        used, held, shared = 0.0, 0, 0
        for process in family:
            with contextlib.suppress(psutil.Error):
                used += sum(process.cpu_times()[:2])
                held += process.memory_info().rss
        for process in family if held > MEMORY and not counted() else ():
            with contextlib.suppress(psutil.Error):  # what n processes share counts an n-th
                memory = process.memory_full_info()
                shared += getattr(memory, "pss", memory.uss)
        if shared > MEMORY:
            return _("took more than {size} GB of memory with all its processes").format(
                size=MEMORY >> 30)
        if abs(used - self.used) > 0.02:  # less where one has ended
            self.used, self.awake = used, now
        if family and now - self.awake > seconds + 30 or now - self.heard > 12 * seconds + 60:
            return _("waited {seconds} seconds for nothing").format(seconds=f"{seconds:g}")
        return ""


def of_code(code: int) -> Sentence:
    """Say how a process ended: its exit code; or a signal, negative or behind 128."""
    try:
        name = signal.Signals(-code if code < 0 else code - 128).name
    except ValueError:
        name = f"exit code {code}"
    if name == "SIGKILL":
        return _("ended its process (SIGKILL: too much memory?)")
    return _("ended its process ({code})").format(code=name)
