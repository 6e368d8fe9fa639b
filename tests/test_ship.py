"""The CNN in a browser: the module equals PyTorch, the page's own code runs in Node."""

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import in_node
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup

import helpers
from course import present
from course.ship import browser, kernel, native, wasm
from data.store import CLASS_NAMES, CourseError, is_real
from tools.site import garment

NODE = pytest.mark.skipif(not present.tool("node"), reason=present.tool("node").said)


@pytest.fixture(scope="module")
def cnn() -> tuple[Any, np.ndarray]:
    return kernel.cnn(helpers.load_weights("cnn"), kernel.BROWSER)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all test images, and with what PyTorch says of them."""
    place = tmp_path_factory.mktemp("wasm")
    images = torch.stack([image for image, _label in helpers.test_data()])
    images.numpy().tofile(place / "images.bin")
    with torch.no_grad():
        said = helpers.pytorch_model(helpers.load_weights("cnn"))(images).numpy()
    np.save(place / "said.npy", said)
    return place


def _compared(folder: Path, weights: np.ndarray) -> tuple[float, int]:
    """Return the largest difference to PyTorch, and of how many images the class is another."""
    weights.astype("float32").tofile(folder / "weights.bin")
    came, _time = wasm.in_node(folder) or (np.zeros(0), 0)
    right = np.load(folder / "said.npy")
    return float(np.abs(came - right).max()), int((came.argmax(1) != right.argmax(1)).sum())


def test_the_module_was_made_of_todays_kernel_and_shim(cnn: tuple[Any, np.ndarray]) -> None:
    assert wasm.SOURCE.read_text().strip() == wasm.source(cnn[0]), "python -m course.ship.wasm"
    assert len(wasm.MODULE.read_bytes()) < 25_000


@NODE
def test_the_module_equals_pytorch_on_all_images(cnn: tuple[Any, np.ndarray],
                                                 folder: Path) -> None:
    shutil.copy(wasm.MODULE, folder / "cnn.wasm")
    worst, others = _compared(folder, cnn[1])
    assert worst < 1e-5 and others == 0
    integers, steps = browser.in_bytes(cnn[1])  # as the page has them
    worst, others = _compared(folder, integers * np.repeat(steps, browser.GROUP)[:len(integers)])
    assert 1e-6 < worst < 0.03 and others <= 2  # none of the real images, 2 of the stand-in's
    with pytest.raises(CourseError, match="not the numbers of this model"):
        _compared(folder, cnn[1][1:])


@NODE
@pytest.mark.skipif(not present.tool("wasm"), reason=present.tool("wasm").said)
def test_a_module_that_is_linked_here_equals_pytorch(folder: Path) -> None:
    two, packed = kernel.cnn(helpers.load_weights("cnn"), kernel.BROWSER, threads=2)
    text = two.script().replace("T.parallel(", "T.serial(")
    kernel.write(sys.modules["tvm"].script.from_source(text), kernel.BROWSER, folder)
    native.run(wasm.command(folder))
    worst, others = _compared(folder, packed)
    assert worst < 1e-5 and others == 0


# ---- the page --------------------------------------------------------------------------------


def _page(start: str = "en") -> str:
    found, _parts = garment.data()
    return browser.page(found, kernel.cnn(helpers.load_weights("cnn"), kernel.BROWSER)[1], start)


def test_the_page_is_one_file_that_asks_for_nothing() -> None:
    text = _page("zh")
    page = BeautifulSoup(text, "html.parser")
    assert not page.select("[src]") and {link["href"] for link in page.select("link")} == {"data:,"}
    assert "http" not in re.sub(r'"[\w+/=]{99,}"', "", text) and len(text) < 1_000_000
    data = json.loads(page.select_one("script.garment-data").string)
    assert len(data["images"]) == len(data["said"]) == len(data["labels"]) == browser.IMAGES
    assert data["strings"]["classes"][0] == list(CLASS_NAMES) and data["start"] == 1


def test_each_string_of_the_page_is_used_and_in_both_languages() -> None:
    code = (browser.HERE / "garment.js").read_text(encoding="utf-8")
    strings = json.loads((browser.HERE / "garment.json").read_text(encoding="utf-8"))
    for key, said in strings.items():
        places = [sorted(re.findall(r"\{(\w+)\}", str(one))) for one in said]
        assert len(said) == 2 and all(said) and places[0] == places[1], key
        assert key == "classes" or f'"{key}"' in code, key
    assert set(re.findall(r'say\("(\w+)"', code)) <= strings.keys()


def _in_page(function: str, given: Any) -> Any:
    """Return what a function of the page's Garment and of `given` returns."""
    return in_node.answer(browser.HERE / "garment.js", function, given)


@pytest.mark.parametrize("count", [33, 63, 64, 311])
def test_the_pages_weights_are_integers_times_steps(count: int) -> None:
    every = np.random.default_rng(count).normal(0, 0.1, count).astype("float32")
    every[:32] *= 100  # a group of large ones
    came = np.array(_in_page(
        "(Garment, parts) => [...Garment.floats(Uint8Array.from(parts.flatMap("
        "(part) => [...Garment.bytes(part)])))]", browser.parts(every)), "float32")
    integers, steps = browser.in_bytes(every)
    each = np.repeat(steps, browser.GROUP)[:count]
    assert len(came) == count and np.array_equal(came, integers * each)
    assert (np.abs(came - every) <= each / 2 * (1 + 1e-5)).all()


def test_an_outline_is_filled_and_the_garment_stands_in_the_middle() -> None:
    size = 40
    ring = np.zeros((size, size), int)
    ring[2:12, 4:34] = 1
    ring[5:9, 8:30] = 0
    open_ = ring.copy()
    open_[5:9, 30:] = 0  # the outside comes in
    for drawn, inside in ((ring, 1), (open_, 0)):
        came = np.array(_in_page("(Garment, drawn) => [...Garment.filled(drawn, 40)]",
                                 drawn.ravel().tolist())).reshape(size, size)
        assert (came[5:9, 8:30] == inside).all() and (came[ring == 0].sum() == 88 * inside)
    image = np.array(_in_page("(Garment, drawn) => [...Garment.image(drawn, 40)]", np.where(
        ring + np.pad(np.ones((4, 22), int), ((5, 31), (8, 10))), 1, 0).ravel().tolist()))
    image = image.reshape(28, 28)
    assert np.allclose(image[:, 13:15].max(), 0.75) and (image[13, :] > 0.5).all()
    rows = np.flatnonzero(image.sum(1))
    assert abs((rows[0] + rows[-1]) / 2 - 13.5) <= 0.5 and 9 <= len(rows) <= 11
    empty = _in_page("(Garment, drawn) => [...Garment.image(drawn, 40)]", [0] * 1600)
    assert not any(empty)


def test_a_garment_drawn_flat_has_its_class() -> None:
    """On the trained weights alone: the stand-in's model knows the stand-in's drawings."""
    if not is_real():
        pytest.skip("the stand-in")
    size, drawn = 140, {name: np.zeros((140, 140), int) for name in ("T-shirt/top", "Trouser")}
    drawn["T-shirt/top"][20:120, 45:95] = drawn["T-shirt/top"][20:50, 15:125] = 1
    drawn["Trouser"][15:125, 50:90] = 1
    drawn["Trouser"][40:125, 67:73] = 0
    model = helpers.pytorch_model(helpers.load_weights("cnn"))
    for name, place in drawn.items():
        image = _in_page(f"(Garment, drawn) => [...Garment.image(drawn, {size})]",
                         place.ravel().tolist())
        with torch.no_grad():
            said = model(torch.tensor(image, dtype=torch.float32).reshape(1, 1, 28, 28))
        assert CLASS_NAMES[int(said.argmax())] == name
