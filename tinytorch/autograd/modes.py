"""Modes: recording on or off, and objects that see every call before its Function does."""

import copy
import functools
from collections.abc import Callable
from typing import Any

from tinytorch.core.state import open_modes, state


class GradSwitch:
    """A context manager and a decorator that sets whether operations are recorded."""

    enabled: bool
    before: tuple = ()  # the values outside: several, for an object that is entered inside itself

    def __enter__(self) -> None:
        self.before = (*self.before, (state.grad_enabled, state.inference))
        state.grad_enabled = self.enabled and not state.inference

    def __exit__(self, *exception: Any) -> None:
        state.grad_enabled, state.inference = self.before[-1]
        self.before = self.before[:-1]

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args, **kwargs):
            with copy.copy(self):  # another thread may be in the same function
                return function(*args, **kwargs)

        return call


class set_grad_enabled(GradSwitch):
    """`set_grad_enabled(flag)` as a statement holds from now on, as a context until its end."""

    def __init__(self, mode: bool):
        self.enabled = bool(mode)
        self.outside = state.grad_enabled
        state.grad_enabled = self.enabled and not state.inference

    def __enter__(self) -> None:
        state.grad_enabled = self.outside  # what __exit__ is to come back to
        GradSwitch.__enter__(self)

    def __call__(self, function: Callable) -> Callable:
        state.grad_enabled = self.outside  # as a decorator it holds for the calls only
        return (enable_grad if self.enabled else no_grad)(function)


class no_grad(GradSwitch):
    """`with no_grad():` or `@no_grad()`: nothing inside is recorded for backward."""

    enabled = False

    def __new__(cls, function: Callable | None = None):
        # `@no_grad` without parentheses is a decorator too.
        switch = object.__new__(cls)
        return switch if function is None else switch(function)


class enable_grad(GradSwitch):
    """Records inside, also within a no_grad()."""

    enabled = True

    def __new__(cls, function: Callable | None = None):
        switch = object.__new__(cls)
        return switch if function is None else switch(function)


class inference_mode(GradSwitch):
    """`no_grad` by another name: tinytorch does not keep track of tensors made inside."""

    enabled = False

    def __new__(cls, mode: Any = True):
        switch = object.__new__(cls)
        switch.inference = mode if isinstance(mode, bool) else True
        return switch(mode) if callable(mode) else switch

    def __enter__(self) -> None:
        GradSwitch.__enter__(self)
        state.grad_enabled, state.inference = not self.inference, self.inference


def is_grad_enabled() -> bool:
    return state.grad_enabled


def is_inference_mode_enabled() -> bool:
    return state.inference


class FunctionMode:
    """An object that stands between the call of an operation and its Function.

    While `with mode:` is open on this thread, each Function.apply becomes mode.call(function,
    args), which may log, count, change the arguments or return a result of its own.
    function.apply(*args) calls the next mode, and in the end the function.
    """

    def call(self, function: type, args: tuple) -> Any:
        return function.apply(*args)

    def __enter__(self) -> "FunctionMode":
        state.modes = (*state.modes, self)
        open_modes.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        state.modes = state.modes[:-1]
        open_modes.remove(self)


def call_through_modes(function: type, args: tuple) -> Any:
    """Call the innermost mode. What it calls itself meets only the modes outside it."""
    stack = state.modes
    state.modes = stack[:-1]
    try:
        return stack[-1].call(function, args)
    finally:
        state.modes = stack
