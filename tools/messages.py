"""The catalogue of what checks say in Chinese, checks/say/zh.po: kept up to date from their code.

    python -m tools.messages           list the messages that have no Chinese yet

`make sync` adds what is new and sets aside what is gone; `python -m tools.sync check` compares.

A message is a string in checks/ or in the part of the grader that runs them; what varies in an
f-string is a place, {}. Its Chinese may take the places in another order, {1} {0}; {1:code} is
one with code in it. Where a message changes in the code its Chinese no longer fits: it is set
aside at the end of the file (#~), and the new message is shown in English.
"""

import ast
import io
import re
import string
from collections.abc import Iterator
from pathlib import Path

from babel.messages import Catalog, pofile

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "checks" / "say" / "zh.po"
SOURCES = ("checks/**/*.py", "tools/grading/checking.py")
# what is no message: patterns, and code
FOREIGN = re.compile(r"\\[a-zA-Z(\[|]|\(\.[*+]|^[#@]|^\w+ = |^(import|from|def|class|with) |"
                     r"\n *\w+\(")
HEADER = """# What the checks of the exercises say, in Chinese. The English is in checks/:
# `make sync` takes it from there. Write the msgstr, and nothing else.
#"""


def template(node: ast.AST) -> tuple[str | None, list[ast.AST]]:
    """Return a string of the code with a place, {}, for each part that varies; and those parts.

    Of code that is no string: None, and all its parts.
    """
    match node:
        case ast.Constant(value=str(text)):
            return text.replace("{", "{{").replace("}", "}}"), []
        case ast.FormattedValue(value=value):
            return None, [value]  # and not its format
        case ast.JoinedStr(values=pieces):
            found = [template(piece) for piece in pieces]
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = [template(left), template(right)]
        case _:
            return None, list(ast.iter_child_nodes(node))
    rest = [part for _, parts in found for part in parts]
    if isinstance(node, ast.BinOp) and all(text is None for text, _ in found):
        return None, rest
    return "".join(text or "{}" for text, _ in found), rest


def _strings(node: ast.AST) -> Iterator[str]:
    """Yield the templates of the strings in some code, but for docstrings."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    text, parts = template(node)
    if text is not None:
        yield text
    for part in parts:
        yield from _strings(part)


def _is_message(text: str) -> bool:
    """Whether a string is for readers: two English words at least, and no code."""
    return len(re.findall(r"(?<![\w.])[A-Za-z]{2,}(?![\w.(])", text)) > 1 and " " in text.strip() \
        and not FOREIGN.search(text)


def messages() -> dict[str, list[str]]:
    """Return every string of the checks, and the modules that have it."""
    found: dict[str, list[str]] = {}
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        for text in _strings(ast.parse(path.read_text(encoding="utf-8"))):
            if text.strip() and name not in found.setdefault(text, []):
                found[text].append(name)
    return found


def read(data: bytes) -> Catalog:
    """Read a catalogue's text."""
    return pofile.read_po(io.BytesIO(data), ignore_obsolete=False)


def up_to_date() -> bytes:
    """Return the text of checks/say/zh.po as it should be."""
    catalogue = read(CATALOGUE.read_bytes()) if CATALOGUE.exists() else Catalog("zh")
    translated = {str(message.id) for message in catalogue if message.id and message.string}
    wanted = Catalog("zh", header_comment=HEADER)
    for text, modules in messages().items():
        if _is_message(text) or text in translated:
            wanted.add(text, locations=[(module, 0) for module in modules])
    catalogue.update(wanted, no_fuzzy_matching=True)
    for english in [one for one, message in catalogue.obsolete.items() if not message.string]:
        del catalogue.obsolete[english]  # nothing of it is worth keeping
    catalogue.header_comment = HEADER
    written = io.BytesIO()
    pofile.write_po(written, catalogue, width=100, include_lineno=False, omit_header=True)
    return f"{HEADER}\n{PLAIN}\n".encode() + written.getvalue()


PLAIN = r'''msgid ""
msgstr ""
"Language: zh\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=utf-8\n"
"Content-Transfer-Encoding: 8bit\n"
'''


def _places(text: str) -> set[str] | None:
    """Return the numbers of a text's places, or None: it is not written as it should be."""
    try:
        names = [name for _, name, *_ in string.Formatter().parse(text) if name is not None]
    except ValueError:
        return None
    if names and all(name == "" for name in names):
        return {str(number) for number in range(len(names))}
    return set(names)


def wrong() -> list[str]:
    """Return what is wrong with the Chinese of messages, a line each."""
    lines = []
    for message in read(CATALOGUE.read_bytes()):
        english, chinese = str(message.id), str(message.string)
        if not english or not chinese:
            continue
        places = _places(chinese)
        if places is None or not places <= (_places(english) or set()):
            lines.append(f"checks/say/zh.po: {chinese!r} has other places than {english!r}")
        if english[-1] == "\n" != chinese[-1] == "\n":
            lines.append(f"checks/say/zh.po: one of {chinese!r} and {english!r} ends its line")
    return lines


def summary() -> str:
    """Say how many messages have their Chinese."""
    every = [message for message in read(CATALOGUE.read_bytes()) if message.id]
    done = sum(bool(message.string) for message in every)
    return f"Check messages: {done} of {len(every)} in Chinese, the others come in English."


def write(change: bool = True) -> bool:
    """Bring checks/say/zh.po up to date; return whether it was not."""
    text = up_to_date()
    behind = not CATALOGUE.exists() or CATALOGUE.read_bytes() != text
    if behind and change:
        CATALOGUE.write_bytes(text)
    return behind


def main() -> None:
    """List the messages that have no Chinese."""
    print("\n".join([*(repr(str(message.id)) for message in read(up_to_date())
                       if message.id and not message.string), summary()]))


if __name__ == "__main__":
    main()
