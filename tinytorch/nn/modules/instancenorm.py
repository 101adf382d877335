"""Normalisation of each item and channel by itself, as layers."""

import warnings
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.batchnorm import _BatchNorm
from tinytorch.ops.normalization import instance_norm


class _InstanceNorm(_BatchNorm):
    """instance_norm of a batch, or of one item without the dimension of the batch.

    Raises:
        ValueError: for an input with another number of dimensions, or of channels.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ):  # fmt: skip
        options = {"device": device, "dtype": dtype, "bias": bias}
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)

    def forward(self, input: Tensor) -> Tensor:
        self.check_input(input)
        single = input.array.ndim == self.dims[0]
        size = input.array.shape[0 if single else 1]
        if size != self.num_features:
            text = f"the input has {size} channels, and num_features is {self.num_features}"
            if self.affine:
                raise ValueError(text)
            warnings.warn(text, stacklevel=3)
        running, training = (self.running_mean, self.running_var), self.training
        y = instance_norm(
            input.unsqueeze(0) if single else input, *running, self.weight, self.bias,
            training or not self.track_running_stats, self.momentum or 0.0, self.eps,
        )  # fmt: skip
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Sequences: [c, length], or a batch of them."""

    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Images: [c, height, width], or a batch of them."""

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Volumes: [c, depth, height, width], or a batch of them."""

    dims = (4, 5)
