"""Compiled functions side by side, by their titles: a specification of what each gives.

Their inputs keep their shapes: the smallest has most zeros.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

from course.checks.compare.tolerance import ATOL, to_numpy
from course.checks.observe.guard_pages import guarded
from course.checks.run.answer import line_of_answer
from course.checks.say.messages import CheckFailed, place_in_script, reason
from course.checks.spec.evidence import Mistakes, Spec
from course.checks.spec.shrink import Inputs
from course.words import _

Main = Callable[..., Any]  # a compiled function of TVM's tensors


@contextlib.contextmanager
def naming(title: str, runs: bool = True) -> Iterator[None]:
    """Raise CheckFailed with a title where a check does, and where an answer raises, if it runs."""
    try:
        yield
    except NotImplementedError:
        raise
    except CheckFailed as failed:
        expected, came, look_at = failed.parts
        raise CheckFailed(_("; ").join([expected, title]), came or None, look_at) from None
    except Exception as error:  # whatever the answer raises
        if not runs:
            raise
        raise CheckFailed(_("your code to run; {title}").format(title=title), reason(error),
                          place_in_script(error) or line_of_answer(error)) from None


def fenced(machine: relax.VirtualMachine, mod: tvm.IRModule, name: str = "main") -> Main:
    """Return a function of a machine, whose kernels run on guarded arrays."""
    def run(*given: Any) -> Any:
        with guarded(machine, mod):
            return machine[name](*given)
    return run


def result(main: Main, *arrays: np.ndarray, title: str) -> np.ndarray:
    """Return what a compiled function gives; raises CheckFailed where it does not run."""
    try:
        came = main(*map(tvm.runtime.tensor, arrays))
    except (ValueError, TypeError, RuntimeError) as error:
        raise CheckFailed(_("a module that runs; {title}").format(title=title),
                          reason(error)) from None
    return to_numpy(came)


def compiled(what: Mapping[str, Any], right: Callable[..., torch.Tensor],
             arrays: Mapping[str, Sequence[Sequence[np.ndarray]]],
             atol: float | Callable[[Inputs], float] = ATOL, named: Mistakes | None = None) -> Spec:
    """Return the specification of compiled functions, which an answer has by their titles.

    `right`, and the formulas of mistakes, take `what` stands under a title, and tensors; `arrays`
    has under each title the inputs of several calls.
    """
    def tensors(given: Inputs) -> tuple[Any, ...]:
        title, *inputs = given.values()
        return what[title], *map(torch.from_numpy, inputs)
    return Spec(
        lambda mains: lambda program, **inputs: result(
            mains[program], *inputs.values(), title=program),
        lambda **given: right(*tensors(given)).numpy(),
        lambda: ({"program": title, **{f"x{place}": x for place, x in enumerate(inputs)}}
                 for title, every in arrays.items() for inputs in every),
        named=named or {}, formula=tensors, atol=atol)
