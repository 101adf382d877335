"""Step optimizer05: Named parameters in an optimizer

A group is a list of tensors, and a tensor has no name. An optimizer of a network with 148
parameters prints "lr: 0.1". Which of them are the biases? To which layer does the parameter with
the huge gradient belong?

A module has the names: `named_parameters()` yields pairs (name, tensor). So an optimizer accepts
such pairs, too. It splits them, and stores the names in the group as the option "param_names", in
the order of the tensors. Like other options they are printed, and saved (step optimizer14).

    params        [weight, bias]
    param_names   ["0.weight", "0.bias"]

With names for only some parameters the two lists would not match: name 3 could belong to parameter
5. So either all parameters of all groups have names, or none.

(PyTorch's optimizers take named parameters in the same way.)

Changed: Optimizer.__init__ (its text), Optimizer.add_param_group.
Try: remove the check `if len(names) < len(params)`. Which error comes instead?
"""

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor

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


if __name__ == "__main__":
    from tinytorch.nn.modules.activation import Tanh
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    net = Sequential(Linear(2, 3), Tanh(), Linear(3, 1))
    optimizer = SGD(net.named_parameters(), lr=0.1)
    group = optimizer.param_groups[0]
    print(group["param_names"])  # -> ['0.weight', '0.bias', '2.weight', '2.bias']
    net(randn(4, 2)).sum().backward()
    optimizer.step()  # the names change nothing for the rule

    # Which gradient is the largest?
    pairs = zip(group["param_names"], group["params"], strict=True)
    print(max((p.grad.abs().max().item(), name) for name, p in pairs)[1])  # -> 2.bias

    # Two groups by name: the weights, and the biases, which rest.
    named = list(net.named_parameters())
    weights = [pair for pair in named if pair[0].endswith("weight")]
    biases = [pair for pair in named if pair[0].endswith("bias")]
    print(SGD([{"params": weights}, {"params": biases, "lr": 0.0}], lr=0.1))
    # -> SGD (
    # -> Parameter Group 0
    # ->     lr: 0.1
    # ->     param_names: ['0.weight', '2.weight']
    # -> Parameter Group 1
    # ->     lr: 0.0
    # ->     param_names: ['0.bias', '2.bias']
    # -> )

    for wrong in ([named[0], named[1][1]], [{"params": weights}, {"params": [named[1][1]]}]):
        try:
            SGD(wrong)
        except ValueError as error:
            print(str(error).split(". ")[1])
    # -> Some param names are missing
    # -> cannot add param group without names to the optimizer
