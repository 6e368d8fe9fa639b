"""Grade a job in boxes: one for its checks and its page, and another if that one is ended.

What a box says is treated as the words of a hostile program, about one submission.
"""

import base64
import json
from typing import Any

from course.words import Sentence, _, told
from tools.grading import submission
from tools.grading.box import Box, Lost, keeper, of_code
from tools.grading.job import Job, Result

ATTEMPTS = 3  # boxes that end before they have read a line of the submission
MOST_SAID = 10_000  # characters
NOTES = {"twice": _("check {number} is there more than once: the last one counts"),
         "missing": _("check {number} was missing: put back"),
         "edited": _("check {number} was edited: put back"),
         "two": _("exercise {number} has two answers: the last one that is not an untouched stub "
                  "counts")}


class Grader:
    """Grades one job after the other; an answer identical to an earlier one gets its verdict."""

    def __init__(self) -> None:
        self.verdicts: dict[str, tuple[bool, str]] = {}  # by the key of what runs for a check

    def grade(self, job: Job) -> Result:
        """Return the result of a job."""
        sitting = Sitting(job, self.verdicts)
        if keeper() == "UNSAFE":
            sitting.note(_("graded without a sandbox, by UNSAFE=1"))
        for _number in range(2 * len(sitting.checks) + 2 * ATTEMPTS):
            with Box() as box:
                box.tell(sitting.asked())
                for line in box.lines(job.seconds):
                    sitting.take(box, *line)
                sitting.ended(box.why)
            if sitting.at == "end":
                return sitting.result
        sitting.give_up("")
        return sitting.result

    def proved(self, solved: list[Job]) -> None:
        """Raise Lost, with what is wrong, if the course's own solutions do not pass here."""
        for job in solved:
            result = self.grade(job)
            failed = [words for number, words in result.words.items() if not result.points[number]]
            if failed or not result.whole:
                raise Lost(_("Nothing was graded: the course's own solution is not accepted here: "
                             "{why}\n").format(why="; ".join([*result.notes, *failed])))


class Sitting:
    """A job while it is graded: its result so far, and what the box is working on (`at`)."""

    def __init__(self, job: Job, verdicts: dict[str, tuple[bool, str]]) -> None:
        self.job, self.verdicts, self.result = job, verdicts, Result()
        self.checks = {check.number: check for check in job.checks()}
        self.steps = {"", "reading", "executing", "rendering", "end", *self.checks}
        self.at, self.faults = "start", 0
        self.keys: dict[str, str] = {}
        self.said: dict[str, tuple[bool, str]] = {}
        self.outputs: dict[str, Any] = {}
        self.cell, self.ran, self.why = 0, False, ""

    def asked(self) -> dict[str, Any]:
        """Return what a box is told: everything in the job that is not done yet."""
        self.at, self.why = "start", ""
        return {"file": base64.b64encode(self.job.data).decode(), "page": self.job.page,
                "master": json.loads(self.job.master), "seconds": self.job.seconds,
                "outputs": self.outputs if self.ran else None}

    def take(self, box: Box, *line: Any) -> None:
        """Take a line of a box, if it is one that can come now."""
        match line:
            case ["at", str(step)] if step in self.steps:
                self.at, self.why = step, ""
            case ["unread", str(wrong)]:
                self.note(_("not a notebook ({why})").format(why=wrong[:200]))
            case ["unread", None]:
                self._over()
            case ["plan", dict(keys), [*notes], dict(answers), "en" | "zh" as language]:
                if not self.keys:
                    self._plan(keys, notes, answers, language)
            case ["said", bool(passed), str(text)] if self.at in self.keys.keys() - self.said:
                verdict = passed, submission.clean(text)[:MOST_SAID]
                self.verdicts[self.keys[self.at]] = verdict
                self._say(self.at, *verdict)
            case ["said", None, str(text)] | ["fault", str(text)]:
                self.give_up(text)
            case ["cell", int(place), outputs] if not self.ran:
                self.cell = place
                if isinstance(outputs, list):
                    self.outputs[str(place)] = outputs
            case ["stopped", *why]:
                self.why = in_words(why, self.job.seconds)
                if self.at == "executing" and why[:1] == ["wall"]:
                    self.why = _("and those above it together {why}").format(why=self.why)
            case ["done"]:
                self._over()
                box.tell(self.outputs if self.at == "executing" else self.said)
                self.at = ""
            case ["page", str(body)]:
                from tools.grading import page  # it needs nh3, which only grading installs
                self.result.page = page.document(self.job.stem, page.safe(body),
                                                 self.result.language)

    def _over(self) -> None:
        """Record that the step is over, if it is not known yet: to its end, or `why` not."""
        why = self.why
        if self.at == "reading" and why:
            self.note(_("reading it: it {why}").format(why=why))
        elif self.at in self.checks and self.at not in self.said:
            why = why or in_words([], 0)
            self.note(_("the answer to {exercise} {why}").format(exercise=self.at, why=why))
            words = _("Exercise {number} ✗\n  the answer {why}").format(number=self.at, why=why)
            self._say(self.at, False, told(words, self.result.language))
        elif self.at == "executing" and not self.ran:
            self.ran = True
            if why:
                self.note(_("a cell {why}; the page has no outputs from there on").format(why=why))
                words = told(_("this cell {why}; those below were not run for this page"
                               ).format(why=why), self.result.language)
                self.outputs[str(self.cell)] = [{"output_type": "error", "ename": "NotRun",
                                                 "evalue": words, "traceback": [words]}]

    def ended(self, why: Sentence | str) -> None:
        """Record that the box is gone, with what it was working on."""
        self.why = why or _("ended its process ({code})").format(code="exit code 0")
        if self.at == "start":
            self.faults += 1
            if self.faults == ATTEMPTS:
                self.give_up(str(self.why))
        self._over()
        if self.at in ("reading", "rendering", "end"):
            self.at, self.result.whole = "end", self.faults < ATTEMPTS
            if self.job.page and self.keys and not self.result.page:
                self.note(_("no page of feedback: making it took too long"))

    def give_up(self, why: str) -> None:
        """Record that this machine could not grade the job: not a grade, and worth a later try."""
        self.note(_("could not be graded ({why})").format(
            why=why[:200] or "its sandbox ended each time"))
        self.at, self.faults, self.result.whole = "end", ATTEMPTS, False

    def note(self, text: Sentence) -> None:
        """Add a line about the notebook."""
        self.result.notes.append(_("{number}: {text}").format(number=self.job.stem[:2], text=text))

    def _plan(self, keys: dict, notes: list, answers: dict, language: str) -> None:
        """Record what a box has read, and the verdicts that are known."""
        self.result.language = language
        self.keys = {number: keys[number] for number in self.checks
                     if isinstance(keys.get(number), str)}
        for note in notes:
            match note:
                case [str(kind), str(number)] if kind in NOTES and number in self.checks:
                    self.note(NOTES[kind].format(number=number))
        for number in self.checks:
            match answers.get(number):
                case [text, likeness]:
                    self.result.answers[number] = [submission.clean(text),
                                                   submission.clean(likeness)[:16]]
        for number, key in self.keys.items():
            if key in self.verdicts:
                self._say(number, *self.verdicts[key])

    def _say(self, number: str, passed: bool, text: str) -> None:
        self.said[number] = passed, text
        self.result.points[number] = self.checks[number].points if passed else 0
        self.result.words[number] = text


def in_words(why: list[Any], seconds: float) -> Sentence | str:
    """Say why a part of a box gave no result, from the parts of Ended, which are not trusted."""
    match why:
        case ["code", -24, _]:  # SIGXCPU
            return _("computed for more than {seconds} seconds").format(seconds=f"{seconds:g}")
        case ["code", int(code), _]:
            return of_code(code)
        case ["heard", _, _]:
            return _("printed without end")
        case ["wall", _, _]:
            return _("ran for more than {seconds} seconds").format(seconds=f"{10 * seconds:g}")
        case ["asleep", _, _]:
            return _("waited {seconds} seconds for nothing").format(seconds=f"{seconds:g}")
        case ["raised", _, str(words)]:
            return _("stopped ({error})").format(error=submission.printable(words[:200]))
    return _("gave a verdict that is not the check's")
