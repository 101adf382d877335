"""Names of the package that are imported when a program first asks for them."""

import importlib
from typing import Any


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
