"""Channels as pixels, and pixels as channels."""

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.ops.arguments import as_integer


def image_shape(input: Tensor) -> tuple[int, ...]:
    """The shape of the input.

    Raises:
        RuntimeError: it has fewer than 3 dimensions.
    """
    if input.array.ndim < 3:
        raise RuntimeError(f"expected at least 3 dimensions, got {input.array.ndim}")
    return input.array.shape


@checked
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """[..., c r^2, h, w] -> [..., c, h r, w r]: r^2 channels become the pixels of a larger image.

    Raises:
        RuntimeError: the channels are not a multiple of r^2, or there are fewer than 3 dimensions.
    """
    (*batch, c, h, w), r = image_shape(input), as_integer(upscale_factor)
    if r <= 0 or c % (r * r):
        raise RuntimeError(f"pixel_shuffle expects channels divisible by {r}^2, got {c}")
    x = input.reshape(*batch, c // (r * r), r, r, h, w)
    return x.movedim((-4, -3), (-3, -1)).reshape(*batch, c // (r * r), h * r, w * r)


@checked
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """[..., c, h r, w r] -> [..., c r^2, h, w], the reverse of pixel_shuffle.

    Raises:
        RuntimeError: a size is not a multiple of r, or there are fewer than 3 dimensions.
    """
    (*batch, c, h, w), r = image_shape(input), as_integer(downscale_factor)
    if r <= 0 or h % r or w % r:
        raise RuntimeError(f"pixel_unshuffle expects sizes divisible by {r}, got {h} and {w}")
    x = input.reshape(*batch, c, h // r, r, w // r, r)
    return x.movedim((-3, -1), (-4, -3)).reshape(*batch, c * r * r, h // r, w // r)


class PixelShuffle(FunctionModule, function=pixel_shuffle):
    """pixel_shuffle as a module."""


class PixelUnshuffle(FunctionModule, function=pixel_unshuffle):
    """pixel_unshuffle as a module."""
