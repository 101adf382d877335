"""Clipping: gradients that became too large are cut back before a step is made with them."""

import warnings
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.joining import stack
from tinytorch.ops.norm import norm


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


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Cuts each element of the gradients to [-clip_value, clip_value]. The direction changes."""
    for grad in gradients_of(parameters):
        grad.clamp_(-clip_value, clip_value)


def clip_grad_norm(*args: Any, **kwargs: Any) -> Tensor:
    """The name that clip_grad_norm_ had until 2018, with a warning."""
    says = "`clip_grad_norm` is deprecated in favor of `clip_grad_norm_`, which does the same."
    warnings.warn(says, FutureWarning, stacklevel=2)
    return clip_grad_norm_(*args, **kwargs)
