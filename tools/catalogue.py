"""gettext's catalogues of the Chinese, read, merged and written by Babel.

Two things Babel leaves out: the English that a fuzzy message was translated from stays beside it,
as `#| msgid`, and Chinese without English stays, behind `#~`, until its English comes back or a
translator deletes it.
"""

import io
import re
from pathlib import Path

from babel.messages import Catalog, pofile

HEADER = r'''# The Chinese of what the English says. Write the msgstr, delete `fuzzy` where it is
# right, and run `make sync`.
#
msgid ""
msgstr ""
"Language: zh\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=utf-8\n"
"Content-Transfer-Encoding: 8bit\n"
"Plural-Forms: nplurals=1; plural=0;\n"

'''


class TranslationError(SystemExit):
    """The Chinese edition is not readable or not consistent; ends a command, saying where."""


_Text = str | list[str] | tuple[str, ...] | None


def forms(text: _Text) -> tuple[str, ...]:
    """Return a message's forms: one, or where English has two for numbers both."""
    return (text or "",) if isinstance(text, str | None) else tuple(text)


def read(path: Path) -> Catalog:
    """Read a catalogue; where there is none, an empty one. Raises TranslationError."""
    data = path.read_bytes() if path.exists() else b""
    try:
        found = pofile.read_po(io.BytesIO(data), locale="zh", abort_invalid=True)
    except pofile.PoFileError as error:
        raise TranslationError(f"{path.name}, line {error.lineno + 1}: {error}") from error
    for one in found:  # Babel takes the lines `#| msgid "..."` for a comment
        if old := [line for line in one.user_comments if line.startswith("| ")]:
            one.user_comments = [line for line in one.user_comments if line not in old]
            text = "\n".join(line[2:].removeprefix("msgid ") for line in old)
            one.previous_id = [pofile.denormalize(text)]
    return found


def _tidy(text: _Text, context: str | None) -> tuple[str, str | None]:
    return " ".join(forms(text)[0].split()), context


def merged(path: Path, wanted: Catalog) -> Catalog:
    """Return the messages that are wanted, with the Chinese that a file has for them."""
    have = read(path)
    for one in have.obsolete.values():
        have[one.id] = one
    was = {_tidy(one.id, one.context): one for one in have if one.id and one.string}
    back = {_tidy(one.previous_id, one.context): one for one in was.values() if one.previous_id}
    for want in wanted:
        key = _tidy(want.id, want.context)
        if not have.get(want.id, want.context) and (old := was.get(key) or back.get(key)):
            have.delete(old.id, old.context)  # its lines end elsewhere, or the English came back
            have.add(want.id, old.string, context=want.context,
                     flags=old.flags if key in was else (), previous_id=old.previous_id)
            was[key] = old
    have.update(wanted)
    for one in have:
        for key in [_tidy(text, one.context) for text in (one.id, one.previous_id) if text]:
            if one.fuzzy and key in was and was[key].previous_id:
                one.previous_id = was[key].previous_id
    have.obsolete = {key: one for key, one in have.obsolete.items() if one.string}
    return have


def text(catalogue: Catalog, width: int = 0) -> str:
    """Return a catalogue's text; lines longer than `width` are broken, by 0 none."""
    file = io.BytesIO()
    pofile.write_po(file, catalogue, width=width, include_lineno=False, omit_header=True)
    blocks = file.getvalue().decode().split("\n\n")
    for at, one in enumerate(one for one in catalogue if one.id):
        old = "".join(f"#| msgid {pofile.normalize(text, '#| ', 0)}\n"
                      for text in one.previous_id[:1] if one.fuzzy)
        head, start, rest = re.split(r"(?m)^(msg)", blocks[at], maxsplit=1)
        blocks[at] = f"{head}{old}{start}{rest}"
    return HEADER + "\n\n".join(blocks)


def write(path: Path, text: str, change: bool) -> list[Path]:
    """Write a file whose text is another, if `change`; return it if it was another."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return []
    if change:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [path]
