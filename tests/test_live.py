"""Loop nests, live: what the page works out is what TVM does. The page's own code runs in Node."""

import json
import random
import re
from typing import Any

import in_node
import pytest
import tvm

from course.listing import show
from course.plots import moving, walks

MESSAGES = walks.refusals()


def of_the_page(function: str, given: Any) -> Any:
    """Return what a function of the page's Loops and of `given` returns."""
    return in_node.answer(moving.DOCS / "loops.js", function, given)


FOLLOW = """(Loops, { program, steps }) => {
  let state = Loops.first(program);
  const taken = [], seen = [];
  for (const step of steps) {
    const offered = Loops.choices(state, step[1]).some((one) => `${one}` === `${step}`);
    const call = Loops.call(state, step), found = Loops.apply(state, step);
    if (found.state) { state = found.state; taken.push(step); }
    seen.push({ offered, call, refused: found.refused ?? "", why: found.why ?? "",
      script: Loops.script(program, state), visits: Loops.visits(program, state),
      nested: Loops.nested(state), code: Loops.code(program, taken) });
  }
  return seen;
}"""


def compare(program: walks.Program, seed: int, length: int) -> tuple[tvm.s_tir.Schedule, Any]:
    """Take random steps with TVM and with the page; each answer must be the same.

    Returned: where it leads, TVM's schedule, and which nested loops the page says are not built.
    """
    chance, schedule, steps, answers = random.Random(seed), program.schedule(), [], []
    for _ in range(length):
        steps.append(walks.step_from(schedule, chance))
        try:
            walks.apply(schedule, program.block, steps[-1])
            refused = ""
        except tvm.s_tir.ScheduleError as error:
            refused = walks.refusal(error)
        func = schedule.mod["main"]
        answers.append((refused, show(func).text, walks.visits(program, func)))
    shown = of_the_page(FOLLOW, {"program": walks.described(program), "steps": steps})
    for step, (refused, text, visits), seen in zip(steps, answers, shown, strict=True):
        assert seen["offered"], step
        assert refused == MESSAGES.get(seen["refused"], ""), (step, seen["call"])
        assert (seen["script"], seen["visits"]) == (text, visits), (step, seen["call"])
    pasted: dict[str, Any] = {}
    exec(shown[-1]["code"], pasted)  # as a reader would paste it
    assert show(pasted["sch"].mod["main"]).text == answers[-1][1]
    return schedule, shown[-1]["nested"]


@pytest.mark.parametrize("program", walks.PROGRAMS, ids=lambda program: program.id)
def test_random_steps_are_tvms(program: walks.Program) -> None:
    for seed in range(4):
        compare(program, seed, 14)


def follow(program: str, *steps: walks.Step) -> list[dict[str, Any]]:
    found = next(one for one in walks.PROGRAMS if one.id == program)
    return of_the_page(FOLLOW, {"program": walks.described(found), "steps": steps})


def test_split_then_fuse() -> None:
    """The tile of notebook 04: its rows and columns become the lanes of one vector."""
    seen = follow("conv", ("split", 2, 2), ("split", 4, 2), ("reorder", 3, 4), ("fuse", 4, 5),
                  ("vectorize", 4, 0))
    assert [one["refused"] for one in seen] == [""] * 5
    assert "v_yy = T.axis.spatial(4, yy_0 * 2 + yy_1_xx_1_fused // 2)" in seen[-1]["script"]
    assert [moments[0] for moments in seen[-1]["visits"][:6]] == [0, 0, 9, 9, 0, 0]
    assert "yy_1_xx_1_fused = sch.fuse(yy_1, xx_1)\nsch.vectorize(yy_1_xx_1_fused)" \
        in seen[-1]["code"]


def test_each_refusal_has_its_reason() -> None:
    sums = follow("sum", ("vectorize", 1, 0), ("parallel", 1, 0), ("unroll", 1, 0), ("fuse", 1, 0),
                  ("split", 1, 4), ("fuse", 0, 2), ("fuse", 0, 1), ("parallel", 0, 0))
    assert [one["why"] for one in sums] == ["reduction", "reduction", "", "outwards", "",
                                            "between", "", "reduction"]


def test_what_the_schedule_takes_and_the_build_refuses() -> None:
    for kind, op in (("parallel", "parallel"), ("vectorized", "vectorize")):
        one, two = follow("add", (op, 0, 0), (op, 1, 0))
        assert one["nested"] is None
        assert two["nested"] == {"kind": kind, "outer": "i", "inner": "j"}


def test_the_page_notices_when_it_is_wrong() -> None:
    found, made = walks.checked(walks.PROGRAMS[0], 20, MESSAGES)
    assert made >= 20
    program = walks.described(walks.PROGRAMS[0]) | {"walks": found}
    compared = "(Loops, [program, messages]) => Loops.compared(program, messages)"
    count = sum(map(len, found))
    assert of_the_page(compared, [program, MESSAGES]) == {"same": count, "steps": count}
    found[0][0][-1] = 1  # another answer of TVM
    assert of_the_page(compared, [program, MESSAGES]) == {"same": count - 1, "steps": count}


def test_refusals_lead_to_the_page_that_explains_them() -> None:
    text = (moving.DOCS / "tvm_errors.md").read_text(encoding="utf-8")
    for message in (MESSAGES | moving.BUILDING).values():
        place = moving.anchor(message)
        assert place and place.replace("-", "") in re.sub(r"[^\w]", "", text.lower())
    assert set(MESSAGES) == {"vectorize", "parallel", "fuse"} and not moving.anchor("none such")


def test_every_text_of_the_live_page_is_in_both_languages() -> None:
    strings = json.loads((moving.DOCS / "live.json").read_text(encoding="utf-8"))
    for key, said in strings.items():
        assert len(said) == 2 and all(said), key
        assert set(re.findall(r"{\w+}", said[0])) == set(re.findall(r"{\w+}", said[1])), key
    script = (moving.DOCS / "live.html").read_text(encoding="utf-8")
    used = set(re.findall(r'(?:say|now|tell)\("(\w+)"[,)]', script))
    used |= {f"refused{why}" for why in ("reduction", "between", "outwards")} | set(moving.BUILDING)
    used |= {f"{part}{one.id}" for one in walks.PROGRAMS for part in ("", "memory", "reading")}
    assert used <= strings.keys()


def test_the_pages_factors_are_those_tried() -> None:
    script = (moving.DOCS / "loops.js").read_text(encoding="utf-8")
    assert str(list(walks.FACTORS)) in script


def test_a_page_for_each_place() -> None:
    found = moving.data(5)
    beside, alone = moving.page(found), moving.page(found, "zh", beside=False)
    part = moving.fragment(found, "zh")
    assert '"errors":["tvm_errors.html","zh/tvm_errors.html"]' in beside
    assert '"errors":["tvm_errors.html","tvm_errors.html"]' in part and '"language":1' in part
    assert '"errors"' not in alone and '<html lang="zh">' in alone
    assert not re.search(r"@(DATA|LOOPS|THEME)@", beside + alone + part)


def test_an_address_says_what_is_shown() -> None:
    steps = [["split", 2, 2], ["split", 4, 2], ["reorder", 3, 4], ["fuse", 4, 5],
             ["vectorize", 4, 0]]
    programs = [walks.described(program) for program in walks.PROGRAMS]
    script = """(Loops, { programs, steps, texts }) => {
      const said = Loops.address(programs.at(-1), steps, 7);
      const back = (text) => { const { number, path, moment } = Loops.addressed(programs, text);
        return [programs[number].id, path.map(({ step }) => step), moment]; };
      return [said, ...[said, ...texts].map(back)];
    }"""
    texts = ["", "zh", "program=none&moment=-3",
             "program=sum&steps=split-0-2.vectorize-2-0.unroll-0-0",
             "program=add&steps=split-9-2", "program=add&steps=split-0-5.unroll-0-0&moment=x"]
    said, *found = of_the_page(script, {"programs": programs, "steps": steps, "texts": texts})
    assert said.startswith("program=conv&steps=split-2-2.") and said.endswith("&moment=7")
    start = ["add", [], 0]
    assert found == [["conv", steps, 7], start, start, start,
                     ["sum", [["split", 0, 2]], 0],  # a sum's loop is not vectorized: no further
                     start, start]
