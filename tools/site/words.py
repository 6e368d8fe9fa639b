"""The few words of the site's own, in both languages."""

from types import SimpleNamespace

SAID: dict[str, tuple] = {  # in English and in Chinese
    "title": ("Machine learning compilation", "机器学习编译"),
    "solution": ("Show a solution", "显示一种解法"),  # the label of a folded solution
    "setup": ("Show the imports", "显示导入语句"),  # the label of a folded cell of imports
    "prints": ("Show the {0} lines", "显示这 {0} 行"),  # the label of a long listing
    # above English in the Chinese edition: a whole page, a part of one
    "english": ("", "本页尚未译成中文，以下是英文原文。"),
    "english_part": ("", "这一段尚未译成中文："),
    # headings of the contents: the notebooks, what is looked up, for those who teach
    "parts": ("Notebooks", "笔记本"),
    "look_up": ("To look up", "查阅"),
    "teach": ("For instructors and contributors", "教师与贡献者"),
    "live": ("Loop nests, live", "循环嵌套，动手试"),
    "search": ("Search", "搜索"),  # in the search field
    "report": ("Report a mistake on this page", "报告本页的错误"),  # the link below a page
    # the index of terms: its title, what it is, the heads of two columns
    "terms": (("Index of terms", "Each term of the course, and the section that defines it.",
               "Term", "Meaning, and where it is defined"),
              ("术语索引", "课程中的每个术语，以及定义它的小节。", "术语", "含义，以及在哪里定义")),
    # labels of the theme, which has them in English only
    "theme": ({}, {"Main": "主导航", "Page": "本页", "Color mode": "颜色模式",
                   "System Settings": "跟随系统", "Toggle primary sidebar": "显示或隐藏目录",
                   "Toggle secondary sidebar": "显示或隐藏本页小节"}),
}


class Words(SimpleNamespace):
    """What the site says in one language, by the names in SAID."""


WORDS = {language: Words(**{name: said[number] for name, said in SAID.items()})
         for number, language in enumerate(("en", "zh"))}
