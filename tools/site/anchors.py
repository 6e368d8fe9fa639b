"""Stable anchors: a section has the same one in both languages, made from its English heading.

Sphinx makes a section's anchor from its heading's Latin letters; a heading without any is numbered,
and then a new section changes the anchors of all that follow.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable


def anchors(headings: Iterable[str]) -> list[str]:
    """Return an anchor for each of a page's English headings, in Markdown: all different."""
    seen: Counter[str] = Counter()
    found = []
    for heading in headings:
        words = re.sub(r"[`*$]|\]\([^)]*\)|\[", "", heading)
        name = _identifier(words) or _identifier(f"of {words}")  # "2026.12" has no letter
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return found


def _identifier(words: str) -> str:
    """Return words as an HTML id: ASCII letters, digits and hyphens, a letter first."""
    letters = unicodedata.normalize("NFKD", words.lower()).encode("ascii", "ignore").decode()
    return re.sub(r"^[-0-9]+|-+$", "", re.sub(r"[^a-z0-9]+", "-", letters))
