"""Each mistake that a specification names, in the place of an answer: refused, and named."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from course.checks import exercises
from course.checks.say.messages import CheckFailed
from course.checks.spec.spec import Spec, check


def specifications() -> Iterator[Any]:
    for module in pkgutil.iter_modules(exercises.__path__):
        found = vars(importlib.import_module(f"{exercises.__name__}.{module.name}"))
        yield from (pytest.param(value, id=f"{module.name}{name}")
                    for name, value in list(found.items())
                    if isinstance(value, Spec) and value.named)


def said_of(spec: Spec, mistake: Callable[..., Any]) -> str | None:
    """Return the cause that a check names for a mistake; None where it passes."""
    def answer(**given: Any) -> Any:
        with np.errstate(all="ignore"), torch.no_grad():
            came, right = mistake(**given), np.asarray(spec.right(**given))
        return np.asarray(came).astype(right.dtype)
    try:
        check(dataclasses.replace(spec, form=lambda given: given, fault=()), answer)
    except CheckFailed as failed:
        return failed.parts[2]
    except (ValueError, RuntimeError, IndexError):  # as shapes do not fit: its own words are told
        return "raised"
    return None


@pytest.mark.parametrize("spec", list(specifications()))
def test_each_named_mistake_is_refused_and_named(spec: Spec) -> None:
    said = {hint: said_of(spec, mistake) for hint, mistake in spec.named.items()}
    assert said == {hint: hint for hint in said}
