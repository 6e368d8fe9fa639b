"""Run one exercise's check on the source of an answer, in a process of its own.

The process was forked from one that has seen nothing of any submission. Answer and check share it:
an answer that looks in it for the check's own objects can forge a verdict (instructor/README.md).
"""

import contextlib
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from ipykernel.compiler import XCachingCompiler
from IPython.core.interactiveshell import InteractiveShell

from course.checks.run import check as running
from course.checks.run.answer import line_of_answer
from course.checks.say.messages import CheckFailed, reason
from course.words import _, use
from data.store import CourseError
from tools.grading import confine

MOST_SAID = 10_000  # characters


class Shell(InteractiveShell):
    """IPython as a kernel has it: magics, and cells whose lines messages can quote."""

    compiler_class = XCachingCompiler

    def enable_gui(self, gui: str | None = None) -> None:
        """Show no pictures: nobody sees them."""

    def showtraceback(self, *arguments: Any, **options: Any) -> None:
        """Show nothing: what a cell raised is in the result of running it."""

    showsyntaxerror = showtraceback

    def system(self, command: str) -> None:
        """Run `!command` without a terminal of its own, which needs a device."""
        self.system_raw(command)


def _words(error: BaseException) -> str:
    """Return what a reader sees of an error: the check's lines, or the error's own."""
    return str(error) if isinstance(error, CourseError) else reason(error)


def run(number: str, answer: str, sources: list[str], language: str, scratch: Path
        ) -> tuple[bool, str]:
    """Return whether an answer passes, and what was said in "en" or "zh". For a child process.

    `sources` are the cells to run, the answer's among them; `answer` is the name that the check
    takes. Nothing of this process can be used for anything else afterwards. What it raises came
    before the answer's first line, and is the grader's fault.
    """
    use(language)
    exercise = running.registered[number]
    printed = running.Bounded(4 * MOST_SAID)
    sys.stdout = sys.stderr = printed
    warnings.simplefilter("ignore")
    confine.go_home(scratch)
    confine.lock_in(scratch)
    torch.set_num_threads(1)  # a forked child with more threads hangs
    exercise.get_ready()
    shell = Shell()  # copies files to its home, with their modes
    confine.refuse_calls()
    try:
        _define(shell, sources, answer, number)
        printed.kept = ""
        with contextlib.redirect_stdout(printed):
            exercise.check(shell.user_ns[answer])
    except BaseException as error:  # whatever comes is what the check said
        return False, _words(error)[:MOST_SAID]
    return True, printed.kept.strip()[:MOST_SAID]


def _define(shell: Shell, sources: list[str], answer: str, number: str) -> None:
    """Run an answer's cells, all as in a notebook, whatever one raises.

    Raises CheckFailed where none defines the answer, with the first error if there was one; or the
    answer's own cell is no Python (the others are, or nothing of them was taken).
    """
    failed, broken = [], False
    for source in sources:
        result = shell.run_cell(source, store_history=False)
        if error := result.error_before_exec or result.error_in_exec:
            failed.append((_("that the cell runs"), _words(error), line_of_answer(error)))
        if broken := bool(result.error_before_exec):
            failed = failed[-1:]
            break
    if broken or answer not in shell.user_ns:
        missing = (_("that {answer} is defined").format(answer=answer),
                   _("no cell above the check defines it"), _("the answer's cell"))
        raise CheckFailed(*[*failed, missing][0], _("Exercise {number} ✗").format(number=number))
