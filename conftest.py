"""Settings of the test run: data, nbval's sanitizers, crashed kernels, the table of answers."""

import tools  # noqa: F401 (first: it makes the import of nbformat quick)

# isort: split
import base64
import gc
import io
import os
import queue
import re
import signal
from collections.abc import Generator
from pathlib import Path

import nbval.kernel
import pytest
from nbformat import NotebookNode
from PIL import Image

from course import present

pytest_plugins = ["nbval.plugin"]  # pyproject.toml keeps pytest from loading it before this file

ROOT = Path(__file__).resolve().parent
for _name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MLC_LANG"):
    os.environ.pop(_name, None)  # a `make` that a test calls is not part of `make test`
os.environ.setdefault("TQDM_DISABLE", "1")  # bars on stderr would be compared
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # else it starts workers for one model
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")  # else it asks the C++ compiler eleven times
os.environ.setdefault("TVM_BIND_THREADS", "0")  # else what sets its threads runs on the first CPU
os.environ.setdefault("MLC_QUICK", "1")  # helpers.measure calls functions without timing them
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    import forked_kernels
    forked_kernels.use()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the data for all processes, and give nbval the patterns for them."""
    # what a shell starts with `&` ignores Ctrl-C, and so would the commands that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if workers := getattr(config.option, "numprocesses", 0):
        workers = min(workers, config.option.maxprocesses or workers)
        # threads that wait for one another spin: two workers with all cores each took twice as long
        for name in ("OMP_NUM_THREADS", "TVM_NUM_THREADS"):
            os.environ.setdefault(name, str(max(1, (os.cpu_count() or 1) // workers)))
        import forked_kernels
        forked_kernels.serve()
    from data import store
    try:
        folder = store.data_folder()
    except store.CourseError as error:
        raise pytest.UsageError(str(error)) from None
    os.environ["MLC_DATA"] = str(folder)
    real = store.is_real()
    parts = ["sanitize.cfg"] + ["sanitize_stand_in.cfg"] * (not real)
    if config.getoption("exercises"):
        import two_sided
        two_sided.wanted(config)  # raises UsageError for an unknown one
    joined = ROOT / "build" / f"nbval_{'real' if real else 'other'}.cfg"
    if not hasattr(config, "workerinput"):  # the workers of xdist read what this process wrote
        joined.parent.mkdir(exist_ok=True)
        joined.write_text("\n".join((ROOT / "tests" / part).read_text() for part in parts))
    config.option.nbval_sanitize_with = str(joined)


LONG = ("test_contributor", "test_devices", "test_fleet", "test_grading", "test_hostile",
        "test_more_mutants", "test_site", "test_stopping", "test_student")  # in tests/slow


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--exercises", default="", help='only these exercises, such as "03 5.4"')


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slowest files first: workers take whole files, so a slow last one runs alone."""
    for item in items:
        for tag in getattr(item, "cell", {}).get("metadata", {}).get("tags", []):
            if tag.startswith("needs-") and not present.tool(tag.removeprefix("needs-")):
                vars(item)["options"]["check"] = False  # it says what is missing
    if config.getoption("exercises"):
        import two_sided
        only = two_sided.wanted(config)
        items[:] = [item for item in items if two_sided.belongs(item, only)]

    def when(item: pytest.Item) -> int:
        if item.name == "test_two_sided" or item.path.stem in LONG:
            return 0
        return 1 if isinstance(item, nbval.plugin.IPyNbCell) or item.name == "test_types" else 2

    items.sort(key=when)


def pytest_collection_finish() -> None:
    gc.freeze()  # imports are not garbage: saves 4 % of a test file's CPU time


def pytest_report_header() -> str:
    from data import store
    return store.data_line()


_replied = nbval.kernel.RunningKernel.await_reply


def _await_reply(self: nbval.kernel.RunningKernel, msg_id: str, timeout: float = 600) -> None:
    """Wait for a cell's reply as nbval does, but not for that of a dead kernel: 300 seconds."""
    for _second in range(round(timeout)):
        try:
            return _replied(self, msg_id, timeout=1)
        except queue.Empty:
            if not self.is_alive():
                raise RuntimeError("the kernel crashed in this cell") from None
    raise queue.Empty


nbval.kernel.RunningKernel.await_reply = _await_reply


def _pictures(outputs: list[NotebookNode]) -> list[tuple[str, str | None]]:
    """Return the text and the fingerprint of each picture in a cell's outputs (plots.show)."""
    shown = [out.metadata.get("image/png", {}) for out in outputs
             if "image/png" in out.get("data", {})]
    return [(about.get("alt", ""), about.get("drawn")) for about in shown]


def _exchanged(outputs: list[NotebookNode]) -> list[str | None]:
    """Return the fingerprints inside the stored PNGs."""
    data = [out.data["image/png"] for out in outputs if "image/png" in out.get("data", {})]
    return [Image.open(io.BytesIO(base64.b64decode(png))).info.get("Description") for png in data]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Compare a cell's pictures with the stored ones, which nbval does not look at.

    It compares their texts, which come from the data, and their fingerprints. Pictures of times,
    which differ in each run, need the same kind: the text up to its first colon or comma.
    """
    result = yield
    if not isinstance(item, nbval.plugin.IPyNbCell):
        return result
    stored, came = _pictures(item.cell.outputs), _pictures(item.test_outputs or [])
    if _exchanged(item.cell.outputs) != [drawn for _, drawn in stored]:
        item.raise_cell_error("A stored picture is not the one that belongs there: `make outputs`")
    if item.options["check"]:
        said = [[item.sanitize(f"{alt}\ndrawn: {drawn}") for alt, drawn in pictures]
                for pictures in (stored, came)]
    else:
        said = [[re.split(r"[:,]", alt)[0] for alt, _ in pictures] for pictures in (stored, came)]
    if said[0] != said[1]:
        item.raise_cell_error("Pictures differ", "\n".join(
            ["stored:", *said[0], "came:", *said[1]]))
    return result


def pytest_terminal_summary(terminalreporter) -> None:
    """Print what tests recorded: the two-sided table, and the counts of Chinese messages."""
    def recorded(what: str) -> list:
        return sorted(row for reports in terminalreporter.stats.values() for report in reports
                      for name, value in getattr(report, "user_properties", []) if name == what
                      and getattr(report, "when", "") == "call" for row in value)

    if skipped := sum("no sandbox: " in str(report.longrepr)
                      for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(f"Not tried: {skipped} tests of grading. No sandbox is here: "
                                    "bubblewrap is missing, or not allowed.")
    if rows := recorded("two_sided"):
        terminalreporter.section("exercises: wrong answers caught, right answers accepted")
        for exercise, caught, wrong, accepted, right in rows:
            terminalreporter.write_line(f"{exercise}   wrong {caught:2} of {wrong:2}"
                                        f"   right {accepted} of {right}")
    if rows := recorded("chinese"):
        said, waiting, faults = (sum(column) for column in zip(*rows, strict=True))
        terminalreporter.write_line(f"In Chinese too: {said} sentences, {faults} with English, "
                                    f"lost numbers or stray spaces; {waiting} more wait for theirs")
    for line in recorded("catalogue"):
        terminalreporter.write_line(line)
