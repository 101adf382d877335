"""Step optimizer11: Weight decay in SGD: before the momentum

Step 45d has the decay of AdamW, apart from the gradient. SGD's is older: a penalty weight_decay / 2
* |p|^2 in the loss, which is never computed. Only its gradient is needed:

    g = g + weight_decay * p

The trap is the order. The decay is added to g before g goes into v, so v contains it, too. (PyTorch
does the same for SGD; step rules12 shows where it goes wrong.)

Changed: SGD.
Try: errors(1.0) in place of errors(0.1). Is the error at new points smaller still?
"""

import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import zero_

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Required:
    """The default of an option that has none: each group of parameters has to give it a value."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = Required()


class Optimizer:
    """Base of all optimizers: it holds the parameters, a subclass says how they move.

    Args:
        params: an iterable of tensors, of (name, tensor), or of dicts, each a group with options of
            its own: [{"params": [...], "lr": 0.1}, ...].
        defaults: the options that a group gets where it has none.
    Raises:
        TypeError: for what is not an iterable of tensors.
        ValueError: for an empty list, and for a parameter that is not a leaf or is in two groups.
    """

    def __init__(self, params: Iterable, defaults: dict[str, Any]):
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts"
            )
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters; what it does not say, the defaults do."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections")
        params = [params] if isinstance(params, Tensor) else list(params)
        names = [param[0] for param in params if isinstance(param, tuple)]
        if names:
            if len(names) < len(params):
                raise ValueError(
                    "all optimizer params should be with/without names. "
                    "Some param names are missing"
                )
            param_group["param_names"], params = names, [param for _, param in params]
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param)}"
                )
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        if len({id(param) for param in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters", stacklevel=3
            )
        known = {id(param) for other in self.param_groups for param in other["params"]}
        if any(id(param) in known for param in params):
            raise ValueError("some parameters appear in more than one parameter group")
        if any(bool(names) != ("param_names" in other) for other in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if names else 'without'} names to the optimizer"
            )
        param_group["params"] = params
        for name, default in self.defaults.items():
            if param_group.setdefault(name, default) is required:
                raise ValueError(f"a parameter group needs a value for {name}: it has no default")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients: None, or zeros in the same memory with set_to_none=False."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param._grad = None
                elif param.grad is not None:
                    param.grad = zero_(param.grad.detach())

    def step(self) -> None:
        """Moves the parameters once, along the gradients that they have now."""
        with no_grad():
            for group in self.param_groups:
                active = [param for param in group["params"] if param._grad is not None]
                if len(set(active)) < len(active):  # one that stands there twice moves twice
                    for param in active:
                        self.update([param], group)
                elif active:
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
    """p = p - lr * d, where d is the gradient, or what momentum makes of it.

        g = g + weight_decay * p
        v = momentum * v + g         (v = g at the first step)
        d = v

    Source: Sutskever et al., On the importance of initialization and momentum, 2013.
    Raises:
        ValueError: for a negative rate.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0,
        weight_decay: float = 0,
    ):
        if not lr >= 0:  # also nan, for which all comparisons are False
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            g = param.grad
            if group["weight_decay"]:
                g = g + group["weight_decay"] * param
            if group["momentum"]:
                state = self.state[param]
                v = state.get("momentum_buffer", 0 * g)
                g = state["momentum_buffer"] = group["momentum"] * v + g
            param -= group["lr"] * g


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.loss import mse_loss
    from tinytorch.ops.random import manual_seed, randn

    # As many numbers as data: 20 weights, of which 3 count, and 20 noisy points.
    manual_seed(0)
    truth = tensor([2.0, -1.0, 1.0] + [0.0] * 17)
    x, other = randn(20, 20), randn(500, 20)
    y = x @ truth + 0.5 * randn(20)

    def errors(weight_decay):
        """The error at the points it has learned from, and at others."""
        w = (0 * truth).requires_grad_()
        optimizer = SGD([w], lr=0.1, momentum=0.9, weight_decay=weight_decay)
        for _ in range(2000):
            optimizer.zero_grad()
            mse_loss(x @ w, y).backward()
            optimizer.step()
        return mse_loss(x @ w, y).item(), mse_loss(other @ w, other @ truth).item()

    plain, decayed = errors(0), errors(0.1)
    print(f"without: {plain[0]:.3f}, new points {plain[1]:.2f}")  # -> ...
    print(f"with it: {decayed[0]:.3f}, new points {decayed[1]:.2f}")  # -> ...
    print("worse at the old, better at the new:", plain[0] < decayed[0], plain[1] > decayed[1])
    # -> worse at the old, better at the new: True True

    # One step by hand: p = 10, g = 1, so d = 1 + 0.1 * 10.
    p = tensor([10.0], requires_grad=True)
    p.grad = tensor([1.0])
    SGD([p], lr=0.5, weight_decay=0.1).step()
    print(p.item())  # -> 9.0

    # With momentum the decay is in the velocity, too: v = 2, then 0.9 * 2 + 1 + 0.1 * 9.
    p = tensor([10.0], requires_grad=True)
    p.grad = tensor([1.0])
    optimizer = SGD([p], lr=0.5, momentum=0.9, weight_decay=0.1)
    for _ in range(2):
        optimizer.step()
    print(f"{p.item():.2f}, v = {optimizer.state[p]['momentum_buffer'].item():.2f}")
    # -> 7.15, v = 3.70
