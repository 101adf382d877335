"""Arguments of a wrong type: what PyTorch says of them, asked after a call has failed."""

import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np


def expected_type(value: Any, annotation: Any) -> str | None:
    """What an argument is not, but should be by the annotation of its parameter: "Tensor", "int" or
    "float". None if it is as it should be, and for other annotations, which are not checked."""
    kinds = annotation.__args__ if isinstance(annotation, types.UnionType) else (annotation,)
    names = [getattr(kind, "__name__", "") for kind in kinds if kind is not types.NoneType]
    if names not in (["Tensor"], ["int"], ["float"]) or (value is None and types.NoneType in kinds):
        return None
    if names == ["Tensor"]:
        return None if isinstance(value, annotation) else "Tensor"
    if names == ["float"]:
        return None if hasattr(value, "__float__") else "float"  # 1j has not
    try:
        operator.index(value)
        return "int" if isinstance(value, (bool, np.ndarray)) else None
    except TypeError:
        return "int"


def not_an_integer(value: Any) -> TypeError:
    """The error for a value that should be an integer. It names the function and the argument: the
    outermost function of this package that has the value among its arguments."""
    where, package, frame = "argument", __name__.partition(".")[0], sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        names, varargs, _, given = inspect.getargvalues(frame)
        for name in (*names, varargs):
            each = given.get(name)
            held = each is value or (type(each) in (tuple, list) and any(x is value for x in each))
            if held and name != "args":  # those are a wrapper's
                function = frame.f_code.co_name
                function = type(given[names[0]]).__name__ if function == "__init__" else function
                where = f"{function}(): argument '{name}'"
                break
        frame = frame.f_back
    return TypeError(f"{where} must be int, not {type(value).__name__}")


def check_flag(argument: str, value: Any, function: str = "") -> None:
    """Checks an argument that is True or False.

    Raises:
        TypeError: it is another value, such as 1. The error names the outermost function of the
            caller's package that has an argument of this name, or else `function`.
    """
    if value is True or value is False:
        return
    frame = sys._getframe(1)
    package = frame.f_globals["__name__"].partition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        if argument in inspect.getargvalues(frame).args:
            function = frame.f_code.co_name
        frame = frame.f_back
    raise TypeError(f"{function}(): argument '{argument}' must be bool, not {value!r}")


def wrong_argument(function: Callable, args: tuple, kwargs: dict) -> TypeError | None:
    """PyTorch's error for the first argument that is not of its parameter's type, or None."""
    try:
        call = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:  # an argument is missing, or unknown: Python has said so
        return None
    parameters = call.signature.parameters
    for name, given in call.arguments.items():
        parameter, position = parameters[name], [*parameters].index(name) + 1
        for value in given if parameter.kind is parameter.VAR_POSITIONAL else (given,):
            kind = expected_type(value, parameter.annotation)
            if kind is not None:
                return TypeError(
                    f"{function.__name__}(): argument '{name}' (position {position}) must be "
                    f"{kind}, not {type(value).__name__}"
                )
    return None


# The type of a function, the same before and after: so editors know its arguments.
Called = TypeVar("Called", bound=Callable)


def checked(function: Called) -> Called:
    """The function, with its failures explained: TypeError if an argument is of a wrong type. A
    call that succeeds is not looked at, and pays for no check."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            wrong = wrong_argument(function, args, kwargs)
            if wrong is None:
                raise
            raise wrong from error

    return call
