"""Saying in three lines what is wrong with an answer: expected, came, look at."""

import functools
import itertools
import re
import sys
import textwrap
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from IPython import get_ipython
from IPython.display import display
from tvm import relax

from course.checks.say.show import Example
from course.words import _, language, told
from data.store import ROOT, CourseError

WIDTH = 80  # characters: JupyterLab breaks a longer line anywhere, inside a word too


class CheckFailed(CourseError):
    """What an exercise's check says: expected, came, look at.

    Where docs/tvm_errors.md explains the message of TVM in `came`, a line names the place. What is
    expected stands alone where nothing came. An `example` takes the place of what is expected and
    what came: as text, and in a notebook as tables above the other lines.
    """

    def __init__(self, expected: str, came: str | None = None, look_at: str = "", title: str = "",
                 example: Example | None = None) -> None:
        if came is None:
            came = ""
        elif not came:
            came = _("nothing")
        self.parts = (expected, came, look_at)
        self.example, self._displayed = example, False
        self._title = [title] * bool(title)
        lines: list[tuple[str, str]] = [(_("expected:"), expected), (_("got:"), came)]
        self._evidence = example.lines() if example else lines
        self._rest: list[tuple[str, str]] = [
            (_("look at:"), look_at), (_("read:"), _in_edition(explained(came)))]
        super().__init__("\n".join(self._title + _aligned(self._evidence + self._rest))
                         if came else told(expected, language()))

    @property
    def whole(self) -> tuple:
        """Its parts and, if it has one, its example: what another process makes it of again."""
        return (*self.parts, self.example) if self.example else self.parts

    def _render_traceback_(self) -> list[str]:
        if not self.example or not hasattr(get_ipython(), "kernel"):
            return super()._render_traceback_()
        if not self._displayed:  # IPython may ask twice
            self._displayed = True
            display({"text/plain": "\n".join(_aligned(self._evidence)),
                     "text/html": self.example._repr_html_()}, raw=True)
        return "\n".join(self._title + _aligned(self._rest)).splitlines()


def require_type(value: Any, kinds: Any, expected: str) -> None:
    """Raise CheckFailed unless a value is of one of some types."""
    if not isinstance(value, kinds):
        raise CheckFailed(expected, type(value).__name__)


def _aligned(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Return labels with their texts beside them; a text's further lines stand below its first."""
    said = [(told(label, language()), told(text, language())) for label, text in lines if text]
    width = max((len(label) for label, _text in said), default=0)
    return [f"  {label:{width}} " + text.replace("\n", "\n" + " " * (width + 3))
            for label, text in said]


def wrapped(line: str) -> str:
    """Return a line of a verdict in lines that the lab need not break, below one another."""
    label = re.match(r" *(?:[^:：]{1,10}[:：] +)?", line)
    return textwrap.fill(line, WIDTH, subsequent_indent=" " * (label.end() if label else 0),
                         break_long_words=False, break_on_hyphens=False)


def _in_edition(link: str) -> str:
    """Return a link into docs/, or where there is one into its Chinese edition, docs/zh/."""
    path, mark, anchor = link.partition("#")  # headings quote TVM's words: anchors are the same
    chinese = path.replace("docs/", "docs/zh/", 1).partition(",")[0]
    if language() == "zh" and (ROOT / chinese).is_file():
        return path.replace("docs/", "docs/zh/", 1) + mark + anchor
    return link


@functools.cache
def _explanations() -> dict[str, str]:
    """Return the messages that docs/tvm_errors.md quotes in its headings, each with its link."""
    document = ROOT / "docs" / "tvm_errors.md"
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    links = {}
    for heading in re.findall(r"^### (.*)$", text.partition("## Installation")[0], re.MULTILINE):
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")  # as GitHub makes it
        for words in re.findall(r"`([^`]+)`", heading):
            links[words] = f"docs/tvm_errors.md#{anchor}"
    return links


@functools.cache
def _old_names() -> set[str]:
    """Return the names of attributes and methods that docs/rosetta.md calls old."""
    document = ROOT / "docs" / "rosetta.md"
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    return {name for old in re.findall(r"^\| (`.*?) \| ", text, re.MULTILINE)
            for name in re.findall(r"\.(\w+)", old)}


def explained(message: str) -> str:
    """Return the link into docs/ that explains a message of TVM, or ""."""
    method = re.search(r"'(\w+)' object has no attribute '(\w+)'", message)
    gone = re.search(  # not what the runtime alone lacks of the compiler
        r"(module 'tvm(?![\w.]*_ffi_api)[\w.]*' has no attribute|import name '\w+' from 'tvm)",
        message)
    if gone or method and method[2] in _old_names() and _is_of_tvm(method[1]):
        return _("docs/rosetta.md, which has the old names and today's")
    return next((link for words, link in _explanations().items() if words in message
                 and ("operand" not in words or "'Tensor'" in message)), "")


def _is_of_tvm(name: str) -> bool:
    """Whether a class of this name is TVM's, and none is a layer of PyTorch's."""
    return not hasattr(torch.nn, name) and any(
        isinstance(found := getattr(module, name, None), type)
        and found.__module__.partition(".")[0] in ("tvm", "tvm_ffi")
        for title, module in list(sys.modules.items()) if title.startswith("tvm"))


def _of_an_argument(lines: Sequence[str]) -> str:
    """Return what a compiled function says of an argument, and which one it is."""
    text = f"{lines[0].removesuffix(' when calling:')}, {lines[-1]}"
    argument = re.match(r"\w+ (\w+)\.", text)
    taken = argument and re.search(rf"\b{argument[1]}: Tensor\(.*?\)", lines[1])
    if taken and text.endswith("compact array"):  # TVM compares them before the shapes
        return f"{text.partition(', expected')[0]}: not those of a compact {taken[0]}"
    return f"{text}; {taken[0]}" if taken else text


def _of_a_schedule(name: str, line: str, above: Sequence[str], below: Sequence[str]) -> str:
    """Return what the line "Error message:" of a ScheduleError says, with what it refers to."""
    first, *more = line.removeprefix("Error message: ").split(" Out of bounds memory")
    first = f"{name}: {_named(first, above).removeprefix(f'{name}: ')}"
    if broken := re.search(r" condition (#\d+)\.?$", first):  # of those that are listed
        says = [one[2:] for one in below if one.startswith(f"{broken[1][1:]})")]
        return f"{first.removesuffix('.')}:{says[0]}"[:500] if says else first[:300]
    listed = list(itertools.takewhile(re.compile(r"\d\)").match, below))
    return first[:300] if more or not below or line.endswith(".") \
        else " ".join([first, *(listed or below[:1])])[:500]


def reason(error: BaseException) -> str:
    """Return the one line of a TVM or Python error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines()
             if line.strip() and not line.strip().startswith("# Metadata omitted")]
    # CPython 3.13 raises a kind of SyntaxError that it keeps to itself
    name = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__[0] != "_")
    at = 0 if isinstance(error, AssertionError) or lines and lines[-1].startswith(_NOTE) else -1
    text = lines[at] if lines else _("no message")
    if kinds := re.search(r"with type <class '(.+)'> to `(.+)`$", str(error)):  # after all numbers
        says = _("{error}: got a {came}, expected a {wanted}; relax.const(array) makes one") \
            if kinds[1] == "numpy.ndarray" else _("{error}: got a {came}, expected a {wanted}")
        return says.format(error=name, came=kinds[1], wanted=kinds[2])
    if described := str(error).partition(_NO_TENSORIZE)[2].splitlines():
        differ = [line for line in described  # the innermost first
                  if "match" in line and "(0x" not in line] or described
        return f"{name}: {_NO_TENSORIZE} {'; '.join(dict.fromkeys([differ[0], differ[-1]]))}"[:500]
    if lines and lines[0].startswith("LLVM module verification failed"):
        return f"{name}: {lines[1]} {lines[-1]}"[:300]
    for number, line in enumerate(lines):
        if line.startswith("Error message:"):  # a ScheduleError prints the whole module first
            return _of_a_schedule(name, line, lines[:number], lines[number + 1:])
        if line.startswith("error: ") or "Cannot find ffi::Function" in line:
            text = line.removeprefix("error: ")  # TVMScript and the VM: details follow
            for later in lines[number + 1:]:
                if later.startswith("Traceback: "):  # of the analysis: the reason itself
                    text = later.removeprefix("Traceback: ")
            break
        if line.startswith("- ") and lines[0].startswith("Constraints violated"):
            text = line.removeprefix("- ").partition(". ")[0]  # torch.export, and advice after it
            break
        if explained(line):
            text = line
            break
    if text.startswith(_ILL_FORMED) and (why := _why_ill_formed(error)):
        return f"{name}: {_ILL_FORMED}: {why}"
    if lines and lines[0].endswith(" when calling:") and lines[-1].startswith("expected "):
        text = _of_an_argument(lines)
    text = _OPERATOR.sub(r"\1", text.removeprefix(f"{name}: "))
    return f"{name}: {text[:300]}{'...' * (len(text) > 300)}"


def _named(message: str, program: Sequence[str]) -> str:
    """Return a ScheduleError's message with the names of blocks and loops for TVM's numbers.

    In the program, which comes first, a comment above each has its number.
    """
    for mark, block, loop in re.findall(
            r'^# (\S+#\d+)\n(?:with T\.sblock\(("\w+")|for (\w+) in )', "\n".join(program),
            re.MULTILINE):
        message = re.sub(rf"{re.escape(mark)}(?!\d)", block or loop, message)
    return message.replace('""', '", "').replace('(s):"', '(s): "')  # a list of TVM's


_OPERATOR = re.compile(r'ir\.Op\(.*?name="([\w.]+)".*?support_level=\d+\)')
_NOTE = "The error above occurred"  # torch.export ends with it
_NO_TENSORIZE = "Does not match the tensorize description:"
_ILL_FORMED = "Program is not well-formed"


def _why_ill_formed(error: BaseException) -> str:
    """Return what is wrong with a program that TVMScript's parser refused without a reason.

    The parser has read it by then: it is a variable of its.
    """
    for frame, _line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "parse" and "check_ret" in frame.f_locals:
            try:
                relax.analysis.well_formed(frame.f_locals["check_ret"])
            except Exception as why:  # TVM raises many kinds here
                return re.sub(r"^\w+: Check failed: \(.*?\) is false: (?=.)", "", reason(why))
    return ""


def place_in_script(error: BaseException) -> str:
    """Return where TVM's parser or analysis stopped in TVMScript, as "look at" text, or "".

    TVM prints `--> file:line:column`, below it the line after its number, and carets under that.
    """
    found = re.search(r"^ *--> [^\n]*?:(\d+):(\d+)\n(?: *\|[^\n]*\n)? *\1 \| ?([^\n]*)"
                      r"(?:\n *\|? ?( *\^+))?", str(error), re.MULTILINE)
    if not found:
        return ""
    line, column, source, carets = found.groups()
    shown = source.strip()[:100]
    if not carets:  # then the column that TVM names lies beside the place
        return _("your line {line}: {source}").format(line=line, source=shown)
    before = len(carets) - len(carets.lstrip()) - (len(source) - len(source.lstrip()))
    text = _("your line {line}, column {column}:\n{source}").format(
        line=line, column=column, source=shown)
    return text + f"\n{' ' * max(0, before)}{carets.strip()}"


def where(mask: np.ndarray) -> str:
    """Return the indices of a mask's first True in words: "[0, 3, 1]"."""
    return str([int(i) for i in np.argwhere(mask)[0]])


def bound(difference: float, least: int = -5) -> str:
    """Return a power of ten, as "1e-4", below which a difference is on other machines too."""
    return f"1e{max(least, int(np.ceil(np.log10(max(difference, 1e-12) * 2))))}"
