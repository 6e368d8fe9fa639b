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
    """Grades one job after the other; an answer that was graded before keeps its verdict."""

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
        self.job, self.verdicts, self.result, self.number = job, verdicts, Result(), job.stem[:2]
        self.checks = {check.number: check for check in job.checks()}
        self.steps = {"", "reading", "executing", "rendering", "end", *self.checks}
        self.at, self.faults = "start", 0
        self.keys: dict[str, str] = {}
        self.said: dict[str, tuple[bool, str]] = {}
        self.outputs: dict[str, Any] = {}
        self.ran: list[Any] | None = None  # why it did not reach its end; [] if it did
        self.cell = 0

    def asked(self) -> dict[str, Any]:
        """Return what a box is told: everything in the job that is not done yet."""
        self.at = "start"
        return {"file": base64.b64encode(self.job.data).decode(), "page": self.job.page,
                "master": json.loads(self.job.master), "seconds": self.job.seconds,
                "outputs": self.outputs if self.ran is not None else None}

    def take(self, box: Box, *line: Any) -> None:
        """Take a line of a box, if it is one that can come now."""
        match line:
            case ["at", str(step)] if step in self.steps:
                self.at = step
            case ["unread", [*why], str(wrong)]:
                self.note(_("not a notebook ({why})").format(why=wrong[:200]) if wrong else
                           _("reading it: it {why}").format(why=in_words(why, self.job.seconds)))
            case ["plan", dict(keys), [*notes], dict(answers), "en" | "zh" as language]:
                self._plan(keys, notes, answers, language)
                box.tell(self.said)
            case ["said", str(number), bool(passed), str(text)] if number in self.checks:
                if number not in self.said and number in self.keys:
                    self.verdicts[self.keys[number]] = passed, submission.clean(text)[:MOST_SAID]
                    self._say(number, *self.verdicts[self.keys[number]])
            case ["stopped", str(number), [*why]] if number in self.checks:
                self._stop(number, in_words(why, self.job.seconds))
                box.tell(self.said[number])
            case ["said", _, None, str(text)] | ["fault", str(text)]:
                self.give_up(text)
            case ["cell", int(place), outputs] if self.ran is None:
                self.cell = place
                if isinstance(outputs, list):
                    self.outputs[str(place)] = outputs
            case ["ran", [*why]] if self.ran is None:
                self._ran(_("and those above it together {why}").format(
                    why=in_words(why, self.job.seconds)) if why[:1] == ["wall"]
                    else in_words(why, self.job.seconds) if why else "")
                box.tell(self.outputs)
            case ["page", str(body)]:
                from tools.grading import page  # it needs nh3, which only grading installs
                self.result.page = page.document(self.job.stem, page.safe(body),
                                                 self.result.language)

    def ended(self, why: Sentence | str) -> None:
        """Record that the box is gone, with what it was working on."""
        why = why or _("ended its process ({code})").format(code="exit code 0")
        if self.at == "start":
            self.faults += 1
            if self.faults == ATTEMPTS:
                self.give_up(str(why))
        elif self.at == "reading":
            self.note(_("reading it: it {why}").format(why=why))
            self.at = "end"
        elif self.at in self.checks:
            self._stop(self.at, why)
        elif self.at == "executing" and self.ran is None:
            self._ran(why)
        elif self.at == "rendering":
            self.at = "end"
        if self.at == "end":
            self.result.whole = self.faults < ATTEMPTS
            if self.job.page and self.keys and not self.result.page:
                self.note(_("no page of feedback: making it took too long"))

    def give_up(self, why: str) -> None:
        """Record that this machine could not grade the job: not a grade, and worth a later try."""
        self.note(_("could not be graded ({why})").format(
            why=why[:200] or "its sandbox ended each time"))
        self.at, self.faults, self.result.whole = "end", ATTEMPTS, False

    def note(self, text: Sentence) -> None:
        """Add a line about the notebook."""
        self.result.notes.append(_("{number}: {text}").format(number=self.number, text=text))

    def _plan(self, keys: dict, notes: list, answers: dict, language: str) -> None:
        if not self.keys:
            self.result.language = language
            self.keys = {number: keys[number] for number in self.checks
                         if isinstance(keys.get(number), str)}
            for note in notes:
                match note:
                    case [str(kind), str(number)] if kind in NOTES and number in self.checks:
                        self.note(NOTES[kind].format(number=number))
            self.result.answers = {
                number: [submission.clean(answer[0]), submission.clean(answer[1])[:16]]
                for number in self.checks
                if isinstance(answer := answers.get(number), list) and len(answer) == 2}
            for number, key in self.keys.items():
                if key in self.verdicts:
                    self._say(number, *self.verdicts[key])

    def _say(self, number: str, passed: bool, text: str) -> None:
        self.said[number] = passed, text
        self.result.points[number] = self.checks[number].points if passed else 0
        self.result.words[number] = text

    def _stop(self, number: str, why: Sentence | str) -> None:
        """Record that an answer ended its process, or was ended."""
        if number not in self.said:
            self.note(_("the answer to {exercise} {why}").format(exercise=number, why=why))
            words = _("Exercise {number} ✗\n  the answer {why}").format(number=number, why=why)
            self._say(number, False, told(words, self.result.language))

    def _ran(self, why: Sentence | str) -> None:
        """Record that the notebook was executed for its page, as far as it got."""
        self.ran = [why] if why else []
        if why:
            self.note(_("a cell {why}; the page has no outputs from there on").format(why=why))
            words = told(_("this cell {why}; those below were not run for this page"
                           ).format(why=why), self.result.language)
            self.outputs[str(self.cell)] = [{"output_type": "error", "ename": "NotRun",
                                             "evalue": words, "traceback": [words]}]


def in_words(why: list[Any], seconds: float) -> Sentence | str:
    """Say why a part of a box gave no result, from the parts of Ended, which are not trusted."""
    match why:
        case ["code", int(code), _]:
            if code == -24:  # SIGXCPU
                return _("computed for more than {seconds} seconds").format(seconds=f"{seconds:g}")
            return of_code(128 - code if code < 0 else code)
        case ["heard", _, _]:
            return _("printed without end")
        case ["wall", _, _]:
            return _("ran for more than {seconds} seconds").format(seconds=f"{10 * seconds:g}")
        case ["asleep", _, _]:
            return _("waited {seconds} seconds for nothing").format(seconds=f"{seconds:g}")
        case ["raised", _, str(words)]:
            return _("stopped ({error})").format(error=submission.printable(words[:200]))
    return _("gave a verdict that is not the check's")
