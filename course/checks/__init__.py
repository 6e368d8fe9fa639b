"""What stands behind the exercises' check cells.

A check prints one line with a tick, or raises CheckFailed: the smallest input on which the answer
is wrong, what is expected and what came. It tests properties, never equality with our solution, so
that every right answer passes. A cause is named only where it is proved: the check recomputes the
result with that mistake, on fresh inputs too, and names it only if that gives all that came. Checks
run in a forked child where the system allows it, so that an answer that crashes or never ends costs
the reader's kernel nothing.

Seven rooms, each of which uses only those before it: `say` finds the words, in both languages;
`run` runs an answer; `compare` holds what it gave against what is right, and against what the usual
mistakes give; `observe` looks at what it made, did and called; `spec` makes a check of what is
right, and finds the smallest input on which an answer is not; `diagnose` finds why a whole model
differs from PyTorch's; `exercises` has the checks, a module a notebook.
"""

import helpers  # noqa: I001 (first: looks at the versions)
import course.checks.exercises
from course.checks.compare.tolerance import random
from course.checks.spec.spec import require_equal
from course.checks.diagnose.equivalence import check_equivalence
from course.checks.exercises.faulty import faulty_cnn, mended
from course.checks.observe.intermediates import is_layer
from course.checks.observe.primfuncs import run_prim_func
from course.checks.run.cells import watch_cells
from course.checks.run.check import accepted, isolated, registered
from course.checks.say.messages import CheckFailed, bound, reason

watch_cells()
# notebooks call checks.exercise_2_3(answer)
globals().update({exercise.function: exercise.check for exercise in registered.values()})
