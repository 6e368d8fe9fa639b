"""Saying in three lines what is wrong with an answer: expected, came, look at."""

import builtins
import functools
import re

import numpy as np

from course.words import _, language, told
from data.store import ROOT, CourseError


class CheckFailed(CourseError):
    """What an exercise's check says: expected, came, look at.

    Where docs/tvm_errors.md explains the message of TVM in `came`, a line names the place. What is
    expected stands alone where nothing came.
    """

    def __init__(self, expected: str, came: str = "", look_at: str = "", title: str = "") -> None:
        self.parts = (expected, came, look_at)
        labels = [str(label) for label in
                  (_("expected:"), _("came:"), _("look at:"), _("read:"))]
        width = max(map(len, labels))
        # lines that follow stand below the first
        texts = [told(text, language()).replace("\n", "\n" + " " * (width + 3))
                 for text in (*self.parts, _in_edition(explained(came)))]
        lines = [f"  {label:{width}} {text}"
                 for label, text in zip(labels, texts, strict=True) if text]
        super().__init__("\n".join([title] * bool(title) + lines) if came else texts[0])


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


def _ordinary(kind: str) -> set[str]:
    """Return all old names for a type of Python's or NumPy's, whose attributes are not TVM's."""
    known = hasattr(builtins, kind) or kind in ("NoneType", "ndarray", "function", "Sequential")
    return _old_names() if known else set()


def explained(message: str) -> str:
    """Return the link into docs/ that explains a message of TVM, or ""."""
    method = re.search(r"'(\w+)' object has no attribute '(\w+)'", message)
    gone = re.search(r"(module 'tvm[\w.]*' has no attribute|import name '\w+' from 'tvm)", message)
    if gone or method and method[2] in _old_names() - _ordinary(method[1]):
        return _("docs/rosetta.md, which has the old names and today's")
    return next((link for words, link in _explanations().items() if words in message), "")


def reason(error: BaseException) -> str:
    """Return the one line of a TVM or Python error that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines()
             if line.strip() and not line.strip().startswith("# Metadata omitted")]
    name, text = type(error).__name__, lines[-1] if lines else _("no message")
    if kinds := re.search(r"with type <class '(.+)'> to `(.+)`$", str(error)):  # after all numbers
        return _("{error}: a {came} in the place of a {wanted}; relax.const(array) makes "
                 "one").format(error=name, came=kinds[1], wanted=kinds[2])
    for number, line in enumerate(lines):
        if line.startswith("Error message:"):  # a ScheduleError prints the whole module first
            first, *more = line.removeprefix("Error message: ").split(" Out of bounds memory")
            return first[:300] if more or number + 1 == len(lines) or line.endswith(".") \
                else f"{first} {lines[number + 1]}"[:300]
        if line.startswith("error: ") or "Cannot find ffi::Function" in line:
            text = line.removeprefix("error: ")  # TVMScript and the VM: details follow
            for later in lines[number + 1:]:
                if later.startswith("Traceback: "):  # of the analysis: the reason itself
                    text = later.removeprefix("Traceback: ")
            break
        if explained(line):
            text = line
            break
        if line.startswith("- ") and lines[0].startswith("Constraints violated"):
            text = line.removeprefix("- ").partition(". ")[0]  # torch.export, and advice after it
            break
    return f"{name}: {text.removeprefix(f'{name}: ')[:300]}"


def place_in_script(error: BaseException) -> str:
    """Return where TVM's parser or analysis stopped in TVMScript, as "look at" text, or "".

    TVM prints `--> file:line:column`, below it the line after its number, and carets under that.
    """
    found = re.search(r"^ *--> [^\n]*?:(\d+):(\d+)\n(?: *\|[^\n]*\n)? *\1 \| ?([^\n]*)"
                      r"(?:\n *\|? ?( *\^+))?", str(error), re.MULTILINE)
    if not found:
        return ""
    line, column, source, carets = found.groups()
    indent = len(source) - len(source.lstrip())
    text = _("your line {line}, column {column}:\n{source}").format(
        line=line, column=column, source=source.strip()[:100])
    if carets:
        before = len(carets) - len(carets.lstrip()) - indent
        text += f"\n{' ' * max(0, before)}{carets.strip()}"
    return text


def where(mask: np.ndarray) -> str:
    """Return the indices of a mask's first True in words: "[0, 3, 1]"."""
    return str([int(i) for i in np.argwhere(mask)[0]])


def bound(difference: float, least: int = -5) -> str:
    """Return a power of ten, as "1e-4", below which a difference is on other machines too."""
    return f"1e{max(least, int(np.ceil(np.log10(max(difference, 1e-12) * 2))))}"
