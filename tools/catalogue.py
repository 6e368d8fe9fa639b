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


def _key(text: str, context: str | None) -> tuple[str, str | None]:
    return " ".join(text.split()), context  # a line may end elsewhere


def merged(path: Path, wanted: Iterable[POEntry], width: int = -1) -> POFile:
    """Return the messages that are wanted, with the Chinese that a file has for them or for others
    like them: those are `fuzzy`, and keep the English that they were translated from.

    Lines longer than `width` are broken, by -1 none.
    """
    made = POFile(wrapwidth=width)
    made.header, made.metadata = HEADER, ABOUT
    every = left = [one for one in read(path) if one.msgstr]
    # by the English that it is the Chinese of: of two, the one that is not fuzzy
    known = {_key(one.fuzzy and one.previous_msgid or one.msgid, one.msgctxt): one
             for one in sorted(every, key=lambda one: not one.fuzzy)}
    for want in {(one.msgid, one.msgctxt): one for one in wanted}.values():
        made.append(want)
        alike = {one.msgid.lower(): one for one in every if one.msgctxt == want.msgctxt}
        if old := known.get(_key(want.msgid, want.msgctxt)):
            want.fuzzy = old.fuzzy and not old.previous_msgid
        elif close := difflib.get_close_matches(want.msgid.lower(), alike, 1):
            old = alike[close[0]]
            want.fuzzy, want.previous_msgid = True, old.previous_msgid or old.msgid
        if old:
            want.msgstr, want.tcomment = old.msgstr, old.tcomment
            left = [one for one in left if one is not old]
    for one in left:
        one.obsolete, one.previous_msgid = True, None
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
