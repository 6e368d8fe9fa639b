"""Does a Chinese paragraph hold what its English has? Both are read as Markdown and compared.

It also needs what the tables of docs/glossary.md ask for: the Chinese of each term as often as the
English has it, the Chinese of fixed phrases, and the names that stay English.
"""

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from course.words import HAN, ROOT

READER = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
HABITS = (  # what Chinese technical books don't do
    (re.compile("您"), "the reader is 你, not 您"),
    (re.compile(f"{HAN}[,;!?](?=\\s|$|{HAN})|{HAN}:(?=\\s|$|{HAN})"),
     "half-width punctuation behind Chinese: take ，；：！？"),
    (re.compile(f"{HAN}(?=[\0A-Za-z])|[\0A-Za-z](?={HAN})"),
     "no space between Chinese and a word, code span or formula"))
# where a term may be in English: in quotes, brackets, a formula, a name with a dot
QUOTED = re.compile(r"《[^》]*》|[“（(][^“”（）()]*[”）)]|\w+(?: ?[·*+<=/-] ?\w+)+|\w+\.\w+")
PHRASE = re.compile("[（“]([A-Za-z][^（）“”`\u3400-\u9fff]* [a-z]{2}[^（）“”`\u3400-\u9fff]*)[）”]")
SHORT = 0.22  # of its English's length: no whole paragraph comes near it, the shortest has 0.26
KINDS = {"heading_open": "heading", "fence": "fenced block", "code_block": "fenced block",
         "math_block": "formula", "math_inline": "formula", "math_inline_double": "formula",
         "code_inline": "code span", "td_open": "cell of a table", "th_open": "cell of a table",
         "link_open": "link", "image": "picture"}
ONCE = {"formula", "code span", "number"}  # once is enough; the others as often as in English


def _what(token: Token) -> str:
    """Return what a translation keeps of a token: of a fence, all but comments."""
    code = token.content
    if token.info.strip() == "text":  # of a fence of text, all but words
        return "".join(re.sub(f"{HAN}+|[A-Za-z]{{2,}}|[，。；：,]", "", code).split())
    if token.type in ("fence", "code_block"):
        return re.sub(r"[ \t]*(#.*)?$", "", code, flags=re.MULTILINE)
    if "math" in token.type:
        return "".join(code.split())
    if token.type == "code_inline":
        return f"`{code}`"
    return str(token.attrs.get("href") or token.attrs.get("src") or token.markup or "|")


def parts(text: str) -> tuple[Counter[tuple[str, str]], str]:
    """Return what a translation keeps, and the words ("\\0": code, a formula)."""
    kept, words = Counter[tuple[str, str]](), ""
    # in the heading "split: two loops out of one" a name
    text = re.sub("(?m)^(#+ )([a-z_]+)(?=: |[：（])", r"\1`\2`", text)
    for block in READER.parse(text):
        for token in block.children or [block]:
            if token.type in KINDS:
                kept[KINDS[token.type], _what(token)] += 1
                words += "" if token.block else "\0" if KINDS[token.type] in ONCE else token.content
            elif token.type.startswith("html"):
                kept.update(("HTML tag", tag) for tag in re.findall(r"</?\w+", token.content))
                words += re.sub(r"<[^>]*>", " ", token.content) if token.block else ""
            else:
                words += "\n" if token.type.endswith("break") else token.content
        words += "\n"
    kept.update(("number", number) for number in re.findall(r"\d[\d,.]*\d|\d(?!-)", words))
    kept["star", "★"] = words.count("★")
    return kept, words


def _target(link: str, folder: Path, english: bool) -> str:
    """Return where a link leads, from the root; an English link leads to the Chinese, if any."""
    path, mark, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", link):
        return link
    file = Path(posixpath.normpath(folder / path))
    twins = {file.parent / "zh" / file.name, file.with_suffix(".zh.md"),
             Path("paired_md/zh", f"{file.stem}.md")} if file.suffix in (".md", ".ipynb") else set()
    twin = next((twin.as_posix() for twin in twins if english and (ROOT / twin).exists()), "")
    own = "/zh/" in str(file) or ".zh." in file.name  # with headings of its own
    return twin or str(file) + (mark + anchor) * (not own)


def _any(words: Iterable[str]) -> str:
    """Return a pattern for any of these words, the longest first; without words none matches."""
    return "|".join(map(re.escape, sorted(words, key=lambda word: (-len(word), word)))) or "(?!)"


def rows(text: str, heading: str) -> list[dict[str, str]]:
    """Return the rows of the table below a heading of the glossary, by column."""
    _, _, section = text.partition(f"\n## {heading}")
    lines = re.findall(r"^\|(.*)\|[ \t]*$", section.partition("\n## ")[0], re.MULTILINE)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def _admitted() -> dict[str, frozenset[str]]:
    """Return the terms, in lower case, with the Chinese that any row admits."""
    found: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for row in rows(GLOSSARY, "Terms"):
        forms = [row["中文"], *row["也可用"].split("/")] if row["gate"] == "yes" else []
        for term in row["English"].lower().split(","):
            found[re.sub("[ -]+", " ", term.strip())] |= \
                {form.strip() for form in forms if form.strip()} or {""}  # not looked for
    return found


GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
TERMS = _admitted()
TERM = re.compile(r"(?<![\w-])(" + _any(TERMS).replace(r"\ ", r"[\s-]+") + r")(?:s|es)?(?![\w-])",
                  re.IGNORECASE)
NAMES = [row["Term"] for row in rows(GLOSSARY, "Not translated")]
NAME = re.compile(rf"(?<!\w)({_any(name for name in NAMES if name != name.lower())})(?!\w)")
PHRASES = [(re.compile("(?m)" + "^" * row["English"].startswith((">", "#")) + re.sub(
    r"\bN\b", r"(\\d[\\d.]*\\d|\\d)", re.escape(row["English"])).replace("…", ".*")),
    row["中文"]) for row in rows(GLOSSARY, "Fixed phrases")]


def _terms(prose: str) -> Counter[str]:
    """Count a text's terms: "ONNX Runtime" has no runtime, "batch by batch" has one batch."""
    prose = re.sub(r"\b(\w+) (?:by|to) \1\b", r"\1", NAME.sub("\0", prose), flags=re.I)
    return Counter(re.sub(r"[\s-]+", " ", found[1].lower()) for found in TERM.finditer(prose))


def _words(english: str, chinese: str, prose: tuple[str, str]) -> list[str]:
    """Compare terms, names and fixed phrases."""
    wanted: defaultdict[frozenset[str], Counter[str]] = defaultdict(Counter)
    quoted = _terms(" ; ".join(QUOTED.findall(prose[1])))
    for term, times in (_terms(prose[0]) - quoted).items():
        wanted[TERMS[term]][term] += times
    lines = []
    for forms, terms in wanted.items():
        have, times = len(re.findall(_any(forms), prose[1])), terms.total()
        if have < times and "" not in forms:
            lines.append(f"'{', '.join(sorted(terms))}' is {' or '.join(sorted(forms))} in the "
                         f"glossary, and is here {have} of {times} times")
    lines += [f"the name {name} does not occur" for name in sorted(
        set(NAME.findall(prose[0]))) if name not in chinese]
    for pattern, template in PHRASES:
        for found in pattern.finditer(english):
            form = re.sub(r"\bN\b", found[1] if found.groups() else "", template)
            if not re.search(re.escape(form).replace("…", ".*"), chinese):
                lines.append(f"{found[0][:60]!r} is {template!r} in the glossary")
    return lines


def misquoted(chinese: str, said: str) -> list[str]:
    """Return a line for each quoted English phrase that is not in `said` or the glossary.

    `said`: the notebook's code cells with their outputs, such as the labels of pictures.
    """
    known = (said + GLOSSARY).lower()
    return [f"{part!r} is quoted, and no cell says it: quote what it says now"
            for phrase in PHRASE.findall(chinese)
            for part in re.split(r" *(?:\.\.\.|…|，) *", phrase)
            if part.strip(" ,.").lower() not in known]


def differences(english: str, chinese: str, folders: Iterable[Path]) -> list[str]:
    """Return what a Chinese paragraph lacks of its English one, or does wrong, a line each.

    `folders`: of the two files, for their links. Without English only the Chinese is looked at.
    """
    (one, said), (other, says) = parts(english), parts(chinese)
    wanted, have = (Counter({(kind, _target(what, folder, own is one)
                              if kind in ("link", "picture") else what): times
                             for (kind, what), times in own.items()})
                    for own, folder in zip((one, other), folders, strict=True))
    lines = [f"the {kind} {what} is missing" for kind, what in sorted(wanted - have)
             if kind not in ONCE or not have[kind, what]]
    lines += [f"a {kind} {what} that the English does not have" for kind, what in
              sorted(have - wanted) if english and kind not in ONCE]
    if re.search(r"</summary>(?!\n\n)", chinese):
        lines.append("what follows </summary> is not read as Markdown: put a blank line between")
    if says.count("*") > said.count("*"):
        lines.append(f"asterisks show at {says[max(0, says.index('*') - 8):][:24]!r}: put a space "
                     "after bold that ends in one of 。，：）, or the mark outside the bold")
    if re.search(r"\b[a-z]{2,}\b", said) and not re.search(HAN, says):
        lines.append("no Chinese")
    if len(said) > 150 and len(says) < SHORT * len(said):
        lines.append(f"{len(says)} characters for {len(said)}: is a sentence missing?")
    lines += _words(english, chinese, (said, says))
    return lines + [f"{habit}: {says[max(0, found.start() - 6):][:14]!r}".replace("\\x00", "`...`")
                    for pattern, habit in HABITS if (found := pattern.search(says))]
