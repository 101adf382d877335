"""The compiler: traces a function into a graph, simplifies it, and generates code for it.

`tinytorch.compile` is its front door. It is imported when a program first asks for it.
"""

from tinytorch.compiler.api import compile, disable, is_compiling, reset
from tinytorch.compiler.compiled import Unsupported
from tinytorch.compiler.explain import explain
