"""Measuring on other machines, or on this one as if it were remote: TVM's RPC tracker and servers.

A tracker keeps a list of servers, each under a key; a tuner asks it for one. There are no
passwords, and a server runs what it is sent: here all listen on 127.0.0.1 only. To reach other
machines, use ssh tunnels (instructor/README.md).
"""

import contextlib
import os
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import tvm
from tvm import rpc, te
from tvm.rpc import base
from tvm.rpc.server import Server
from tvm.rpc.tracker import Tracker
from tvm.s_tir import meta_schedule as ms
from tvm.support import tar

from course import kernels, present
from course.words import _
from data.store import CourseError

HERE, PATIENCE = "127.0.0.1", 10  # seconds for a tracker, or for a server, to answer
SESSION = 60  # seconds that a candidate may hold a server; TVM's own 10 end slow ones


@dataclass(frozen=True)
class Devices:
    """The servers of one key at a tracker: how many, their processor, and the threads of each."""

    host: str
    port: int
    key: str
    count: int
    cpu: str
    threads: int

    def runner(self, seconds: float = SESSION) -> ms.runner.RPCRunner:
        """Return the runner with which MetaSchedule measures on all of them at once."""
        return ms.runner.RPCRunner(
            rpc_config=ms.runner.RPCConfig(
                tracker_host=self.host, tracker_port=self.port, tracker_key=self.key,
                session_timeout_sec=seconds),
            max_workers=self.count,  # None means one: the other servers would idle
            initializer=_quick_start())

    def target(self) -> tvm.target.Target:
        """Return the target for their processor, not for this machine's."""
        return tvm.target.Target({"kind": "llvm", "mcpu": self.cpu, "num-cores": self.threads})


def _quick_start() -> Callable[[], None]:
    """Return what TVM's processes call first; else they import instructions for minutes."""
    import cloudpickle  # only tuning needs it
    cloudpickle.register_pickle_by_value(kernels)  # these processes don't find the file
    return kernels.no_tensor_intrinsics


def builder() -> ms.builder.LocalBuilder:
    """Return MetaSchedule's builder for this machine; its log is text, in a notebook too.

    Otherwise it shows pandas tables there, which the course does not need.
    """
    tvm.register_global_func("s_tir.meta_schedule.using_ipython", lambda: False, override=True)
    return ms.builder.LocalBuilder(initializer=_quick_start())


# ---- who is there -----------------------------------------------------------------------------


def _address(tracker: str) -> tuple[str, int]:
    """Return host and port of "host:port"; raises CourseError for anything else."""
    host, _colon, port = tracker.rpartition(":")
    if not host or not port.isdecimal():
        raise CourseError(_("TRACKER={tracker} is not an address: it takes host:port, as "
                            "{example}.").format(tracker=tracker, example=f"{HERE}:9190"))
    return host, int(port)


def keys(host: str, port: int) -> dict[str, int]:
    """Return how many servers are registered under each key; asks once, and raises CourseError."""
    try:
        with socket.create_connection((host, port), PATIENCE) as asked:
            asked.sendall(struct.pack("<i", base.RPC_TRACKER_MAGIC))
            if base.recvall(asked, 4) != struct.pack("<i", base.RPC_TRACKER_MAGIC):
                raise ValueError("it is something else")
            base.sendjson(asked, [base.TrackerCode.SUMMARY])
            found = base.recvjson(asked)[1]["server_info"]
    except (OSError, RuntimeError, ValueError) as error:
        raise CourseError(_("No RPC tracker answers at {address} ({error}). Start one: "
                            "{command}").format(
            address=f"{host}:{port}", error=error,
            command=f"python -m tvm.exec.rpc_tracker --host {HERE} --port {port}")) from None
    return Counter(server["key"].removeprefix("server:") for server in found)


def _probe_module(folder: Path) -> Path:
    """Return a small library packed like a candidate: objects in a tar, which the server links."""
    x = te.placeholder((4,), name="x")
    function = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0, name="y")])
    path = folder / "probe.tar"
    tvm.compile(function.with_attr("global_symbol", "main"), "llvm").export_library(
        str(path), fcompile=tar.tar)
    return path


def _inspect(session: rpc.RPCSession, probe: Path) -> tuple[str, int]:
    """Return a server's processor and threads; raises CourseError if it can run nothing."""
    try:
        session.upload(str(probe))
        session.load_module(probe.name)
    except Exception as error:  # over the wire comes a RuntimeError, or anything else
        text = str(error).strip().splitlines()
        raise CourseError(_("A server cannot load what it is sent: it needs tar and a C++ compiler "
                            "(g++) on its PATH. It said: {text}").format(
            text=text[-1][:200] if text else error)) from None
    finally:
        with contextlib.suppress(Exception):
            session.remove("")
    return (str(session.get_function("target.llvm_get_system_cpu")()),
            int(session.get_function("runtime.NumThreads")()))


def ask(tracker: str, key: str) -> Devices:
    """Check every server of a key before any work starts, and return what they are.

    Raises CourseError if one does not answer, cannot run what it is sent, or differs.
    """
    host, port = _address(tracker)
    there = keys(host, port)
    if key not in there:  # TVM itself would wait for one forever
        names = ", ".join(f"{name} ({number})" for name, number in sorted(there.items()))
        raise CourseError(_("No server is registered under KEY={key} at {tracker}; there is "
                            "{names}.").format(
            key=key, tracker=tracker, names=names or _("none at all")))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(there[key]) as pool:
        probe = _probe_module(Path(folder))
        asked = [pool.submit(rpc.connect_tracker(host, port).request, key,
                             session_timeout=SESSION) for _ in range(there[key])]
        try:
            sessions = [future.result(PATIENCE) for future in asked]
        except TimeoutError:
            raise CourseError(_("Not all servers of {key} are free: some are in use. Ask: "
                                "{command}").format(key=key, command=(
                "python -m tvm.exec.query_rpc_tracker "
                f"--host {host} --port {port}"))) from None
        except RuntimeError as error:
            raise CourseError(_("A server of {key} does not answer: {error}").format(
                key=key, error=str(error).splitlines()[0][:200])) from None
        found = {_inspect(session, probe) for session in sessions}
        del sessions
    if len(found) > 1:
        text = "; ".join(f"{cpu}, {threads} threads" for cpu, threads in sorted(found))
        raise CourseError(_("The servers of {key} differ ({text}): a time on one says nothing "
                            "about another. Give each kind a key of its own, and tune for each. "
                            "Threads: TVM_NUM_THREADS, where the server is started.").format(
            key=key, text=text))
    cpu, threads = found.pop()
    return Devices(host, port, key, there[key], cpu, threads)


# ---- our own servers --------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HERE, 0))
        return free.getsockname()[1]


def _end_with_this(process: Tracker | Server) -> None:
    """End a process silently when this one ends, even if this one is killed (Linux)."""
    def on_linux() -> None:
        import ctypes
        import logging
        import sys
        logging.disable(logging.WARNING)  # it is expected that the others go first
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGTERM

    process.proc.send(on_linux)
    process.proc.recv()


def _end(process: Tracker | Server) -> None:
    with contextlib.suppress(Exception):  # it is gone already
        process.terminate()


@contextlib.contextmanager
def local(servers: int, threads: int = 1, key: str = "here") -> Iterator[Devices]:
    """Start a tracker and servers for this machine alone, and end them in any case.

    Each server runs a candidate with `threads` threads. Raises CourseError if they cannot start.
    """
    linker = present.tool("shared")  # a server unpacks what it is sent, and links it
    if len(linker.command) > 1:  # ziglang: TVM wants only a program's name
        linker = present.tool("c++")
    for needed in (present.tool("tar"), linker):
        if not needed:
            raise CourseError(needed.said)
    with contextlib.ExitStack() as ends:
        def start(kind: type, **options) -> Tracker | Server:
            port = _free_port()
            process = kind(HERE, port, port + 50, silent=True, **options)
            ends.callback(_end, process)
            _end_with_this(process)
            return process

        try:
            # read when a server starts
            with mock.patch.dict(os.environ, TVM_NUM_THREADS=str(threads), CXX=linker.command[0]):
                tracker = start(Tracker)
                for _number in range(servers):
                    start(Server, key=key, tracker_addr=(HERE, tracker.port))
                end = time.monotonic() + 6 * PATIENCE
                while keys(HERE, tracker.port).get(key, 0) < servers:
                    if time.monotonic() > end:
                        raise CourseError(_("The servers have not registered with the tracker."))
                    time.sleep(0.1)
        except (OSError, RuntimeError, ValueError) as error:
            raise CourseError(_("No ports can be opened here ({error}).").format(
                error=str(error)[:100])) from None
        yield ask(f"{HERE}:{tracker.port}", key)
