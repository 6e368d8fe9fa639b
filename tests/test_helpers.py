"""helpers: data and weights, good and bad; listings; loop nests; timing."""

import io
import os
import pickle
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import chinese
import numpy as np
import pytest
import torch
import tvm
from tvm import te

import helpers
from course import words
from course.tir.loops import nests, visit_steps
from course.words import told
from data import store, versions

ROOT = Path(__file__).resolve().parent.parent
STAND_IN = ROOT / "data" / "stand_in"


@pytest.fixture
def folder(monkeypatch, tmp_path: Path):
    """A copy of the stand-in that a test may damage, in the place of the data."""
    place = shutil.copytree(STAND_IN, tmp_path / "data")
    monkeypatch.setenv("MLC_DATA", str(place))
    helpers.data_folder.cache_clear()
    yield place
    helpers.data_folder.cache_clear()


@pytest.fixture
def real() -> Path:
    """The folder with the real data; skip where this run has none."""
    if not store.is_real():
        pytest.skip("this run is on the stand-in")
    return store.data_folder()


def _right(count: int = 1000) -> int:
    model = helpers.pytorch_model(helpers.load_weights("cnn"))
    with torch.no_grad():
        return sum(int((model(images).argmax(1) == labels).sum())
                   for images, labels in helpers.test_loader(100, count))


def test_the_cnn_is_right_on_843_real_images_or_916_of_the_stand_in() -> None:
    assert _right() == (916 if store.is_stand_in() else 843)


def test_the_stand_in_needs_nothing_else(folder: Path) -> None:
    assert _right() == 916
    image, label = helpers.test_data()[0]
    assert image.shape == (1, 28, 28) and image.dtype == torch.float32
    assert helpers.CLASS_NAMES[label] == "Ankle boot"
    assert helpers.load_weights("mlp")["w0"].shape == (128, 784)


def test_the_stand_in_is_what_its_script_draws() -> None:
    from data.make import stand_in
    state = torch.get_default_dtype(), torch.get_rng_state().tolist()
    images, labels = stand_in.draw_set()
    assert (torch.get_default_dtype(), torch.get_rng_state().tolist()) == state
    raw = STAND_IN / "FashionMNIST" / "raw"
    assert (raw / "t10k-images-idx3-ubyte").read_bytes()[16:] == images.tobytes()
    assert (raw / "t10k-labels-idx1-ubyte").read_bytes()[8:] == labels.tobytes()


def test_mlc_data_that_points_nowhere(monkeypatch) -> None:
    monkeypatch.setenv("MLC_DATA", "no/such/folder")
    helpers.data_folder.cache_clear()
    with pytest.raises(helpers.CourseError, match="MLC_DATA=no/such/folder: no Fashion"):
        helpers.data_folder()
    helpers.data_folder.cache_clear()


def test_the_data_line_names_the_stand_in(monkeypatch) -> None:
    monkeypatch.setenv("MLC_DATA", "data/stand_in")
    helpers.data_folder.cache_clear()
    assert store.is_stand_in() and "STAND-IN" in helpers.data_line()
    helpers.data_folder.cache_clear()


@chinese.quoted
def test_what_the_data_say_in_chinese(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(words, "_chosen", "zh")
    assert helpers.data_line().startswith("数据：替代数据（STAND-IN），")
    assert told(helpers.data_line(), "en").startswith("Data: the STAND-IN, ")
    raw = folder / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte"
    raw.write_bytes(raw.read_bytes()[:3000])
    with pytest.raises(helpers.CourseError) as stopped:
        helpers.test_data()
    assert str(stopped.value).startswith("测试图像无法读取：") and "\n请删除" in str(stopped.value)
    assert stopped.value._render_traceback_() == str(stopped.value).splitlines()


# ---- whose the data are: known by their content, wherever they lie ----

REAL_LINE = "Data: Fashion-MNIST and the published weights."


def _whose(pixels: bytes, labels: bytes, models: dict[str, bytes], folder: Path) -> str:
    """Write images (n, 28, 28), labels and weight files into `folder`; return the data line."""
    raw, count = folder / "FashionMNIST" / "raw", len(labels)
    (raw / "t10k-images-idx3-ubyte").write_bytes(
        struct.pack(">4i", 2051, count, 28, 28) + pixels)
    (raw / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, count) + labels)
    shutil.rmtree(folder / "models")
    for name, data in models.items():
        (folder / "models").mkdir(exist_ok=True)
        (folder / "models" / name).write_bytes(data)
    return helpers.data_line()


def _parts(folder: Path) -> tuple[bytes, bytes, dict[str, bytes]]:
    """Return the pixels, the labels and the weight files of a folder with data."""
    raw = folder / "FashionMNIST" / "raw"
    return ((raw / "t10k-images-idx3-ubyte").read_bytes()[16:],
            (raw / "t10k-labels-idx1-ubyte").read_bytes()[8:],
            {path.name: path.read_bytes() for path in (folder / "models").iterdir()})


def test_a_copy_of_the_stand_in_is_the_stand_in(folder: Path) -> None:
    assert store.is_stand_in() and not store.is_real() and "STAND-IN" in helpers.data_line()


def test_the_whole_test_set_is_known_by_its_first_1000_images(folder: Path) -> None:
    pixels, labels, models = _parts(STAND_IN)
    more = bytes(9000 * 784), bytes(9000)
    assert "STAND-IN" in _whose(pixels + more[0], labels + more[1], models, folder)
    assert len(helpers.test_data(10_000)) == 10_000


def test_the_real_data_are_real_wherever_they_lie(real: Path, folder: Path) -> None:
    pixels, labels, models = _parts(real)
    assert _whose(pixels, labels, models, folder) == REAL_LINE and store.is_real()
    more = bytes(9000 * 784), bytes(9000)
    assert _whose(pixels[:784_000] + more[0], labels[:1000] + more[1], models, folder) == REAL_LINE
    assert _whose(pixels, labels, _parts(STAND_IN)[2], folder) == (
        "Data: Fashion-MNIST's images and the stand-in's weights. No number that the course "
        "states holds for them; see data/README.md.")
    assert not store.is_real() and not store.is_stand_in()


@pytest.mark.parametrize("change", [
    lambda pixels, labels: (bytes(784_000), labels),
    lambda pixels, labels: (pixels, labels[1:] + labels[:1]),
    lambda pixels, labels: (pixels[:500 * 784], labels[:500]),
    lambda pixels, labels: (b"", b""),
])
def test_unknown_images_are_nobodys(folder: Path, change) -> None:
    pixels, labels, models = _parts(STAND_IN)
    assert _whose(*change(pixels, labels), models, folder) == (
        "Data: images of unknown origin and the stand-in's weights. No number that the course "
        "states holds for them; see data/README.md.")
    assert not store.is_real() and not store.is_stand_in()


def test_unknown_weights_are_nobodys(folder: Path) -> None:
    pixels, labels, models = _parts(STAND_IN)
    models["cnn.npz"], models["mlp.npz"] = models["mlp.npz"], models["cnn.npz"]
    assert "images and weights of unknown origin." in _whose(pixels, labels, models, folder)


def test_outputs_are_stored_from_the_real_data_only(folder: Path, monkeypatch, capsys) -> None:
    from tools import execute
    monkeypatch.setattr(execute, "store", lambda path: pytest.fail("it began to execute"))
    with pytest.raises(SystemExit, match="Stored outputs come from the real images"):
        execute.main("outputs")
    assert "STAND-IN" in capsys.readouterr().out
    (folder / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte").write_bytes(bytes(784_016))
    with pytest.raises(SystemExit, match="Stored outputs come from the real images"):
        execute.main("outputs")
    assert "unknown origin" in capsys.readouterr().out


@pytest.mark.parametrize(("printed", "found"), [
    ("add   12.1 µs  (11.9 to 12.4)    3%", 0), ("add   95.5 µs  (61.5 to 96.6)    3%", 1),
    ("AMD EPYC; BUSY with something else: no time here means much\nadd  1.0 µs  (1.0 to 1.1)", 1)])
def test_outputs_of_a_disturbed_run_are_not_stored(printed: str, found: int, monkeypatch,
                                                   tmp_path) -> None:
    import nbformat

    from tools import execute

    def notebook(text: str) -> nbformat.NotebookNode:
        cell = nbformat.v4.new_code_cell("next_step()", metadata={"tags": ["timing"]}, id="a",
                                         outputs=[nbformat.v4.new_output("stream", text=text)])
        return nbformat.v4.new_notebook(cells=[cell])

    assert len(execute.disturbed(notebook(printed))) == found
    path = tmp_path / "06.ipynb"
    nbformat.write(notebook("before"), path)
    monkeypatch.setattr(execute, "execute", lambda path: notebook(printed))
    monkeypatch.setattr(execute, "keep_svgs", lambda folder: None)
    monkeypatch.setenv("TIMES", "1")
    monkeypatch.setenv("MLC_SVG", "")
    if found:
        with pytest.raises(SystemExit, match="06.ipynb was disturbed"):
            execute.store(path)
    else:
        execute.store(path)
    assert nbformat.read(path, 4).cells[0].outputs[0].text == ("before" if found else printed)


# ---- images and weights, good and damaged ----


def test_the_dataset_is_what_torchvision_makes(folder: Path) -> None:
    import torchvision
    theirs = torchvision.datasets.FashionMNIST(
        str(folder), train=False, transform=torchvision.transforms.ToTensor())
    for (a, i), (b, j) in zip(theirs, helpers.test_data(), strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype and (i, type(i)) == (j, type(j))


def test_helpers_do_not_import_torchvision() -> None:
    code = ("import sys, helpers; helpers.import_model(helpers.pytorch_model("
            "helpers.load_weights('cnn')), (1, 1, 28, 28)); helpers.test_data(1)[0]; "
            "assert 'torchvision' not in sys.modules; import torchvision.datasets")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_truncated_images(folder: Path) -> None:
    path = folder / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(helpers.CourseError, match="cannot be read"):
        helpers.test_data()


def test_fewer_labels_than_images(folder: Path) -> None:
    path = folder / "FashionMNIST" / "raw" / "t10k-labels-idx1-ubyte"
    path.write_bytes((2049).to_bytes(4, "big") + (900).to_bytes(4, "big") + bytes(900))
    with pytest.raises(helpers.CourseError, match="do not fit their labels"):
        helpers.test_data()


def test_more_images_than_there_are() -> None:
    with pytest.raises(helpers.CourseError, match="20,000 test images asked for"):
        helpers.test_data(20_000)


def test_a_weight_file_that_is_not_the_published_one(folder: Path) -> None:
    (folder / "models" / store.WEIGHTS["cnn"].file).write_bytes(b"something else")
    with pytest.raises(helpers.CourseError, match="SHA-256 differs"):
        helpers.load_weights("cnn")


class _Touch:
    """Unpickled by a bare pickle.load, it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_pickle_is_refused_before_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "executed"
    with pytest.raises(helpers.CourseError, match="refused: it asks for"):
        helpers.read_arrays(pickle.dumps({"a": _Touch(path)}, protocol=4), {"a": (1,)})
    assert not path.exists()


@pytest.mark.parametrize(("content", "message"), [
    ({"a": np.zeros(3, np.float32)}, r"should be \['a', 'b'\]"),
    ([1, 2], "the file has list"),
    ({"a": np.zeros(4, np.float32), "b": np.zeros(2, np.float32)}, r"Weight a should be float32 "),
    ({"a": np.zeros(3), "b": np.zeros(2, np.float32)}, "float64"),
    ({"a": [0.0] * 3, "b": np.zeros(2, np.float32)}, "list"),
    ({"a": np.full(3, np.nan, np.float32), "b": np.zeros(2, np.float32)}, "holds NaN"),
])
def test_wrong_weights(content, message: str) -> None:
    with pytest.raises(helpers.CourseError, match=message):
        helpers.read_arrays(pickle.dumps(content, protocol=4), {"a": (3,), "b": (2,)})


def test_good_weights_and_a_damaged_pickle() -> None:
    arrays = {"a": np.arange(3, dtype=np.float32)}
    read = helpers.read_arrays(pickle.dumps(arrays, protocol=4), {"a": (3,)})
    assert np.array_equal(read["a"], arrays["a"])
    with pytest.raises(helpers.CourseError, match="refused"):
        helpers.read_arrays(pickle.dumps(arrays, protocol=4)[:-20], {"a": (3,)})


def test_npz_with_a_pickle_inside(folder: Path) -> None:
    stream = io.BytesIO()
    np.savez(stream, w0=np.array([object()], dtype=object))
    (folder / "models" / "mlp.npz").write_bytes(stream.getvalue())
    with pytest.raises(helpers.CourseError, match="cannot be read"):
        helpers.load_weights("mlp")


# ---- downloads: the process that downloads is replaced by a small one ----

WRITES = "import sys, time, pathlib; folder = pathlib.Path(sys.argv[1]); "


@pytest.mark.parametrize(("code", "reason"), [
    (WRITES + "(folder / 'models').mkdir(); (folder / 'models/x').write_bytes(b'1'); "
     "raise SystemExit('HTTP Error 404: Not Found')", "HTTP Error 404"),
    (WRITES + "(folder / 'x').write_bytes(b'1'); time.sleep(60)", "no progress"),
    (WRITES + "\nfor _ in range(600):\n open(folder / 'x', 'a').write('a'); time.sleep(.1)",
     "no progress"),
])
def test_a_download_that_fails_leaves_nothing(tmp_path, monkeypatch, code, reason) -> None:
    from data import fetch
    monkeypatch.setattr(fetch, "PATIENCE", 1.0)
    monkeypatch.setattr(fetch, "STARTUP", 1.0)
    start = time.monotonic()
    assert reason in fetch.fetch(tmp_path, [sys.executable, "-c", code])
    assert time.monotonic() - start < 8 and list(tmp_path.iterdir()) == []


def test_a_download_that_works(tmp_path: Path) -> None:
    from data import fetch
    code = WRITES + "(folder / 'models').mkdir(); (folder / 'models/x').write_bytes(b'1')"
    assert fetch.fetch(tmp_path, [sys.executable, "-c", code]) == ""
    assert (tmp_path / "models" / "x").read_bytes() == b"1"
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    from data import fetch
    assert "cannot be written" in fetch.fetch(tmp_path / "nowhere")


# ---- the rest ----


def test_a_wrong_tvm_is_named_in_one_line() -> None:
    code = ("import importlib.metadata as m; real = m.version; "
            "m.version = lambda n: '0.16.0' if n == 'apache-tvm' else real(n); import helpers")
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    pinned = versions.pins()["apache-tvm"]
    assert f"FAIL apache-tvm is 0.16.0, the course needs {pinned}" in result.stderr


def _added() -> tvm.tirx.PrimFunc:
    a = te.placeholder((8, 8), name="A")
    return te.create_prim_func([a, te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="C")])


def test_listing_has_text_and_html() -> None:
    listing = helpers.show(_added())
    assert repr(listing).startswith("@T.prim_func") and "# from tvm" not in repr(listing)
    assert listing._repr_html_().startswith("<div") and "T.grid" in repr(listing)


def test_wide_lines_are_broken_at_commas_and_nothing_is_lost() -> None:
    arguments = [te.placeholder((10000, 10000), name=f"argument_{i}") for i in range(5)]
    wide = te.create_prim_func([*arguments, te.compute((8,), lambda i: arguments[4][i, i])])
    first, second, *more = [line for line in repr(helpers.show(wide)).splitlines()
                            if "Buffer((" in line]
    assert first.startswith("def main(")
    assert second.startswith(" " * len("def main(") + "argument_") and not more[-1].endswith(",")
    plain, shown = ("".join(text.split()) for text in (
        helpers.script(wide), repr(helpers.show(wide))))
    assert shown == re.sub(r"T\.int64\((\d+)\)", r"\1", plain)
    assert max(map(len, repr(helpers.show(wide)).splitlines())) <= 100


def test_what_a_reader_need_not_see_is_left_out_of_bindings_and_bytecode() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    mod = helpers.import_model(model, (1, 3))
    lines = repr(helpers.bindings(mod)).splitlines()
    assert lines[0] == "with R.dataflow():" and lines[-1].startswith("return ")
    assert all(": R." not in line.partition("=")[0] for line in lines)
    text = repr(helpers.bytecode(tvm.compile(mod, target="llvm")))
    assert text.startswith("@main:") and "check_tensor_info" not in text
    used = set(re.findall(r"c\[(\d+)\][,\s]", text.split("\n\n")[0]))
    assert used and used == set(re.findall(r"^c\[(\d+)\] is ", text, re.M))


def test_diff_shows_what_changed_and_nothing_else() -> None:
    schedule = tvm.s_tir.Schedule(_added())
    schedule.parallel(schedule.get_loops(schedule.get_sblock("C"))[0])
    text = repr(helpers.show_diff(_added(), schedule.mod["main"]))
    assert "-    for i, j in T.grid(8, 8):" in text and "+    for i in T.parallel(8):" in text
    assert repr(helpers.show_diff(_added(), _added())) == "no difference"


def test_nests_know_kinds_and_blocks() -> None:
    schedule = tvm.s_tir.Schedule(_added())
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.vectorize(schedule.split(j, factors=[None, 4])[1])
    (nest,) = nests(schedule.mod["main"])
    assert [loop.kind for loop in nest.loops] == ["serial", "serial", "vectorized"]
    assert [loop.extent for loop in nest.loops] == [8, 2, 4]
    assert (nest.block, nest.buffer, nest.reduces, nest.has_init) == ("C", "C", False, False)


def test_visit_steps() -> None:
    steps = visit_steps(_added(), (8, 8))
    assert np.array_equal(steps, np.arange(64).reshape(8, 8))
    schedule = tvm.s_tir.Schedule(_added())
    i, j = schedule.get_loops(schedule.get_sblock("C"))
    schedule.reorder(j, i)
    assert np.array_equal(visit_steps(schedule.mod["main"], (8, 8)), steps.T)
    schedule.parallel(j)
    assert np.array_equal(visit_steps(schedule.mod["main"], (8, 8))[:, 0], np.arange(8))


def test_measure_tells_slow_from_fast(monkeypatch) -> None:
    monkeypatch.delenv("MLC_QUICK")
    times = helpers.measure({"slow": lambda: time.sleep(2e-3), "fast": lambda: None},
                            repeats=3, seconds=0.005)
    assert times["slow"].median > 1900 > times["fast"].high
    assert times["slow"].low <= times["slow"].median <= times["slow"].high


def test_measure_is_quick_under_test(monkeypatch) -> None:
    monkeypatch.setenv("MLC_QUICK", "1")
    called: list[str] = []
    times = helpers.measure({name: lambda name=name: called.append(name) for name in "ab"})
    assert called == ["a", "b"] and set(times) == {"a", "b"}
