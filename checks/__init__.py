"""What stands behind the exercises' check cells.

A check prints one line with a tick, or raises CheckFailed: what was expected, what came, what to
look at. It tests properties, never equality with our solution, so that every right answer passes.
A named cause is verified: the check recomputes the result with that mistake and names it only if
that gives what came. Checks run in a forked child where the system allows it, so that an answer
that crashes or never ends costs the reader's kernel nothing.

Shared: `answers` runs them, `saying` and `comparing` find the words, `mistakes` has the usual
mistakes of each layer, `equivalence` holds a whole model against PyTorch and `diagnosis` says where
they part; `memory` looks whether a program stays inside its buffers and its threads apart, and
`guarding` runs it on arrays that notice;
`primfuncs`, `schedules`, `importers`, `libraries` and `watching` look at what an answer made or
did, and `models` has the CNN from which exercises start. Each notebook has a module with
its exercises; none of these needs another.
"""

import helpers  # noqa: I001 (first: looks at the versions)
from checks.answers import isolated
from checks.comparing import compare, random
from checks.equivalence import check_equivalence
from checks.primfuncs import run_prim_func
from checks.saying import CheckFailed, bound, reason
from checks.values import is_layer
from checks.notebook_00 import (exercise_0_1, exercise_0_2, exercise_0_3, exercise_0_4,
                                exercise_0_5, exercise_0_6)
from checks.notebook_01 import exercise_1_1, exercise_1_2, exercise_1_3
from checks.notebook_02 import (exercise_2_1, exercise_2_2, exercise_2_3, exercise_2_4,
                                exercise_2_5, exercise_2_6, exercise_2_7)
from checks.notebook_03 import (exercise_3_1, exercise_3_2, exercise_3_3, exercise_3_4,
                                exercise_3_5)
from checks.notebook_04 import (exercise_4_1, exercise_4_2, exercise_4_3, exercise_4_4,
                                exercise_4_5)
from checks.notebook_05 import (exercise_5_1, exercise_5_2, exercise_5_3, exercise_5_4,
                                exercise_5_5)
from checks.notebook_06 import (exercise_6_1, exercise_6_2, exercise_6_3, exercise_6_4)
from checks.notebook_07 import exercise_7_1, exercise_7_2
