"""torch.jit: the names of PyTorch's older compiler. What they decorate runs as Python."""

from collections.abc import Callable
from typing import Any, Final  # noqa: F401 (offered here, as in PyTorch)

from tinytorch.nn.modules.module import Module


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """The function or module itself. TorchScript computes what Python computes, so nothing changes
    but the time that it takes; `tinytorch.compile` is the compiler of this package."""
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Callable:
    """A function that the compiler should leave to Python: here all of them, so itself. Written as
    @ignore or as @ignore(drop=True)."""
    return drop if callable(drop) else script


unused = export = script_method = script_if_tracing = _overload_method = script


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value, of which the compiler could not know the type: that of an empty list."""
    return the_value


def is_scripting() -> bool:
    """Whether TorchScript runs this code: never."""
    return False


def is_tracing() -> bool:
    """Whether TorchScript records this code: never."""
    return False


class ScriptModule(Module):
    """A module whose methods are compiled; here, a module."""
