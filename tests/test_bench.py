"""The benchmark: what it refuses to time, what it writes, how it is called."""

import json
import multiprocessing
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import helpers
from course import present
from tools import bench

TIMES = {bench.TVM: 30.0, bench.TVM + bench.NUMPY: 40.0, bench.ORT + bench.BOUND: 45.0,
         bench.ORT + bench.NUMPY: 60.0, bench.EAGER: 300.0}


def _setting(threads: int = 1) -> dict:
    return {"batch": 4, "threads": threads, "gflops": 250.0, "gbytes": 100.0, "pinned": [],
            "times": {name: bench.summary([[time, time + 1, time - 1], [time], [time]])
                      for name, time in TIMES.items()}}


def test_the_summary_is_of_blocks_so_that_one_disturbed_call_does_not_show() -> None:
    took = bench.summary([[10, 10, 900], [11, 11, 11], [12, 9, 12]])
    assert took == {"median": 11, "low": 10.5, "high": 11.5, "least": 9}


def test_like_is_compared_with_like() -> None:
    found = bench.ratios(_setting()["times"])
    assert found[bench.TVM] == {bench.ORT: 1.5, bench.EAGER: 10}
    assert found[bench.TVM + bench.NUMPY] == {bench.ORT: 1.5, bench.EAGER: 7.5}
    assert found[bench.EAGER][bench.ORT] == 0.15


def test_the_table_gives_ratios_the_share_of_the_peak_and_the_floor() -> None:
    text = bench.table(_setting())
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {bench.TVM}  ")]
    assert [cell.strip() for cell in line.split("|")[2:-1]] == [
        "30.0", "30.0 to 30.0", "29.0", "79%", "1.50", "10.00", "-"]  # torch.compile was not timed
    assert "5.89 MFLOP at the measured 250 GFLOP/s take 23.6 µs" in text
    assert len({len(line) for line in text.splitlines() if line.startswith("|")}) == 1


def test_the_three_files_say_the_same(tmp_path: Path) -> None:
    about = {"date": "2026-01-31", "cpu": "a CPU", "cores": 2, "versions": {"torch": "2.13.0"},
             "not timed": {bench.COMPILED: "left out: it needs a C++ compiler, and there is none"}}
    text = bench.write([_setting(1), _setting(2)], about, tmp_path)
    assert (tmp_path / "bench.md").read_text(encoding="utf-8") == text
    assert text.startswith("2026-01-31, a CPU, 2 cores, threads: 1 and 2. torch 2.13.0.")
    assert "Batch 4, 2 threads" in text
    assert "torch.compile left out: it needs a C++ compiler, and there is none." in text
    stored = json.loads((tmp_path / "bench.json").read_text())
    assert stored == {**about, "settings": [_setting(1), _setting(2)]}
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def _answers(monkeypatch, make, *messages) -> list:
    """What a contender's process would answer; here it is a thread, and pins nothing."""
    monkeypatch.setattr(bench, "cores", list)
    monkeypatch.setattr(bench, "BLOCK", 0.01)
    ours, theirs = multiprocessing.Pipe()
    thread = threading.Thread(target=bench.serve, args=(theirs, make))
    thread.start()
    answers = []
    for message in messages:
        ours.send(message)
        answers.append(ours.recv())
    ours.send(None)
    thread.join()
    return answers


REFERENCE = np.full((4, 10), 0.1, "float32")
PREPARE = (np.zeros((4, 1, 28, 28), "float32"), 1, REFERENCE)


def test_right_outputs_are_timed(monkeypatch) -> None:
    ready, block = _answers(monkeypatch, lambda images, threads: (REFERENCE.copy, np.asarray),
                            PREPARE, "block")
    assert ready == ("ready", "") and min(block) > 0


@pytest.mark.parametrize(("out", "why"), [
    (REFERENCE * 1.001, "differs from PyTorch by up to 0.0001"),
    (REFERENCE * np.nan, "differs from PyTorch by up to nan"),
    (REFERENCE[:1], "gives float32 (1, 10), not float32 (4, 10)"),
    (REFERENCE.astype("float64"), "gives float64 (4, 10), not float32 (4, 10)"),
])
def test_wrong_outputs_are_refused(out, why, monkeypatch) -> None:
    assert _answers(monkeypatch, lambda images, threads: ((lambda: out), np.asarray),
                    PREPARE) == [("wrong", why)]


def test_a_library_that_is_not_there_is_left_out_in_words(monkeypatch) -> None:
    monkeypatch.setattr(present, "tool", lambda kind: present.Tool(said=f"{kind}: not here"))
    for make, name in ((bench.ort_numpy, "onnxruntime"), (bench.ort_binding, "onnxruntime"),
                       (bench.open_vino, "openvino"), (bench.compiled, "c++")):
        assert _answers(monkeypatch, make, PREPARE) == [("left out", f"{name}: not here")]


def test_an_error_of_a_library_goes_to_the_log(monkeypatch, capsys) -> None:
    def broken(images: np.ndarray, threads: int) -> None:
        raise RuntimeError("out of threads")

    assert _answers(monkeypatch, broken, PREPARE) == [
        ("failed", "RuntimeError, see build/bench.log")]
    assert "out of threads" in capsys.readouterr().err


class _Fake:
    """A worker that answers at once."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.pipe, self.process = name, self, self

    def send(self, message) -> None:
        self.message = message

    def join(self, seconds: float) -> None:
        pass

    def answer(self):
        return ("wrong", "differs") if self.name == bench.TVM else ("ready", "")

    def ask(self, message):
        assert self.name != bench.TVM, "what is wrong must not be timed"
        return (200.0, 100.0) if self.name == bench.FLOOR else [20.0]


def test_what_is_wrong_is_named_and_not_timed(monkeypatch, capsys) -> None:
    monkeypatch.setattr(bench, "Worker", _Fake)
    troubles: dict[str, str] = {}
    images, reference = np.zeros((16, 1, 28, 28), "float32"), np.zeros((16, 10), "float32")
    settings = bench.contest(2, [4, 16], images, reference, troubles)
    assert troubles == {bench.TVM: "wrong: differs"}
    assert [setting["batch"] for setting in settings] == [4, 16]
    assert all(set(setting["times"]) == bench.CONTENDERS.keys() - {bench.TVM}
               for setting in settings)
    assert f"{bench.TVM} wrong: differs" in capsys.readouterr().out


LIBRARY, OPENVINO = (pytest.mark.skipif(not present.tool(kind), reason=present.tool(kind).said)
                     for kind in ("onnxruntime", "openvino"))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export
@pytest.mark.parametrize("make", [
    bench.tvm_tensors, bench.tvm_numpy, bench.eager, bench.tvm_imported,
    pytest.param(bench.ort_binding, marks=LIBRARY), pytest.param(bench.ort_numpy, marks=LIBRARY),
    pytest.param(bench.open_vino, marks=OPENVINO)])
def test_contenders_give_pytorchs_probabilities(make) -> None:
    images = next(iter(helpers.test_loader(4, 4)))[0]
    with torch.inference_mode():
        reference = helpers.pytorch_model(helpers.load_weights("cnn"))(images).numpy()
        call, read = make(images.numpy(), torch.get_num_threads())
        assert bench.difference(read(call()), reference) is None


@pytest.mark.parametrize("words", [[], ["four"], ["4", "0"]])
def test_without_batch_sizes_it_says_how_to_call_it(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="python -m tools.bench 4 "):
        bench.main(words)


def test_it_times_one_two_and_all_cores(monkeypatch) -> None:
    for cores, counts in ((1, [1]), (2, [1, 2]), (8, [1, 2, 8]), (64, [1, 2, 16])):
        monkeypatch.setattr(bench, "count_cores", lambda cores=cores: cores)
        assert bench.thread_counts() == counts


def test_the_floor_is_the_greater_of_arithmetic_and_reading() -> None:
    setting = {**_setting(), "batch": 1}  # 1.47 MFLOP take 5.9 µs, the weights at 100 GB/s 21.7
    (line,) = [line for line in bench.table(setting).splitlines()
               if line.startswith(f"| {bench.TVM}  ")]
    assert line.split("|")[5].strip() == "72%"


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_kernel_is_made_for_the_threads_that_are_timed(threads: int, monkeypatch) -> None:
    seen = []

    def made(weights, batch, target, threads):
        seen.append((batch, threads))
        raise bench.LeftOutError("seen")

    monkeypatch.setattr(bench.kernels, "packed_model", made)
    with pytest.raises(bench.LeftOutError):
        bench.tvm_tensors(np.zeros((4, 1, 28, 28), "float32"), threads)
    assert seen == [(4, threads)]
