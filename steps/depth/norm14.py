"""Step norm14: Catalogue: the normalisations as layers

No new idea: LayerNorm, RMSNorm and GroupNorm are their functions and parameters; BatchNorm2d and 3d
differ from BatchNorm1d in the inputs that they take; InstanceNorm takes an item without a batch,
too. Skim it. Every layer shows itself as PyTorch's, and can be made new (reset_parameters).

Changed: NormModule, BatchNorm1d. New: all the others.
Try: GroupNorm(1, 64) in place of BatchNorm1d in step norm13's network.
"""

import importlib
import warnings
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class NormModule(Module):
    """Base of the layers: weight and bias, or None, and how they are shown."""

    shown = ""  # names of attributes

    def make_affine(self, size: Any, affine: bool, bias: bool, options: dict) -> None:
        """Makes a weight of ones and a bias of zeros, where they are wanted."""
        self.register_parameter("weight", Parameter(ones(size, **options)) if affine else None)
        bias = affine and bias
        self.register_parameter("bias", Parameter(zeros(size, **options)) if bias else None)

    @no_grad()
    def reset_parameters(self) -> None:
        """Makes the weight 1 and the bias 0 again."""
        for param, value in ((self.weight, 1), (self.bias, 0)):
            if param is not None:
                param.fill_(value)

    def extra_repr(self) -> str:
        values = [(name, getattr(self, name)) for name in self.shown.split()]
        values = [(name, v is not None if name == "bias" else v) for name, v in values]
        return ", ".join(f"{v}" if name[0] == "n" else f"{name}={v}" for name, v in values)


class _BatchNorm(NormModule):
    """batch_norm, with a weight and a bias for each channel, and running statistics as buffers.

    Without track_running_stats, the statistics are those of the batch in evaluation, too. With
    momentum None the running ones are the mean of all that were seen.
    Raises:
        ValueError: for an input with another number of dimensions.
    """

    shown = "num_features eps momentum affine bias track_running_stats"
    dims: tuple[int, ...]  # numbers of dimensions that an input may have
    normalize = staticmethod(batch_norm)

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        options = {"device": device, "dtype": dtype}
        self.make_affine(num_features, affine, bias, options)
        mean, var = zeros(num_features, **options), ones(num_features, **options)
        buffers = {"running_mean": mean, "running_var": var}
        buffers["num_batches_tracked"] = tensor(0, device=device)
        for name, value in buffers.items():
            self.register_buffer(name, value if track_running_stats else None)

    def reset_running_stats(self) -> None:
        """Forgets all batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        super().reset_parameters()

    def check_input(self, input: Tensor) -> None:
        if input.array.ndim not in self.dims:
            expected = " or ".join(f"{n}D" for n in self.dims)
            raise ValueError(f"expected {expected} input (got {input.array.ndim}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self.check_input(input)
        running, momentum = (self.running_mean, self.running_var), self.momentum or 0.0
        if self.training and not self.track_running_stats:
            running = (None, None)
        elif self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / self.num_batches_tracked.item()
        training = self.training or self.running_mean is None
        others = self.weight, self.bias, training, momentum, self.eps
        return self.normalize(input, *running, *others)


class BatchNorm1d(_BatchNorm):
    """Batches of channels, [n, c], or of sequences, [n, c, length]."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batches of images: [n, c, height, width]."""

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batches of volumes: [n, c, depth, height, width]."""

    dims = (5,)


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


class LayerNorm(NormModule):
    """layer_norm, with a weight and a bias of the shape normalized_shape."""

    shown = "normalized_shape eps elementwise_affine bias"

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.normalized_shape = as_shape((normalized_shape,))
        self.eps, self.elementwise_affine = eps, elementwise_affine
        options = {"device": device, "dtype": dtype}
        self.make_affine(self.normalized_shape, elementwise_affine, bias, options)

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(LayerNorm):
    """rms_norm, with a weight of the shape normalized_shape."""

    shown = "normalized_shape eps elementwise_affine"

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(NormModule):
    """group_norm, with a weight and a bias for each channel.

    Raises:
        ValueError: num_groups does not divide num_channels.
    """

    shown = "num_groups num_channels eps affine bias"

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by {num_groups}")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self.make_affine(num_channels, affine, bias, {"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    layers = (
        (BatchNorm1d(4), (8, 4)), (BatchNorm2d(4), (8, 4, 3, 3)), (BatchNorm3d(4), (8, 4, 2, 2, 2)),
        (InstanceNorm1d(4), (8, 4, 5)), (InstanceNorm2d(4), (4, 3, 3)),
        (InstanceNorm3d(4), (8, 4, 2, 2, 2)), (LayerNorm((2, 3)), (8, 4, 2, 3)),
        (RMSNorm(4), (8, 4)), (GroupNorm(2, 4, affine=False), (8, 4, 5)),
    )  # fmt: skip
    for layer, shape in layers:
        text = str(layer).replace("track_running_stats", "track").replace(", momentum=0.1", "")
        print(text, list(layer(randn(*shape)).shape))
    # -> BatchNorm1d(4, eps=1e-05, affine=True, bias=True, track=True) [8, 4]
    # -> BatchNorm2d(4, eps=1e-05, affine=True, bias=True, track=True) [8, 4, 3, 3]
    # -> BatchNorm3d(4, eps=1e-05, affine=True, bias=True, track=True) [8, 4, 2, 2, 2]
    # -> InstanceNorm1d(4, eps=1e-05, affine=False, bias=False, track=False) [8, 4, 5]
    # -> InstanceNorm2d(4, eps=1e-05, affine=False, bias=False, track=False) [4, 3, 3]
    # -> InstanceNorm3d(4, eps=1e-05, affine=False, bias=False, track=False) [8, 4, 2, 2, 2]
    # -> LayerNorm((2, 3), eps=1e-05, elementwise_affine=True, bias=True) [8, 4, 2, 3]
    # -> RMSNorm((4,), eps=None, elementwise_affine=True) [8, 4]
    # -> GroupNorm(2, 4, eps=1e-05, affine=False, bias=False) [8, 4, 5]

    layer = BatchNorm2d(4, bias=False)
    layer(randn(8, 4, 3, 3) + 1)
    with no_grad():
        layer.weight.mul_(3)
    layer.reset_parameters()
    print(layer.weight.tolist(), layer.bias, layer.running_mean.tolist())
    # -> [1.0, 1.0, 1.0, 1.0] None [0.0, 0.0, 0.0, 0.0]
    print(layer.num_batches_tracked.item())  # -> 0
    try:
        layer(randn(8, 4))
    except ValueError as error:
        print(error)  # -> expected 4D input (got 2D input)
    try:
        GroupNorm(3, 4)
    except ValueError as error:
        print(error)  # -> num_channels (4) must be divisible by 3

    warnings.simplefilter("error")
    for affine in (True, False):
        try:
            InstanceNorm1d(4, affine=affine)(randn(8, 5, 2))
        except (ValueError, UserWarning) as error:
            print(type(error).__name__, error)
    # -> ValueError the input has 5 channels, and num_features is 4
    # -> UserWarning the input has 5 channels, and num_features is 4
