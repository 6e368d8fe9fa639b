"""What the course says in two languages: sentences, their catalogue, and the guard over it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import chinese
import nbformat
import pytest
import two_sided
from nbformat.v4 import new_code_cell, new_notebook
from polib import POEntry
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
    code = ("import sys; sys.modules['polib'] = None; from course.words import _; "
            "print(_('five rounds'), _('is {found}').format(found=3))")
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, check=True,
                          capture_output=True, env={**os.environ, "MLC_LANG": "zh"})
    assert said.stdout == "five rounds is 3\n"


@pytest.mark.parametrize("name", ["course/__init__.py", "course/words/__init__.py",
                                  "data/versions.py", "tools/doctor.py"])
def test_what_the_doctor_needs_is_read_by_old_pythons_too(name: str) -> None:
    ast.parse((ROOT / name).read_text(encoding="utf-8"), feature_version=(3, 9))


SHAPE = _("shape {shape}").format(shape=(2, 3))
INSIDE = _("{what} for {input}").format(what=SHAPE, input=_("two equal programs"))
TAKES = _("{layer} takes {name} instead of {right}")


@chinese.quoted
@pytest.mark.parametrize(("said", "english", "chinese"), [
    (SHAPE, "shape (2, 3)", "形状 (2, 3)"),
    (_("; ").join([INSIDE, "lv1"]) + "!", "shape (2, 3) for two equal programs; lv1!",
     "形状 (2, 3)（两个一样快的程序）；lv1!"),
    (_("{what} for {input}").format(what="3.15", input=INSIDE),  # no brackets in brackets
     "3.15 for shape (2, 3) for two equal programs", "3.15（形状 (2, 3)，两个一样快的程序）"),
    (TAKES.format(layer="行", name=1, right=2), "行 takes 1 instead of 2", "行取的是 1，而不是 2"),
    (TAKES.format(layer="lv", name=1, right=2), "lv takes 1 instead of 2", "lv 取的是 1，而不是 2"),
    (words.listed("abc"), "a, b and c", "a、b 和 c"), (words.listed("ab"), "a and b", "a 和 b"),
    (_("lv1"), "lv1", "lv1"), ("lv1", "lv1", "lv1"),
])
def test_a_sentence_is_said_in_either_language(said: str, english: str, chinese: str) -> None:
    """Also one that came through JSON."""
    assert isinstance(said, str) and said == english == told(said, "en")
    assert told(said, "zh") == told(words.unpacked(words.packed([said]))[0], "zh") == chinese


def test_the_catalogue_fits_the_code(record_property) -> None:
    """Each message has its entry, and no other; what has no Chinese yet is counted, and waits."""
    assert not messages.write(change=False), "run `make sync`"
    assert messages.wrong() == []
    record_property("catalogue", [messages.summary()])


def test_the_words_that_cells_write_into_pictures_are_taken_from_their_code(tmp_path) -> None:
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in (
        "plots.loop_nests(before_it=mod['x'], share=True)\nprint('not this')",
        "plots.stages(('a title', 'y = f(x)\\nby hand'), arrows=['then'])",
        "plots.side_by_side(f(), g(), [('left(', 'right(', 'a call')], ('one', 'other'))",
        "roofs = {'one sum': 3}\nroofs['two sums'] = 4\nother = {'no': 1}",
        "plots.roofline(1, 2, trails, roofs)\nclimb('your layer', f)",
        "plots.image_grid(a, [f'{b} as c'])\nplots.memory(tensor=t)")]), tmp_path / "x.ipynb")
    assert messages.of_pictures(tmp_path / "x.ipynb") == [
        "before it", "share", "a title", "by hand", "then", "a call", "one", "other",
        "one sum", "two sums", "your layer"]


@chinese.quoted
def test_what_cells_put_together_for_pictures_has_a_template() -> None:
    """Which stand in plots.figure.caption."""
    calls = [node for path in (ROOT / "notebooks").glob("*.ipynb")
             for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"
             for node in ast.walk(ast.parse(cell.source))
             if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("plots.")]
    found = {"".join(part.value if isinstance(part, ast.Constant) else "X1" for part in node.values)
             for call in calls for node in ast.walk(call) if isinstance(node, ast.JoinedStr)}
    found = {text for text in found if "X1" in text}  # without how numbers are formatted
    assert found == {"label: X1", "X1\nas X1 X1"}
    for text in (*found, "1 thread", "16 threads"):
        assert figure.caption(text) == text and told(figure.caption(text), "zh") != text


def test_nothing_is_said_inside_an_f_string() -> None:
    """Before Python 3.12 its column there is uncertain, and the catalogue has the code's order."""
    wrong = [f"{path}: {ast.unparse(inner)}" for pattern in messages.SOURCES
             for path in ROOT.glob(pattern)
             if "checks" not in path.parts  # where "... cut here" is
             for node in ast.walk(ast.parse(path.read_bytes()))
             if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)
             if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "_"
             and isinstance(inner.args[0], ast.Constant)]
    assert not wrong


def test_a_changed_message_is_english_until_somebody_has_looked(catalogue, monkeypatch) -> None:
    catalogue.write_text('#, python-brace-format\nmsgid "the sum leaves out the last row {of}"\n'
                         'msgstr "求和漏掉了最后一行 {of}"\n\n'
                         'msgid "what nobody says"\nmsgstr "没有人说的"\n', encoding="utf-8")
    new = "the sum leaves out the very last 2 % of rows"
    monkeypatch.setattr(messages, "extracted", lambda: [POEntry(msgid=new)])
    assert messages.write() and not messages.write()
    text = catalogue.read_text(encoding="utf-8")
    assert '#, fuzzy\n#| msgid "the sum leaves out the last row {of}"\n' in text
    assert "求和漏掉了最后一行" in text and "nobody says" not in text
    assert messages.missing() == [new]
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
    (Sentence("; {a}").format(a="x"), ""), (_("five rounds") + "  ", "a space too many"),
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
    """What tests/slow/test_chinese.py has not: a wrong answer, title and labels and all."""
    monkeypatch.setattr(words, "_chosen", language)
    (wrong,) = (answer.source for answer in two_sided.candidates("02_emit_te_ingestion")
                if answer.title == "the kernel is flipped")
    names = {"te": te}
    exec(wrong, names)
    with pytest.raises(checks.CheckFailed) as stopped:
        checks.exercise_2_3(names["conv2d"])
    assert f"```\n{stopped.value}\n```" in (ROOT / name).read_text(encoding="utf-8")


def test_a_message_of_tvm_points_into_the_chinese_document(in_chinese) -> None:
    failed = checks.CheckFailed("x", "AssertionError: Reduction dimensions of dense do not match.")
    assert str(failed).endswith("docs/zh/tvm_errors.md#reduction-dimensions-of-dense-do-not-match")
