"""Step func13: torch.jit: decorators that leave a function as it is

Before compile (step compile04) PyTorch had another compiler, TorchScript. It reads the source of a
function, and runs it without Python:

    @torch.jit.script
    def gelu(x): ...                        if torch.jit.is_scripting(): ...

Many programs still have these lines. TorchScript computes what Python computes, only faster. So
`script` returns the function as it is, and the numbers are the same. `ignore` and `unused` mark
what the compiler should leave to Python, which here is everything.

The trap: is_scripting() must be False. Programs have a branch for True, which avoids what
TorchScript cannot do.

What would need the compiler itself is absent: `trace`, `save`, `load`, the graph of a function.

New: script, ignore, unused and the other decorators, annotate, is_scripting, is_tracing,
ScriptModule.
Try: import trace, and read the error.
"""

import importlib
from collections.abc import Callable
from typing import Any, Final  # noqa: F401 (offered here, as in PyTorch)

from tinytorch.nn.modules.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":

    @script
    def double(x: float) -> float:
        return 2 * x

    @ignore(drop=True)
    def first() -> str:
        return "one"

    @ignore
    def second() -> str:
        return "two"

    print(double(4.0), first(), second(), is_scripting(), is_tracing())
    # -> 8.0 one two False False
    print(annotate(list[int], []), isinstance(ScriptModule(), Module))  # -> [] True
