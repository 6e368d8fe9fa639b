"""The few words of the site's own, in both languages."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """What the site says in one language."""

    title: str
    solution: str  # the label of a folded solution
    setup: str  # the label of a folded cell of imports
    prints: str  # the label of a long listing; {0}: its lines
    english: str  # above English in the Chinese edition: a whole page, a part of one
    english_part: str
    parts: str  # headings of the contents: the notebooks, what is looked up, for those who teach
    look_up: str
    teach: str
    live: str
    search: str  # in the search field
    report: str  # the link below a page
    terms: tuple[str, str, str, str]  # the index: title, what it is, heads of the columns
    theme: dict[str, str]  # labels of the theme that it has in English only


WORDS = {
    "en": Words(
        title="Machine learning compilation",
        solution="Show a solution", setup="Show the imports", prints="Show the {0} lines",
        english="", english_part="", parts="Notebooks", look_up="To look up",
        teach="For instructors and contributors", live="Loop nests, live",
        search="Search", report="Report a mistake on this page",
        terms=("Index of terms", "Each term of the course, and the section that defines it.",
               "Term", "Meaning, and where it is defined"),
        theme={}),
    "zh": Words(
        title="机器学习编译",
        solution="显示一种解法", setup="显示导入语句", prints="显示这 {0} 行",
        english="本页尚未译成中文，以下是英文原文。", english_part="这一段尚未译成中文：",
        parts="笔记本", look_up="查阅", teach="教师与贡献者", live="循环嵌套，动手试",
        search="搜索", report="报告本页的错误",
        terms=("术语索引", "课程中的每个术语，以及定义它的小节。", "术语", "含义，以及在哪里定义"),
        theme={"Main": "主导航", "Page": "本页", "Color mode": "颜色模式",
               "System Settings": "跟随系统", "Toggle primary sidebar": "显示或隐藏目录",
               "Toggle secondary sidebar": "显示或隐藏本页小节"}),
}
