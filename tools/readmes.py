"""What `make sync` writes into the READMEs: counts, the table's numbers, links."""

import re

import nbformat

from tools import translation
from tools.site.project import addressed, cited
from tools.translation import COUNTED, EXERCISES, ROW, counted, masters, summary

# in a notebook's opening box
MINUTES = re.compile(r"\*\*Time\*\* about (\d+) minutes")
NEEDS = re.compile(r"\*\*You need\*\* (.*?)\.\s", re.DOTALL)


def write(change: bool = True) -> list[str]:
    """Write what the notebooks say of themselves into the READMEs; return names that had others.

    Counts stand in their places, and in the table's rows minutes, exercises and needs.
    """
    counts, other = counted(), []
    cells = {path.stem[:2]: nbformat.read(path, as_version=4).cells for path in masters()}
    graded = {number: sum(bool(cell.metadata.get("nbgrader", {}).get("grade")) for cell in some)
              for number, some in cells.items()}
    books, total = len(cells), sum(graded.values())
    for name, language, comma, exercises in (
            ("README.md", "en", ", ", f"{total} exercises in {books} notebooks"),
            ("README.zh.md", "zh", "、", f"{books} 个 notebook，{total} 道练习")):
        path = translation.ROOT / name
        wanted = text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for place, said in ((COUNTED, summary(counts, language)), (EXERCISES, exercises)):
            wanted = re.sub(f"(?<={place}).*?(?=<!--)", said, wanted, flags=re.DOTALL)
        for number, some in cells.items():
            box = "\n".join(cell.source for cell in some)
            if (minutes := MINUTES.search(box)) and (needs := NEEDS.search(box)):
                before = comma.join(sorted({*re.findall(r"\b\d\d\b", needs[1])}))
                wanted = re.sub(ROW.format(number), rf"\g<1>| {minutes[1]} | {graded[number]} "
                                f"| {before} |", wanted)
        wanted = addressed(wanted, language, cited())
        if wanted != text:
            other.append(name)
            if change:
                path.write_text(wanted, encoding="utf-8")
    return other
