"""Methods of a tensor that PyTorch offers as functions, too."""

from tinytorch.core.tensor import Tensor

# What a person asks of a tensor, as functions too: numel(x) is x.numel().
numel = Tensor.numel
detach = Tensor.detach
is_floating_point = Tensor.is_floating_point
is_complex = Tensor.is_complex
