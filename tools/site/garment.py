"""The site's page "Draw a garment": what it shows, and its weights in files next to it."""

from pathlib import Path
from typing import Any

import torch

import helpers
from course.ship import browser, kernel, wasm
from data.store import test_images

FOLDER = "garment"  # of the site, for both languages


def data() -> tuple[dict[str, Any], list[str]]:
    """Return what the page shows, and the weights in parts; trained ones where they are there."""
    weights = helpers.load_weights("cnn")
    _cnn, packed = kernel.cnn(weights, kernel.BROWSER)
    images, labels = test_images(browser.IMAGES)
    with torch.no_grad():
        said = helpers.pytorch_model(weights)(
            torch.stack([image for image, _label in helpers.test_data(browser.IMAGES)])).numpy()
    return (browser.data(wasm.MODULE.read_bytes(), images, labels, said), browser.parts(packed))


def fragment(found: dict[str, Any], language: str) -> str:
    """Return the page in a language, for one of the site's pages."""
    up = "" if language == "en" else "../"
    return browser.fragment(found | {"language": browser.LANGUAGES[language],
                                     "folder": f"{up}{FOLDER}/"})


def lay(parts: list[str], site: Path) -> None:
    """Write the weights as scripts, which a page opened from a file may load too."""
    folder = site / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts):
        (folder / f"{number}.js").write_text(f'garmentParts[{number}] = "{part}";\n')
