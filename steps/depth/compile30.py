"""Step compile30: tinytorch.compile and Module.compile

This completes the compiler. It needed little of the rest of the package: an array that records what
is done to it. The 150 operations and the backward pass are used as they are, because their formulas
call any array library (ctx.xp).

A program calls tinytorch.compile(model), or model.compile(). Most programs need no compiler, and it
should not make `import tinytorch` slower. So it is imported at the first use: Python calls a
module's `__getattr__` for a name that the module does not have. This one stands in
tinytorch/__init__.py. It does the same for two more parts that many programs do without: datasets,
which brings Python's modules for networks (urllib, ssl), and distributions.

model.compile() is for programs that cannot put another object in the place of the model, for
example because an optimizer or a file knows it already (step module27). As in step compile21, an
attribute "forward" of the instance hides the method of the class:

    model(x)  ->  Module.__call__: hooks  ->  vars(model)["forward"]: a compiled function

The demo shows that the keys of the state_dict stay the same, and that a copy is not compiled.

The trap is an `import tinytorch.compiler` at the top of some module of the package: then each
program pays for it again, and only a measurement shows it.

PyTorch has torch.__getattr__ too, for torch.onnx and some inner parts.

New: `__getattr__`.
Try: raise KeyError in place of AttributeError. What would hasattr(tinytorch, "compiles") do?
"""

import copy
import importlib
import pickle

from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import manual_seed, randn


def __getattr__(name: str) -> object:
    """Names of the package that are imported when a program first asks for them. Python calls this
    for a name that a module does not have."""
    if name == "compile":
        return importlib.import_module("tinytorch.compiler.api").compile
    if name in ("compiler", "datasets", "distributions"):
        return importlib.import_module(f"tinytorch.{name}")
    raise AttributeError(f"module 'tinytorch' has no attribute '{name}'")


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
