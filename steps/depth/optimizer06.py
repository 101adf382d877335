"""Step optimizer06: Clipping by norm in the package's dress

Step 46a built clip_grad_norm_: all gradients together are one vector, and only its length is
changed. Here it takes tensors or an iterator of them, skips what has no gradient, and returns the
length before clipping, as a tensor.

The norm of several parts is the norm of their norms: (3, 4) and (12) have the norms 5 and 12, and
(5, 12) has the norm 13, as (3, 4, 12) has. So the gradients need not be concatenated. The 1e-6 in
the code avoids a division by zero.

The trap is the order. Before backward, the call would clip the gradients of the last batch.
(torch.nn.utils.clip_grad_norm_ returns the length before clipping, too. Programs print it: a length
that grows over time is an early sign of trouble.)

New: gradients_of, clip_grad_norm_.
Try: max_norm=1000 in the demo's run. Is it still saved?
"""

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.joining import stack
from tinytorch.ops.norm import norm

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
    """p = p - lr * gradient."""

    def __init__(self, params: Iterable, lr: float = 1e-3):
        if not lr >= 0:  # also nan, for which all comparisons are False
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {"lr": lr})

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            param -= group["lr"] * param.grad


def gradients_of(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The gradients of a tensor, or of those of several tensors that have one."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [param.grad for param in parameters if param.grad is not None]


@no_grad()
def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float) -> Tensor:
    """Shortens the gradient of all parameters, taken as one vector, to max_norm, and returns how
    long it was. The direction stays: only the length of the step changes."""
    grads = gradients_of(parameters)
    total = norm(stack([norm(grad) for grad in grads]))
    # Multiplied even by 1: to ask on a GPU whether it is 1 would cost more.
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor)
    return total


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.activation import Tanh
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import mse_loss
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed

    weights = [tensor([0.0]), tensor([0.0, 0.0]), tensor([0.0])]
    weights[0].grad, weights[1].grad = tensor([3.0]), tensor([0.0, 4.0])  # the third has none
    print("length", clip_grad_norm_(weights, 1.0).item())  # -> length 5.0
    print([[round(value, 3) for value in w.grad.tolist()] for w in weights[:2]])
    # -> [[0.6], [0.0, 0.8]]
    print("length", round(clip_grad_norm_(weights[1], 1.0).item(), 3))  # -> length 0.8
    print([round(value, 3) for value in weights[1].grad.tolist()])  # -> [0.0, 0.8]

    # A run that falls off a cliff: the target has one wild value.
    def run(max_norm):
        manual_seed(0)
        net = Sequential(Linear(1, 50), Tanh(), Linear(50, 1))
        optimizer = SGD(net.parameters(), lr=0.05)
        x = linspace(-1, 1, 20).reshape(-1, 1)
        for step in range(300):
            target = x * 3 + (1e6 if step == 100 else 0.0)  # one bad batch
            optimizer.zero_grad()
            mse_loss(net(x), target).backward()
            if max_norm:
                clip_grad_norm_(net.parameters(), max_norm)
            optimizer.step()
        return mse_loss(net(x), x * 3).item()

    fallen, saved = run(None), run(1.0)
    print(f"one bad batch in 300: loss {fallen:.3g}, with clipping {saved:.3g}")  # -> ...
    print("the run is saved:", saved < 0.05 and not fallen < 100)  # -> the run is saved: True
