"""Does a Chinese cell hold what its English has? Both are read as Markdown and compared.

What the course's glossary, docs/glossary.md, says in its tables is asked for too: the Chinese of
its terms and of its fixed phrases, and the names that stay English. `differences` gives a line for
each thing that is missing or wrong.
"""

import functools
import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

ROOT = Path(__file__).resolve().parent.parent
HAN = "[\u3400-\u9fff]"
HABITS = (  # what Chinese technical books don't do
    (re.compile("您"), "the reader is 你, not 您"),
    (re.compile(f"{HAN}[,;!?](?=\\s|$|{HAN})|{HAN}:(?=\\s|$|{HAN})"),
     "half-width punctuation behind Chinese: take ，；：！？"),
    (re.compile(f"{HAN}(?=\0)|\0{HAN}"), "no space between Chinese and a code span or formula"))


@dataclass
class Parts:
    """What a Markdown cell consists of, as far as a translation has to keep it."""

    headings: list[str] = field(default_factory=list)
    code: set[str] = field(default_factory=set)
    formulas: set[str] = field(default_factory=set)
    links: Counter[str] = field(default_factory=Counter)
    pictures: Counter[str] = field(default_factory=Counter)
    fences: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)  # cells in each
    swallowed: list[str] = field(default_factory=list)  # text that HTML keeps from being rendered
    prose: str = ""  # what is left; "\0" in the place of a code span or formula


@functools.cache
def _reader() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)


def _unspaced(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _fence(token: Token) -> str:
    """Return what a translation keeps of a fence: all but comments; in one of `text`, but words."""
    if token.info.strip() == "text":
        return _unspaced(re.sub(f"{HAN}+|[A-Za-z]{{2,}}|[，。；：]|,", "", token.content))
    return "\n".join(line.rstrip() for line in
                     re.sub(r"(^|\s)#.*$", "", token.content, flags=re.MULTILINE).splitlines())


def _note(token: Token, found: Parts) -> str:
    """Note what a token of Markdown is, and return the prose in it."""
    match token.type:
        case "inline":
            return "".join(_note(child, found) for child in token.children or [])
        case "heading_open":
            found.headings.append(token.markup)
        case "fence" | "code_block":
            found.fences.append(_fence(token))
            return ""
        case "html_block" | "html_inline":
            found.tags += re.findall(r"</?\w+", token.content)
            if token.type == "html_inline":
                return ""
            outside = re.sub(r"<summary>.*?</summary>|<[^>]*>|<!--.*?-->", "", token.content,
                             flags=re.DOTALL)
            found.swallowed += [outside.strip()] if outside.strip() else []
            return re.sub(r"<[^>]*>", " ", token.content)
        case "math_block" | "math_inline" | "math_inline_double":
            found.formulas.add(_unspaced(token.content))
            return "" if token.block else "\0"
        case "code_inline":
            found.code.add(token.content)
            return "\0"
        case "table_open":
            found.tables.append(0)
        case "td_open" | "th_open":
            found.tables[-1] += 1
        case "link_open":
            found.links[str(token.attrs["href"])] += 1
        case "image":
            found.pictures[str(token.attrs["src"])] += 1
        case "softbreak" | "hardbreak":
            return "\n"
    return token.content


def parts(text: str) -> Parts:
    """Return the parts of a Markdown cell."""
    found, tokens = Parts(), _reader().parse(text)
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            for first in (inline.children or [])[:1]:  # in "split: two loops out of one" a name
                first.content = re.sub(r"^[a-z_]+(?=: )", "\0", first.content)
    found.prose = "".join(_note(token, found) + "\n" for token in tokens)
    return found


# ---- links -------------------------------------------------------------------------------------


def _whole(target: str, folder: str) -> str:
    """Return a link's target as it is seen from the repository's root."""
    if re.match(r"[a-z]+:|#", target):
        return target
    return posixpath.normpath(posixpath.join(folder, target))


def _chinese(target: str) -> str:
    """Return the Chinese edition of a document in docs/, where there is one, else the document."""
    path, mark, anchor = target.partition("#")
    edition = posixpath.join("docs", "zh", posixpath.basename(path))
    if posixpath.dirname(path) == "docs" and (ROOT / edition).is_file():
        return edition
    return path + mark + anchor


def _links(kind: str, english: Counter[str], chinese: Counter[str]) -> list[str]:
    """Compare the targets of links, English ones seen from paired_md/, Chinese from its zh/."""
    wanted = Counter(_chinese(_whole(target, "paired_md")) for target in english.elements())
    places = {target: _whole(target, "paired_md/zh") for target in chinese}
    have = Counter(re.sub("^(docs/zh/[^#]*)#.*", r"\1", places[target])  # with its own headings
                   for target in chinese.elements())
    lines = [f"the {kind} to {target} is missing"
             + f" (from here: {posixpath.relpath(target, 'paired_md/zh')})" * (":" not in target)
             for target in wanted - have]
    lines += [f"a {kind} to {target}, which the English has not" for target in have - wanted]
    return lines + [f"the {kind} to {target} leads nowhere" for target, path in places.items()
                    if ":" not in path and not path.startswith("#")
                    and not (ROOT / path.partition("#")[0]).exists()]


# ---- the glossary --------------------------------------------------------------------------------


@dataclass
class Glossary:
    """The tables of docs/glossary.md, as far as they are asked for.

    `terms`: English forms, in lower case, words apart by one space, with the Chinese ones that are
    admitted; those of two rows with the same English are joined; empty where nothing is asked for.
    `any_term` finds any of them, the longest first, also in the plural; `any_name` finds names that
    stay English. `phrases`: a pattern of the English, with a template of the Chinese.
    """

    terms: dict[str, set[str]]
    any_term: re.Pattern[str]
    any_name: re.Pattern[str]
    phrases: list[tuple[re.Pattern[str], str]]


def _spaced(term: str) -> str:
    """Return a term with its words apart by one space, wherever a line ended."""
    return re.sub(r"[\s-]+", " ", term.lower())


def _any(words: Iterable[str]) -> str:
    """Return the pattern of any of these words, the longest first; nothing fits where none are."""
    return "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word)))) or "(?!)"


def rows(text: str, heading: str) -> list[dict[str, str]]:
    """Return the rows of the table below a heading of the glossary, by the heads of its columns."""
    _, _, section = text.partition(f"\n## {heading}")
    lines = re.findall(r"^\|(.*)\|[ \t]*$", section.partition("\n## ")[0], re.MULTILINE)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def glossary(text: str) -> Glossary:
    """Read the tables of docs/glossary.md."""
    terms: dict[str, set[str]] = {}
    free = set()  # of two senses, one that nobody can look for
    for row in rows(text, "Terms"):
        forms = {form.strip() for form in [row["中文"], *row["也可用"].split("/")] if form.strip()}
        for term in map(str.strip, row["English"].lower().split(",")):
            terms[term] = terms.get(term, set()) | forms
            free |= {term} if row["gate"] != "yes" else set()
    phrases = []
    for row in rows(text, "Fixed phrases"):
        english = row["English"]
        pattern = re.sub(r"\bN\b", r"(\\d[\\d.]*\\d|\\d)", re.escape(english)).replace("…", ".*")
        start = "^" if english.startswith((">", "#")) else ""
        phrases.append((re.compile(start + pattern, re.MULTILINE), row["中文"]))
    any_term = _any(terms).replace(r"\ ", r"[\s-]+")
    names = [row["Term"] for row in rows(text, "Not translated")]
    any_name = _any(name for name in names if name != name.lower())
    return Glossary(
        {_spaced(term): set() if term in free else forms for term, forms in terms.items()},
        re.compile(rf"(?<![\w-])({any_term})(?:s|es)?(?![\w-])", re.IGNORECASE),
        re.compile(rf"(?<!\w)({any_name})(?!\w)"), phrases)


@functools.cache
def the_glossary() -> Glossary:
    """Return the course's glossary; an empty one where docs/ has none."""
    path = ROOT / "docs" / "glossary.md"
    return glossary(path.read_text(encoding="utf-8") if path.is_file() else "")


def _words(english: Parts, chinese: Parts, text: str, translated: str, words: Glossary
           ) -> list[str]:
    """Compare terms, names and fixed phrases."""
    lines = []
    names = set(words.any_name.findall(english.prose))
    prose = words.any_name.sub("\0", english.prose)  # ONNX Runtime is no runtime
    for term in sorted({_spaced(found[1]) for found in words.any_term.finditer(prose)}):
        forms = words.terms[term]
        if forms and not any(form in chinese.prose for form in forms):
            lines.append(f"'{term}' is {' or '.join(sorted(forms))} in the glossary, and does not "
                         "occur")
    lines += [f"the name {name} does not occur" for name in sorted(names) if name not in translated]
    for pattern, template in words.phrases:
        for found in pattern.finditer(text):
            number = found[1] if found.groups() else ""
            wanted = re.escape(re.sub(r"\bN\b", number, template))
            if not re.search(wanted.replace("…", ".*"), translated):
                lines.append(f"{found[0][:60]!r} is {template!r} in the glossary")
    return lines


# ---- all of it ---------------------------------------------------------------------------------


def _numbers(prose: str) -> set[str]:
    return set(re.findall(r"\d[\d,.]*\d", prose))


def differences(english: str, chinese: str, words: Glossary | None = None) -> list[str]:
    """Return what a Chinese cell lacks of its English one, or does wrong, a line each."""
    wanted, have = parts(english), parts(chinese)
    lines = []
    for what, before, after in (("headings are", wanted.headings, have.headings),
                                ("HTML tags are", wanted.tags, have.tags),
                                ("numbers of cells in the tables are", wanted.tables, have.tables)):
        if before != after:
            lines.append(f"the {what} {after}, in English {before}")
    for what, lacking in (("code span", {f"`{code}`" for code in wanted.code - have.code}),
                          ("formula", wanted.formulas - have.formulas),
                          ("number", _numbers(wanted.prose) - _numbers(have.prose))):
        lines += [f"the {what} {one} is missing" for one in sorted(lacking)]
    lines += _links("link", wanted.links, have.links)
    lines += _links("picture", wanted.pictures, have.pictures)
    if wanted.fences != have.fences:
        lines.append("the fenced blocks say other things than the English ones")
    if wanted.prose.count("★") != have.prose.count("★"):
        lines.append("the stars are not as many as in English")
    if len(have.swallowed) > len(wanted.swallowed):
        lines.append(f"{have.swallowed[0][:30]!r} is not read as Markdown: a blank line belongs "
                     "behind </summary> and before </details>")
    if have.prose.count("*") > wanted.prose.count("*"):
        star = have.prose.index("*")
        lines.append(f"asterisks show at {have.prose[max(0, star - 8):star + 16]!r}: between bold "
                     "and its neighbour one of 。，：） needs a space, or stands outside")
    if re.search(r"[a-z]{2}", wanted.prose) and not re.search(HAN, have.prose):
        lines.append("no Chinese, though the mark does not say `untranslated`")
    lines += _words(wanted, have, english, chinese, words or the_glossary())
    lines += [f"{habit}: {have.prose[max(0, at - 6):at + 8]!r}".replace("\\x00", "`...`")
              for pattern, habit in HABITS for at in [found.start() for found in
                                                      pattern.finditer(have.prose)][:1]]
    return lines
