"""Step optimizer04: The same parameter twice

Two layers may share a weight (step module03). `net.parameters()` lists it once, but a list made by
hand, [*first.parameters(), *second.parameters()], contains it twice, without an error.

In two groups the weight would have two rates, so that is refused. Within one group PyTorch only
warns, and moves it twice in each step. This class does the same.

"Moves twice" depends on the rule, however. SGD updates one parameter after the other, and so
updates this one twice. A rule that first computes all new values and then stores them, as those of
step rules06 do, stores the same value twice: one move. So if a group contains a parameter twice,
update gets the parameters one at a time, and all rules behave alike.

The trap is the comparison. `param in list` uses ==, which compares the elements of two tensors.
Here identity matters. A set finds it, because a tensor's hash is its id; elsewhere the code
compares ids.

(`stacklevel=3` lets the warning name the line that called the constructor of Optimizer.)

Changed: Optimizer.add_param_group, Optimizer.step.
Try: without the loop in step, which number of the demo changes?
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
        params: an iterable of tensors, or of dicts, each a group with options of its own:
            [{"params": [...], "lr": 0.1}, ...].
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
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear

    first, second = Linear(2, 2), Linear(2, 2)
    second.weight = first.weight
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SGD([*first.parameters(), *second.parameters()])
    print(caught[0].message)
    # -> optimizer contains a parameter group with duplicate parameters
    try:
        SGD([{"params": first.parameters()}, {"params": second.parameters()}])
    except ValueError as error:
        print(error)  # -> some parameters appear in more than one parameter group

    class Together(SGD):
        """Gradient descent that computes first, and then writes."""

        def update(self, params, group):
            moved = [param - group["lr"] * param.grad for param in params]
            for param, value in zip(params, moved, strict=True):
                param.copy_(value)

    warnings.simplefilter("ignore")
    for kind in (SGD, Together):
        p, q = tensor([0.0], requires_grad=True), tensor([0.0], requires_grad=True)
        p.grad = q.grad = tensor([1.0])
        kind([{"params": [p, p]}, {"params": [q]}], lr=1.0).step()
        print(kind.__name__, p.item(), q.item())
    # -> SGD -2.0 -1.0
    # -> Together -2.0 -1.0
