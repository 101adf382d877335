"""The parameter: a tensor that modules register and optimizers change."""

from tinytorch.core.printing import format_tensor
from tinytorch.core.tensor import Tensor, tensor, wrap


class Parameter(Tensor):
    """A tensor that a Module registers when it becomes one of its attributes.

    `Parameter(data)` shares the memory of the tensor `data`, as a leaf that requires a gradient.
    Raises:
        RuntimeError: for integer data, unless requires_grad=False.
        TypeError: requires_grad is not a bool.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> "Parameter":
        data = tensor([]) if data is None else data
        self = wrap(data.array.view(), data.device, cls)
        return self.requires_grad_(requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        pass  # __new__ has done everything: Tensor's own __init__ would make another array

    def __repr__(self) -> str:
        return "Parameter containing:\n" + format_tensor(self, "tensor")

    def __deepcopy__(self, memo: dict) -> "Parameter":  # without the gradient, as in PyTorch
        return memo.setdefault(id(self), type(self)(self.data.clone(), self.requires_grad))
