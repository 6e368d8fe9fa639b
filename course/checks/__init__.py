"""What stands behind the exercises' check cells.

A check prints one line with a tick, or raises CheckFailed: what was expected, what came, what to
look at. It tests properties, never equality with our solution, so that every right answer passes.
A named cause is verified: the check recomputes the result with that mistake and names it only if
that gives what came. Checks run in a forked child where the system allows it, so that an answer
that crashes or never ends costs the reader's kernel nothing.

Six rooms, each of which uses only those before it: `say` finds the words, in both languages; `run`
runs an answer; `compare` holds what it gave against what is right, and against what the usual
mistakes give; `observe` looks at what it made, did and called; `diagnose` finds why a whole model
differs from PyTorch's; `exercises` has the checks, a module a notebook.
"""

import helpers  # noqa: I001 (first: looks at the versions)
import course.checks.exercises
from course.checks.compare.trials import require_equal, random
from course.checks.diagnose.module import check_equivalence
from course.checks.exercises.faulty import faulty_cnn, mended
from course.checks.observe.intermediates import is_layer
from course.checks.observe.primfuncs import run_prim_func
from course.checks.run.cells import watch_cells
from course.checks.run.check import accepted, isolated, registered
from course.checks.say.messages import CheckFailed, bound, reason

watch_cells()
# notebooks call checks.exercise_2_3(answer)
globals().update({exercise.function: exercise.check for exercise in registered.values()})
