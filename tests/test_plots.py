"""plots: what a stored picture is known by, code beside code, boxes and arrows, contrast."""

import base64
import functools
import io
import itertools
import re
import warnings

import chinese
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
import torch
import tvm
from bs4 import BeautifulSoup, Tag
from matplotlib import colormaps, colors, font_manager
from matplotlib.text import Text
from PIL import Image
from relax_models import relax_model, relu
from tvm import te

import helpers
from course import kernels, plots, words
from course.plots import figure, graphs, layers, loops, measured
from course.tir.threads import Launch
from tools import pages


@pytest.fixture
def shown(monkeypatch) -> list[tuple[dict, dict]]:
    """What is displayed: its data and its metadata."""
    found: list[tuple[dict, dict]] = []
    monkeypatch.setattr(figure, "display", lambda data, metadata, raw:
                        found.append((data, metadata)))
    return found


def _description(data: dict) -> str | None:
    return Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).info.get("Description")


def test_a_picture_has_a_text_and_a_fingerprint_which_its_bytes_have_too(shown) -> None:
    for _ in range(2):
        plots.class_bars(("bag", "coat"), np.array([0.25, 0.75]), "recall")
    (data, metadata), again = shown
    assert again == (data, metadata), "twice gives the same bytes"
    about = metadata["image/png"]
    assert about["alt"] == "recall: bag 0.250, coat 0.750." and "2 Rectangle" in about["drawn"]
    assert _description(data) == about["drawn"]
    assert plt.get_fignums() == []


def test_in_the_lab_a_picture_is_html_with_its_text(shown, monkeypatch) -> None:
    monkeypatch.setenv("MLC_LAB", "1")
    plots.class_bars(("<b>", 'a "coat"'), np.array([0.25, 0.75]), "recall")
    ((data, metadata),) = shown
    light, dark = BeautifulSoup(data["text/html"], "html.parser").find_all("img")
    for image in (light, dark):
        assert image["alt"] == 'recall: <b> 0.250, a "coat" 0.750.' == metadata["text/html"]["alt"]
    assert (light["class"], dark["class"]) == (["mlc-light"], ["mlc-dark"])
    assert "none" in dark["style"] and "none" not in light["style"]  # where the themes are unknown
    assert "image/png" not in data


def _pixels(image: Tag) -> np.ndarray:
    png = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def test_in_the_dark_a_picture_is_dark_and_a_photograph_stays(shown, monkeypatch) -> None:
    monkeypatch.setenv("MLC_LAB", "1")
    garment = np.zeros((28, 28), dtype="float32")
    garment[4:24, 8:20] = 0.8
    plots.image_grid(garment[None], ["a coat"])
    plots.confusion_matrix(np.diag([9, 5]), ("bag", "coat"))
    for n, (data, _) in enumerate(shown):
        light, dark = map(_pixels, BeautifulSoup(data["text/html"], "html.parser").find_all("img"))
        assert (light[0, 0] == 255).all() and (dark[0, 0] < 30).all()
        same = (light == dark).all(-1)
        left = same[:, :same.shape[1] // 4]  # the bar that explains the greys is on the right
        rows, columns = left.mean(1) > 0.5, left.mean(0) > 0.5
        if n == 0:  # the photograph stays, whole
            assert 100 < rows.sum() < len(rows) and left[np.ix_(rows, columns)].mean() > 0.99
        else:
            assert not rows.any() and same.mean() < 0.1


def test_what_is_measured_has_no_fingerprint(shown) -> None:
    plots.times({"a": helpers.Timing(2.0, 1.0, 3.0)}, 0.5, ["a"])
    ((data, metadata),) = shown
    assert metadata["image/png"].keys() == {"alt"} and _description(data) is None


def test_what_is_measured_is_in_the_text(shown) -> None:
    plots.times({"a": helpers.Timing(2.0, 1.0, 3.0)}, 0.5, ["a"])
    plots.throughput({1: 20.0, 8: 160.0}, 20.0)
    plots.bandwidths({16_384: 300.0, 1 << 22: 30.0}, {"L1": 49_152, "L9": 1 << 40})
    plots.roofline(100, 50, {"add": [(1e6, 4e6, 90.0)]}, {"one scalar sum": 1.5})
    texts = [metadata["image/png"]["alt"] for _, metadata in shown]
    for text, part in zip(texts, ("floor at 0: a 2", "8: 160", "4,194 kB 30; caches: L1 49 kB",
                                   "one scalar sum 1.5, bandwidth 50"), strict=True):
        assert part in text


def test_what_was_not_timed_lies_on_the_roof(shown) -> None:
    plots.roofline(100, 50, {"add": [(1e6, 4e6, None)], "many": [(1e9, 1e6, None)]}, {})
    ((data, metadata),) = shown
    assert "add at most 12.5 GFLOP/s; many at most 100.0" in metadata["image/png"]["alt"]
    assert _description(data) is not None, "the same on every machine: it is compared"


def test_names_in_a_roofline_do_not_cover_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "show", lambda figure, *_said, **_how: None)
    ceilings = {"pairs": 247.0, "float32": 233.0, "the compiler's int8": 140.0}
    plots.roofline(602, 183, {"1 image": [(2e6, 1e6, 7.3)]}, ceilings, unit="GOP/s")
    boxes = [text.get_window_extent() for text in plt.gcf().axes[0].texts]
    assert len(boxes) >= 6
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    plt.close("all")


def test_a_tile_says_what_each_step_loads(shown) -> None:
    plots.register_tile(2, 3)
    (_, metadata), = shown
    assert "6 vectors of sums" in metadata["image/png"]["alt"]
    assert "loads 2 vectors of weights and 3 of images" in metadata["image/png"]["alt"]


def test_dots_say_which_threads_a_time_belongs_to(shown) -> None:
    timing = helpers.Timing(20.0, 10.0, 30.0)
    plots.compared({"1 thread": {"a": timing}, "2 threads": {"a": timing, "b": timing}})
    ((_, metadata),) = shown
    assert metadata["image/png"] == {"alt": "Dots. 1 thread: a 20 microseconds; 2 threads: "
                                            "a 20 microseconds, b 20 microseconds."}


def _bars(values=(0.2, 0.5), colour="#4878a8", text="a") -> str:
    drawn, axes = plt.subplots()
    axes.bar([0, 1], values, color=colour)
    axes.text(0, 0, text)
    axes.annotate("", (0, values[1]), (1, 1), arrowprops={"arrowstyle": "->"})
    plt.close(drawn)
    return plots.fingerprint(drawn)


def test_a_fingerprint_is_of_data_colours_and_texts() -> None:
    assert len({_bars(), _bars((0.2, 0.6)), _bars(colour="#d9822b"), _bars(text="b")}) == 4
    assert _bars((0.20001, 0.5)) == _bars(), "rounded"


def test_a_fingerprint_is_of_pixels_too(shown) -> None:
    image = np.zeros((1, 1, 28, 28), dtype=np.float32)
    plots.image_grid(image, ["a"])
    image[0, 0, 3, 4] = 0.5
    plots.image_grid(image, ["a"])
    first, second = (metadata["image/png"]["drawn"] for _, metadata in shown)
    assert first != second


# ---- code beside code ----

LEFT, RIGHT = "def f(x):\n    y = 1 < 2\n    return y", "f:\n  set y\n  give y"
PAIRS = [("y = ", "set|nothing", "the value"), ("return", "give", "the result")]


def test_code_beside_code_is_text_with_numbers() -> None:
    assert repr(plots.side_by_side(LEFT, RIGHT, PAIRS, ("one", "other"))) == (
        "one\n   | def f(x):\n 1 |     y = 1 < 2\n 2 |     return y\n\n"
        "other\n   | f:\n 1 |   set y\n 2 |   give y\n\n 1: the value\n 2: the result")


def test_code_beside_code_is_html_with_its_own_colours_and_every_line() -> None:
    page = plots.side_by_side(LEFT, RIGHT, PAIRS, ("one", "other"))._repr_html_()
    assert page.startswith('<div style="background:#fff;color:#24292f')
    assert "    y = 1 &lt; 2</span>" in page and page.count("linear-gradient") == 4


def _relu_model() -> tvm.IRModule:
    bb = tvm.relax.BlockBuilder()
    a = tvm.relax.Var("a", tvm.relax.TensorType((2, 2), "float32"))
    with bb.function("main", params=[a]):
        with bb.dataflow():
            b = bb.emit_te(tvm.topi.nn.relu, a)
            gv = bb.emit_output(b)
        bb.emit_func_output(gv)
    return bb.get()


def test_each_call_of_a_builder_has_the_number_of_what_it_made() -> None:
    lines = repr(plots.builder_and_module(_relu_model, _relu_model())).splitlines()
    numbered = [(line[:2].strip(), line[3:].strip("| ")) for line in lines if line[2:5] == " | "]
    found = [(number, text.split("(")[0]) for number, text in numbered if number]
    assert found == [
        ("1", "with bb.function"), ("2", "with bb.dataflow"), ("3", "b = bb.emit_te"),
        ("4", "gv = bb.emit_output"), ("5", "bb.emit_func_output"), ("1", "def main"),
        ("2", "with R.dataflow"), ("3", "lv = R.call_tir"), ("4", "gv: R.Tensor"),
        ("4", "R.output"), ("5", "return gv")]


# ---- axes over data, storages over time ----

def test_the_text_of_a_reduction_has_its_sums(shown) -> None:
    plots.reduction(np.array([[1, 2, 3], [10, 20, 30]], dtype="float32"))
    ((_, metadata),) = shown
    assert metadata["image/png"]["alt"].endswith(
        "vi = 0: 1 + 2 + 3 = 6, in Y[0]; vi = 1: 10 + 20 + 30 = 60, in Y[1].")


def test_tensors_take_turns_in_their_storages(shown) -> None:
    plots.storages(_planned(relax_model(
        lambda bb, x: functools.reduce(lambda y, _: relu(bb, y), range(4), x), 2, 2)))
    ((_, metadata),) = shown
    assert metadata["image/png"]["alt"] == (
        "Storages over time. lv in storage, 16 bytes: from call 1 to 2; lv1 in storage1, 16 bytes: "
        "from call 2 to 3; lv2 in storage, 16 bytes: from call 3 to 4; gv in allocated apart: from "
        "call 4 to 4. Calls: relu, relu, relu, relu.")


# ---- boxes and arrows ----

def test_a_box_stands_below_what_it_takes_and_as_late_as_it_may() -> None:
    graph = graphs.nx.DiGraph([("a", "b"), ("b", "d"), ("c", "d")])
    assert graphs._places(graph) == {"a": (0, 0), "b": (-0.5, 1), "c": (0.5, 1), "d": (0, 2)}


def test_the_text_of_a_graph_says_who_gives_what_to_whom(shown) -> None:
    cnn = helpers.import_model(helpers.pytorch_model(helpers.load_weights("cnn")), (4, 1, 28, 28))
    plots.computational_graph(cnn)
    alt = shown[0][1]["image/png"]["alt"]
    assert alt.startswith("Computational graph of main: input (4, 1, 28, 28) goes to conv2d; "
                          "constant 0 (32, 1, 3, 3) goes to conv2d; ")
    assert "conv2d gives lv (4, 32, 26, 26) to add; " in alt
    assert alt.endswith("softmax gives gv (4, 10), which is returned.")


def test_tall_pictures_share_rows() -> None:
    cnn = helpers.import_model(helpers.pytorch_model(helpers.load_weights("cnn")), (4, 1, 28, 28))
    rows, shared = loops._rows(cnn["conv2d"]), loops._rows(cnn["conv2d"], share=True)
    assert len(rows) == 13 and rows[0].height == 5 and not any(row.block for row in rows[:4])
    assert [[loop.extent for loop in row.loops] for row in shared] == [
        [4, 1, 28, 28], [4, 32, 26, 26, 1, 3, 3], []]  # beside its loops there is no room
    assert [row.block for row in shared] == [
        "pad_temp", "", "sblock conv2d_nchw  (reduces, T.init)"]


def test_no_text_of_a_tall_picture_covers_another(monkeypatch) -> None:
    drawn = []
    monkeypatch.setattr(loops, "show", lambda picture, _says: drawn.append(picture))
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v4",
                                "mtriple": "x86_64-linux-gnu"})
    loops.loop_nests(one=kernels.packed_model(helpers.load_weights("cnn"), 4, target, 2)["cnn"])
    drawn[0].draw_without_rendering()
    places = [text.get_window_extent() for text in drawn[0].axes[0].texts]
    assert len(places) > 60
    over = [(one, other) for one, other in itertools.combinations(places, 2)
            if one.overlaps(other)]
    assert not over


# ---- contrast: WCAG 2.2 wants 4.5 to 1 for text ----

def _contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        rgb = np.array(colors.to_rgb(colour))
        return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
            0.2126, 0.7152, 0.0722]
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_texts_can_be_read_on_every_colour() -> None:
    for colour in [*colormaps["YlGnBu"].resampled(99)(range(99)),
                   *colormaps["Blues"].resampled(99)(range(99))]:
        assert _contrast(colour, figure.ink(colour)) >= 4.5
    assert all(_contrast(colour, "white") >= 4.5 for colour in measured._TRAILS)
    assert _contrast(layers._WEIGHTS, "white") >= 4.5
    for colour in [*layers._WINDOWS, *loops._INK.values(), *graphs._INK.values(),
                   *graphs._FX_INK.values()]:
        assert _contrast(colour, "black") >= 4.5 and _contrast(colour, "#30363d") >= 4.5


# ---- layers in small numbers ----

def test_a_window_is_summed_and_searched_as_the_text_says(shown) -> None:
    plots.convolution(np.arange(12).reshape(3, 4), np.arange(4).reshape(2, 2), at=(1, 2))
    plots.pooling(np.array([[1, 5, -3, -4], [3, 4, -8, -1]]))
    texts = [metadata["image/png"]["alt"] for _, metadata in shown]
    assert texts[0].endswith("gives element (1, 2): 6·0 + 7·1 + 10·2 + 11·3 = 60.")
    assert "Output: 24 30 36; 48 54 60." in texts[0]
    assert texts[1].endswith("Output: 5 -1.")


def test_a_bias_is_drawn_where_it_broadcasts_to(shown) -> None:
    plots.bias_along(by_channel=np.array([1, 2]).reshape(2, 1, 1), by_column=np.array([3, 4, 5]))
    alt = shown[0][1]["image/png"]["alt"]
    assert "by channel, bias (2, 1, 1): channel 0: 1 1 1; 1 1 1, channel 1: 2 2 2; 2 2 2." in alt
    assert alt.endswith("by column, bias (3,): channel 0: 3 4 5; 3 4 5, channel 1: 3 4 5; 3 4 5.")


def test_calls_are_drawn_with_their_constants_and_shapes(shown) -> None:
    weight = tvm.relax.const(np.ones((4, 3), "float32"))
    plots.calls(relax_model(
        lambda bb, x: relu(bb, bb.emit_te(tvm.topi.nn.dense, x, weight)), 2, 3))
    assert shown[0][1]["image/png"]["alt"] == (
        "The calls of main: input (2, 3); dense with (4, 3) gives (2, 4); relu gives (2, 4).")


# ---- in Chinese ----

TIMING = helpers.Timing(2.0, 1.0, 3.0)


def _planned(mod: tvm.IRModule) -> tvm.IRModule:
    for run in (tvm.relax.transform.ToNonDataflow(), tvm.relax.transform.CallTIRRewrite(),
                tvm.relax.transform.StaticPlanBlockMemory()):
        mod = run(mod)
    return mod


def _launch() -> Launch:
    """Two blocks of three threads and one that have written six elements."""
    return Launch((2, 1, 1), (4, 1, 1), writer={"Y": np.array([0, 1, 2, 3, 4, -1])})


def _kept() -> tvm.tirx.PrimFunc:
    """Return a PrimFunc with a buffer inside."""
    x = te.placeholder((2,), name="x")
    doubled = te.compute((2,), lambda i: x[i] * 2.0, name="doubled")
    return te.create_prim_func([x, te.compute((2,), lambda i: doubled[i] + 1.0, name="y")])


def _all_pictures() -> dict[str, list]:
    """Return for each function of plots the texts of what it draws, with words as cells have."""
    func, image = _relu_model()["relu"], np.zeros((1, 1, 28, 28), dtype=np.float32)
    cnn = helpers.import_model(helpers.pytorch_model(helpers.load_weights("cnn")), (4, 1, 28, 28))
    numbers, drawn, close = np.arange(4).reshape(2, 2), {}, figure.plt.close
    calls = {
        "class_bars": lambda draw: draw(("bag",), [0.5], "recall", image, 0),
        "image_grid": lambda draw: draw(image, ["label: Bag"]),
        "confusion_matrix": lambda draw: draw(numbers, ("bag", "coat")),
        "network": lambda draw: draw(["linear"], [(1, 28, 28), (10,)]),
        "shares": lambda draw: draw(["0 ReLU"], FLOPs=[1], bytes=[2]),
        "computational_graph": lambda draw: draw(cnn),
        "fx_graph": lambda draw: draw(torch.fx.symbolic_trace(torch.nn.ReLU()).graph),
        "memory": lambda draw: draw(tensor=numbers),
        "stages": lambda draw: draw(("construct", "by an importer (05)"), ("build", "x = 1"),
                                    arrows=["fuse"]),
        "convolution": lambda draw: draw(np.arange(9).reshape(3, 3), numbers),
        "pooling": lambda draw: draw(numbers),
        "bias_along": lambda draw: draw(one_a_channel=np.ones((2, 1, 1))),
        "calls": lambda draw: draw(_relu_model()),
        "lanes": lambda draw: draw(2, channels_last=[(0, 1), (1, 1)]),
        "loop_nests": lambda draw: draw(before=func, after_split_and_reorder=func),
        "visit_order": lambda draw: draw((2, 2), before=func),
        "lifetimes": lambda draw: draw(given=func, yours=_kept()),
        "reduction": lambda draw: draw(numbers),
        "register_tile": lambda draw: draw(2, 3),
        "times": lambda draw: draw({"a": TIMING}, 0.5, ["a"]),
        "throughput": lambda draw: draw({1: 20.0, 8: 160.0}, 20.0),
        "bandwidths": lambda draw: draw({16_384: 300.0, 1 << 22: 30.0}, {}),
        "roofline": lambda draw: draw(100, 50, {"your dense layer": [(1e6, 4e6, 90.0)]},
                                      {"one scalar sum": 1.5}),
        "compared": lambda draw: draw({"1 thread": {"a": TIMING}, "2 threads": {"a": TIMING}}),
        "storages": lambda draw: draw(_planned(_relu_model())),
        "threads": lambda draw: draw(_launch(), "Y", (2, 3)),
        "addresses": lambda draw: draw({"thread is the row": [0, 32, 64]}),
        "handed_over": lambda draw: draw(["x", "conv_weight", "probabilities"],
                                               [tvm.tirx.const(28, "int64")] * 4),
        "staircase": lambda draw: draw({"torch.mm": {64: 0.6, 512: 0.8}}),
        "by_length": lambda draw: draw({"the scores": {128: 0.3, 256: 1.0}}, "MB"),
        "growth": lambda draw: draw({"the whole text each time": [1, 4, 9], "with a cache":
                                     [1, 2, 3]}, "letters so far",
                                    "multiply-adds for one more letter"),
    }
    figure.plt.close = lambda made: drawn.__setitem__(name, [
        text.get_text() for text in made.findobj(Text)]) or close(made)
    try:
        for name, call in calls.items():
            call(getattr(plots, name))
    finally:
        figure.plt.close = close
    return drawn


@chinese.quoted
@pytest.mark.filterwarnings("ignore:Glyph")  # where this machine has none of the fonts
def test_a_picture_in_chinese_has_no_english_left(shown, monkeypatch) -> None:
    """Neither in it nor in its text; where no font has the letters it is in English."""
    english = _all_pictures()
    assert english.keys() == set(dir(plots)) & {
        name for name, one in vars(plots).items() if callable(one)} - {
            "show", "fingerprint", "live", "side_by_side", "builder_and_module"}
    monkeypatch.setattr(words, "_chosen", "zh")
    monkeypatch.setattr(figure, "chinese_font", lambda: "")
    shown.clear()
    with warnings.catch_warnings():  # none is laid out with letters that it does not keep
        warnings.filterwarnings("error", "Glyph")
        assert _all_pictures() == english
    for _data, metadata in shown:  # the text for those who cannot see it needs no font
        alt = metadata["image/png"]["alt"]
        assert re.search(chinese.HAN, alt) and not chinese.PHRASE.findall(alt), alt
        assert not [says for pattern, says in chinese.SPACING[1:] if pattern.search(alt)], alt
    monkeypatch.setattr(figure, "chinese_font", lambda: "Noto Sans CJK SC")
    for name, texts in _all_pictures().items():
        assert not [text for text in texts if chinese.PHRASE.search(
            re.sub("numpy ndarray|^sblock", "", text))], name  # these are names
        said = set(texts) - set(english[name])
        assert said or name in ("memory", "fx_graph", "calls", "threads"), name


def test_the_font_is_the_first_that_is_there(monkeypatch) -> None:
    class Entry:
        fname = __file__

        def __init__(self, name: str) -> None:
            self.name = name

    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [])
    for names, font in ((["DejaVu Sans"], ""), (["SimHei", "PingFang SC"], "PingFang SC")):
        monkeypatch.setattr(font_manager.fontManager, "ttflist", [*map(Entry, names)])
        assert figure.chinese_font.__wrapped__() == font


@chinese.quoted
def test_code_beside_code_is_explained_in_chinese(monkeypatch) -> None:
    monkeypatch.setattr(words, "_chosen", "zh")
    said = plots.builder_and_module(_relu_model, _relu_model())
    assert repr(said).endswith("5: 函数的返回值") and "<b>两边都有</b>" in said._repr_html_()


@chinese.quoted
@pytest.mark.filterwarnings("ignore:Glyph")
def test_pictures_for_the_site_are_kept_in_both_languages(shown, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("MLC_SVG", str(tmp_path))
    monkeypatch.setattr(figure, "chinese_font", lambda: "DejaVu Sans")
    plots.class_bars(("bag", "coat"), np.array([0.25, 0.75]), "recall")
    (english,), (own,) = tmp_path.glob("*.svg"), (tmp_path / "zh").glob("*.svg")
    assert english.name == own.name and english.read_bytes() != own.read_bytes()
    monkeypatch.setattr(pages, "PICTURES", tmp_path)
    assert pages.in_chinese(own.stem) == (own.read_bytes(), "召回率：bag 0.250，coat 0.750。")
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output(
        "display_data", shown[0][0], metadata=shown[0][1])])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    for lang, alt in (("en", "recall: bag"), ("zh", "召回率：bag")):
        notebook.metadata["lang"] = lang
        image = BeautifulSoup(pages.as_html(notebook, "x"), "html.parser").find("img")
        assert image["alt"].startswith(alt) and ("svg+xml" in image["src"]) == (lang == "zh")
