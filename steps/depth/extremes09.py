"""Step extremes09: torch.numel(x) for x.numel(), and x.is_sparse

A tensor has had numel() since step 31a, and detach() since step 31d. Programs for PyTorch also
write torch.numel(x) and torch.detach(x): most of PyTorch's methods are functions too. Where the
function came first, tensor_method has attached it to Tensor. Here the methods came first, in the
core. So each function calls its method, and `checked` (step tensor10) names an argument of a wrong
type.

Programs ask questions as well, before they take a special way:

    x.is_cpu                          whether its device is the CPU
    x.is_sparse, is_quantized ...     kinds of tensors that PyTorch has, and this package has not

Without such an attribute the program would stop with an AttributeError, where False is the right
answer. They are properties, so no parentheses are written. tensor_method takes several names, so
one property serves all of them.

The trap: is_floating_point is a method. `if x.is_floating_point:`, without parentheses, asks
whether there is such a method, and takes the branch for integers too.

Changed: the module of extremes is finished. New: numel, detach, is_floating_point, is_complex,
is_cpu, is_sparse.
Try: write x.is_cpu(), and read the error.
"""

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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    counts = tensor([1, 2])
    print(numel(x), x.numel(), detach(x).requires_grad)  # -> 4 4 False
    print(is_floating_point(x), is_floating_point(counts), is_complex(x))  # -> True False False
    try:
        numel([1.0, 2.0])
    except TypeError as error:
        print("TypeError:", error)
        # -> TypeError: numel(): argument 'input' (position 1) must be Tensor, not list

    print(x.is_cpu, x.is_sparse, x.is_quantized, x.is_mps)  # -> True False False False
    # The trap: a method, not called, counts as true.
    print(bool(counts.is_floating_point), counts.is_floating_point())  # -> True False
