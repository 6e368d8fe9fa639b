"""The Chinese edition: what keeps it on the master's code, its gate, notebooks and messages."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tools import handouts, lang, student, translation, translation_lint

ROOT = Path(__file__).resolve().parent.parent
STEM = "02_emit_te_ingestion"


# ---- the files of paired_md/zh/ ------------------------------------------------------------------


class Course:
    """A course of one notebook, whose Markdown cells are given; behind each stands a code cell."""

    def __init__(self, folder: Path, *cells: str) -> None:
        self.file = folder / "paired_md" / "zh" / "00_x.md"
        self.master = folder / "notebooks" / "00_x.ipynb"
        self.file.parent.mkdir(parents=True)
        self.master.parent.mkdir()
        self.english(*cells)

    def english(self, *cells: str) -> None:
        """Write the master, and bring the Chinese up to date."""
        notebook = new_notebook()
        for number, cell in enumerate(cells):
            notebook.cells.append(new_markdown_cell(cell, id=f"text-{number}"))
            code = new_code_cell(f"x = {number}\n\n\nprint(x)", id=f"code-{number}")
            code.outputs = [nbformat.v4.new_output("stream", text=f"{number}\n")]
            notebook.cells.append(code)
        nbformat.write(notebook, self.master)
        self.sync()

    def sync(self) -> str:
        """Bring the Chinese up to date, twice, for the second time must change nothing."""
        assert translation.write()[1] == []
        assert translation.write() == ([], [])
        return self.text

    @property
    def text(self) -> str:
        return self.file.read_text(encoding="utf-8")

    def replace(self, old: str, new: str) -> None:
        assert old in self.text
        self.file.write_text(self.text.replace(old, new, 1), encoding="utf-8")

    def translate(self, english: str, chinese: str) -> None:
        known = translation.digest(english)
        self.replace(f"<!-- en: {known} untranslated -->\n{english}",
                     f"<!-- en: {known} -->\n{chinese}")


@pytest.fixture
def course(tmp_path: Path, monkeypatch) -> Course:
    """A course in a folder of its own: two cells translated, a third one twice, and not."""
    monkeypatch.setattr(translation, "ROOT", tmp_path)
    monkeypatch.setattr(translation, "FOLDER", tmp_path / "paired_md" / "zh")
    made = Course(tmp_path, "# One", "Two.", "Three.", "Three.")
    made.translate("# One", "# 一")
    made.translate("Two.", "二。")
    made.sync()
    return made


def test_a_changed_sentence_falls_back_to_english_and_is_counted(course) -> None:
    assert translation.counted()["00"][0] == 2
    course.english("# One", "Two, mended.", "Three.", "Three.")
    assert translation.counted()["00"][0] == 3
    assert translation.summary(translation.counted()) \
        == "1 of 4 cells are in Chinese; 3 wait for a translation, or for a newer one (00: 3)"
    readme = course.master.parents[1] / "README.zh.md"
    readme.write_text("<!-- counted by make sync -->x<!-- -->。", encoding="utf-8")
    assert translation.readmes(change=False) == translation.readmes() == ["README.zh.md"]
    assert readme.read_text(encoding="utf-8").endswith(
        " -->4 个单元格中译好 1 个，3 个待译或待更新（00：3）<!-- -->。")
    known = translation.digest("Two, mended.")
    assert f"<!-- en: {known} untranslated -->\nTwo, mended.\n" in course.text
    assert f"<!-- old zh: {translation.digest('Two.')}\n二。\n-->" in course.text, "kept beside"
    shown = [cell.source for cell in translation.notebook(course.master).cells][::2]
    assert shown == ["# 一", "Two, mended.", "Three.", "Three."], "no comment, no half of it"
    course.english("# One", "Two.", "Three.", "Three.")
    assert "old zh" in course.text, "nobody has said yet that it is no longer needed"


def test_exercises_and_notebooks_are_counted(course) -> None:
    notebook = nbformat.read(course.master, as_version=4)
    for grade in (False, True, True):
        notebook.cells.append(nbformat.v4.new_code_cell(metadata={"nbgrader": {"grade": grade}}))
    nbformat.write(notebook, course.master)
    place = f"{translation.COUNTED}0<!-- -->, {translation.EXERCISES}0<!-- -->."
    for name, wanted in (("README.md", "2 exercises in 1 notebooks"),
                         ("README.zh.md", "1 个 notebook，2 道练习")):
        readme = course.master.parents[1] / name
        readme.write_text(place, encoding="utf-8")
        assert translation.readmes(change=False) == translation.readmes() == [name]
        said = readme.read_text(encoding="utf-8")
        assert said.endswith(f"<!-- -->, {translation.EXERCISES}{wanted}<!-- -->."), "the other too"
        assert ", 0" not in said and translation.readmes() == []


def test_a_translation_follows_its_cell(course) -> None:
    course.english("New.", "Two.", "Three.", "# One")
    assert [cell.source for cell in translation.notebook(course.master).cells][::2] \
        == ["New.", "二。", "Three.", "# 一"]


def test_the_same_english_twice(course) -> None:
    course.translate("Three.", "三。")
    course.sync()
    assert course.text.count("三。") == 2 and translation.counted()["00"][0] == 0
    course.replace("三。", "第三。")
    course.sync()
    assert [cell.source for cell in translation.notebook(course.master).cells][::2] \
        == ["# 一", "二。", "第三。", "三。"], "each may have its own"


def test_nothing_of_a_translators_work_is_lost(course) -> None:
    known = translation.digest("Three.")
    course.replace(f"<!-- en: {known} untranslated -->\nThree.",
                   f"<!-- en: {known} untranslated -->\n三，还没写完 --> 。\n\n\n第二段")
    assert "三，还没写完 --> 。\n\n第二段" in course.sync(), "begun, and not yet done"
    assert translation.notebook(course.master).cells[4].source == "Three.", "a draft is not shown"
    course.english("# Other")
    for kept in ("# 一", "二。", "三，还没写完 --&gt; 。\n\n第二段"):
        assert kept in course.text
    assert course.text.count("old zh") == 3
    course.english("# One", "Two.", "Three.")
    assert course.text.count("old zh") == 3 and translation.counted()["00"][0] == 3


def test_a_changed_code_cell_is_put_back(course) -> None:
    before = course.text
    course.replace("print(x)", "print(x + 1)")
    course.replace("x = 2\n", "y = 2\n")
    assert translation.write(change=False) == (["00_x"], []), "make test would say so"
    assert course.sync() == before
    made = translation.notebook(course.master)
    master = nbformat.read(course.master, as_version=4)
    assert made.cells[1::2] == master.cells[1::2], "outputs, ids, metadata and all"
    assert [cell.id for cell in made.cells] == [cell.id for cell in master.cells]


@pytest.mark.parametrize(("old", "new", "message"), [
    ("<!-- en: {two} -->\n", "", "paired_md/zh/00_x.md: no line <!-- en: ... --> stands in front "
                                 "of the text '二。'."),
    ("<!-- en: {two} -->", "<!-- en {two} -->", "'<!-- en "),
    ("\n二。", "\n二。\n<!-- en: 12345 -->", "'<!-- en: 12345 -->' is no mark"),
])
def test_a_damaged_mark_is_told_in_a_line(course, old, new, message) -> None:
    two = translation.digest("Two.")
    course.replace(old.format(two=two), new.format(two=two))
    before = course.text
    written, (wrong,) = translation.write()
    assert written == [] and message in wrong and "\n" not in wrong
    assert course.text == before, "nobody's work is overwritten by what could not be read"


# ---- the gate ------------------------------------------------------------------------------------

GLOSSARY = translation_lint.glossary("""
## Terms

| English | 中文 | 也可用 | gate | Meaning |
|---|---|---|---|---|
| loop | 循环 |  | yes | |
| loop nest | 循环嵌套 |  | yes | |
| index, indices | 下标 | 索引 / 指标 | yes | |
| register, registers | 注册 |  | yes | |
| register, registers | 寄存器 |  | yes | |
| build | 构建 |  | no | |
| runtime | 运行时 |  | yes | |

## Fixed phrases

| English | 中文 |
|---|---|
| **Predict first.** | **先猜一猜。** |
| ### Exercise N: … ★ | ### 练习 N：… ★ |

## Not translated

| Term | Meaning |
|---|---|
| ONNX Runtime | a library |
| pass | a function |
""")
LINK = "[x](../docs/tvm_errors.md)"


@pytest.mark.parametrize(("english", "chinese", "message"), [
    ("## A title", "### 标题", "headings are"),
    ("Take `x` and `y`.", "取 `x` 和 y。", "the code span `y` is missing"),
    ("It is $a + b$.", "它是 $a+c$。", "the formula a+b is missing"),
    ("$$a + b$$", "$$a$$", "the formula a+b is missing"),
    (f"See {LINK}.", "见附录。", "the link to docs/zh/tvm_errors.md is missing (from here: "
                              "../../docs/zh/tvm_errors.md)"),
    (f"See {LINK}.", "见 [x](../../docs/tvm_errors.md)。", "the link to docs/zh/tvm_errors.md is"),
    (f"See {LINK}.", f"见 {LINK}。", "leads nowhere"),
    ("![a boot](../docs/conv2d_before_and_target.png)", "图", "the picture to docs/conv2d"),
    ("One\n\n```\nx = 1  # one\n```", "一\n\n```\nx = 2  # 一\n```", "fenced blocks"),
    ("A\n\n<details><summary>B</summary>\n\n`c`\n\n</details>", "甲\n\n`c`", "HTML tags"),
    ("A\n\n<details><summary>B</summary>\n\nc\n\n</details>",
     "甲\n\n<details><summary>乙</summary>\n丙\n</details>", "is not read as Markdown"),
    ("| a | b |\n|---|---|\n| c | d |", "| 甲 |\n|---|\n| 丙 |", "numbers of cells in the tables"),
    ("There are 5,408 of 5.", "有 5,048 个。", "the number 5,408 is missing"),
    ("Two loops here.", "这里有两个圈。", "'loop' is 循环 in the glossary"),
    ("A loop nest is two loops.", "循环套着循环。", "'loop nest' is 循环嵌套"),
    ("On ONNX Runtime.", "在别的库上。", "the name ONNX Runtime does not occur"),
    ("**Predict first.** What?", "**先预测。** 是什么？", "'**先猜一猜。**' in the glossary"),
    ("### Exercise 2.3: the linear layer ★★", "### 练习 2.3：线性层 ★", "the stars"),
    ("**A.** B", "**甲。**乙", "asterisks show at"),
    ("Some words.", "Some words.", "no Chinese"),
    ("You read.", "您读。", "not 您"), ("Here `x` is.", "这里`x` 是。", "no space between"),
    ("One, two.", "一, 二。", "half-width punctuation"),
])
def test_what_the_gate_finds(english: str, chinese: str, message: str) -> None:
    found = translation_lint.differences(english, chinese, GLOSSARY)
    assert any(message in line for line in found), found


@pytest.mark.parametrize(("english", "chinese"), [
    ("## Loops and `for`\n\nSee " + LINK + ": $x$, 28 x 28, **once** [more](https://a.b/c).",
     "## 循环与 `for`\n\n见 [报错](../../docs/zh/tvm_errors.md#x)：$x$，28 x 28，**再一次**，"
     "[另见](https://a.b/c)。"),
    ("Indices, registers; builds pass at ONNX Runtime.", "索引、注册；在 ONNX Runtime 上能构建。"),
    ("### loop: the primitive's name", "### loop：原语的名字"),
    ("A\n\n```text\ny = x, the largest\n```", "甲\n\n```text\ny = x，最大的\n```"),
    ("### Exercise 2.3: it ★★\n\n**Predict first.** What?",
     "### 练习 2.3：它 ★★\n\n**先猜一猜。** 是什么？"), ("$$x$$", "$$x$$"), ("", ""),
])
def test_what_the_gate_lets_pass(english: str, chinese: str) -> None:
    assert translation_lint.differences(english, chinese, GLOSSARY) == []


def test_a_finding_has_its_line(course, capsys) -> None:
    course.english("# One", "Two: `x`.")
    course.translate("Two: `x`.", "二。")
    with pytest.raises(SystemExit) as stopped:
        translation.main("check", "00")
    mark = f"<!-- en: {translation.digest('Two: `x`.')}"
    line = course.text[:course.text.index(mark)].count("\n")
    assert f"paired_md/zh/00_x.md:{line + 1}: the code span `x` is missing" in str(stopped.value)
    course.replace("二。", "二：`x`。")
    translation.main("check")
    assert "all 2 cells are in Chinese" in capsys.readouterr().out


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
            assert "<!--" not in theirs.source, "marks stay in paired_md/zh/"


def test_a_handout_in_chinese(tmp_path: Path) -> None:
    """make help, its README and the student's copies, all without LANG; nothing leaks."""
    masters = [path for path in handouts.masters() if path.stem == STEM]
    files = handouts.contents(masters, "zh")
    assert handouts.leaks(files, handouts.masters()) == []
    for name, data in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    for name in ("docs/zh/tvm_errors.md", "words/zh.po", f"html/zh/{STEM}.html",
                 f"notebooks/zh/{STEM}.ipynb"):
        assert name in files
    assert f"notebooks/{STEM}.ipynb" not in files
    assert '<html lang="zh-CN">' in files[f"html/zh/{STEM}.html"].decode()
    assert "练习" in files["README.md"].decode()
    environment = {name: value for name, value in os.environ.items() if name != "MLC_LANG"}
    said = subprocess.run(["make", "help"], cwd=tmp_path, capture_output=True, text=True,
                          check=True, env=environment).stdout
    assert said.startswith("机器学习编译")
    subprocess.run([sys.executable, "-m", "tools.student"], cwd=tmp_path, check=True,
                   capture_output=True, env=environment | {"MLC_LANG": "zh"})
    copy = tmp_path / "work" / "zh" / f"{STEM}.ipynb"
    assert copy.read_bytes() == files[f"notebooks/zh/{STEM}.ipynb"]
    english = subprocess.run([sys.executable, "-m", "tools.student"], cwd=tmp_path, text=True,
                             capture_output=True, check=False, env=environment)
    assert english.returncode == 1 and english.stderr \
        == "This edition is not in the handout that was unpacked here: LANG=zh is.\n"


def _make(*words: str, **environment: str) -> subprocess.CompletedProcess:
    """Run make on course.mk with a target that prints what its programs get."""
    own = "include course.mk\nshow:\n\t@echo $$LANG $$MLC_LANG\n"
    return subprocess.run(["make", "-f", "-", *words], cwd=ROOT, input=own, text=True, check=False,
                          capture_output=True, env={**os.environ, **environment})


def test_which_edition_make_is_asked_for() -> None:
    """LANG is the locale's name too: one that is Chinese asks for nothing."""
    assert _make("show", LANG="zh_CN.UTF-8").stdout == "zh_CN.UTF-8 en\n"
    assert _make("show", "LANG=zh", LANG="de_DE.UTF-8").stdout == "C.UTF-8 zh\n"
    assert _make("show", LANG="zh").stdout == "C.UTF-8 zh\n", "LANG=zh make lab"
    assert _make("show", "LANG=en").stdout == "C.UTF-8 en\n"
    refused = _make("show", "LANG=fr")
    assert refused.returncode and "fr is neither" in refused.stderr


def test_make_help_has_every_target_in_both_languages() -> None:
    said = [subprocess.run(["make", "help", language], cwd=ROOT, text=True, check=True,
                           capture_output=True).stdout.splitlines()[1:]
            for language in ("LANG=en", "LANG=zh")]
    english, chinese = ([line.split()[1] for line in lines] for lines in said)
    assert english == chinese and len(english) > 10
