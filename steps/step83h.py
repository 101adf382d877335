"""Step 83h: A module as a function of its parameters

Meta-learning takes a few steps of gradient descent inside the forward pass: p' = p - lr * g, then
the loss with p', and its gradient with respect to p. A module cannot do that: its parameters are
leaves, and `p.data = ...` would cut the graph between p and p'. Every layer would have to be
written again, as a function that is given its weights.

functional_call makes such a function of any module. A module finds its parameters in a dict (step
71d). So for the time of one call, the dict holds the given tensors, with their history:

    y = functional_call(module, {"weight": w, "bias": b}, (x,))

and the gradient of y flows to what w and b were computed from. Names that are not given keep the
module's own tensors.

Two traps. The old tensors have to come back even if forward raises: `finally`. And a tensor may
have two names, as an embedding that is also the last layer: a value for one name holds for both.

PyTorch's words: torch.func.functional_call. With torch.func.grad and vmap, which are not built
here, it makes the gradient of each sample.

New: functional_call, one_dict, tied.
Try: at the end, net.weight.data -= lr * g.detach(), then the loss and its gradient. Which factor of
2 (w' x - y) x (1 - 2 lr x^2) is missing?
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.module import Module

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
    from tinytorch.autograd.engine import grad
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.linear import Linear
    from tinytorch.nn.parameter import Parameter

    importlib.import_module("tinytorch.core.printing")

    # One step inside, then the derivative of the loss after it: 2 (w' x - y) x (1 - 2 lr x^2).
    net = Linear(1, 1, bias=False)
    net.weight = Parameter(tensor([[2.0]]))
    x, y, lr = tensor([[3.0]]), tensor([[1.0]]), 0.01
    inner = ((net(x) - y) ** 2).sum()
    (g,) = grad(inner, net.weight, create_graph=True)
    moved = {"weight": net.weight - lr * g}
    outer = ((functional_call(net, moved, (x,)) - y) ** 2).sum()
    print(f"{moved['weight'].item():.2f} {outer.item():.2f}")  # -> 1.70 16.81
    print(f"{grad(outer, net.weight)[0].item():.3f}", f"{2 * 4.1 * 3 * (1 - 0.18):.3f}")
    # -> 20.172 20.172
    print(net.weight.item())  # -> 2.0

    class Counter(Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Linear(2, 2, bias=False), Linear(2, 2, bias=False)
            self.b.weight = self.a.weight
            self.register_buffer("calls", tensor(0.0))

        def forward(self, x):
            self.calls = self.calls + 1
            return self.b(self.a(x))

    counter, state = Counter(), {"calls": tensor(5.0), "a.weight": tensor([[2.0, 0.0], [0.0, 3.0]])}
    print(functional_call(counter, state, tensor([1.0, 1.0])).tolist())  # -> [4.0, 9.0]
    print(state["calls"].item(), counter.calls.item())  # -> 6.0 0.0
    print(functional_call(net, [{"weight": x}, {"unknown": x}], (x,)).item())  # -> 9.0

    w = tensor([[1.0, 0.0], [0.0, 1.0]])
    for wrong, options in (
        (5, {}),
        (({"weight": w}, {"weight": w}), {}),
        ({"a.weight": w, "b.weight": w * 2}, {}),
        ({"calls": w}, {"strict": True}),
        ({"calls": 3}, {}),
    ):
        try:
            functional_call(counter, wrong, (w,), **options)
        except (ValueError, TypeError, RuntimeError) as error:
            print(error)
    # -> Expected a dict, or a list or tuple of dicts, but got <class 'int'>
    # -> ['weight'] appeared in multiple dictionaries: which one is meant?
    # -> a.weight and b.weight are tied, but got different tensors
    # -> missing or unexpected names for Counter: ['a.weight', 'b.weight']
    # -> 3 is not an instance of tinytorch.Tensor
