"""Methods of a tensor that PyTorch offers as functions too, or under a second name."""

from tinytorch.core.tensor import Tensor, tensor_method

# Methods as functions: numel(x) is x.numel().
numel = Tensor.numel
detach = Tensor.detach
is_floating_point = Tensor.is_floating_point
is_complex = Tensor.is_complex

is_cpu = tensor_method("is_cpu")(property(lambda self: self.device.type == "cpu"))
# Kinds of tensors that do not exist here. Programs written for PyTorch ask for them.
is_sparse = tensor_method("is_sparse", "is_quantized", "is_meta", "is_xpu", "is_mps")(
    property(lambda self: False)
)
