"""The compiler: traces a function into a graph, simplifies it, and generates code for it.

`tinytorch.compile` is its front door. It is imported when a program first asks for it.
"""

from tinytorch.compiler.api import compile, disable, explain, is_compiling, reset
