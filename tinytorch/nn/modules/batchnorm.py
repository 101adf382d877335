"""Normalisation over a batch as layers, with weight and bias and running statistics."""

from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.normalization import batch_norm


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
