"""The site's own few words, in both languages: docs/site/words.toml."""

import tomllib
from types import SimpleNamespace

from course.words import ROOT

SAID = tomllib.loads((ROOT / "docs" / "site" / "words.toml").read_text(encoding="utf-8"))


class Words(SimpleNamespace):
    """What the site says in one language, by the names in words.toml."""


WORDS = {language: Words(**{name: said[language] for name, said in SAID.items()})
         for language in ("en", "zh")}
