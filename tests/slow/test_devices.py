"""Tuning by TVM's RPC tracker: servers on loopback, what is looked at first, one that is killed."""

import contextlib
import multiprocessing
import platform
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import tvm
from tvm import te
from tvm.rpc.server import Server
from tvm.s_tir import meta_schedule as ms

from course import devices, present
from data.store import CourseError
from tools import tune

HERE = devices.HERE


@contextlib.contextmanager
def _server(there: devices.Devices, key: str, **environment: str) -> Iterator[psutil.Process]:
    """Start one more server, with something else in its environment."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        known, port = {child.pid for child in psutil.Process().children()}, devices._free_port()
        server = Server(HERE, port, port + 50, key=key, silent=True,
                        tracker_addr=(there.host, there.port))
    (process,) = (child for child in psutil.Process().children() if child.pid not in known)
    try:
        end = time.monotonic() + 60
        while key not in devices.keys(there.host, there.port):
            assert time.monotonic() < end
            time.sleep(0.1)
        yield process
    finally:
        server.terminate()


def _below() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture(scope="module")
def there() -> Iterator[devices.Devices]:
    with devices.local(2) as found:
        yield found


def test_servers_are_for_this_machine_alone_and_end() -> None:
    """They listen on loopback, and are gone afterwards, also after an exception."""
    before, listens = _below(), set()
    with pytest.raises(ZeroDivisionError), devices.local(2, threads=1) as found:
        for pid in _below() - before:
            with contextlib.suppress(psutil.NoSuchProcess):  # a server forks for a session
                listens |= {opened.laddr.ip for opened in psutil.Process(pid).net_connections("tcp")
                            if opened.status == psutil.CONN_LISTEN}
        assert (found.count, found.threads, found.key) == (2, 1, "here")
        assert found.cpu == tvm.target.Target.from_device("cpu").attrs["mcpu"]
        assert found.target().attrs["num-cores"] == 1 and found.runner().pool is not None
        raise ZeroDivisionError
    assert listens == {HERE}
    end = time.monotonic() + 20
    while left := _below() - before:
        assert time.monotonic() < end, [psutil.Process(pid).cmdline() for pid in left]
        time.sleep(0.2)


def test_what_is_wrong_gets_one_line_before_any_work(there, monkeypatch) -> None:
    tracker = f"{there.host}:{there.port}"
    with pytest.raises(CourseError, match="KEY=phone at .*; there is here [(]2[)]"):
        devices.ask(tracker, "phone")
    with pytest.raises(CourseError, match="TRACKER=board is not an address: it takes host:port"):
        devices.ask("board", "phone")
    start = time.monotonic()
    with pytest.raises(CourseError, match=f"No RPC tracker answers at {HERE}:{1} "):
        devices.ask(f"{HERE}:1", "here")
    assert time.monotonic() - start < 5
    with _server(there, "bare", PATH="/nowhere"), \
            pytest.raises(CourseError, match="it needs tar and a C[+][+] compiler"):
        devices.ask(tracker, "bare")
    with _server(there, "here", TVM_NUM_THREADS="2"), \
            pytest.raises(CourseError, match="The servers of here differ .*1 threads.*2 threads"):
        time.sleep(1)
        devices.ask(tracker, "here")
    monkeypatch.setenv("PATH", "/nowhere")
    present.tool.cache_clear()
    try:
        with pytest.raises(CourseError, match="tar: not here. To get it: "), devices.local(1):
            pass
    finally:
        present.tool.cache_clear()


def test_the_search_goes_on_when_a_server_is_killed(tmp_path: Path, monkeypatch) -> None:
    """One of two ends in the middle: the database is whole and names the processor."""
    x, y = te.placeholder((64, 64), name="x"), te.placeholder((64, 64), name="y")
    k = te.reduce_axis((0, 64), name="k")
    product = te.create_prim_func([x, y, te.compute(
        (64, 64), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="C")])
    # as kernels.no_tensor_intrinsics(), and gone when the test is: others import the real one
    name = "tvm.s_tir.tensor_intrin"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with devices.local(1) as found, _server(found, "here", TVM_NUM_THREADS="1") as second:
        # one without VNNI, whose instructions take minutes to import
        cpu = "x86-64-v3" if platform.machine() == "x86_64" else found.cpu
        two = devices.Devices(found.host, found.port, found.key, 2, cpu, found.threads)
        records = tmp_path / "database_tuning_record.json"

        def kill() -> None:
            while not records.exists() or not records.read_text().count("\n"):
                time.sleep(0.05)
            for process in [*second.children(recursive=True), second]:
                with contextlib.suppress(psutil.Error):
                    process.kill()

        threading.Thread(target=kill, daemon=True).start()
        database = ms.tir_integration.tune_tir(
            tvm.IRModule({"main": product}), two.target(), str(tmp_path), max_trials_global=12,
            num_trials_per_iter=4, cost_model="random", strategy="replay-trace", seed=0,
            runner=two.runner(20),
            builder=devices.builder())
        assert not second.is_running() or second.status() == psutil.STATUS_ZOMBIE
        assert devices.keys(found.host, found.port) == {"here": 1}
    whole = ms.database.JSONDatabase(work_dir=str(tmp_path))
    measured = [record for record in whole.get_all_tuning_records()
                if record.run_secs and float(record.run_secs[0]) < 1]
    assert len(whole) == len(database) == 12 and len(measured) >= 8
    assert all(record.target.attrs["mcpu"] == cpu for record in measured)


def test_without_any_server_it_stops(there, monkeypatch) -> None:
    monkeypatch.setattr(tune, "LOOK", 0.2)
    spawn = multiprocessing.get_context("spawn")
    process, start = spawn.Process(target=time.sleep, args=(30,)), time.monotonic()
    process.start()
    nobody = devices.Devices(there.host, there.port, "nobody", 1, there.cpu, 1)
    with pytest.raises(CourseError, match="no server is left under KEY=nobody; nothing is"):
        tune.wait(process, nobody)
    process.join(5)
    assert process.exitcode == -signal.SIGKILL and time.monotonic() - start < 20
    process = spawn.Process(target=time.sleep, args=(1,))
    process.start()
    assert tune.wait(process, there) == 0


def _started(*words: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "tools.tune", *words], cwd=tune.helpers.ROOT,
                            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_it_ends_within_seconds_when_the_last_server_does(tmp_path) -> None:
    with devices.local(1) as found:
        server = max(psutil.Process().children(), key=psutil.Process.create_time)
        words = ["--tracker", f"{found.host}:{found.port}", "--key", found.key, "--to",
                 str(tmp_path / "tuned")]
        with _started(*words) as process:
            assert process.stdout.readline().startswith("1 server(s) under here")
            for part in [*server.children(recursive=True), server]:
                part.kill()
            start = time.monotonic()
            _, said = process.communicate(timeout=60)
    assert process.returncode == 1 and time.monotonic() - start < 30
    assert said == f"Stopped, no server is left under KEY={found.key}; nothing is written.\n"
    assert not (tmp_path / "tuned").exists()


def test_ctrl_c_is_no_traceback_and_leaves_nothing(tmp_path) -> None:
    with devices.local(2) as found, _started(
            "--tracker", f"{found.host}:{found.port}", "--key", found.key, "--to",
            str(tmp_path / "tuned")) as process:
        assert process.stdout.readline().startswith("2 server(s) under here")
        end, below = time.monotonic() + 60, []
        while len(below) < 4 and time.monotonic() < end:  # until it is at work
            time.sleep(0.5)
            below = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and said == "Stopped; nothing is written.\n"
    assert len(below) >= 4 and psutil.wait_procs(below, timeout=20)[1] == []
    assert not (tmp_path / "tuned").exists()


def test_a_tracker_needs_a_key(capsys) -> None:
    assert tune.main(["--tracker", f"{HERE}:1"]) == 1
    assert "TRACKER=host:port and KEY=name go together" in capsys.readouterr().err
