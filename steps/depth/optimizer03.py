"""Step optimizer03: Optimizer: checking its arguments

Some mistakes never raise an error: the loop runs, the loss is printed, and nothing is learned.

    SGD([weight * 2], lr=0.1)             a result, not a leaf: it gets no gradient, never moves
    SGD([{"params": {weight, bias}}])     a set: its order differs from run to run
    SGD([], lr=0.1)                       the parameters of a model that did not register its layers
    SGD(model.parameters(), -1)           uphill; and a rate of nan makes every weight nan

The constructor raises the errors, because then the traceback shows the line that has to be changed.
It also refuses a tensor instead of a list of tensors: a tensor can be iterated over, and its rows
would be taken for parameters. The order of the parameters matters when an optimizer is saved (step
optimizer14). (SGD({weight, bias}), without a group, is taken all the same, as PyTorch takes it.)

An option can be mandatory: its default is the object `required`, and each group has to give a
value. None or 0 cannot mark this, because they are possible values of an option. (torch.optim has
`required` in its module optimizer; many optimizers outside PyTorch use it.)

The trap: `lr < 0` is False for nan, and so is `lr >= 0`. So the test is `not lr >= 0`.

Changed: Optimizer.__init__, Optimizer.add_param_group, SGD.__init__. New: Required, required.
Try: write `if lr < 0`, and find the refusal that the demo no longer sees.
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


class Required:
    """The default of an option that has none: each group of parameters has to give it a value."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = Required()


class Optimizer:
    """Base of all optimizers: it holds the parameters, a subclass says how they move.

    Args:
        params: an iterable of tensors, or of dicts, each a group with options of its own:
            [{"params": [...], "lr": 0.1}, ...].
        defaults: the options that a group gets where it has none.
    Raises:
        TypeError: for what is not an iterable of tensors.
        ValueError: for an empty list, and for a parameter that is not a leaf.
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
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param)}"
                )
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
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
        if not lr >= 0:  # also nan, for which all comparisons are False
            raise ValueError(f"Invalid learning rate: {lr}")
        super().__init__(params, {"lr": lr})

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            param -= group["lr"] * param.grad


if __name__ == "__main__":
    import math

    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.autograd.hooks")  # gives tensors retain_grad

    def refused(make):
        try:
            make()
        except (TypeError, ValueError) as error:
            print(f"{type(error).__name__}: {error}")

    weight = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    refused(lambda: SGD([weight], lr=-0.1))  # -> ValueError: Invalid learning rate: -0.1
    refused(lambda: SGD([weight], lr=math.nan))  # -> ValueError: Invalid learning rate: nan
    refused(lambda: SGD([]))  # -> ValueError: optimizer got an empty parameter list
    refused(lambda: SGD(weight))
    # -> TypeError: params argument given to the optimizer should be an iterable of Tensors or dicts
    refused(lambda: SGD([{"params": {weight}}]))
    # -> TypeError: optimizer parameters need to be organized in ordered collections
    refused(lambda: SGD([weight * 2]))  # -> ValueError: can't optimize a non-leaf Tensor
    refused(lambda: SGD([weight, 1.0]))
    # -> TypeError: optimizer can only optimize Tensors, but one of the params is <class 'float'>
    optimizer = SGD([weight], lr=0.1)
    refused(lambda: optimizer.add_param_group([weight]))
    # -> TypeError: param_group must be a dict, but got <class 'list'>

    # A result that keeps its gradient (step 65b) may be moved: the program wants it.
    result = weight * 2
    result.retain_grad()
    print(len(SGD([result]).param_groups))  # -> 1

    # An option without a default.
    class Bare(SGD):
        def __init__(self, params):
            Optimizer.__init__(self, params, {"lr": required})

    print(required)  # -> <required parameter>
    refused(lambda: Bare([weight]))
    # -> ValueError: a parameter group needs a value for lr: it has no default
    print(Bare([{"params": [weight], "lr": 0.5}]).param_groups[0]["lr"])  # -> 0.5
