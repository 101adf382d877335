"""Methods of a tensor that PyTorch offers as functions too, or under a second name."""

from typing import Any

from tinytorch.core.dtype import as_dtype
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.conversion import cast

# What a person asks of a tensor, as functions too: numel(x) is x.numel().
numel = Tensor.numel
detach = Tensor.detach
is_floating_point = Tensor.is_floating_point
is_complex = Tensor.is_complex


@tensor_method("type")
def type_method(self: Tensor, dtype: Any) -> Tensor:
    """x.type(dtype) is x.to(dtype)."""
    return cast(self, as_dtype(dtype))


is_cpu = tensor_method("is_cpu")(property(lambda self: self.device.type == "cpu"))
