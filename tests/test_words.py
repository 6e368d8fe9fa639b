"""What the course says in two languages: sentences, their catalogue, and the guard over it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import chinese
import nbformat
import numpy as np
import pytest
from tvm import te

from course import checks, words
from course.plots import figure
from course.words import Sentence, _, told
from tools import messages

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def in_chinese(monkeypatch) -> None:
    monkeypatch.setattr(words, "_chosen", "zh")


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.setattr(messages, "CATALOGUE", tmp_path / "zh.po")
    return tmp_path / "zh.po"


@pytest.mark.parametrize(("asked", "folder", "speaks"), [
    ("", "work/zh", "zh"), ("", "work/zh/week1", "zh"), ("", "work", "en"), ("", "", "en"),
    ("", "..", "en"), ("zh", "work", "zh"), ("zh", "..", "zh"), ("en", "work/zh", "en"),
    ("fr", "work/zh", "zh")])
def test_a_kernel_speaks_what_was_asked_for_or_its_folders(
        asked: str, folder: str, speaks: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(words, "_chosen", "")
    course = tmp_path / "zh" / "course"  # what is above it does not count
    monkeypatch.setattr(words, "ROOT", course)
    (course / "work" / "zh" / "week1").mkdir(parents=True)
    monkeypatch.chdir(course / folder)
    monkeypatch.setenv("MLC_LANG", asked)
    assert words.language() == speaks


def test_before_the_packages_are_installed_it_is_english() -> None:
    code = ("import sys; sys.modules['babel'] = None; from course.words import _; "
            "print(_('five rounds'), _('is {found}').format(found=3))")
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, check=True,
                          capture_output=True, env={**os.environ, "MLC_LANG": "zh"})
    assert said.stdout == "five rounds is 3\n"


@pytest.mark.parametrize("name", ["course/__init__.py", "course/words/__init__.py",
                                  "data/versions.py", "tools/doctor.py"])
def test_what_the_doctor_needs_is_read_by_old_pythons_too(name: str) -> None:
    ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 9))


def test_english_is_the_default() -> None:
    assert words.language() == "en" and _("five rounds") == "five rounds"


@chinese.quoted
def test_a_sentence_is_said_in_either_language() -> None:
    """Also one in the place of another, one that is joined, and one that came through JSON."""
    said = _("{what} for {input}").format(
        what=_("shape {shape}").format(shape=(2, 3)), input=_("five rounds"))
    both = _("; ").join([said, "lv1"]) + "!"
    assert both == "shape (2, 3) for five rounds; lv1!" == told(both, "en")
    assert told(both, "zh") == "形状 (2, 3)（五轮）；lv1!"
    inside = _("{what} for {input}").format(what="3.15", input=said)
    assert told(inside, "zh") == "3.15（形状 (2, 3)，五轮）"
    assert told(words.unpacked(words.packed([both]))[0], "zh") == told(both, "zh")
    assert isinstance(both, str) and told("lv1", "zh") == "lv1" and told(_("lv1"), "zh") == "lv1"


@chinese.quoted
def test_one_thing_and_several() -> None:
    for number, english in ((1, "1 transaction"), (2, "2 transactions")):
        said = words.ngettext("{count} transaction", "{count} transactions",
                              number).format(count=number)
        assert told(said, "en") == english and told(said, "zh") == f"{number} 次内存事务"


@chinese.quoted
@pytest.mark.parametrize(("value", "chinese"), [
    ("lv1", "3 x 4 个数，都是 lv1"), ("行", "3 x 4 个数，都是行")])
def test_chinese_and_latin_are_apart_by_a_space(value: str, chinese: str, in_chinese) -> None:
    said = _("{shape} numbers, {number} each")
    assert said.format(shape="3 x 4", number=value) == chinese


def test_the_catalogue_fits_the_code(record_property) -> None:
    """Each message has its entry, and no other; what has no Chinese yet is counted, and waits."""
    assert not messages.write(change=False), "run `make sync`"
    assert messages.wrong() == []
    record_property("catalogue", [messages.summary()])


def _of_a_cell(tmp_path: Path, *sources: str) -> list[str]:
    """Return what is taken from a notebook's cells for the catalogue."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "00_x.ipynb")
    return messages.of_pictures(tmp_path / "00_x.ipynb")


def test_the_words_that_cells_write_into_pictures_are_taken_from_their_code(tmp_path) -> None:
    assert _of_a_cell(
        tmp_path, "plots.loop_nests(before_it=mod['x'], share=True)\nprint('not this')",
        "plots.stages(('a title', 'y = f(x)\\nby hand'), arrows=['then'])",
        "plots.side_by_side(f(), g(), [('left(', 'right(', 'a call')], ('one', 'other'))",
        "roofs = {'one sum': 3}\nroofs['two sums'] = 4\nother = {'no': 1}",
        "plots.roofline(1, 2, trails, roofs)\nclimb('your layer', f)",
        "plots.image_grid(a, [f'{b} as c'])\nplots.memory(tensor=t)") == [
            "before it", "share", "a title", "by hand", "then", "a call", "one", "other",
            "one sum", "two sums", "your layer"]


@chinese.quoted
def test_what_cells_put_together_for_pictures_has_a_template() -> None:
    """Which stand in plots.figure.caption."""
    found = set()
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            for call in ast.walk(ast.parse(cell.source if cell.cell_type == "code" else "")):
                if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("plots."):
                    found |= {"".join(part.value if isinstance(part, ast.Constant) else "X1"
                                      for part in node.values)
                              for node in ast.walk(call) if isinstance(node, ast.JoinedStr)}
    found = {text for text in found if "X1" in text}  # without how numbers are formatted
    assert found == {"label: X1", "X1\nas X1 X1"}
    for text in (*found, "1 thread", "16 threads"):
        assert figure.caption(text) == text and told(figure.caption(text), "zh") != text


def test_nothing_is_said_inside_an_f_string() -> None:
    """Before Python 3.12 Babel does not see it there."""
    wrong = [f"{path}: {ast.unparse(inner)}" for pattern in messages.SOURCES
             for path in ROOT.glob(pattern)
             if "checks" not in path.parts  # where "... cut here" is
             for node in ast.walk(ast.parse(path.read_bytes()))
             if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)
             if isinstance(inner, ast.Call) and ast.unparse(inner.func) in ("_", "ngettext")
             and isinstance(inner.args[0], ast.Constant)]
    assert not wrong


def test_a_changed_message_is_english_until_somebody_has_looked(catalogue, monkeypatch) -> None:
    catalogue.write_text('#, python-brace-format\nmsgid "the sum leaves out the last row {of}"\n'
                         'msgstr "求和漏掉了最后一行 {of}"\n\n'
                         'msgid "what nobody says"\nmsgstr "没有人说的"\n', encoding="utf-8")
    new = messages.Catalog("zh")
    new.add("the sum leaves out the very last row")
    monkeypatch.setattr(messages, "extracted", lambda: new)
    assert messages.write() and not messages.write()
    text = catalogue.read_text(encoding="utf-8")
    assert '#, fuzzy\n#| msgid "the sum leaves out the last row {of}"\n' in text
    assert "求和漏掉了最后一行" in text and "nobody says" not in text
    assert messages.missing() == [("the sum leaves out the very last row",)]
    assert messages.wrong() == []


def test_chinese_whose_places_or_words_do_not_fit_is_told(catalogue) -> None:
    catalogue.write_text('msgid "a {this} of {that}"\nmsgstr "{other} 的 {this}"\n\n'
                         'msgid "b {this}"\nmsgstr "{"\n\n'
                         'msgid "the softmax"\nmsgstr "这个 softmax 的 maximum"\n\n'
                         'msgid "numbers from {low}"\nmsgstr "从 {low} 起的数"\n',
                         encoding="utf-8")
    assert len(messages.wrong()) == 3


@chinese.quoted
@pytest.mark.parametrize(("found", "fault"), [
    (_("shape {shape}").format(shape="(2, 3) for numbers from 1 on"), "English: 'for numbers"),
    ("a sentence that nobody has put into the catalogue", "English: "),
    ("AssertionError: shapes do not match", ""), ("[0, 1]", ""), ("np.matmul", ""),
    (_("your line {line}: {source}").format(line=2, source="return a if all b else c"), ""),
    (Sentence("; {a}").format(a="x"), "") , (_("five rounds") + "  ", "a space too many"),
])
def test_the_guard_sees_english_and_spaces(found: str, fault: str) -> None:
    faults = chinese.faults(found)
    assert faults and fault in faults[0] if fault else not faults


def test_the_guard_sees_numbers_that_are_lost(monkeypatch) -> None:
    monkeypatch.setattr(words, "_chinese", lambda: {"{a} at {b}": "在 {a}"})
    (fault,) = chinese.faults(_("{a} at {b}").format(a=3, b=5))
    assert fault.startswith("the number 5 is missing")


@chinese.quoted
@pytest.mark.parametrize(("name", "language"), [("README.md", "en"), ("README.zh.md", "zh")])
def test_the_readme_quotes_what_a_check_says(name: str, language: str, monkeypatch) -> None:
    def flipped(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        n, channels, height, width = x.shape
        f, _channels, kh, kw = w.shape
        c, p, q = (te.reduce_axis((0, extent)) for extent in (channels, kh, kw))
        return te.compute((n, f, height - kh + 1, width - kw + 1), lambda n, f, i, j: te.sum(
            x[n, c, i + p, j + q] * w[f, c, kh - 1 - p, kw - 1 - q], axis=[c, p, q]))

    monkeypatch.setattr(words, "_chosen", language)
    with pytest.raises(checks.CheckFailed) as stopped:
        checks.exercise_2_3(flipped)
    assert f"```\n{stopped.value}\n```" in (ROOT / name).read_text(encoding="utf-8")


@chinese.quoted
def test_an_exercise_in_chinese_not_done_wrong_and_right(in_chinese, capsys) -> None:
    def not_done(confusion: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def of_columns(confusion: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.diag(confusion) / confusion.sum(0)

    def right(confusion: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.diag(confusion) / confusion.sum(1)

    with pytest.raises(checks.CheckFailed) as stopped:
        checks.exercise_1_1(not_done)
    assert str(stopped.value) \
        == "练习 1.1 还没有做：在 not_done 的 TODO 处写好代码，再运行这两个单元格。"
    with pytest.raises(checks.CheckFailed) as stopped:
        checks.exercise_1_1(of_columns)
    title, given, expected, came, look_at = str(stopped.value).splitlines()
    assert title == "练习 1.1 ✗" and given.startswith("  输入 confusion：")
    assert expected.startswith("  期望：") and came.startswith("  得到：")
    assert look_at.split() == ["检查：", "求和：行是标签；按列求和得到的是精确率，不是召回率"]
    assert told(stopped.value.parts[2], "en").startswith("the sums: rows are labels")
    checks.exercise_1_1(right)
    assert capsys.readouterr().out.startswith("练习 1.1 ✓ 7 个混淆矩阵；")


def test_a_message_of_tvm_points_into_the_chinese_document(in_chinese) -> None:
    failed = checks.CheckFailed("x", "AssertionError: Reduction dimensions of dense do not match.")
    assert str(failed).endswith("docs/zh/tvm_errors.md#reduction-dimensions-of-dense-do-not-match")
