"""Execute the solved notebooks from top to bottom.

    python -m tools.execute run        into build/html/, with an index; notebooks/ stays as it is
    python -m tools.execute run work   the same with a student's own copies; an error stops nothing
    python -m tools.execute run work 02 03    some of them
    python -m tools.execute outputs    and store their outputs in notebooks/; the times in cells
                                       tagged `timing` are kept, unless TIMES=1 is set; then
                                       a disturbed run is refused
    python -m tools.execute outputs 02 03     the same for some of them
"""

import base64
import hashlib
import os
import re
import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

from course.words import ROOT, _
from data.store import data_folder, data_line, is_real
from tools import lang
from tools.pages import HTML_LANG, PICTURES, as_html

QUARTILES = re.compile(r"\(([\d.]+) to ([\d.]+)\)")  # as helpers.Timing prints them
MOST_APART = 1.5

os.environ["TQDM_DISABLE"] = "1"  # a progress bar would be stored as an output


def client(notebook: nbformat.NotebookNode, folder: str = "notebooks") -> NotebookClient:
    """Return an executor of the course's notebooks, with a fresh kernel in this folder."""
    return NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False,
                          coalesce_streams=True, allow_errors=folder.split("/")[0] == "work",
                          extra_arguments=["--log-level=ERROR"],  # it warns of TCP without keys
                          resources={"metadata": {"path": ROOT / folder}})


def execute(path: Path, edition: str = "en", folder: str = "notebooks") -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a fresh kernel; exit if a cell fails.

    It runs in `folder`; checks speak that folder's language.
    """
    notebook = lang.read(path, edition)
    try:
        client(notebook, folder).execute()
    except (CellExecutionError, DeadKernelError) as error:
        sys.exit(_("\n{file} stopped:\n{error}").format(file=path.name, error=error))
    return notebook


def keep_times(fresh: nbformat.NotebookNode, stored: nbformat.NotebookNode) -> None:
    """Put the stored outputs of cells tagged `timing` back into a freshly executed notebook."""
    old = {cell.id: cell for cell in stored.cells}
    for cell in fresh.cells:
        before = old.get(cell.id)
        if "timing" in cell.metadata.get("tags", []) and before and before.outputs \
                and before.source == cell.source:
            cell.outputs = before.outputs


def disturbed(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the lines of cells tagged `timing` that show that another program was running.

    They say BUSY, or a time's third quartile is more than half as large again as its first.
    """
    lines = [line for cell in notebook.cells if "timing" in cell.metadata.get("tags", [])
             for output in cell.outputs if output.output_type == "stream"
             for line in output.text.splitlines()]
    return [line for line in lines
            if "BUSY" in line or any(float(third) > MOST_APART * float(first)
                                     for first, third in QUARTILES.findall(line))]


def pictures(path: Path) -> dict[str, bool]:
    """Return the names of a notebook's stored pictures, and whether each was drawn from data.

    A name is the beginning of the PNG's SHA-256, as plots.show gives it to the SVG.
    """
    found = [(output.data["image/png"], "drawn" in output.metadata.get("image/png", {}))
             for cell in nbformat.read(path, as_version=4).cells
             for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
    return {hashlib.sha256(base64.b64decode(png)).hexdigest()[:16]: drawn for png, drawn in found}


def keep_svgs(fresh: Path) -> None:
    """Put the fresh SVGs of stored pictures into docs/pictures/, and remove the others there.

    The Chinese ones too, in zh/: they are drawn where the machine has a font for them.
    """
    used = {f"{name}.svg" for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")
            for name in pictures(path)}
    for folder, place in ((fresh, PICTURES), (fresh / "zh", PICTURES / "zh")):
        place.mkdir(parents=True, exist_ok=True)
        for svg in [*folder.glob("*.svg"), *place.glob("*.svg")]:
            if svg.name not in used:
                svg.unlink()
            elif svg.parent == folder:
                shutil.move(svg, place / svg.name)


def store(path: Path) -> None:
    """Execute a notebook and store its outputs in it, and its pictures as SVG for the site."""
    with TemporaryDirectory() as folder:
        os.environ["MLC_SVG"] = folder  # plots.show
        stored, fresh = nbformat.read(path, as_version=4), execute(path)
        if os.environ.get("TIMES") != "1":
            keep_times(fresh, stored)
        elif lines := disturbed(fresh):
            sys.exit(_("\n{file} was disturbed; nothing is stored. Run it again on a quiet "
                       "machine:\n{lines}").format(file=path.name, lines="\n".join(lines)))
        fresh.metadata.pop("language_info", None)  # it would differ with the Python version
        nbformat.write(fresh, path)
        keep_svgs(Path(folder))


def to_html(path: Path, folder: Path, own: bool) -> str:
    """Execute a notebook, write it as HTML, and return its title (its first heading).

    The student's `own` ones run where they are, solved Chinese ones next to their pages.
    """
    where = folder if lang.CHOSEN == "zh" and not own else path.parent
    notebook = execute(path, lang.CHOSEN, where.relative_to(ROOT).as_posix())
    (folder / f"{path.stem}.html").write_text(as_html(notebook, path.stem), encoding="utf-8")
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def write_index(pages: Path, titles: dict[str, str]) -> None:
    """Write an index of the pages in a folder: the titles of the notebooks, by their stems."""
    course = {"en": "Machine learning compilation", "zh": "机器学习编译"}[lang.CHOSEN]
    rows = "\n".join(f'<li><a href="{stem}.html">{stem[:2]} &ndash; {title}</a></li>'
                     for stem, title in titles.items())
    (pages / "index.html").write_text(
        f'<!doctype html><html lang="{HTML_LANG[lang.CHOSEN]}"><meta charset="utf-8"><meta '
        'name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{course}</title><body style='font-family:sans-serif;max-width:40em;margin:3em "
        f"auto;padding:0 1em'><h1>{course}</h1><ul>{rows}</ul><p>{data_line()}</p>",
        encoding="utf-8")
    print(_("Open {file} in a browser.").format(file=(pages / "index.html").relative_to(ROOT)))


def _require_storable() -> None:
    """Exit if outputs of this run may not be stored."""
    if not is_real():
        sys.exit(_("Stored outputs come from the real images: set MLC_DATA, or get the data "
                   "with `make data` on a machine with a network."))
    if lang.CHOSEN != "en":
        sys.exit(_("Outputs are stored in the English notebooks; the Chinese ones show the same: "
                   "`make outputs`, without LANG."))


def main(task: str = "", *words: str) -> None:
    """Do what the module's text says."""
    folder, *numbers = words if task == "run" and words else ("notebooks", *words)
    if task not in ("run", "outputs") or folder not in ("notebooks", "work"):
        sys.exit(__doc__)
    print(data_line(), flush=True)
    os.environ["MLC_DATA"] = str(data_folder())  # else each kernel tries to download again
    paths = lang.masters() if folder == "notebooks" else sorted(
        path for path in (ROOT / lang.place(folder)).glob("[0-9]*.ipynb")
        if ".old" not in path.name)
    paths, titles = lang.chosen(paths, numbers), {}
    if task == "outputs":
        _require_storable()
    pages = ROOT / lang.place("build/html")
    pages.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(paths, start=1):
        print(f"[{number}/{len(paths)}] {path.stem} ... ", end="", flush=True)
        start = time.perf_counter()
        if task == "outputs":
            store(path)
        else:
            titles[path.stem] = to_html(path, pages, folder == "work")
        print(_("{seconds} s").format(seconds=f"{time.perf_counter() - start:.0f}"), flush=True)
    if titles:
        write_index(pages, titles)


if __name__ == "__main__":
    main(*sys.argv[1:])
