"""Step compile28: tinytorch.compile and Module.compile

This completes the compiler. It needed little of the rest of the package: an array that records what
is done to it. The 150 operations and the backward pass are used as they are, because their formulas
call any array library (ctx.xp).

A program calls tinytorch.compile(model), or model.compile(). Most programs need no compiler, and it
should not make `import tinytorch` slower. So it is imported at the first use: Python calls a
module's `__getattr__` for a name that the module does not have.

model.compile() is for programs that cannot put another object in the place of the model, for
example because an optimizer or a file knows it already. The model stays the same object, and the
keys of its state_dict have no prefix; only its forward is compiled. As in step compile21, an
attribute "forward" of the instance hides the method of the class:

    model(x)  ->  Module.__call__: hooks  ->  vars(model)["forward"]: a compiled function

The trap is a copy. A compiled function belongs to one model: a deep copy that shares it would
compute with the weights of the original, and a file cannot hold it. Python asks `__getstate__` for
what a copy gets, and this leaves it out. The copy is not compiled.

PyTorch has the same method. It compiles the hooks of the module, too.

New: lazy.__getattr__, Module.compile, Module.__getstate__.
Try: leave out __getstate__. Which lines of the demo go wrong?
"""

import copy
import importlib
import pickle
from typing import Any

from tinytorch.nn.activation import ReLU
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.ops.random import manual_seed, randn


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


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods
    importlib.import_module("tinytorch.core.printing")

    print(__getattr__("compile").__module__)  # -> tinytorch.compiler.api
    print(__getattr__("compiler").__name__)  # -> tinytorch.compiler
    try:
        __getattr__("compiles")
    except AttributeError as error:
        print(error)  # -> module 'tinytorch' has no attribute 'compiles'

    manual_seed(0)
    model, x = Sequential(Linear(4, 8), ReLU(), Linear(8, 2)), randn(3, 4)
    keys, expected = list(model.state_dict()), model(x)
    model.compile(fullgraph=True)
    print("as before:", (model(x) - expected).abs().max().item() < 1e-6)  # -> as before: True
    print("the same keys:", list(model.state_dict()) == keys)  # -> the same keys: True
    compiled = model.forward.compiled
    print("graphs:", compiled.count, "fullgraph:", compiled.fullgraph)
    # -> graphs: 1 fullgraph: True

    twin, loaded = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    model[0].weight.data.zero_()
    for other in (twin, loaded):
        print("forward" in vars(other), (other(x) - expected).abs().max().item() < 1e-6)
    # -> False True
    # -> False True

    model.compile(dynamic=False)  # once more, with other options
    print(model.forward.compiled.fullgraph, model(x).shape)  # -> False tinytorch.Size([3, 2])
