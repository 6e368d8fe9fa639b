"""The engine behind specifications: the search, the interpreter, the example that is shown."""

import json
import re
import time

import numpy as np
import pytest
import tvm
from interpreted import compare
from tvm import te
from tvm.script import tirx as T

from course import words
from course.checks.run.check import forks
from course.checks.say.messages import CheckFailed
from course.checks.say.show import Example
from course.checks.spec import shrink
from course.checks.spec.forms import STEPS, Misuse, expression, number, program
from course.checks.spec.interpret import Interpreted, Unknown
from course.checks.spec.shrink import Search
from course.checks.spec.spec import Rerun, Spec, check
from course.words import packed, unpacked

# ---- the search ----------------------------------------------------------------------------


def _found(wrong, right, given, axes=None, **more):
    def fails(inputs):
        return "" if np.array_equal(wrong(**inputs), right(**inputs), equal_nan=True) else "values"
    search = Search(fails, given, axes or {}, **more)
    assert search.run()
    return search.best, search.tries


def test_the_smallest_input_of_a_wrong_formula() -> None:
    draw = np.random.default_rng(0)
    x = draw.uniform(-9, 9, (7, 5)).astype("float32")
    best, tries = _found(lambda x: np.maximum(x, 0), lambda x: abs(x), {"x": x}, {"x": "n m"})
    assert best["x"].tolist() == [[-1]] and tries < 60
    best, _ = _found(lambda x: np.minimum(x, 6), lambda x: x, {"x": 9 + x}, {"x": "n m"})
    assert best["x"].tolist() == [[10]]
    best, _ = _found(lambda x: x.max(0), lambda x: x.max(1), {"x": x[:5]}, {"x": "n n"},
                     least={"n": 2})
    assert best["x"].shape == (2, 2) and np.count_nonzero(best["x"]) == 1


def test_axes_that_are_shared_stay_the_same_length() -> None:
    draw = np.random.default_rng(0)
    given = {name: draw.uniform(-9, 9, shape).astype("float32")
             for name, shape in (("x", (4, 6)), ("w", (3, 6)), ("b", (3,)))}
    best, _ = _found(lambda x, w, b: x @ w.T, lambda x, w, b: x @ w.T + b, given,
                     {"x": "n k", "w": "m k", "b": "m"}, least={"k": 2})
    assert [best[name].shape for name in "xwb"] == [(1, 2), (1, 2), (1,)]
    assert best["b"].tolist() == [1] and not best["x"].any()


def test_a_search_keeps_to_its_bounds_and_to_one_kind_of_failure() -> None:
    x = np.arange(1, 4097, dtype="float32").reshape(64, 64)
    calls = []

    def fails(inputs):
        calls.append(1)
        return "sum" if inputs["x"].sum() > 9000 else "none" if not inputs["x"].any() else ""
    search = Search(fails, {"x": x}, {"x": "n m"})
    assert search.run(most=50) and len(calls) == 50 == search.tries
    assert search.best["x"].sum() > 9000, "an array of zeros fails in another way"
    assert not Search(lambda _: "", {"x": x}, {}).run()


def test_a_search_counts_processor_time_and_ends_for_an_answer_that_waits(
        monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(1, 65, dtype="float32")

    def fails(inputs):
        time.sleep(0.01)
        return "values" if np.array_equal(inputs["x"], x) else ""

    def tries(seconds: float, late: float) -> int:
        monkeypatch.setattr(shrink, "SECONDS", seconds)
        monkeypatch.setattr(shrink, "LATE", late)
        search = Search(fails, {"x": x}, {})
        search.run(most=30)
        return search.tries
    assert tries(0.2, 60) == 30, "0.3 s of waiting takes no processor time"
    assert tries(0.2, 0.1) < 12
    assert tries(0, 60) < 4


def test_lists_and_numbers_shrink_and_truth_values_stay() -> None:
    def fails(inputs):
        return "long" if len(inputs["reads"]) > 1 and inputs["n"] > 5 and inputs["flag"] else ""
    search = Search(fails, {"reads": [[0], [3, 4], [5]], "n": 317, "flag": True}, {})
    assert search.run()
    assert search.best == {"reads": [[], []], "n": 6, "flag": True}
    search = Search(lambda given: "low" if given["n"] < -3 else "", {"n": -7}, {})
    assert search.run() and search.best == {"n": -4}, "towards 0"


def test_numbers_that_make_no_sense_are_not_tried() -> None:
    counts = np.array([[3, 9], [4, 7]])
    best, _ = _found(lambda c: c.sum(0), lambda c: c.sum(1), {"c": counts}, {"c": "n n"},
                     least={"n": 2}, fits=lambda given: given["c"].min() >= 0)
    assert best["c"].dtype == counts.dtype and best["c"].sum() == 1


# ---- the interpreter -----------------------------------------------------------------------


def _of_te(describe, *shapes):
    inputs = [te.placeholder(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
    return te.create_prim_func([*inputs, describe(*inputs)])


@T.prim_func(s_tir=True)
def one_below(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("Y"):
            vi = T.axis.spatial(4, i)
            Y[vi] = X[vi + 1]


@T.prim_func(s_tir=True)
def before_written(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("Y"):
            vi = T.axis.spatial(4, i)
            Y[vi] = Y[vi] + X[vi]


@T.prim_func(s_tir=True)
def into_x(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.sblock("Y"):
            vi = T.axis.spatial(4, i)
            Y[vi] = X[vi]
            X[vi] = T.float32(0)


@T.prim_func(s_tir=True)
def behind(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(5):
        with T.sblock("Y"):
            vi = T.axis.spatial(5, i)
            Y[vi] = X[T.min(vi, 3)]


@pytest.mark.parametrize(("func", "fault"), [
    (one_below, "X[4] is read, outside"), (before_written, "Y[0] is read, and nothing"),
    (into_x, "X[0] is written"), (behind, "Y[4] is written, outside")])
def test_what_a_program_must_not_do_is_seen(func, fault) -> None:
    with pytest.raises(Misuse, match=re.escape(fault)):
        Interpreted(func)(np.ones(4, "float32"), np.zeros(4, "float32"))


@T.prim_func(s_tir=True)
def forever(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in range(2**40):
        with T.sblock("Y"):
            vi = T.axis.spatial(4, i % 4)
            Y[vi] = X[vi]


def test_an_interpreter_comes_to_an_end() -> None:
    with pytest.raises(Misuse, match="a program that ends"):
        Interpreted(forever)(np.ones(4, "float32"), np.zeros(4, "float32"))
    assert Interpreted(forever).steps == 2**40


def test_numbers_are_those_of_the_compiler() -> None:
    x = np.array([-1000, -7.5, -2, -0.0, 0, 0.3, 1, 2.5, 90, np.inf, -np.inf, np.nan], "float32")
    functions = {
        "max": lambda e: te.max(e, 0.0), "max turned": lambda e: te.max(te.const(0.0), e),
        "min": lambda e: te.min(e, 6.0), "exp": te.exp, "abs": te.abs, "floor": te.floor,
        "float16": lambda e: te.max(te.min(e, 9.0), -9.0).astype("float16").astype("float32"),
        "chosen": lambda e: te.if_then_else(e > 0, e, 0.1 * e), "sigmoid": te.sigmoid,
        "isnan": lambda e: te.if_then_else(te.isnan(e), 1.0, e), "trunc": te.trunc,
        "select": lambda e: tvm.tirx.Select(e > 1, e, e * 2.0), "quotient": lambda e: 1.0 / e}
    for name, function in functions.items():
        func = _of_te(lambda a, function=function: te.compute(
            a.shape, lambda *i: function(a(*i)), name="y"), x.shape)
        compare(func, [x, np.zeros_like(x)], name)
    for name, index in {"//": lambda i: (i - 5) // 3 + 2, "%": lambda i: (i - 5) % 3,
                        "truncated": lambda i: tvm.tirx.truncdiv(i - 5, 3) + 2,
                        "rest": lambda i: tvm.tirx.truncmod(i - 5, 3) + 2}.items():
        func = _of_te(lambda a, index=index: te.compute(
            a.shape, lambda i: a[index(i)], name="y"), x.shape)
        compare(func, [x, np.zeros_like(x)], name)


@T.prim_func(s_tir=True)
def threads(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
    for i in T.thread_binding(4, thread="threadIdx.x"):
        with T.sblock("Y"):
            vi = T.axis.spatial(4, i)
            Y[vi] = X[vi]


def test_what_is_not_known_is_compiled() -> None:
    with pytest.raises(Unknown):
        Interpreted(threads)
    run = program(_of_te(lambda a: te.compute(a.shape, lambda i: a[i] * 2.0), (STEPS + 1,)))
    assert (run([np.ones(STEPS + 1, "float32")], (STEPS + 1,)) == 2).all()


def test_an_int_that_no_array_holds_is_refused_in_words() -> None:
    assert number(lambda: 2**63 - 1, int)() == 2**63 - 1
    with pytest.raises(CheckFailed, match="within 64 bits"):
        number(lambda: 2**63, int)()


# ---- evidence ------------------------------------------------------------------------------


def _rerun(answer, right=lambda x: np.maximum(x, 0), **more) -> Rerun:
    return Rerun(answer, Spec(lambda run: run, right, axes={"x": "n m"}, **more))


BATCH = np.random.default_rng(0).uniform(-9, 9, (4, 5)).astype("float32")


def test_an_answer_that_raises_is_shown_on_the_smallest_input() -> None:
    def answer(x):
        if (x < 0).any():
            raise ValueError("below 0")
        return np.maximum(x, 0)
    example = _rerun(answer).smallest({"x": BATCH})
    assert example and [text for _label, text in example.lines()] == [
        "[[-1]]", "[[0]]", "ValueError: below 0"]


def test_an_answer_that_comes_to_no_end_on_a_smaller_input() -> None:
    def answer(x):
        while not x.any():
            pass
        return -x
    example = _rerun(answer).smallest({"x": BATCH})
    assert example and example.parts[0].tables, "the best input that was found until then"


def test_what_does_not_recur_is_not_shown() -> None:
    seen = []

    def answer(x):
        seen.append(1)
        return x if len(seen) == 1 else np.maximum(x, 0)
    answer(BATCH)
    assert _rerun(answer).smallest({"x": BATCH}) is None


@pytest.mark.skipif(not forks(), reason="checks do not fork here")
def test_what_is_kept_of_earlier_calls_is_proved() -> None:
    """In a process in which the answer was not called before; also what is kept by one input."""
    def fails(answer, scales) -> str:
        cases = [{"x": scale * BATCH, "y": scale * BATCH} for scale in scales]
        spec = Spec(lambda run: run, lambda x, y: x + 2 * y, lambda: cases,
                    {"x": "n m", "y": "n m"})
        with pytest.raises(CheckFailed) as failed:
            check(spec, answer)
        return str(failed.value.parts[2])

    kept: dict[object, np.ndarray] = {}
    first = "called first, in another process, it was right for this input"
    assert fails(lambda x, y: kept.setdefault(x.shape, x + 2 * y), (1, 3)) == first
    kept.clear()
    assert fails(lambda x, y: kept.setdefault(x.tobytes(), x + 2 * y), (1, 3)) == first
    assert fails(lambda x, y: x + y, (1, 3)) == ""


def test_what_an_answer_prints_while_it_is_looked_at_is_not_shown(capsys) -> None:
    _rerun(lambda x: print("here") or x).smallest({"x": BATCH})
    assert capsys.readouterr().out == ""


def test_an_expression_is_refused_for_what_it_reads() -> None:
    run = expression(lambda x: te.compute(x.shape, lambda i: x[i + 1]))
    with pytest.raises(CheckFailed, match="outside"):
        run(x=np.ones(4, "float32"))
    taken = expression(lambda x: x + x)
    with pytest.raises(CheckFailed, match="operator on a whole te.Tensor"):
        taken(x=np.ones(4, "float32"))
    assert expression(lambda x: x + x, topi=True)(x=np.ones(2, "float32")).tolist() == [2, 2]


# ---- what is shown -------------------------------------------------------------------------


def _texts(right, came, **inputs) -> list[str]:
    return [str(text) for _label, text in Example.of(inputs, right, came).lines()]


def _array(*rows) -> np.ndarray:
    return np.array(rows, "float32")


def test_what_differs_is_marked_with_the_digits_that_tell() -> None:
    assert _texts(_array([1, 0]), _array([1, 2]), x=_array([0, 0])) == [
        "[[0, 0]]", "[[1, 0]]", "[[1, *2*]]"]
    assert _texts(_array(0.730951), _array(0.731049)) == ["[0.730951]", "[0.731049]"]
    assert _texts(np.float32(1), np.float32(np.nan), n=3) == ["3", "1", "nan"]
    for came, x in ((1.001, "0.333333"), (2, "0.3333"), (np.nan, "0.3333")):  # as much as it needs
        assert _texts(_array(1), _array(came), x=_array(1 / 3))[0] == f"[{x}]"


def test_many_axes_and_other_shapes_say_their_shape() -> None:
    x = np.zeros((1, 1, 1, 2), "float32")
    assert _texts(x, x + 1)[0] == "[[0, 0]], shape (1, 1, 1, 2)"
    assert _texts(_array(1, 2), _array([1], [2])) == [
        "[1, 2], shape (2,)", "[[1], [2]], shape (2, 1)"]
    assert _texts(_array(1), _array(1).astype("float64")) == ["float32 [1]", "float64 [1]"]


def test_a_large_array_is_what_is_usual_in_it_and_the_rest() -> None:
    x = np.zeros((4, 10), "float32")
    x[3, 1] = 10
    came = x.copy()
    came[3] = np.nan
    assert _texts(x * 0, came, x=x) == [
        "4 x 10 zeros but 10 at [3, 1]", "4 x 10 zeros", "4 x 10 zeros but *nan* at [3, :]"]
    assert _texts(x + 2, x + 2)[0] == "4 x 10 numbers, all 2 but 12 at [3, 1]"
    most = np.ones((4, 10), "float32")
    assert _texts(x * 0, most)[1] == "4 x 10 numbers, all 1"
    assert _texts(most - (x > 0), most)[1] == "4 x 10 numbers: *1* at [3, 1]"
    many = _texts(x, np.arange(40, dtype="float32").reshape(4, 10))[1]
    assert many.startswith("4 x 10 numbers: ") and many.endswith(", ...")


def test_an_example_leaves_a_process_as_json_and_is_shown_in_both_languages() -> None:
    before = words.language()
    example = Example.of({"X": _array([0, 1])}, _array([1, 1]), _array([1, 0]))
    again = Example.again(unpacked(json.loads(json.dumps(packed(example)))))
    for language, said in (("en", "input X:"), ("zh", "输入 X：")):
        words.use(language)
        failed = CheckFailed("a", "b", "c", example=again)
        assert said in str(failed) and said[:-1] in again._repr_html_()
        assert failed.parts == ("a", "b", "c") and failed.whole[3] is again
    words.use(before)
    assert again._repr_html_().count("rgba(") == 1, "one number differs"
    assert "&lt;b&gt;" in Example.of({"x": "<b>"}, 1, 2)._repr_html_()
