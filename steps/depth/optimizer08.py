"""Step optimizer08: Gradient clipping: infinite gradients

A gradient of inf has the length inf. 1 / inf is 0, and inf * 0 is nan: after the clipping of step
optimizer07 this weight becomes nan in the next step, and the loss with it, many lines away from the
cause. All other gradients become 0.

With error_if_nonfinite=True the clipping itself raises an error, before any gradient has been
changed. Then the program can leave this batch out, or save what it has.

    inf, nan                a division by a small number, log(0), a float16 beyond 65,504
    total.isfinite()        one number tells it for all gradients

The trap: the default is False, as in PyTorch: on a GPU, `if` has to wait for the number.

(`foreach` chooses among PyTorch's implementations. There is one here, so it changes nothing.)

Changed: get_total_norm, clip_grad_norm_.
Try: leave error_if_nonfinite out of the demo's call. What do the gradients become?
"""

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
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
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors, taken as one vector.

    `foreach` selects an implementation in PyTorch. Here and below it changes nothing.
    Raises:
        RuntimeError: with error_if_nonfinite, where the norm is nan or inf.
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)  # "inf" is a number, too
    if not tensors:
        return tensor(0.0)
    total = norm(stack([norm(t, norm_type).to(tensors[0].device) for t in tensors]), norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(f"the total norm of order {norm_type} is non-finite: {total.item()}")
    return total


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Shortens the gradient of all parameters, taken as one vector, to max_norm, and returns how
    long it was. The direction stays: only the length of the step changes.

    Raises:
        RuntimeError: as get_total_norm.
    """
    grads = gradients_of(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    # Multiplied even by 1: to ask on a GPU whether it is 1 would cost more.
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor.to(device=grad.device, dtype=grad.dtype))
    return total


if __name__ == "__main__":
    import math

    def with_gradients(*gradients):
        weights = [tensor([0.0] * len(gradient)) for gradient in gradients]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = tensor(gradient)
        return weights

    # The question comes first: the gradients are as they were. Without it, one spoils all others.
    weights = with_gradients([3.0], [0.0, math.inf])
    try:
        clip_grad_norm_(weights, 1.0, error_if_nonfinite=True)
    except RuntimeError as error:
        print(error)  # -> the total norm of order 2.0 is non-finite: inf
    print([w.grad.tolist() for w in weights])  # -> [[3.0], [0.0, inf]]
    clip_grad_norm_(weights, 1.0)
    print([w.grad.tolist() for w in weights])  # -> [[0.0], [0.0, nan]]
