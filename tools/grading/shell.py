"""IPython without a kernel: for an answer's cells, and for recording a notebook's outputs."""

import base64
import functools
import io
import json
import math
import os
import resource
import sys
import tempfile
from typing import Any

from ipykernel.compiler import XCachingCompiler
from IPython.core.interactiveshell import InteractiveShell

from course.checks.run.answer import line_of_answer
from course.checks.say.messages import CheckFailed, reason
from course.words import _
from data.store import CourseError

MOST_OUTPUT = 1_000_000  # characters of a cell's output


class Shell(InteractiveShell):
    """IPython as in a kernel: magics, and cells whose lines messages can quote."""

    compiler_class = XCachingCompiler
    system = InteractiveShell.system_raw  # its own terminal for `!command` needs a device

    def enable_gui(self, gui: str | None = None) -> None:
        """Do nothing, for %matplotlib inline: pictures are shown as they are in a kernel."""

    def define(self, sources: list[str], answer: str, number: str) -> None:
        """Run an answer's cells, all as in a notebook, whatever one raises.

        Raises CheckFailed if none defines the answer, with the first error if there was one; or if
        the answer's own cell is not Python (the others are, or nothing of them was taken).
        """
        failed, broken = [], False
        for source in sources:
            result = self.run_cell(source, store_history=False)
            if error := result.error_before_exec or result.error_in_exec:
                words = str(error) if isinstance(error, CourseError) else reason(error)
                failed.append((_("the cell to run"), words, line_of_answer(error)))
            if broken := bool(result.error_before_exec):
                failed = failed[-1:]
                break
        if broken or answer not in self.user_ns:
            missing = (_("{answer} to be defined").format(answer=answer),
                       _("no cell above the check defines it"), _("the answer's cell"))
            raise CheckFailed(*[*failed, missing][0],
                              _("Exercise {number} ✗").format(number=number))


class _Stream(io.TextIOBase):
    def __init__(self, shell: "Recorder", name: str) -> None:
        self.shell, self.name = shell, name

    def write(self, text: str) -> int:
        self.shell.put("stream", name=self.name, text=str(text))
        return len(text)


class Recorder(Shell):
    """Records a cell's output as a notebook does: the first MOST_OUTPUT characters."""

    outputs: list[dict[str, Any]] = []
    left = MOST_OUTPUT

    def listen(self) -> None:
        """Take what cells print and show."""
        def show(kind: str, data: Any, metadata: Any = None, *_: Any, **__: Any) -> None:
            self.put(kind, data=data, metadata=metadata or {})

        sys.stdout, sys.stderr = _Stream(self, "stdout"), _Stream(self, "stderr")
        vars(self.display_pub).update(publish=functools.partial(show, "display_data"))
        vars(self.displayhook).update(write_output_prompt=lambda: None,
                                      write_format_data=functools.partial(show, "execute_result"))

    def put(self, kind: str, **parts: Any) -> None:
        """Record an output, if there is room."""
        try:
            said = json.dumps(parts, default=lambda value: base64.b64encode(value).decode()
                              if isinstance(value, bytes) else str(value))
        except (TypeError, ValueError, RecursionError):  # it is not an output
            return
        self.left -= len(said)
        last = self.outputs[-1] if self.outputs else {}
        if self.left < 0:
            return
        if kind == "stream" == last.get("output_type") and last["name"] == parts["name"]:
            last["text"] += parts["text"]
        else:
            self.outputs.append({"output_type": kind, **json.loads(said)})

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        self.put("error", ename=etype.__name__, evalue=str(evalue), traceback=list(stb))

    def record(self, source: str, file: int, room: tuple[int, int]) -> list[dict[str, Any]]:
        """Run a cell with limited memory; return its outputs, those of other programs last.

        These write into a `file` that is open before any cell runs: later it may be impossible.
        """
        self.outputs, self.left, failed = [], MOST_OUTPUT, None
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        for number in (1, 2):
            os.dup2(file, number)
        resource.setrlimit(resource.RLIMIT_AS, room)
        try:
            self.run_cell(source, store_history=True)
        except Exception as error:  # there are no resources left to run it
            failed = error
        resource.setrlimit(resource.RLIMIT_AS, (room[1], room[1]))  # to say that it was full
        if failed:
            self.put("error", ename=type(failed).__name__, evalue=str(failed), traceback=[])
        if text := os.pread(file, MOST_OUTPUT, 0).decode("utf-8", "replace"):
            self.put("stream", name="stdout", text=text)
        return self.outputs


def execute(cells: list[dict[str, Any]], seconds: float, said: str) -> None:
    """Run a submission's code cells; the file `said` gets for each a line: its place, its outputs.

    `cells`: from `plan.make`; those with a check's name are not run, since their verdict is known.
    A cell that computes for more than `seconds` ends the process. For a child.
    """
    shell = Recorder.instance()  # else display() would print
    shell.listen()
    file = open(said, "w", encoding="utf-8")  # noqa: SIM115 (until the process ends)
    printed = tempfile.TemporaryFile()  # noqa: SIM115 (likewise)
    hard, room = resource.getrlimit(resource.RLIMIT_CPU)[1], resource.getrlimit(resource.RLIMIT_AS)
    for place, cell in enumerate(cells):
        if not cell["code"] or cell["name"] and not cell["name"].endswith("-solution"):
            continue
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (min(math.ceil(used + seconds), hard), hard))
        print(json.dumps([place, None]), file=file, flush=True)
        print(json.dumps([place, shell.record(
            cell["source"], printed.fileno(), room)]), file=file, flush=True)
