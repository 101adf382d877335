"""Step func01: A module as a function of its parameters

Meta-learning takes a few steps of gradient descent inside the forward pass: p' = p - lr * g, then
the loss with p', and its gradient with respect to p. A module cannot do that: its parameters are
leaves, and `p.data = ...` would cut the graph between p and p'. Every layer would have to be
written again, as a function that is given its weights.

functional_call makes such a function of any module. A module finds its parameters in a dict (step
module04). So for the time of one call, the dict holds the given tensors, with their history:

    y = functional_call(module, {"weight": w, "bias": b}, (x,))

and the gradient of y flows to what w and b were computed from. Names that are not given keep the
module's own tensors.

A forward may replace a buffer, as a running mean does. What it has put into the module's place goes
into the dict, and the module's own buffer comes back.

The trap: the old tensors have to come back even if forward raises: `finally`.

PyTorch's words: torch.func.functional_call. With func.grad (step func07) and vmap (step func11) it
gives the gradient of each sample.

New: functional_call. Moved: solve and inv, to tinytorch/linalg.py.
Try: at the end, net.weight.data -= lr * g.detach(), then the loss and its gradient. Which factor of
2 (w' x - y) x (1 - 2 lr x^2) is missing?
"""

import importlib
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


ABSENT = object()  # marks a name that the module did not have before the call


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor],
    args: Any = None,
    kwargs: dict | None = None,
) -> Any:
    """module(*args, **kwargs), with these tensors in the place of its parameters and buffers.

    A dict of names; what it does not name stays. A buffer that the call replaces is replaced in the
    dict.
    """
    given = parameter_and_buffer_dicts
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    before = []
    try:
        for name, value in given.items():
            path, _, key = name.rpartition(".")
            part = module.get_submodule(path)
            where = part._store_of(key)
            store = part.__dict__[where] if where else part.__dict__
            before.append((name, store, key, store.get(key, ABSENT)))
            store[key] = value
        return module(*args, **kwargs or {})
    finally:
        for name, store, key, old in before:
            given[name] = store[key]
            store[key] = old
            if old is ABSENT:
                del store[key]


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear
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

    # A buffer that forward replaces, and a name that the module does not have.
    class Counter(Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", tensor(0.0))

        def forward(self, x):
            self.calls = self.calls + 1
            return x * self.calls

    counter, state = Counter(), {"calls": tensor(5.0)}
    print(functional_call(counter, state, y).item())  # -> 6.0
    print(state["calls"].item(), counter.calls.item())  # -> 6.0 0.0
    print(functional_call(net, {"weight": x, "unknown": y}, (x,)).item())  # -> 9.0
    print(hasattr(net, "unknown"))  # -> False

    # An error in forward: the weight is back.
    try:
        functional_call(net, {"weight": tensor([1.0])}, (tensor([1.0, 2.0]),))
    except RuntimeError:
        print(net.weight.item())  # -> 2.0
