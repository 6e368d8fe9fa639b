"""TVMScript for reading: as it is printed, in colours, without what gets in a reader's way."""

import html
import os
import re
from typing import Any

import tvm
from tvm import relax

_WIDE = 100  # letters: a line of code in JupyterLab, without scrolling


# in JupyterLab's dark theme, as in the site's (course.css), light and dark change places
in_the_dark = ('<style>[data-jp-theme-light="false"] .mlc-listing { filter: invert(.93) '
         "hue-rotate(180deg) }</style>")


class Listing:
    """Text with colours: highlighted HTML for people, plain text beside it for comparison."""

    def __init__(self, text: str, lexer: str = "python") -> None:
        self.text, self.lexer = text.strip("\n"), lexer

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        if "MLC_LAB" in os.environ:
            return f'{in_the_dark}<div class="mlc-listing">{self._light()}</div>'
        return self._light()

    def _light(self) -> str:
        from pygments import highlight, lexers
        from pygments.formatters import HtmlFormatter
        style = ("background:#f6f8fa;color:#24292f;padding:.6em 1em;line-height:1.35;"
                 "font-family:monospace;font-size:90%;white-space:pre;overflow-x:auto")
        if self.lexer == "diff":  # colour whole lines: a diff is read by its margins
            ink = {"+": "background:#dafbe1", "-": "background:#ffebe9", "@": "color:#57606a"}
            lines = "\n".join(f'<span style="{ink.get(line[:1], "")}">{html.escape(line)}</span>'
                              for line in self.text.splitlines())
            return f'<pre style="{style}">{lines}</pre>'
        formatter = HtmlFormatter(noclasses=True, nobackground=True, prestyles=style)
        return highlight(self.text, lexers.get_lexer_by_name(self.lexer), formatter)


def script(item: tvm.IRModule | tvm.ir.BaseFunc) -> str:
    """Return an IRModule or function as TVMScript, without the printer's comments about imports.

    use_pep695=False: symbolic shapes would print differently on Python 3.11 and 3.12.
    """
    text = item.script(extra_config={"script.use_pep695": False})
    return "\n".join(line for line in text.splitlines()
                     if not line.startswith(("# from tvm", "# Metadata omitted"))).strip("\n")


def readable(text: str) -> str:
    """Write T.int64(26) as 26: TVM marks the type of every extent and index."""
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", text)


def _wrapped(line: str) -> str:
    """Break a line that is too wide at the commas of its longest bracket; leave nothing out.

    A signature then has a line for each argument; other lines are filled.
    """
    if len(line) <= _WIDE:
        return line
    depth, start, widest = 0, 0, (0, 0)
    commas: list[int] = []  # where the next argument begins
    for place, letter in enumerate(line):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 1 and letter in "([{":
            start = place + 1
        elif depth == 0 and letter in ")]}":
            widest = max(widest, (start, place), key=lambda ends: ends[1] - ends[0])
        elif depth == 1 and letter == "," and line[place + 1:place + 2] == " ":
            commas.append(place + 2)
    cuts = [cut for cut in commas if widest[0] < cut < widest[1]]
    if not cuts:
        return line
    edges = [0, *cuts, len(line)]
    rows, wide = [""], 0 if line.lstrip().startswith("def ") else _WIDE
    for begin, end in zip(edges, edges[1:], strict=False):
        if begin and len(rows[-1] + line[begin:end].rstrip()) > wide:
            rows.append(" " * widest[0])
        rows[-1] += line[begin:end]
    return "\n".join(row.rstrip() for row in rows)


def show(item: tvm.IRModule | tvm.ir.BaseFunc, only: str | None = None) -> Listing:
    """Show TVMScript, of a whole IRModule or `only` of its function with this name.

    Extents have no type (T.int64), and wide lines are broken; `script` has both as TVM prints
    them.
    """
    text = readable(script(item if only is None else item[only]))
    if only is not None:
        text = text.replace("def main(", f"def {only}(", 1)
    return Listing("\n".join(map(_wrapped, text.splitlines())))


def show_diff(before: Any, after: Any, context: int = 3) -> Listing:
    """Show what changed between two modules, functions or texts: - before, + after."""
    import difflib
    old, new = (readable(item if isinstance(item, str) else script(item)).splitlines()
                for item in (before, after))
    lines = difflib.unified_diff(old, new, n=context, lineterm="")
    return Listing("\n".join(list(lines)[2:]) or "no difference", "diff")


def bindings(mod: tvm.IRModule) -> Listing:
    """Show the lines of a module's `main`, without its signature and the types of variables."""
    lines = readable(script(mod["main"])).splitlines()
    body = lines[next(i for i, line in enumerate(lines) if line.startswith("def ")) + 1:]
    return Listing("\n".join(_wrapped(re.sub(r": R\..*? = ", " = ", line)[4:]) for line in body))


def bytecode(executable: relax.VMExecutable) -> Listing:
    """Show the bytecode of `main`: its allocations and calls, and the constants it takes.

    Lines that check arguments, release memory or belong to another function are left out.
    """
    text = executable.as_text()
    constants = re.search(r"Constant pool .*?: \[(.*)\]$", executable.stats(), re.MULTILINE)
    main = re.search(r"^@main:\n(.*?)^\s*$", text, re.MULTILINE | re.DOTALL)
    assert constants and main
    skip = ("check_tensor_info", "match_shape", "null_value")
    lines = [line for line in main[1].splitlines() if not any(word in line for word in skip)]
    pool, depth = [""], 0
    for letter in constants[1].replace(", ", ","):  # entries are parted by commas, as are shapes
        depth += (letter in "([") - (letter in ")]")
        pool[-1] += letter.replace(",", ", ") if depth or letter != "," else ""
        pool += [""] * (letter == "," and not depth)
    used = sorted({int(number) for line in lines for number in re.findall(r"c\[(\d+)\]", line)})
    return Listing("\n".join(["@main:", *lines, "",
                              *(f"c[{number}] is {pool[number]}" for number in used)]), "text")


def first_sentence(error: BaseException) -> str:
    """Return what an error of TVM says, without addresses, advice and source location."""
    return re.split(r"  Please| : ", re.sub(r"Function 0x\w+", "The function", str(error)))[0]
