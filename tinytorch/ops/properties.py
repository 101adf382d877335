"""Methods of a tensor that PyTorch offers as functions too, or under a second name."""

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor_method


# Methods as functions.
@checked
def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


@checked
def detach(input: Tensor) -> Tensor:
    """The same memory as a tensor of its own, outside the graph."""
    return input.detach()


@checked
def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floating point numbers."""
    return input.is_floating_point()


@checked
def is_complex(input: Tensor) -> bool:
    """False: there are no complex tensors here."""
    return input.is_complex()


is_cpu = tensor_method("is_cpu")(property(lambda self: self.device.type == "cpu"))


# Kinds of tensors that do not exist here. Programs written for PyTorch ask for them.
is_sparse = tensor_method("is_sparse", "is_quantized", "is_meta", "is_xpu", "is_mps")(
    property(lambda self: False)
)
