"""Step layers11: ParameterList and ParameterDict

A module may own many parameters outside of layers: one matrix for each depth, or two thin matrices
for each adapted layer. In a plain Python list they are hidden, as modules were (step module01): the
optimizer gets none of them, and the state does not contain them. The demo counts 0.

ModuleList refuses them, because a parameter is not a module. But a list works the same way for
both; only the dictionary differs in which the members are stored:

    ModuleList      _modules        names 0, 1, 2, ...   in the tree, with parts of their own
    ParameterList   _parameters     names 0, 1, 2, ...   at the leaves

The containers of step module15 use the dictionary that `_store` names, and here it is
"_parameters". The inherited methods (append, +=, slices, items, update) work at once.

A plain tensor becomes a Parameter when it is added, as in PyTorch. The trap: the Parameter is a new
object. The tensor that you passed does not get the gradient; list[0] does.

New: ParameterList and ParameterDict. Moved: dropout, to tinytorch/nn/dropout.py.
Try: remove `_store`. What does the list refuse?
"""

import importlib
from collections.abc import Iterable
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.container import DictContainer, ListContainer
from tinytorch.nn.parameter import Parameter

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class ParameterContainer:
    """What a list and a dictionary of parameters share. Plain tensors become parameters."""

    _store = "_parameters"

    def _register(self, store: str, name: str, value: Any) -> None:
        plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
        super()._register(store, name, Parameter(value) if plain else value)

    def extra_repr(self) -> str:
        lines = []
        for name, param in self._parameters.items():
            size = "x".join(map(str, param.shape))
            lines.append(f"  ({name}): Parameter containing: [{param.dtype!r} of size {size}]")
        return "\n".join(lines)


class ParameterList(ParameterContainer, ListContainer):
    """A list of parameters."""

    def __init__(self, values: Iterable[Tensor] | None = None):
        super().__init__()
        self.extend(() if values is None else values)


class ParameterDict(ParameterContainer, DictContainer):
    """Parameters by name."""

    def __init__(self, parameters: Any = None):
        super().__init__()
        self.update({} if parameters is None else parameters)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
    from tinytorch.nn.module import Module
    from tinytorch.ops.creation import ones
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    class Stack(Module):
        """x times each matrix in turn."""

        def __init__(self, kind):
            super().__init__()
            self.matrices = kind([Parameter(randn(2, 2)) for _ in range(3)])

        def forward(self, x):
            for matrix in self.matrices:
                x = (x @ matrix).tanh()
            return x

    print(len(list(Stack(list).parameters())), "parameters in a plain list")
    # -> 0 parameters in a plain list
    net = Stack(ParameterList)
    print([name for name, _ in net.named_parameters()])
    # -> ['matrices.0', 'matrices.1', 'matrices.2']
    net(randn(4, 2)).sum().backward()
    print(all(p.grad is not None for p in net.parameters()), list(net.state_dict())[-1])
    # -> True matrices.2

    # A plain tensor becomes a parameter, and a list it is.
    plain = ones(2, 3)
    net.matrices.append(plain)
    print(type(net.matrices[-1]).__name__, net.matrices[-1] is plain)  # -> Parameter False
    print(net.matrices[2:])
    # -> ParameterList(
    # ->     (0): Parameter containing: [tinytorch.float32 of size 2x2]
    # ->     (1): Parameter containing: [tinytorch.float32 of size 2x3]
    # -> )

    # Adapters by the name of the layer that they change.
    adapters = ParameterDict({"query": ones(4, 1)})
    adapters["value"] = ones(1, 4)
    print(sorted(adapters.keys()), sum(p.numel() for p in adapters.parameters()))
    # -> ['query', 'value'] 8
    del adapters["query"]
    print("query" in adapters, len(ParameterList()), len(ParameterDict()))  # -> False 0 0
