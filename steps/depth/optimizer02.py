"""Step optimizer02: Parameter groups in the package's dress

Step 76a built groups: each part of a network with options of its own, the defaults for the rest.
Here add_param_group takes one more group at any time, and the optimizer prints its groups.

The trap: the optimizer keeps the dict that was passed in, not a copy of it. (PyTorch's
`param_groups` is the same list of dicts, and its repr prints the same lines.)

Changed: Optimizer, SGD. New: Optimizer.add_param_group, Optimizer.__repr__.
Try: param_group[name] = default in place of setdefault. Which line of the demo changes?
"""

import importlib
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Optimizer:
    """Base of all optimizers: it holds the parameters, a subclass says how they move.

    Args:
        params: an iterable of tensors, or of dicts, each a group with options of its own:
            [{"params": [...], "lr": 0.1}, ...].
        defaults: the options that a group gets where it has none.
    """

    def __init__(self, params: Iterable, defaults: dict[str, Any]):
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters; what it does not say, the defaults do."""
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        param_group["params"] = params
        for name, default in self.defaults.items():
            param_group.setdefault(name, default)
        self.param_groups.append(param_group)

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for group in self.param_groups:
            for param in group["params"]:
                param._grad = None

    def step(self) -> None:
        """Moves the parameters once, along the gradients that they have now."""
        with no_grad():
            for group in self.param_groups:
                active = [param for param in group["params"] if param._grad is not None]
                if active:
                    self.update(active, group)

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Moves these parameters of one group. Subclasses write it, or a `step` of their own."""
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for number, group in enumerate(self.param_groups):
            text += f"\nParameter Group {number}\n"
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
        return text + ")"


class SGD(Optimizer):
    """p = p - lr * gradient."""

    def __init__(self, params: Iterable, lr: float = 1e-3):
        super().__init__(params, {"lr": lr})

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            param -= group["lr"] * param.grad


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    old, new = Linear(2, 2), Linear(2, 1)
    optimizer = SGD([{"params": old.parameters(), "lr": 0}, {"params": new.parameters()}], lr=0.1)
    print(optimizer)
    # -> SGD (
    # -> Parameter Group 0
    # ->     lr: 0
    # -> Parameter Group 1
    # ->     lr: 0.1
    # -> )

    def moved(optimizer):
        """What a step moves: the weight of the old layer, that of the new one?"""
        before = [layer.weight.detach().clone() for layer in (old, new)]
        optimizer.zero_grad()
        new(old(randn(8, 2))).square().mean().backward()
        optimizer.step()
        pairs = zip((old.weight, new.weight), before, strict=True)
        return [bool((p != q).any()) for p, q in pairs]

    print("moved:", moved(optimizer))  # -> moved: [False, True]
    # A plain list is one group. The rate of a group may change at any time.
    optimizer = SGD([*old.parameters(), *new.parameters()], lr=0.1)
    print(len(optimizer.param_groups), moved(optimizer))  # -> 1 [True, True]
    optimizer.param_groups[0]["lr"] = 0.0
    print(moved(optimizer))  # -> [False, False]

    # A group of one tensor, added later. The optimizer keeps this very dict.
    scale = tensor([2.0], requires_grad=True)
    group = {"params": scale, "lr": 0.5}
    optimizer.add_param_group(group)
    print(group["params"] == [scale], group is optimizer.param_groups[1])  # -> True True
    scale.grad = tensor([1.0])
    optimizer.step()
    print(scale.tolist(), [group["lr"] for group in optimizer.param_groups])  # -> [1.5] [0.0, 0.5]
    try:
        Optimizer([scale], {}).step()
    except NotImplementedError as error:
        print(error)  # -> Optimizer has no update
