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
    "draw": ("Draw a garment", "画一件衣物"),
    # a button at a block of code, before and after
    "copy": (("Copy", "Copied"), ("复制", "已复制")),
    "search": ("Search", "搜索"),  # in the search field
    # the page of results: how many sections there are, none
    "found": (("Sections found: {0}", "No section has these words."),
              ("找到 {0} 个小节", "没有小节含有这些词。")),
    "report": ("Report a mistake on this page", "报告本页的错误"),  # the link below a page
    # above a notebook: the ways to it, by their names in pages.ways
    "open_in": ({"colab": "Open in Colab", "binder": "Open in Binder",
                 "download": "Download this notebook"},
                {"colab": "在 Colab 中打开", "binder": "在 Binder 中打开",
                 "download": "下载这个 notebook"}),
    # the page to arrive at (tools/site/landing.py); the ways in, by their names in pages.arrive
    "arrive": ("""You bring a trained PyTorch model into Apache TVM, open it down to its loops, \
transform them until they are fast, and see at every step that the result still equals PyTorch's.

{notebooks} notebooks with {exercises} exercises. Below each exercise stands its check, which says \
*what* is wrong. You need Python, NumPy and a little PyTorch; no knowledge of compilers, no GPU.""",
               """把训练好的 PyTorch 模型带进 Apache TVM，层层打开，直到看见循环，\
再变换这些循环，让它跑得快；\
每走一步，都确认结果仍与 PyTorch 相同。

{notebooks} 个 notebook，{exercises} 道练习，每道练习下面都有检查，会告诉你**错在哪里**。\
需要会 Python、NumPy 和一点 PyTorch；不需要懂编译器，也不需要 GPU。"""),
    "ways": ({"read": "Read", "here": "Run it here", "colab": "Run in Colab",
              "live": "Loop nests, live", "draw": "Draw a garment", "other": "中文"},
             {"read": "阅读", "here": "在自己的机器上运行", "colab": "在 Colab 中运行",
              "live": "循环嵌套，动手试", "draw": "画一件衣物", "other": "English"}),
    # how to get it, where the repository's address is known: before the commands, the last of
    # them, after them with the address of the page that says more
    "get": ("**Get it.** You need Linux, macOS on Apple silicon, or Windows with WSL2; "
            "Python 3.11, 3.12 or 3.13; git and make.",
            "**获取课程。** 需要 Linux、搭载 Apple 芯片的 macOS，或带 WSL2 的 Windows；"
            "Python 3.11、3.12 或 3.13；git 和 make。"),
    "lab": ("make lab", "make lab LANG=zh"),
    "got": ("`make lab` sets everything up and opens the first notebook in JupyterLab. "
            '<a href="{0}">What it does, and what to do when it does not work</a>.',
            "`make lab LANG=zh` 会准备好一切，并在 JupyterLab 中打开第一个 notebook 的中文版。"
            '<a href="{0}">它做些什么，出了问题怎么办</a>。'),
    "picture": ("*From notebook 04: the loops of the model's conv2d, and those that you will make "
                "of them. Both give the same probabilities on every test image.*",
                "*来自 notebook 04：模型里 conv2d 的循环，以及你将把它们变成的样子。"
                "在每张测试图像上，两者给出的概率都相同。*"),
    "map": ("The notebooks", "各个 notebook"),
    "map_arrows": ("An arrow leads from what is needed to what needs it. ",  # a phone has none
                   "箭头从被需要的指向需要它的。"),
    "map_about": ("Never seen TVM? Begin with 00. You know TVMScript and <code>call_tir</code>? "
                  "Begin with 01.",
                  "没接触过 TVM，从 00 开始；已经了解 TVMScript 和 <code>call_tir</code>，"
                  "从 01 开始。"),
    # what a reader has ticked off: at an exercise; in a box of the map; below it, and a button
    "solved": ("solved", "已解出"),
    "solved_of": ("{0} of {1} solved", "已解出 {0}/{1}"),
    "solved_about": ("What you tick off is kept in this browser alone.",
                     "勾选的内容只保存在这个浏览器里。"),
    "solved_forget": ("Forget all", "全部清除"),
    "try_live": ("Press a button at a loop, and see what TVM makes of it: "
                 '<a href="{0}">Loop nests, live</a>.',
                 "按下某个循环旁的按钮，看 TVM 把它变成什么样："
                 '<a href="{0}">循环嵌套，动手试</a>。'),
    "lines": ({"00": "a model in NumPy, as loops, as an IRModule",
               "01": "the CNN in PyTorch, measured and counted",
               "02": "operators as tensor expressions, put together",
               "03": "other people's functions, zero-copy",
               "04": "its loops, transformed step by step",
               "05": "fusion, and an importer of your own",
               "06": "where the time goes, and what the machine allows",
               "07": "one layer inside another, full vectors",
               "08": "numbers drawn by chance, and a search among them",
               "09": "rewrites of the graph, passes, memory, generated code",
               "10": "blocks, threads, shared memory, races; no GPU needed",
               "11": "any batch and length, a cache; a file, C++, C, a browser"},
              {"00": "一个模型：NumPy、循环、IRModule", "01": "PyTorch 里的 CNN：测量与计数",
               "02": "把算子写成张量表达式，拼成模型", "03": "别人写的函数，零拷贝调用",
               "04": "一步步变换它的循环", "05": "融合，以及自己写的导入器",
               "06": "时间花在哪里，机器允许多快",
               "07": "一层算在另一层里面，填满向量", "08": "随机抽取数值，在其中搜索",
               "09": "图的改写、pass、内存、代码生成",
               "10": "线程块、线程、共享内存、竞争；不需要 GPU",
               "11": "任意批大小和长度、缓存；一个文件、C++、C、浏览器"}),
    "minutes": ("{0} minutes", "{0} 分钟"),
    "exercises": ("{0} exercises", "{0} 道练习"),
    "after": ("after {0}", "先学 {0}"),
    "comma": (", ", "、"),
    "other": ("zh", "en"),  # the other language
    "readme": ("Set-up and commands", "安装与命令"),
    # in the contents of the Chinese edition: the names of pages that are in English only
    "titles": ({}, {"changelog": "各学期的变化（英文）",
                    "contributing": "参与贡献（英文）"}),
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
