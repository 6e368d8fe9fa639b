"""What an answer is called with: told before its first call, for then the reader's it is."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tvm_ffi

from course.checks.run.answer import line_at
from course.checks.say.messages import CheckFailed
from course.words import _


@functools.cache
def _form(form: str) -> tuple[str, inspect.Signature]:
    """Return the name and the signature in "leaky_relu(x, slope)"."""
    name, _open, parameters = form.removesuffix(")").partition("(")
    return name, inspect.signature(eval(f"lambda {parameters}: None"))


def name_in(form: str) -> str:
    """Return the name of an answer: leaky_relu, of "leaky_relu(x, slope)"."""
    return _form(form)[0]


def plain(answer: Callable) -> inspect.Signature | None:
    """Return a function's signature without types, not what it wraps; None: it is not known."""
    try:
        found = inspect.signature(answer, follow_wrapped=False)
    except (ValueError, TypeError):
        return None
    return found.replace(return_annotation=inspect.Signature.empty, parameters=[
        one.replace(annotation=inspect.Parameter.empty) for one in found.parameters.values()])


def require_called_as(answer: Any, form: str, called: str = "") -> None:
    """Raise CheckFailed unless an answer is a function that runs when it is called as in `form`.

    What has a default value in `form` is handed over by its name, or not at all. `called`: the
    answer in messages, if not by its name.
    """
    name, wanted = _form(form)
    called = called or name
    # a te.Tensor is callable too
    if not callable(answer) or isinstance(answer, tvm_ffi.Object | tvm_ffi.Function):
        came = _("{called} is a function of TVM's, a tvm_ffi.Function") \
            if isinstance(answer, tvm_ffi.Function) else _("{called} is {value}")
        value = type(answer).__name__ if isinstance(answer, tvm_ffi.Object) else repr(answer)[:60]
        raise CheckFailed(_("a Python function, {form}").format(form=form),
                          came.format(called=called, value=value))
    yields = _("a generator function, because it has a yield")
    for found, says in ((inspect.isgeneratorfunction, yields),
                        (inspect.isasyncgenfunction, yields),
                        (inspect.iscoroutinefunction, _("an async def"))):
        if found(answer):
            raise CheckFailed(_("{called} to run when it is called").format(called=called),
                              _("{says}: calling it runs none of its lines").format(says=says))
    given = plain(answer)
    if given is None:
        return
    places = [one for one in wanted.parameters.values() if one.default is one.empty]
    named = {one.name: one.default for one in wanted.parameters.values() if one not in places}
    try:
        for options in (named, {}):
            given.bind(*places, **options)
    except TypeError:
        code = getattr(answer, "__code__", None)
        line = line_at(code.co_filename, code.co_firstlineno) if code else ""
        handed = ", ".join([one.name for one in places] + [f"{one}=..." for one in named])
        raise CheckFailed(_("a function that is called as {call}").format(
                              call=f"{name}({handed})"),
                          _("{called} takes {parameters}").format(called=called, parameters=given),
                          line if "def " in line else "") from None


def other_order(answer: Any, form: str) -> str:
    """Return the parameters of an answer where they are those in `form` in another order, or ""."""
    wanted, given = _form(form)[1], plain(answer) if callable(answer) else None
    names = list(given.parameters) if given else []
    return str(given) if names != list(wanted.parameters) \
        and sorted(names) == sorted(wanted.parameters) else ""
