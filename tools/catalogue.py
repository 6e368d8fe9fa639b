"""gettext's catalogues of the Chinese: polib reads and writes them, `merged` brings the English in.

Chinese without English stays, behind `#~`, until its English comes back or a translator deletes it.
"""

import difflib
from collections.abc import Iterable
from pathlib import Path

import polib
from polib import POEntry, POFile

HEADER = ("The Chinese of what the English says. Write the msgstr, delete `fuzzy` where it is\n"
          "right, and run `make sync`.\n")
ABOUT = {"Language": "zh", "MIME-Version": "1.0", "Content-Type": "text/plain; charset=utf-8",
         "Content-Transfer-Encoding": "8bit", "Plural-Forms": "nplurals=1; plural=0;"}


class TranslationError(SystemExit):
    """The Chinese edition is not readable or not consistent; ends a command, saying where."""


def read(path: Path) -> POFile:
    """Read a catalogue; where there is none, an empty one. Raises TranslationError."""
    try:
        return polib.pofile(str(path)) if path.exists() else POFile()
    except (OSError, ValueError) as error:
        raise TranslationError(str(error)) from error


def chinese(one: POEntry) -> str:
    """Return the Chinese of a message; it has one form also where the English has two."""
    return one.msgstr or one.msgstr_plural.get(0, "")


def _key(text: str, context: str | None) -> tuple[str, str | None]:
    return " ".join(text.split()), context  # a line may end elsewhere


def merged(path: Path, wanted: Iterable[POEntry], width: int = -1) -> POFile:
    """Return the messages that are wanted, with the Chinese that a file has for them or for others
    like them: those are `fuzzy`, and keep the English that they were translated from.

    Lines longer than `width` are broken, by -1 none.
    """
    made = POFile(wrapwidth=width)
    made.header, made.metadata = HEADER, ABOUT
    left = [one for one in read(path) if chinese(one)]
    have = {_key(one.msgid, one.msgctxt): one for one in left}
    back = {_key(one.previous_msgid, one.msgctxt): one for one in left if one.previous_msgid}
    for want in wanted:
        made.append(want)
        key = _key(want.msgid, want.msgctxt)
        alike = {one.msgid.lower(): one for one in have.values() if one.msgctxt == want.msgctxt}
        if old := have.get(key):
            want.previous_msgid = old.previous_msgid
            want.flags = ["fuzzy"] * old.fuzzy + want.flags
        elif close := not (old := back.get(key)) and difflib.get_close_matches(
                want.msgid.lower(), alike, 1):
            old = alike[close[0]]
            want.previous_msgid = old.previous_msgid or old.msgid
            want.flags = ["fuzzy", *want.flags]
        if old:
            want.msgstr, want.msgstr_plural = old.msgstr, old.msgstr_plural
            want.tcomment = old.tcomment
            left = [one for one in left if one is not old]
    for one in left:
        one.obsolete = True
    made.extend(left)
    return made


def write(path: Path, text: str, change: bool) -> list[Path]:
    """Write a file whose text is another, if `change`; return it if it was another."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return []
    if change:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [path]
