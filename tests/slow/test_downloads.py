"""Downloads by torchvision and torch.hub from a server on the loopback address, good and bad."""

import dataclasses
import errno
import functools
import gzip
import hashlib
import os
import pickle
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest

import helpers
from data import fetch, store, versions

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = ROOT / "data" / "stand_in"
CNN, MLP = (store.WEIGHTS[model].file for model in ("cnn", "mlp"))
TRAIN, TEST = "train-images-idx3-ubyte", "t10k-images-idx3-ubyte"
TEST_LABELS = "t10k-labels-idx1-ubyte"


# ---- what is published, and the server that hands it out, or does not ----


def _idx(magic: int, array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}i", magic, *array.shape) + array.tobytes()


@functools.cache
def published() -> dict[str, bytes]:
    """Return the six files that a server hands out: the stand-in in the published formats."""
    raw = STAND_IN / "FashionMNIST" / "raw"
    files = {TRAIN: _idx(2051, np.ones((10, 28, 28), np.uint8)),
             "train-labels-idx1-ubyte": _idx(2049, np.arange(10, dtype=np.uint8)),
             TEST: (raw / TEST).read_bytes(), TEST_LABELS: (raw / TEST_LABELS).read_bytes()}
    files = {f"{name}.gz": gzip.compress(data, 1, mtime=0) for name, data in files.items()}
    for model, spec in store.WEIGHTS.items():
        with np.load(STAND_IN / "models" / f"{model}.npz") as stored:
            arrays = {name: stored[name].astype(np.float32) for name in spec.shapes}
        files[spec.file] = pickle.dumps(arrays, protocol=4)
    return files


def point_at(url: str, put: Callable = setattr) -> None:
    """Have the code that downloads look at `url` for the files of published(), with their sums."""
    versions.allow_torchvision()
    from torchvision.datasets import FashionMNIST as mnist
    files = published()
    put(fetch, "WEIGHTS_URL", url)
    put(store, "WEIGHTS", {
        model: dataclasses.replace(spec, sha256=hashlib.sha256(files[spec.file]).hexdigest())
        for model, spec in store.WEIGHTS.items()})
    put(mnist, "mirrors", [url])
    put(mnist, "resources", [(name, hashlib.md5(data).hexdigest())
                             for name, data in files.items() if name.endswith(".gz")])


class Handler(BaseHTTPRequestHandler):
    """Hands out the server's files, each in the way that the server has for it."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.server.asked.append(name)
        try:
            self.server.ways.get(name, whole)(self, self.server.files[name])
        except (BrokenPipeError, ConnectionResetError):
            self.server.hung_up.set()

    def log_message(self, *_) -> None:
        pass


def _begin(handler: Handler, size: int) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(size))
    handler.end_headers()


def whole(handler: Handler, body: bytes) -> None:
    """Send everything, as it is."""
    _begin(handler, len(body))
    handler.wfile.write(body)


def damaged(handler: Handler, body: bytes) -> None:
    """Send as much as there is, with one byte of it changed."""
    middle = len(body) // 2
    whole(handler, body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1:])


def breaks_off(handler: Handler, body: bytes) -> None:
    """Promise everything, send half, and close the connection."""
    _begin(handler, len(body))
    handler.wfile.write(body[:len(body) // 2])


def resets(handler: Handler, body: bytes) -> None:
    """Promise everything, send nothing, and reset the connection."""
    _begin(handler, len(body))
    time.sleep(0.2)  # the headers arrive first
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def closes(handler: Handler, body: bytes) -> None:
    """Close the connection without a word."""


def absent(handler: Handler, body: bytes) -> None:
    """Say that there is no such file."""
    handler.send_error(404)


def silent(handler: Handler, body: bytes) -> None:
    """Take the request and never answer."""
    handler.server.over.wait(60)


def drips(handler: Handler, body: bytes) -> None:
    """Send one byte a second."""
    _begin(handler, len(body))
    while not handler.server.over.wait(1):
        handler.wfile.write(b"x")


class Server(ThreadingHTTPServer):
    """Serves published() on a free port of the loopback address."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ways, self.asked = published(), {}, []
        self.over, self.hung_up = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}/"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def end(self) -> None:
        self.over.set()
        self.shutdown()
        self.server_close()


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server()
    yield running
    running.end()


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# ---- fetch.fetch, with the real code in the process that downloads ----


def _command(url: str, extra: str = "") -> list[str]:
    """Return the command that downloads from `url`; `extra` is executed before it does."""
    paths = [str(ROOT), str(Path(__file__).parent)]
    return [sys.executable, "-c", f"import sys; sys.path[:0] = {paths}\n"
            "import pathlib, test_downloads\nfrom data import fetch\n"
            f"test_downloads.point_at({url!r})\n{extra}\n"
            "fetch.download(pathlib.Path(sys.argv[1]))"]


def _content(folder: Path) -> dict[str, bytes | None]:
    """Everything in `folder`, hidden or not: bytes of files, None for folders."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in folder.rglob("*")}


def _fails(target: Path, command: list[str], seconds: float = 30) -> str:
    """Fetch into `target`, where that must fail and leave all as it was; return the reason."""
    (target / "models").mkdir()
    (target / "models" / MLP).write_bytes(b"what the student had")
    before, start = _content(target), time.monotonic()
    reason = fetch.fetch(target, command)
    assert time.monotonic() - start < seconds
    assert _content(target) == before
    assert 10 < len(reason) < 200 and len(reason.splitlines()) == 1
    assert not [word for word in ("Error:", "Errno", "urllib", "urlopen", "File \"", "raise ")
                if word in reason]
    return reason


@pytest.fixture(scope="module")
def downloaded(tmp_path_factory) -> Iterator[tuple[Path, list[str]]]:
    """A folder that two processes downloaded into at once, and what each of them reported."""
    target = tmp_path_factory.mktemp("data")
    together = threading.Barrier(2)

    def when_both_ask(handler: Handler, body: bytes) -> None:
        together.wait(60)  # else BrokenBarrierError, and no answer
        whole(handler, body)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as pool:
        patch.setenv("no_proxy", "127.0.0.1")
        patch.setattr(fetch, "PATIENCE", 60.0)  # the first of the two waits for the other
        server = Server()
        server.ways = {CNN: when_both_ask}
        reasons = list(pool.map(lambda _: fetch.fetch(target, _command(
            server.url, "fetch.PATIENCE = 60")), range(2)))
        server.end()
    return target, reasons


def test_two_downloads_at_once(downloaded) -> None:
    target, reasons = downloaded
    assert reasons == ["", ""]
    wanted = {f"FashionMNIST/raw/{name[:-3]}": gzip.decompress(data)
              for name, data in published().items() if name.endswith(".gz")}
    wanted |= {f"models/{name}": published()[name] for name in (CNN, MLP)}
    wanted |= dict.fromkeys(("FashionMNIST", "FashionMNIST/raw", "models"))
    assert _content(target) == wanted


def test_helpers_read_what_was_downloaded(downloaded, monkeypatch) -> None:
    point_at("", monkeypatch.setattr)
    monkeypatch.setenv("MLC_DATA", str(downloaded[0]))
    helpers.data_folder.cache_clear()
    images, labels = next(iter(helpers.test_loader(1000)))
    weights = helpers.load_weights("cnn")
    helpers.data_folder.cache_clear()
    right = helpers.pytorch_model(weights)(images).argmax(1) == labels
    assert int(right.sum()) == 916  # as the stand-in, which these files are


def test_nothing_listens(tmp_path: Path, server: Server) -> None:
    reason = _fails(tmp_path, _command(f"http://127.0.0.1:{_closed_port()}/"))
    assert reason == f"{CNN}: no network, or the server cannot be reached (Connection refused)"


@pytest.mark.parametrize(("file", "way", "words"), [
    (f"{TEST}.gz", breaks_off, "Fashion-MNIST: not the published file (wrong checksum)"),
    (f"{TRAIN}.gz", damaged, "Fashion-MNIST: not the published file (wrong checksum)"),
    (MLP, damaged, f"{MLP}: not the published file (wrong checksum)"),
    (CNN, absent, f"{CNN}: the server does not hand it out (HTTP Error 404: Not Found)"),
])
def test_bad_answers(tmp_path: Path, server: Server, file, way, words) -> None:
    server.ways = {file: way}
    assert _fails(tmp_path, _command(server.url)).startswith(words)


def test_a_server_that_never_answers(tmp_path: Path, server: Server) -> None:
    server.ways = {CNN: silent}
    reason = _fails(tmp_path, _command(server.url, "fetch.PATIENCE = 1"))
    assert reason == f"{CNN}: the network or the server does not answer (timed out)"


def test_a_server_that_drips(tmp_path: Path, server: Server, monkeypatch) -> None:
    monkeypatch.setattr(fetch, "PATIENCE", 2.5)
    server.ways = {CNN: drips}
    reason = _fails(tmp_path, _command(server.url))
    assert reason.startswith("no progress for 2 seconds: the network or the server is too slow")
    assert server.asked == [CNN] and server.hung_up.wait(10)  # it began, and was ended


def test_a_full_disk(tmp_path: Path, server: Server) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    reason = _fails(tmp_path, _command(server.url, limit))
    assert reason == f"{CNN}: the disk is full (File too large); about 90 MB are needed"


# ---- fetch.download in this process: more files, more faults ----


@pytest.mark.parametrize("file", [CNN, MLP, f"{TRAIN}.gz", f"{TEST_LABELS}.gz"])
@pytest.mark.parametrize(("way", "words"), [
    (breaks_off, "not the published file (wrong checksum): the download broke off, or the network "
                 "sent something else; try again"),
    (damaged, "not the published file (wrong checksum)"),
    (absent, "the server does not hand it out (HTTP Error 404: Not Found)"),
    (resets, "the connection broke off (Connection reset by peer); try again"),
    (closes, "the connection broke off (Remote end closed connection without response)"),
    (silent, "the network or the server does not answer (timed out)"),
])
def test_every_fault_in_one_line(tmp_path, server, monkeypatch, file, way, words) -> None:
    point_at(server.url, monkeypatch.setattr)
    monkeypatch.setattr(fetch, "PATIENCE", 0.5)
    server.ways = {file: way}
    try:
        with pytest.raises(SystemExit) as ended:
            fetch.download(tmp_path)
    finally:
        socket.setdefaulttimeout(None)
    what = "Fashion-MNIST" if file.endswith(".gz") else file
    assert ended.value.code.startswith(f"{what}: {words}") and "\n" not in ended.value.code


@pytest.mark.skipif(sys.platform != "linux", reason="needs a full queue that drops packets")
def test_a_network_that_drops_packets(tmp_path: Path, server: Server, monkeypatch) -> None:
    monkeypatch.setattr(fetch, "PATIENCE", 0.5)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, socket.socket() as first:
        first.connect(deaf.getsockname())  # it fills the queue, and nobody accepts
        point_at(f"http://127.0.0.1:{deaf.getsockname()[1]}/", monkeypatch.setattr)
        try:
            with pytest.raises(SystemExit, match=f"{CNN}: the network or .* does not answer"):
                fetch.download(tmp_path)
        finally:
            socket.setdefaulttimeout(None)


@pytest.mark.parametrize(("error", "words"), [
    (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "the disk is full (No space left"),
    (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "the disk is full (Disk quota"),
    (URLError(socket.gaierror(-3, "Temporary failure in name resolution")),
     "no network, or the server cannot be reached (Temporary failure in name resolution)"),
    (URLError(ssl.SSLCertVerificationError(1, "[SSL: X] certificate verify failed: Y")),
     "no network, or the server cannot be reached (certificate verify failed: Y"),
    (AssertionError(), "AssertionError"),
])
def test_other_errors_in_words(error: Exception, words: str) -> None:
    assert fetch._in_words(error).startswith(words)


# ---- fetch.fetch, with a small process that downloads nothing ----

WRITES = "import os, sys, time, pathlib; folder = pathlib.Path(sys.argv[1]); "
TWO_FILES = WRITES + ("(folder / 'models').mkdir(); (folder / 'models/x').write_bytes(b'1'); "
                      "(folder / 'y').write_bytes(b'2')")


def test_a_folder_that_is_read_only() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own is closed to everybody else
        Path(name, "there.txt").write_text("before")
        os.chmod(name, 0o555)
        root = os.geteuid() == 0
        try:
            if root:  # permissions do not hold for root
                os.seteuid(65534)
            reason = fetch.fetch(Path(name), [sys.executable, "-c", TWO_FILES])
        finally:
            if root:
                os.seteuid(0)
            os.chmod(name, 0o755)
        assert reason == f"{Path(name).name} cannot be written: Permission denied"
        assert _content(Path(name)) == {"there.txt": b"before"}


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("in the way")
    reason = fetch.fetch(tmp_path, [sys.executable, "-c", TWO_FILES])
    assert reason == f"{tmp_path.name}/models/x cannot be written: File exists"
    assert _content(tmp_path) == {"models": b"in the way"}


def test_a_disk_that_is_full_when_files_are_moved(tmp_path: Path, monkeypatch) -> None:
    def full(source: Path, place: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(place))

    monkeypatch.setattr(fetch.os, "replace", full)
    reason = fetch.fetch(tmp_path, [sys.executable, "-c", TWO_FILES])
    assert reason == f"{tmp_path.name}/models/x cannot be written: No space left on device"
    assert _content(tmp_path) == {"models": None}  # a folder, with nothing in it


def test_a_process_that_says_much(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(fetch, "PATIENCE", 2.0)  # a progress bar must not fill a pipe and block
    says = TWO_FILES + "; sys.stderr.write('\\r 50%' * 100_000)"
    assert fetch.fetch(tmp_path, [sys.executable, "-c", says]) == ""
    assert _content(tmp_path) == {"models": None, "models/x": b"1", "y": b"2"}


def test_the_last_line_that_it_says_is_the_reason(tmp_path: Path) -> None:
    says = TWO_FILES + "; sys.stderr.write('\\r 50%\\r 51%\\n'); sys.exit('broken glass')"
    assert fetch.fetch(tmp_path, [sys.executable, "-c", says]) == "broken glass"
    dies = TWO_FILES + "; os.kill(os.getpid(), 9)"
    assert fetch.fetch(tmp_path, [sys.executable, "-c", dies]) == (
        "the download ended with status -9")
    assert _content(tmp_path) == {}


def test_an_interrupt_ends_the_process_and_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    target, note = tmp_path / "data", tmp_path / "pid"
    target.mkdir()

    def interrupted(_: float, end: float = time.monotonic() + 20) -> None:
        if note.exists() and note.read_text() or time.monotonic() > end:
            raise KeyboardInterrupt

    monkeypatch.setattr(fetch.time, "sleep", interrupted)
    notes = f"{TWO_FILES}; pathlib.Path({str(note)!r}).write_text(str(os.getpid())); "
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch(target, [sys.executable, "-c", f"{notes}time.sleep(60)"])
    assert _content(target) == {}
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


# ---- as a student meets it ----


def test_fetch_py_without_a_network(tmp_path: Path) -> None:
    shutil.copytree(STAND_IN, tmp_path / "data" / "stand_in")
    for name in ("__init__.py", "fetch.py", "store.py", "versions.py"):
        shutil.copy(ROOT / "data" / name, tmp_path / "data" / name)
    shutil.copytree(ROOT / "course" / "words", tmp_path / "course" / "words",
                    ignore=shutil.ignore_patterns("__pycache__"))
    before = _content(tmp_path)
    env = {name: value for name, value in os.environ.items()
           if name.lower() not in ("mlc_data", "no_proxy", "pythonpath")}
    env |= dict.fromkeys(("http_proxy", "https_proxy"), f"http://127.0.0.1:{_closed_port()}")
    result = subprocess.run([sys.executable, "-m", "data.fetch"], cwd=tmp_path, capture_output=True,
                            text=True, env={**env, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    began, failed, data = result.stdout.splitlines()
    assert began.startswith("Downloading Fashion-MNIST")
    assert failed == (f"That did not work: {CNN}: no network, or the server cannot be reached "
                      "(Connection refused).")
    assert "STAND-IN" in data and "`make data` with a network" in data
    assert _content(tmp_path) == before


# ---- damaged files that helpers reads ----

DAMAGED = "The test images cannot be read: damaged or incomplete IDX files "
NO_IDX = "(not an IDX file of bytes with 3 axes)."


@pytest.fixture
def raw(monkeypatch, tmp_path: Path) -> Iterator[Path]:
    """The IDX files of a copy of the stand-in that takes the place of the data."""
    place = shutil.copytree(STAND_IN, tmp_path / "data")
    monkeypatch.setenv("MLC_DATA", str(place))
    helpers.data_folder.cache_clear()
    yield place / "FashionMNIST" / "raw"
    helpers.data_folder.cache_clear()


def _refusal() -> str:
    """Return the one message with which helpers.test_data refuses the images."""
    with pytest.raises(helpers.CourseError) as refused:
        helpers.test_data()
    what, repair = str(refused.value).splitlines()
    assert repair.startswith("Delete ")
    return what


@pytest.mark.parametrize(("change", "why"), [
    (lambda data: struct.pack(">i", 2049) + data[4:], NO_IDX),  # of labels
    (lambda data: struct.pack(">i", 3331) + data[4:], NO_IDX),  # of float32
    (lambda data: data[:4] + struct.pack(">i", 2000) + data[8:],
     "(cannot reshape array of size 784000 into shape (2000,28,28))."),
    (lambda data: data[:4] + struct.pack(">i", 900) + data[8:], "(cannot reshape array of size "),
    (lambda data: data[:4] + struct.pack(">i", -1) + data[8:], NO_IDX),
    (lambda data: data[:9], "(buffer size must be a multiple"), (lambda data: data[:8], "(offset"),
    (gzip.compress, NO_IDX), (lambda data: b"<html>" * 1000, NO_IDX), (lambda data: b"", NO_IDX),
])
def test_images_mislabelled(raw: Path, change: Callable[[bytes], bytes], why: str) -> None:
    (raw / TEST).write_bytes(change((raw / TEST).read_bytes()))
    assert _refusal().startswith(DAMAGED + why)


def test_the_labels_in_the_place_of_the_images(raw: Path) -> None:
    shutil.copy(raw / TEST_LABELS, raw / TEST)
    assert _refusal() == DAMAGED + NO_IDX


def test_no_images_and_no_labels(raw: Path) -> None:
    (raw / TEST).write_bytes(_idx(2051, np.ones((0, 28, 28), np.uint8)))
    (raw / TEST_LABELS).write_bytes(_idx(2049, np.ones(0, np.uint8)))
    assert _refusal().startswith(DAMAGED)


@pytest.mark.parametrize("change", [lambda data: data[:-1000], lambda data: b"", lambda data:
                                    data[:500] + bytes(100) + data[600:]])
def test_damaged_npz(raw: Path, change: Callable[[bytes], bytes]) -> None:
    path = raw.parents[1] / "models" / "mlp.npz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(helpers.CourseError, match="mlp.npz cannot be read"):
        helpers.load_weights("mlp")
