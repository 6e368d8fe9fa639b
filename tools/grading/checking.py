"""Run one exercise's check on the source of an answer, in a process of its own.

The process was forked from one that has seen nothing of any submission. What a check says counts
only if nothing that checks rely on was changed.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from ipykernel.compiler import XCachingCompiler
from IPython.core.interactiveshell import InteractiveShell

from checks.run import check as running
from checks.run.answer import line_of_answer
from checks.say.messages import CheckFailed, reason
from data.store import CourseError
from tools.grading import confine, integrity
from words import _, use

MOST_SAID = 10_000  # characters


class Shell(InteractiveShell):
    """IPython as a kernel has it: magics, and cells whose lines messages can quote."""

    compiler_class = XCachingCompiler

    def enable_gui(self, gui: str | None = None) -> None:
        """Show no pictures: nobody sees them."""

    def showtraceback(self, *arguments: Any, **options: Any) -> None:
        """Show nothing: what a cell raised is in the result of running it."""

    showsyntaxerror = showtraceback


def _words(error: BaseException) -> str:
    """Return what a reader sees of an error: the check's lines, or the error's own."""
    return str(error) if isinstance(error, CourseError) else reason(error)


def run(number: str, answer: str, sources: list[str], language: str, scratch: Path
        ) -> tuple[bool, str]:
    """Return whether an answer passes, and what was said in "en" or "zh". For a child process.

    `sources` are the cells to run, the answer's among them; `answer` is the name that the check
    takes. Nothing of this process can be used for anything else afterwards.
    """
    use(language)
    exercise = running.registered[number]
    printed = running.Bounded(4 * MOST_SAID)
    sys.stdout = sys.stderr = printed
    warnings.simplefilter("ignore")
    seal = integrity.sealed()
    confine.go_home(scratch)
    confine.lock_in(scratch)
    torch.set_num_threads(1)  # a forked child with more threads hangs
    exercise.get_ready()
    shell = Shell()  # copies files to its home, with their modes
    confine.refuse_calls()
    require_unchanged = _watch(seal, number)  # here no answer can put another one
    try:
        _define(shell, sources, answer, number)
        require_unchanged()
        printed.kept = ""
        with contextlib.redirect_stdout(printed):
            exercise.check(shell.user_ns[answer])
        require_unchanged()
        said = printed.kept.strip()
        passed = str(_("Exercise {number} ✓").format(number=number)) + " "
        if not any(line.startswith(passed) for line in said.splitlines()):
            raise _failed(number, _("a verdict of the check"), _("it did not say that it passed"),
                          "")
    except BaseException as error:  # whatever comes is what the check said
        return False, _words(error)[:MOST_SAID]
    return True, said[:MOST_SAID]


def _failed(number: str, expected: str, came: str, look_at: str) -> CheckFailed:
    return CheckFailed(expected, came, look_at, _("Exercise {number} ✗").format(number=number))


def _define(shell: Shell, sources: list[str], answer: str, number: str) -> None:
    """Run an answer's cells; raise CheckFailed where one does not run, or none defines it."""
    for source in sources:
        result = shell.run_cell(source, store_history=False)
        if error := result.error_before_exec or result.error_in_exec:
            raise _failed(number, _("that the cell runs"), _words(error), line_of_answer(error))
    if answer not in shell.user_ns:
        raise _failed(number, _("that {answer} is defined").format(answer=answer),
                      _("no cell above the check defines it"), _("the answer's cell"))


def _watch(seal: ModuleType, number: str) -> Callable[[], None]:
    """Return what raises CheckFailed where something has changed since.

    The process that a check forks asks too. Nothing is looked up by its name when an answer has
    run: it could be another one then.
    """
    failed, refusal = _failed, _refusal

    def watched(inside: Callable[[], running.Outcome]) -> running.Outcome:
        changed = watch.changed
        result = inside()
        if names := changed():
            return False, refusal(names)
        return result

    running.observers.append(watched)
    watch = seal.Watch(integrity.functions())
    watch.add(watched)
    changed = watch.changed

    def require_unchanged() -> None:
        if names := changed():
            raise failed(number, *refusal(names))
    return require_unchanged


def _refusal(names: list[str]) -> tuple[str, str, str]:
    return (_("an answer that leaves the functions and the data that its check relies on alone"),
            (_("changed: {names} and {count} more") if len(names) > 3 else _("changed: {names}")
             ).format(names=", ".join(names[:3]), count=len(names) - 3),
            _("the lines that assign to an attribute of a module or a class, or change what is "
              "in it"))
