"""The Chinese edition: its catalogues, its gate, its notebooks, and its make."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import lang, readmes, student, translation, translation_lint

ROOT = Path(__file__).resolve().parent.parent


# ---- catalogues ----------------------------------------------------------------------------------


class Course:
    """A course of one notebook: Markdown cells, behind each a code cell; and a document."""

    def __init__(self, folder: Path, *cells: str) -> None:
        self.folder, self.master = folder, folder / "notebooks" / "00_x.ipynb"
        self.po = folder / "paired_md" / "po" / "zh" / "00_x.po"
        self.made = folder / "paired_md" / "zh" / "00_x.md"
        self.master.parent.mkdir()
        self.english(*cells)

    def english(self, *cells: str, docstring: str = "") -> None:
        """Write the master, and bring the Chinese up to date."""
        notebook = new_notebook()
        for number, cell in enumerate(cells):
            notebook.cells.append(new_markdown_cell(cell, id=f"text-{number}"))
            code = new_code_cell(f"x = {number}\n\n\nprint(x)", id=f"code-{number}")
            code.outputs = [nbformat.v4.new_output("stream", text=f"{number}\n")]
            if docstring:
                code.source = f'def f():\n    """{docstring}"""\n    return {number}'
                code.metadata["nbgrader"] = {"solution": True, "grade": False}
            notebook.cells.append(code)
        nbformat.write(notebook, self.master)
        self.sync()

    def sync(self, accept: tuple[str, ...] = ()) -> None:
        """Bring the Chinese up to date, twice, for the second time must change nothing.

        Code cells are the master's, outputs, ids, metadata and all.
        """
        for accepted in (accept, ()):
            behind = translation.merge(accept=accepted) \
                + translation.render(True, lambda name, text: text)
        assert behind == []
        made, master = translation.current("00")[2], nbformat.read(self.master, as_version=4)
        assert made.cells[1::2] == master.cells[1::2]
        assert [cell.id for cell in made.cells] == [cell.id for cell in master.cells]

    @property
    def text(self) -> str:
        return self.po.read_text(encoding="utf-8")

    @property
    def shown(self) -> list[str]:
        """What the Chinese notebook shows, a string for each Markdown cell."""
        return [cell.source for cell in translation.current("00")[2].cells][::2]

    def replace(self, old: str, new: str) -> None:
        assert self.text.count(old) == 1
        self.po.write_text(self.text.replace(old, new), encoding="utf-8")

    def translate(self, english: str, chinese: str) -> None:
        self.replace(f'msgid "{english}"\nmsgstr ""', f'msgid "{english}"\nmsgstr "{chinese}"')


@pytest.fixture
def course(tmp_path: Path, monkeypatch) -> Course:
    """A course in a folder of its own: four paragraphs translated, a fifth one twice, and not."""
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    monkeypatch.setattr(lang, "ROOT", tmp_path)
    made = Course(tmp_path, "# One", "Two.\n\nTwo `b` 7 {x}.\n\nTwo `c` 8.", "Three.", "Three.")
    for english, chinese in (("# One", "# 一"), ("Two.", "二。"), ("Two `b` 7 {x}.", "二 `b` 7。"),
                             ("Two `c` 8.", "二 `c` 8。")):
        made.translate(english, chinese)
    made.sync()
    return made


def test_a_changed_word_puts_one_paragraph_into_english(course) -> None:
    course.english("# One", "Two.\n\nTwo `b` 7, mended.\n\nTwo `c` 8.", "Three.", "Three.")
    assert course.shown == ["# 一", "二。\n\nTwo `b` 7, mended.\n\n二 `c` 8。", "Three.", "Three."]
    fuzzy = '#, fuzzy\n#| msgid "Two `b` 7 {x}."\nmsgid "Two `b` 7, mended."\nmsgstr "二 `b` 7。"\n'
    assert fuzzy in course.text, "the old English is beside the new one, and no `brace-format`"
    assert translation.summary().startswith("3 of 6 paragraphs wait ")
    course.english("# One", "Two.\n\nTwo `b` 7, again.\n\nTwo `c` 8.", "Three.", "Three.")
    assert fuzzy.replace("mended", "again") in course.text, "what it is the Chinese of"
    course.english("# One", "Two.\n\nTwo `b` 7\n{x}.\n\nTwo `c`\n8.", "Three.", "Three.")
    assert "fuzzy\n" not in course.text and course.shown[1] == "二。\n\n二 `b` 7。\n\n二 `c` 8。"
    course.replace("二 `b` 7。", "新 `b` 7。")
    course.sync()
    assert "新 `b` 7。" in course.made.read_text(encoding="utf-8")


def test_who_mends_a_typo_says_that_the_chinese_is_still_right(course, capsys) -> None:
    course.english("# One", "Two.\n\nTwo `b` 7 {x}!\n\nTwo `c` 8.", "Three.", "Three.")
    course.sync(accept=("README.md",))
    assert "#, fuzzy" in course.text, "of another file"
    course.sync(accept=("00",))
    assert "#, fuzzy" not in course.text and "#|" not in course.text
    assert course.shown[1:3] == ["二。\n\n二 `b` 7。\n\n二 `c` 8。", "Three."], "not of what is new"
    assert capsys.readouterr().out == "00: still right for 'Two `b` 7 {x}!'\n"


def test_a_translation_follows_its_paragraph(course) -> None:
    course.english("New.\n\nTwo `c` 8.", "Three.", "Two.\n\n# One\n\nTwo `b` 7 {x}.")
    assert course.shown == ["New.\n\n二 `c` 8。", "Three.", "二。\n\n# 一\n\n二 `b` 7。"]
    course.translate("Three.", "三。")
    course.english("Three.", "Three.")
    assert course.shown == ["三。", "三。"], "the same English twice is one message"
    assert course.text.endswith('\n#~ msgid "Two `b` 7 {x}."\n#~ msgstr "二 `b` 7。"\n')
    course.english("Three.", "# One", "[x](../docs/x.md)")
    course.english("Two.", "Two `b` 7 {x}.")
    assert course.shown == ["二。", "二 `b` 7。"], "of what is gone the Chinese is kept"


def test_what_is_written_elsewhere_or_wrongly_is_told_before_anything_is_lost(course) -> None:
    made = course.made.read_text(encoding="utf-8")
    course.made.write_text(made.replace("二 `b` 7。", "二 `b` 七。"), encoding="utf-8")
    with pytest.raises(translation.TranslationError,
                       match="'二 `b` 七。' is not in paired_md/po/zh/00_x.po"):
        translation.merge()
    course.translate("Three.", "三。")
    course.sync()
    assert "二 `b` 7。" in course.made.read_text(encoding="utf-8"), "the catalogue is newer"
    course.replace('msgstr "三。"', 'msgstr "三。\n<<<<<<< HEAD')
    with pytest.raises(translation.TranslationError, match=r"00_x.po \(line 26\)"):
        translation.summary()
    course.master.rename(course.master.with_name("01_x.ipynb"))
    with pytest.raises(translation.TranslationError, match="00_x.po is the Chinese of nothing"):
        translation.merge()


HINT = "<details><summary>Hint 1</summary>\n\nA hint.\n\n</details>"


def test_the_docstring_of_an_exercise_is_a_paragraph(course) -> None:
    course.english(f"Do it.\n\n{HINT}", docstring="Half of it.\n\n    1. Halve.\n    ")
    assert course.shown == [f"Do it.\n\n{HINT}"], "it stands in the code"
    course.replace('\n"1. Halve."\nmsgstr ""', '\n"1. Halve."\nmsgstr "**思路：** 取一半。"')
    course.sync()
    assert course.shown == [f"Do it.\n\n**思路：** 取一半。\n\n{HINT}"]
    course.english(f"Do it.\n\n{HINT}", docstring="Half of it.\n\n    1. Divide.\n    ")
    assert course.shown == [f"Do it.\n\n{HINT}"] and translation.summary().endswith("(00: 3)")
    course.sync(accept=("00",))
    assert "思路" in course.shown[0]


def test_what_has_no_words_stays_with_its_neighbour() -> None:
    for joined in ("<details><summary>A</summary>\n\nb\n\n</details>", "a\n\n$$x$$",
                   "- a\n\n  b\n\n- c", "a\n\n```\nb\n\n\nc\n```", "1. a\n\n2. b"):
        assert translation.paragraphs(joined) == [joined]
    assert translation.paragraphs("## a\n\n| b |\n|---|\n\n- c\n\nd") == [
        "## a", "| b |\n|---|", "- c", "d"]


def test_a_stale_paragraph_of_a_document_is_english_to_its_reader(course, capsys) -> None:
    source, po = course.folder / "docs" / "x.md", course.po.parent / "docs" / "x.po"
    made = course.folder / "docs" / "zh" / "x.md"
    source.parent.mkdir()
    po.parent.mkdir()
    source.write_text("# A a\n\nb [y](y.md) [z](../z.md) [w](https://w.de)\n", encoding="utf-8")
    po.write_text('msgid "# A a"\nmsgstr "# 甲\\n\\n只有中文"\n', encoding="utf-8")
    assert translation.merge(change=False) == [po], "make test would say so"
    course.sync()
    assert made.read_text(encoding="utf-8") \
        == "# 甲\n\n只有中文\n\nb [y](../y.md) [z](../../z.md) [w](https://w.de)\n"
    source.write_text("# A aa\n\nb\n", encoding="utf-8")
    course.sync()
    assert made.read_text(encoding="utf-8") == "# A aa\n\nb\n"
    translation.main()
    assert "docs/x.md: 2)" in capsys.readouterr().out


def test_what_is_counted_stands_in_the_readmes(course) -> None:
    notebook = nbformat.read(course.master, as_version=4)
    notebook.cells += [new_code_cell(metadata={"nbgrader": {"grade": grade, "points": 2}})
                       for grade in (False, True, True)]
    notebook.cells.append(new_markdown_cell(
        "> **You need** the loops of 07, and notebook 04. Exercise 0.1; 03 is no need.\n>\n"
        "> **Time** about 99 minutes."))
    nbformat.write(notebook, course.master)
    place = f"{translation.COUNTED}0<!-- -->, {translation.EXERCISES}<!-- -->.\n" \
        "| [00 A](a.md) | be able | 1 | 2 | 03 |"
    fill = readmes.filler()
    for name, counted, exercises, comma in (
            ("README.md", "3 of 7 paragraphs wait for Chinese, or for newer Chinese (00: 3)",
             "2 exercises in 1 notebooks, about 2 hours", ", "),
            ("README.zh.md", "7 个段落中有 3 个待译或待更新（00: 3）",
             "1 个 notebook，2 道练习，约 2 小时", "、")):
        said = fill(name, place)
        assert said == f"{translation.COUNTED}{counted}<!-- -->, " \
            f"{translation.EXERCISES}{exercises}<!-- -->.\n" \
            f"| [00 A](a.md) | be able | 99 | 2 | 04{comma}07 |" == fill(name, said)
        assert translation.normal(said) == translation.normal(place), "a count is no change"
        plan = fill(f"instructor/{name}", "| 1 | 00 | it | | 9 |\n| 2 | 01 | it | | 9 |\n")
        assert plan == "| 1 | 00 | it | | 4 |\n| 2 | 01 | it | | 9 |\n"
        assert translation.normal(plan).startswith("| 1 | 00 | it | | 0 |\n")
    (course.folder / "README.md").write_text(place, encoding="utf-8")
    assert readmes.write(False, fill) == readmes.write(True, fill) == [course.folder / "README.md"]
    assert readmes.write(True, fill) == []


# ---- the gate ------------------------------------------------------------------------------------

FOLDERS = Path("notebooks"), Path("paired_md/zh")
LINK = "[x](../docs/tvm_errors.md)"


@pytest.mark.parametrize(("english", "chinese", "message"), [
    ("## A title", "### 标题", "the heading ## is missing"),
    ("Take `x` and `y`.", "取 `x` 和 y。", "the code span `y` is missing"),
    ("It is $a + b$.", "它是 $a+c$。", "the formula a+b is missing"),
    ("$$a + b$$", "$$a$$", "the formula a+b is missing"),
    (f"See {LINK}.", "见附录。", "the link docs/zh/tvm_errors.md is missing"),
    (f"See {LINK}.", "见 [x](../../docs/tvm_errors.md)。", "the link docs/zh/tvm_errors.md is"),
    (f"See {LINK}.", f"见 {LINK}。", "a link paired_md/docs/tvm_errors.md that the"),
    ("![a boot](../docs/conv2d_before_and_target.png)", "图", "the picture docs/conv2d"),
    ("One\n\n```\nx = 1  # one\n```", "一\n\n```\nx = 2  # 一\n```", "the fenced block x = 1"),
    ("A\n\n<details><summary>B</summary>\n\n`c`\n\n</details>", "甲\n\n`c`",
     "the HTML tag <details is missing"),
    ("A\n\n<details><summary>B</summary>\n\nc\n\n</details>",
     "甲\n\n<details><summary>乙</summary>\n丙\n</details>", "is not read as Markdown"),
    ("| a | b |\n|---|---|\n| c | d |", "| 甲 |\n|---|\n| 丙 |",
     "the cell of a table | is missing"),
    ("There are 5,408 of 5.", "有 5,048 个。", "the number 5,408 is missing"),
    ("It took 5 loads.", "用了 7 次加载。", "the number 5 is missing"),
    ("Two loops here.", "这里有两个圈。", "'loop' is 循环 in the glossary"),
    ("Two loops here.", "这里有两个 loop。", "'loop' is 循环 in the glossary"),
    ("All that was read. " * 20, "全都读了。" * 10, "53 characters for 382: is a sentence missing"),
    ("The loop reads, another loop writes.", "一个循环读，另一个圈写。",
     "and is here 1 of 2 times"),
    ("Its dtype is known.", "dtype已知。", "no space between Chinese and a word"),
    ("It has a dtype.", "它有dtype 信息。", "no space between Chinese and a word"),
    ("A loop nest is two loops.", "循环套着循环。", "'loop nest' is 循环嵌套"),
    ("On ONNX Runtime.", "在别的库上。", "the name ONNX Runtime does not occur"),
    ("**Predict first.** What?", "**先预测。** 是什么？", "'**先猜一猜。**' in the glossary"),
    ("### Exercise 2.3: the linear layer ★★", "### 练习 2.3：线性层 ★", "the star ★ is missing"),
    ("**A.** B", "**甲。**乙", "asterisks show at"),
    ("Some words.", "Some words.", "no Chinese"),
    ("You read.", "您读。", "not 您"), ("Here `x` is.", "这里`x` 是。", "no space between"),
    ("One, two.", "一, 二。", "half-width punctuation"),
    # what it lets pass
    ("## Loops and `for`\n\nSee " + LINK + ": $x$, 28 x 28, **once** [more](https://a.b/c).",
     "## 循环与 `for`\n\n见 [报错](../../docs/zh/tvm_errors.md#x)：$x$，28 x 28，**再一次**，"
     "[另见](https://a.b/c)。", ""),
    ("Indices, a copy, registers; it builds and passes at ONNX Runtime.",
     "索引、副本、注册；在 ONNX Runtime 上没有问题。", ""),
    ("In 2-D, a loop each.", "在二维里，各有一个圈（loop）。", ""),
    ("### loop: the primitive's name", "### loop：原语的名字", ""),
    ('Loop by loop; it says "loop".', "逐个循环；它显示“loop”。", ""),
    ("A\n\n```text\ny = x, the largest\n```", "甲\n\n```text\ny = x，最大的\n```", ""),
    ("### Exercise 2.3: it ★★\n\n**Predict first.** What?",
     "### 练习 2.3：它 ★★\n\n**先猜一猜。** 是什么？", ""), ("$$x$$", "$$x$$", ""), ("", "", ""),
])
def test_the_gate(english: str, chinese: str, message: str) -> None:
    found = translation_lint.differences(english, chinese, FOLDERS)
    assert any(message in line for line in found) if message else found == []


def test_english_that_is_quoted_is_said_by_a_cell() -> None:
    said = ("线程号是列号时（thread is the column），“it reads ... it writes”，"
            "**归约**（shared memory）。")
    assert translation_lint.misquoted(said, "thread is the column; it reads, it writes") == []
    wrong = translation_lint.misquoted(said, "threads run over columns; it reads, it stores")
    assert [line.partition(" is")[0] for line in wrong] == ["'thread", "'it writes'"]


def test_a_finding_has_its_line(course, capsys) -> None:
    course.english("# One", "Alpha: `x`.")
    course.translate("Alpha: `x`.", "甲。")
    with pytest.raises(SystemExit) as stopped:
        translation.main("00")
    line = course.text[:course.text.index('msgid "Alpha: `x`.')].count("\n") + 1
    assert f"paired_md/po/zh/00_x.po:{line}: the code span `x` is missing" in str(stopped.value)
    course.replace("甲。", "甲：`x`。")
    translation.main()
    assert "all 2 paragraphs" in capsys.readouterr().out


# ---- its notebooks -------------------------------------------------------------------------------


def test_the_chinese_copies_are_the_english_ones_in_chinese(tmp_path: Path, monkeypatch) -> None:
    student.fill(tmp_path / "work")
    monkeypatch.setattr(lang, "CHOSEN", "zh")
    made = student.fill(tmp_path / "work" / "zh")
    assert len(made) == len(lang.masters())
    for path in sorted((tmp_path / "work").glob("*.ipynb")):
        one = nbformat.read(path, as_version=4)
        other = nbformat.read(path.parent / "zh" / path.name, as_version=4)
        assert other.metadata.pop("lang") == "zh" and one.metadata == other.metadata
        for mine, theirs in zip(one.cells, other.cells, strict=True):
            assert mine.id == theirs.id and mine.metadata == theirs.metadata
            assert mine == theirs or mine.cell_type == "markdown"
            assert "<!--" not in theirs.source


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run make with a new target, which prints what its programs get."""
    own = f"include {ROOT}/Makefile\nnew:  ## what is new\n\t@echo $$LANG $$MLC_LANG\n"
    (tmp_path / "Makefile").write_text(own)
    return lambda *words, **environment: subprocess.run(
        ["make", "-f", tmp_path / "Makefile", *words], cwd=ROOT, text=True, check=False,
        capture_output=True, env={**os.environ, **environment})


def test_which_edition_make_is_asked_for(make) -> None:
    """LANG is the locale's name too: one that is Chinese asks for nothing."""
    assert make("new", LANG="zh_CN.UTF-8").stdout == "zh_CN.UTF-8\n", "nobody asked"
    assert make("new", LANG="zh_CN.UTF-8", MLC_LANG="zh").stdout == "zh_CN.UTF-8 zh\n"
    assert make("new", "LANG=zh", LANG="de_DE.UTF-8").stdout == "C.UTF-8 zh\n"
    assert make("new", LANG="zh").stdout == "C.UTF-8 zh\n", "LANG=zh make lab"
    assert make("new", "LANG=en").stdout == "C.UTF-8 en\n"
    refused = make("new", "LANG=fr")
    assert refused.returncode and "fr is neither" in refused.stderr


def test_make_help_has_every_target_in_both_languages(make) -> None:
    """In Chinese a target without Chinese is there in English."""
    said = [make("help", f"LANG={one}").stdout.splitlines()[1:] for one in ("en", "zh")]
    english, chinese = ([(line.split()[1], sorted({*re.findall("[A-Z]{2,}=", line)}))
                         for line in lines] for lines in said)
    assert english == chinese and len(english) > 10, "the same targets, with the same options"
    assert "  make new      what is new" in {*said[0]} & {*said[1]}
    assert len({*said[1]} - {*said[0]}) > 10
