"""The course's editions: English, and Chinese where make was called with LANG=zh.

`lang` is "en" or "zh"; without it the chosen one. The Chinese edition has its folders below the
English ones: work/zh/, build/html/zh/. tools.translation makes its notebooks from paired_md/po/zh/;
a Chinese handout has them in notebooks/zh/.
"""

import os
import sys
from collections.abc import Collection
from pathlib import Path

import nbformat

from course.words import ROOT, _

CHOSEN = "zh" if os.environ.get("MLC_LANG") == "zh" else "en"  # the Makefile sets it


def place(folder: str, lang: str = "") -> str:
    """Return the folder of an edition's files; the Chinese one is below the English one."""
    return f"{folder}/zh" if (lang or CHOSEN) == "zh" else folder


def masters(lang: str = "") -> list[Path]:
    """Return the notebooks that an edition is made from; exit if it is not here."""
    lang = lang or CHOSEN
    made_here = (ROOT / "paired_md" / "po" / "zh").is_dir()
    folder = "notebooks" if made_here else place("notebooks", lang)
    found = sorted((ROOT / folder).glob("[0-9]*.ipynb"))
    if not found:
        sys.exit(_("This edition is not in the handout that was unpacked here: LANG={here} is."
                   ).format(here="en" if lang == "zh" else "zh"))
    return found


def chosen(paths: list[Path], numbers: Collection[str], typed: str = 'NB="02 03"') -> list[Path]:
    """Return the notebooks with these numbers, or all; exit if one does not exist."""
    if unknown := set(numbers) - {path.name[:2] for path in paths}:
        sys.exit(_("There is no notebook {number}: take the two digits of its name, {typed}."
                   ).format(number=min(unknown), typed=typed))
    return [path for path in paths if not numbers or path.name[:2] in numbers]


def read(master: Path, lang: str = "") -> nbformat.NotebookNode:
    """Return one of `masters` in its edition, with its outputs if it has any."""
    if (lang or CHOSEN) == "en" or master.parent.name == "zh":
        return nbformat.read(master, as_version=4)
    from tools import translation  # not in handouts
    return translation.current(master.name[:2])[2]
