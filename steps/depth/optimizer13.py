"""Step optimizer13: One function checks all options

SGD(params, momentum=-0.9) is accepted, and moves away from the minimum; so is weight_decay=-1. Each
number needs its test. And each option is written three times: in the signature, in its test, and in
the dict of defaults. It is easy to forget one of them.

locals() at the beginning of a function is the dict of its arguments. So a constructor begins with

    options = checked(locals())

and an option is written only in the signature. `checked` removes what is not an option: self,
params, and __class__, which Python adds to a method that calls super(). It checks the others by
name, with one table for all optimizers: NOT_NEGATIVE already lists the options of steps rules01 to
rules12. Its values are the words of PyTorch's messages.

Programs also pass options of PyTorch that do not exist here. Some of them change the result:
amsgrad and centered change the formula, differentiable computes gradients through a step. False,
their default, is accepted, and True is refused: ignoring it would give wrong numbers without an
error. Others only choose among PyTorch's implementations, and are ignored.

A rate may be a tensor. It must have one element, so that it can be compared with 0.

The trap: locals() has to come first. A variable that is set before it would become an option.

Changed: SGD.__init__. New: NOT_NEGATIVE, NOT_SUPPORTED, checked.
Try: write `small = lr < 1e-6` above `checked(locals())`, and print the optimizer.
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


# The options that are numbers of at least 0, and what PyTorch's message calls them.
NOT_NEGATIVE = {
    **{name: f"{name} value" for name in ("momentum", "weight_decay", "alpha", "lr_decay")},
    "initial_accumulator_value": "initial_accumulator_value value",
    "lr": "learning rate",
    "eps": "epsilon value",
}


# Options of PyTorch that are not implemented: they are there for their default, False.
NOT_SUPPORTED = ("amsgrad", "centered", "differentiable")


def checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options of an optimizer: its __init__ passes locals(), its arguments by their names.

    foreach, fused and capturable choose between PyTorch's implementations. There is one here, so
    they change nothing.
    Raises:
        ValueError: for a number below 0.
        RuntimeError: for an option of NOT_SUPPORTED that is True.
    """
    options = {k: v for k, v in arguments.items() if k not in ("self", "params", "__class__")}
    if isinstance(options["lr"], Tensor) and options["lr"].numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    for name, says in NOT_NEGATIVE.items():
        if name in options and not options[name] >= 0:
            raise ValueError(f"Invalid {says}: {options[name]}")
    for name in NOT_SUPPORTED:
        if options.get(name):
            raise RuntimeError(f"{name}=True is not supported")
    return options


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
        d = v, or g + momentum * v with nesterov

    Source: Sutskever et al., On the importance of initialization and momentum, 2013.
    Raises:
        ValueError: for a negative option, and for nesterov without momentum.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        differentiable: bool = False,
    ):
        options = checked(locals())
        if nesterov and momentum <= 0:
            raise ValueError("Nesterov momentum requires a momentum")
        super().__init__(params, options)

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            g = param.grad
            if group["weight_decay"]:
                g = g + group["weight_decay"] * param
            if group["momentum"]:
                state = self.state[param]
                v = state.get("momentum_buffer", 0 * g)
                v = state["momentum_buffer"] = group["momentum"] * v + g
                g = g + group["momentum"] * v if group["nesterov"] else v
            param -= group["lr"] * g


if __name__ == "__main__":
    import math

    from tinytorch.core.tensor import tensor

    p = tensor([1.0], requires_grad=True)
    wrong = (
        {"momentum": -0.9},
        {"weight_decay": math.nan},
        {"lr": -1.0},
        {"lr": tensor([0.1, 0.2])},
        {"differentiable": True},
        {"nesterov": True},
    )
    for options in wrong:
        try:
            SGD([p], **options)
        except (ValueError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> ValueError: Invalid momentum value: -0.9
    # -> ValueError: Invalid weight_decay value: nan
    # -> ValueError: Invalid learning rate: -1.0
    # -> ValueError: Tensor lr must be 1-element
    # -> RuntimeError: differentiable=True is not supported
    # -> ValueError: Nesterov momentum requires a momentum

    optimizer = SGD([p], lr=tensor(0.1), momentum=0.9)
    print(list(optimizer.defaults))
    # -> ['lr', 'momentum', 'weight_decay', 'nesterov', 'differentiable']
