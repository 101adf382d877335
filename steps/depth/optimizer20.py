"""Step optimizer20: vector_to_parameters: a point back into the parameters

parameters_to_vector of step optimizer19 says where in the space of all parameters a model is. A
method that moves in this space, a line search or a trust region (TRPO), computes a new point, and
now the model has to go there: the vector is cut into pieces of the parameters' shapes.

The trap: nothing is copied. The parameters are the vector's memory afterwards. A program that
writes into the vector changes the model, and two models that get the same vector share their
parameters. PyTorch does the same.

The step also adds clip_grad_norm, the name of clip_grad_norm_ until 2018. Programs of that time
call it (a character-level RNN among them), and PyTorch still has it, with a warning.

New: vector_to_parameters, clip_grad_norm.
Try: give one vector to two models, train one of them, and look at the other.
"""

import importlib
import warnings
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.joining import cat, stack
from tinytorch.ops.norm import norm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters in one row; the gradient flows through."""
    return cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Cuts the vector into pieces of the parameters' shapes, which become their data.

    The parameters are the vector's memory afterwards. Raises TypeError if it is not a tensor.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        param.data = vec.data[start : start + param.numel()].view_as(param)
        start += param.numel()


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


if __name__ == "__main__":
    from tinytorch.nn.modules.linear import Linear

    model = Linear(2, 1)
    point = parameters_to_vector(model.parameters()).detach()
    print(point.shape)  # -> tinytorch.Size([3])
    vector_to_parameters(tensor([1.0, 2.0, 3.0]), model.parameters())
    print(model.weight.tolist(), model.bias.tolist())  # -> [[1.0, 2.0]] [3.0]
    try:
        vector_to_parameters([1.0, 2.0, 3.0], model.parameters())
    except TypeError as error:
        print(error)  # -> expected torch.Tensor, but got: list

    model.weight.grad = tensor([[3.0, 4.0]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(clip_grad_norm(model.parameters(), 1.0).item())  # -> 5.0
    print(caught[0].category.__name__)  # -> FutureWarning
