"""Step func03: functional_call: checking names and values

A misspelt name is not an error in step func01: "weigth" is put into the module for the time of the
call, nothing reads it, and the result is computed with the old weight. strict=True asks for exactly
the names of the module. (The default is False, as in PyTorch: often only some of the tensors are to
be replaced.)

The second mistake is a value that is not a tensor, such as the number 3. A layer would complain
about an argument that the program never gave; a forward that only multiplies would compute a
result, without a gradient. It is always refused.

Parameters and buffers often come in two dicts, since only the parameters are differentiated. So
several dicts are accepted, and made one. The trap: a name that is in two of them. One of the values
would be ignored, so this is an error, too.

New: one_dict. Changed: functional_call.
Try: functional_call(net, {"layer.weigth": w}, x) in the demo, without strict. What comes out?
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


ABSENT = object()  # marks a name that the module did not have before the call


def one_dict(dicts: Any) -> dict[str, Tensor]:
    """The dict, or several in one. Raises ValueError for a name that two of them have."""
    if isinstance(dicts, dict):
        return dicts
    if not isinstance(dicts, Sequence) or not all(isinstance(each, dict) for each in dicts):
        raise ValueError(f"Expected a dict, or a list or tuple of dicts, but got {type(dicts)}")
    names = [name for each in dicts for name in each]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice} appeared in multiple dictionaries: which one is meant?")
    return {name: value for each in dicts for name, value in each.items()}


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
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs), with these tensors in the place of its parameters and buffers.

    A dict of names, or several; what they do not name stays. A buffer that the call replaces is
    replaced in the dict.

    Raises:
        ValueError: a name comes twice.
        TypeError: what takes a place is not a Tensor.
        RuntimeError: with `strict`, the names are not exactly those of the module.
    """
    given = one_dict(parameter_and_buffer_dicts)
    members = dict(module.named_parameters(remove_duplicate=False))
    members.update(module.named_buffers(remove_duplicate=False))
    values = tied(given, members) if tie_weights else given
    if strict and values.keys() != members.keys():
        wrong = sorted(values.keys() ^ members.keys())
        raise RuntimeError(f"missing or unexpected names for {type(module).__name__}: {wrong}")
    for value in values.values():
        if not isinstance(value, Tensor):
            raise TypeError(f"{value} is not an instance of tinytorch.Tensor")
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

    class Counter(Module):
        def __init__(self):
            super().__init__()
            self.layer = Linear(2, 2, bias=False)
            self.register_buffer("calls", tensor(0.0))

        def forward(self, x):
            self.calls = self.calls + 1
            return self.layer(x)

    net, w = Counter(), tensor([[2.0, 0.0], [0.0, 3.0]])
    params, buffers, x = {"layer.weight": w}, {"calls": tensor(5.0)}, tensor([1.0, 1.0])
    print(functional_call(net, (params, buffers), x, strict=True).tolist())  # -> [2.0, 3.0]
    for wrong, options in (
        (5, {}),
        ((params, params), {}),
        ({"layer.weigth": w}, {"strict": True}),
        ({"layer.weight": 3}, {}),
    ):
        try:
            functional_call(net, wrong, x, **options)
        except (ValueError, TypeError, RuntimeError) as error:
            print(error)
    # -> Expected a dict, or a list or tuple of dicts, but got <class 'int'>
    # -> ['layer.weight'] appeared in multiple dictionaries: which one is meant?
    # -> missing or unexpected names for Counter: ['calls', 'layer.weight', 'layer.weigth']
    # -> 3 is not an instance of tinytorch.Tensor
