"""Names of the package that are imported when a program first asks for them."""

import importlib
from typing import Any

from tinytorch.nn.module import Module


def __getattr__(name: str) -> Any:
    """tinytorch.compile and tinytorch.compiler: most programs do without a compiler.

    tinytorch/__init__.py imports this function. Python calls it for a name that a module does not
    have.
    """
    if name not in ("compile", "compiler"):
        raise AttributeError(f"module 'tinytorch' has no attribute '{name}'")
    if name == "compiler":
        return importlib.import_module("tinytorch.compiler")
    return importlib.import_module("tinytorch.compiler.api").compile


def compile_module(module: Module, *args: Any, **kwargs: Any) -> None:
    """Module.compile: compiles the forward of a module, which stays the same object.

    The arguments are those of tinytorch.compile. Hooks run before and after the compiled code. A
    copy of the module, also one in a file, is not compiled.
    """
    forward = module.forward
    if hasattr(forward, "compiled"):  # a second time: with other options
        forward = forward.__wrapped__
    vars(module)["forward"] = __getattr__("compile")(forward, *args, **kwargs)


def state_of_module(module: Module) -> dict[str, Any]:
    """Module.__getstate__: what a copy of a module gets; of a compiled forward it gets nothing."""
    compiled = hasattr(vars(module).get("forward"), "compiled")
    return {n: x for n, x in vars(module).items() if not (compiled and n == "forward")}


Module.compile = compile_module
Module.__getstate__ = state_of_module
