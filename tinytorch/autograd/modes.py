"""What holds for a while on one thread: recording on or off, and who sees each call first."""

import copy
import functools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor, tensor_method


class ThreadState(threading.local):
    """The modes of one thread. Another thread starts with its own, at these values."""

    grad_enabled = True
    inference = False
    modes: tuple["FunctionMode", ...] = ()  # the last one is asked first

    def __init__(self):
        # 1 / 0 is inf and log(-1) is nan, in silence, as in PyTorch. NumPy keeps this per thread.
        np.seterr(all="ignore")


thread = ThreadState()


# Not empty once a thread was in inference mode: only then does anybody look for its tensors.
inference_seen: set[bool] = set()
# All modes that are open, on whatever thread: while there is none, no call has to ask its thread.
open_modes: list["FunctionMode"] = []


class GradSwitch:
    """A context manager and a decorator that sets whether operations are recorded."""

    enabled: bool
    before: tuple = ()  # the values outside: several, for an object that is entered inside itself

    def __enter__(self) -> None:
        self.before = (*self.before, (thread.grad_enabled, thread.inference))
        thread.grad_enabled = self.enabled and not thread.inference

    def __exit__(self, *exception: Any) -> None:
        thread.grad_enabled, thread.inference = self.before[-1]
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
        self.outside = thread.grad_enabled
        thread.grad_enabled = self.enabled

    def __enter__(self) -> None:
        thread.grad_enabled = self.outside  # what __exit__ is to come back to
        GradSwitch.__enter__(self)

    def __call__(self, function: Callable) -> Callable:
        thread.grad_enabled = self.outside  # as a decorator it holds for the calls only
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
    """no_grad, and what is made inside can never enter a graph: RuntimeError where it is tried."""

    def __new__(cls, mode: Any = True):
        switch = object.__new__(cls)
        switch.inference = switch.enabled = mode if isinstance(mode, bool) else True
        return switch(mode) if callable(mode) else switch

    def __enter__(self) -> None:
        GradSwitch.__enter__(self)
        thread.grad_enabled, thread.inference = not self.inference, self.inference
        inference_seen.add(True)


def is_grad_enabled() -> bool:
    return thread.grad_enabled


def is_inference_mode_enabled() -> bool:
    return thread.inference


@tensor_method("_watched")
def watched(self: Tensor) -> bool:
    """Whether a graph watches what is done to this tensor now."""
    return self.requires_grad and thread.grad_enabled


class FunctionMode:
    """Someone who stands between the call of an operation and its Function.

    While `with mode:` is open on this thread, each Function.apply becomes a mode.call(function,
    args), which may look, count, change the arguments or answer itself. function.apply(*args) goes
    on to the next mode, and at last to the function. Autocast, profiler and compiler enter here.
    """

    def call(self, function: type, args: tuple) -> Any:
        return function.apply(*args)

    def __enter__(self) -> "FunctionMode":
        thread.modes = (*thread.modes, self)
        open_modes.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        thread.modes = thread.modes[:-1]
        open_modes.remove(self)


def call_through_modes(function: type, args: tuple) -> Any:
    """Asks the innermost mode; what it calls meets the modes outside it only."""
    stack = thread.modes
    thread.modes = stack[:-1]
    try:
        return stack[-1].call(function, args)
    finally:
        thread.modes = stack
