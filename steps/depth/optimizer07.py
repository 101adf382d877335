"""Step optimizer07: Gradient clipping: the total norm of any order

Programs measure gradients by other norms than the length. norm_type is the p of
(sum of |g|^p)^(1/p); inf stands for the largest element. As in step optimizer06, the norm of the
norms is the norm, for each p. The norm alone is useful to monitor a training, so get_total_norm is
a function of its own.

Step optimizer06 fails in two cases. If no parameter has a gradient, `stack` gets an empty list; the
norm of nothing is 0. And gradients may be on several devices, and have several dtypes. Each norm is
a single number, so the norms are copied to the device of the first gradient, and the factor is
copied to each gradient's.

The trap: with p = inf, max_norm is the bound of the largest element, not of the length. The same
number clips much less.

(PyTorch: nn.utils.get_total_norm, and clip_grad_norm_(..., norm_type=...).)

Changed: clip_grad_norm_. New: get_total_norm.
Try: the norm for p = 20 in the demo. Which of the three is it close to, and why?
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
) -> Tensor:
    """The norm of all tensors, taken as one vector."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)  # "inf" is a number, too
    if not tensors:
        return tensor(0.0)
    return norm(stack([norm(t, norm_type).to(tensors[0].device) for t in tensors]), norm_type)


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
) -> Tensor:
    """Shortens the gradient of all parameters, taken as one vector, to max_norm, and returns how
    long it was. The direction stays: only the length of the step changes."""
    grads = gradients_of(parameters)
    total = get_total_norm(grads, norm_type)
    # Multiplied even by 1: to ask on a GPU whether it is 1 would cost more.
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor.to(device=grad.device, dtype=grad.dtype))
    return total


if __name__ == "__main__":
    import math

    from tinytorch.core.dtype import float64

    def with_gradients(*gradients):
        weights = [tensor([0.0] * len(gradient)) for gradient in gradients]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = tensor(gradient)
        return weights

    # Nothing to clip, other lengths, another dtype.
    print(clip_grad_norm_([tensor([1.0])], 1.0).item())  # -> 0.0
    weights = with_gradients([3.0], [-2.0, 4.0])
    grads = [w.grad for w in weights]
    lengths = [get_total_norm(grads, p).item() for p in (1, 2, "inf")]
    print([round(length, 3) for length in lengths])  # -> [9.0, 5.385, 4.0]
    print(get_total_norm(grads[1], 1).item())  # -> 6.0
    weights[0] = tensor([0.0], dtype=float64)
    weights[0].grad = tensor([3.0], dtype=float64)
    print(clip_grad_norm_(weights, 2.0, norm_type=math.inf).item())  # -> 4.0
    print([[round(value, 3) for value in w.grad.tolist()] for w in weights])
    # -> [[1.5], [-1.0, 2.0]]
