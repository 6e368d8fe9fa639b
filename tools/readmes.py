"""What `make sync` writes into the READMEs: counts, the tables' numbers, links."""

import re

import nbformat

from tools import translation
from tools.site.project import addressed, cited
from tools.translation import COUNTED, EXERCISES, ROW, WEEK, counted, masters, summary

# in a notebook's opening box
MINUTES = re.compile(r"\*\*Time\*\* about (\d+) minutes")
NEEDS = re.compile(r"\*\*You need\*\* (.*?)\.\s", re.DOTALL)


def write(change: bool = True) -> list[str]:
    """Write what the notebooks say of themselves into the READMEs; return names that had others.

    Counts stand in their places, and in the table's rows minutes, exercises and needs; in the
    plan of the instructors' README points.
    """
    counts, other = counted(), []
    cells = {path.stem[:2]: nbformat.read(path, as_version=4).cells for path in masters()}
    points = {number: [grader.get("points", 0) for cell in some
                       if (grader := cell.metadata.get("nbgrader", {})).get("grade")]
              for number, some in cells.items()}
    books, total = len(cells), sum(map(len, points.values()))
    for name, language, comma, exercises in (
            ("README.md", "en", ", ", f"{total} exercises in {books} notebooks"),
            ("README.zh.md", "zh", "、", f"{books} 个 notebook，{total} 道练习"),
            ("instructor/README.md", "en", "", ""), ("instructor/README.zh.md", "zh", "", "")):
        path = translation.ROOT / name
        wanted = text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for place, said in ((COUNTED, summary(counts, language)), (EXERCISES, exercises)):
            wanted = re.sub(f"(?<={place}).*?(?=<!--)", said, wanted, flags=re.DOTALL)
        for number, some in cells.items():
            wanted = re.sub(WEEK.format(number), rf"\g<1> {sum(points[number])} |", wanted)
            box = "\n".join(cell.source for cell in some)
            if (minutes := MINUTES.search(box)) and (needs := NEEDS.search(box)):
                before = comma.join(sorted({*re.findall(r"\b\d\d\b", needs[1])}))
                wanted = re.sub(ROW.format(number), rf"\g<1>| {minutes[1]} | {len(points[number])} "
                                f"| {before} |", wanted)
        wanted = addressed(wanted, language, cited())
        if wanted != text:
            other.append(name)
            if change:
                path.write_text(wanted, encoding="utf-8")
    return other
