"""Step func02: functional_call: tied weights

An autoencoder may use one matrix in both directions, and a language model may use its embedding as
the last layer. Such a tensor has two names in the module. Given a value for one of them, step
func01 replaces it in one place; the other place goes on with the module's own, and half of the
gradient is lost without an error.

So a value for one name holds for all names of the same tensor:

    named_parameters(remove_duplicate=False)     a.weight and b.weight, one object
    {"a.weight": w}                              becomes {"a.weight": w, "b.weight": w}

Two different values for it make no sense, and are refused. tie_weights=False leaves each name as it
is given.

The trap: two tensors that are equal are not tied. They have to be one object.

New: tied. Changed: functional_call.
Try: tie the demo's weights by b.weight.data = a.weight.data. Are they tied for functional_call?
"""

import importlib
from collections.abc import Mapping
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


ABSENT = object()  # marks a name that the module did not have before the call


def tied(given: Mapping[str, Tensor], members: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is given for one name of a member, for its other names as well.

    Raises:
        ValueError: different tensors for names of one member.
    """
    values = dict(given)
    for name, value in given.items():
        for other, member in members.items():
            if member is members.get(name):
                if values.setdefault(other, value) is not value:
                    raise ValueError(f"{name} and {other} are tied, but got different tensors")
    return values


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor],
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
) -> Any:
    """module(*args, **kwargs), with these tensors in the place of its parameters and buffers.

    A dict of names; what it does not name stays. A buffer that the call replaces is replaced in the
    dict.
    """
    given = parameter_and_buffer_dicts
    members = dict(module.named_parameters(remove_duplicate=False))
    members.update(module.named_buffers(remove_duplicate=False))
    values = tied(given, members) if tie_weights else given
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    before = []
    try:
        for name, value in values.items():
            path, _, key = name.rpartition(".")
            part = module.get_submodule(path)
            where = part._store_of(key)
            store = part.__dict__[where] if where else part.__dict__
            before.append((name, store, key, store.get(key, ABSENT)))
            store[key] = value
        return module(*args, **kwargs or {})
    finally:
        for name, store, key, old in before:
            if name in given:
                given[name] = store[key]
            store[key] = old
            if old is ABSENT:
                del store[key]


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear

    importlib.import_module("tinytorch.core.printing")

    class Tied(Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Linear(2, 2, bias=False), Linear(2, 2, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.b(self.a(x))

    net, w = Tied(), tensor([[2.0, 0.0], [0.0, 3.0]])
    net.a.weight.data = tensor([[1.0, 0.0], [0.0, 1.0]])
    print([name for name, _ in net.named_parameters(remove_duplicate=False)])
    # -> ['a.weight', 'b.weight']
    x = tensor([1.0, 1.0])
    print("one of two:", functional_call(net, {"a.weight": w}, x, tie_weights=False).tolist())
    # -> one of two: [2.0, 3.0]
    print("tied:", functional_call(net, {"a.weight": w}, x).tolist())  # -> tied: [4.0, 9.0]
    print(net.b.weight is net.a.weight)  # -> True
    try:
        functional_call(net, {"a.weight": w, "b.weight": w * 2}, x)
    except ValueError as error:
        print(error)  # -> a.weight and b.weight are tied, but got different tensors
