"""What `make sync` writes into the READMEs: counts, the tables' numbers, links."""

import re
from collections.abc import Callable
from pathlib import Path

import nbformat

from course.words import told
from tools import catalogue, translation
from tools.lang import masters
from tools.site.project import addressed, cited
from tools.translation import COUNTED, EXERCISES, ROW, WEEK, summary

# in a notebook's opening box
MINUTES = re.compile(r"\*\*Time\*\* about (\d+) minutes")
NEEDS = re.compile(r"\*\*You need\*\* (.*?)\.\s", re.DOTALL)
READMES = ("README.md", "README.zh.md", "instructor/README.md", "instructor/README.zh.md")


def filler() -> Callable[[str, str], str]:
    """Return a function that fills a file's text, by its name, with facts about the notebooks.

    These are counts and hours at the marks; minutes, exercises and needs in the table's rows; and
    points in the plan of the instructors' README.
    """
    progress = summary()
    cells = {path.stem[:2]: nbformat.read(path, as_version=4).cells for path in masters("en")}
    points = {number: [grader.get("points", 0) for cell in some
                       if (grader := cell.metadata.get("nbgrader", {})).get("grade")]
              for number, some in cells.items()}
    books, total = len(cells), sum(map(len, points.values()))
    texts = {number: "\n".join(cell.source for cell in some) for number, some in cells.items()}
    hours = round(sum(int(found[1]) for found in map(MINUTES.search, texts.values()) if found) / 60)

    def fill(name: str, text: str) -> str:
        if name not in READMES:
            return text
        language, comma, exercises = (
            ("zh", "、", f"{books} 个 notebook，{total} 道练习，约 {hours} 小时") if ".zh." in name
            else ("en", ", ", f"{total} exercises in {books} notebooks, about {hours} hours"))
        for place, said in ((COUNTED, told(progress, language)), (EXERCISES, exercises)):
            text = re.sub(f"{place}.*?(?=<!--)", place + said, text, flags=re.DOTALL)
        for number, box in texts.items():
            text = re.sub(WEEK.format(number), rf"\g<1> {sum(points[number])} |", text)
            if (minutes := MINUTES.search(box)) and (needs := NEEDS.search(box)):
                before = comma.join(sorted({*re.findall(r"\b\d\d\b", needs[1])}))
                text = re.sub(ROW.format(number), rf"\g<1>| {minutes[1]} | {len(points[number])} "
                              f"| {before} |", text)
        return addressed(text, language, cited())

    return fill


def write(change: bool, fill: Callable[[str, str], str]) -> list[Path]:
    """Fill in the English READMEs; return those that had other counts."""
    return [behind for name in READMES[::2] if (path := translation.ROOT / name).is_file()
            for behind in catalogue.write(path, fill(name, path.read_text("utf-8")), change)]
