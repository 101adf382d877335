"""Step upsample06: PixelShuffle: channels become pixels

A network that makes an image four times as large does better to work on the small one, which has a
sixteenth of the pixels, and to enlarge at the end (Shi et al., 2016). Then it computes all pixels
of the large image at once: r^2 channels for each pixel, and they are laid out as a square of r x r.

    [c r^2, h, w]  ->  [c, r, r, h, w]  ->  [c, h, r, w, r]  ->  [c, h r, w r]

Only the order changes, nothing is computed, and nothing is learned in this layer. The weights are
in the convolution before it. PixelUnshuffle goes back.

Upsample is interpolate as a layer, with two older layers that fix its mode. It turns its factors
into floats, as PyTorch does, which shows when it is printed.

New: image_shape, pixel_shuffle, pixel_unshuffle; Upsample, UpsamplingNearest2d,
UpsamplingBilinear2d, PixelShuffle, PixelUnshuffle. The module upsampling.py is finished, and with
it the pooling and resampling of this stage.
Try: movedim in the other order. Which pixels change places?
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.activation import FunctionModule
from tinytorch.nn.modules.pooling import (
    SpreadWindows,
    adaptive_avg_pool,
    apply_matrices,
    pooling_windows,
)
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.arguments import as_integer, as_shape
from tinytorch.ops.creation import allocated
from tinytorch.ops.indexing import Index


def tent(x: np.ndarray, a: float) -> np.ndarray:
    """1 at 0, falling linearly to 0 at -1 and 1: the weight of a pixel at this distance."""
    return np.maximum(0, 1 - abs(x))


def cubic(x: Any, a: float) -> Any:
    """A smooth curve of two cubics, 1 at 0, 0 at the other integers and beyond 2 (Keys, 1981)."""
    x = abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
    return near * (x <= 1) + far * ((x > 1) & (x < 2))


# mode: (dimensions of the image; the weight of a pixel by its distance)
CURVES: dict[str, tuple[int, Callable]] = {
    "linear": (1, tent),
    "bilinear": (2, tent),
    "trilinear": (3, tent),
    "bicubic": (2, cubic),
}


def resize_matrix(
    n: int, out: int, scale: float, curve: Callable, align_corners: bool, antialias: bool
) -> np.ndarray:
    """The weight of each of n old pixels in each of `out` new ones, in one dimension: [out, n].

    The centers of the first and last pixels are kept (align_corners), or else their outer edges: a
    pixel is 1 wide, and its center is at 0.5.
    """
    centers = np.arange(out)[:, None]
    if align_corners:
        centers = centers * ((n - 1) / max(out - 1, 1))
    else:
        centers = (centers + 0.5) * scale - 0.5
    if antialias:  # a smaller image averages all the old pixels that a new one covers
        weights = curve((np.arange(n) - centers) / max(scale, 1), -0.5)
        return weights / weights.sum(axis=1, keepdims=True)
    weights = curve(np.arange(-2, n + 2) - centers, -0.75)
    inner = weights[:, 2:-2]
    inner[:, 0] += weights[:, :2].sum(axis=1)  # beyond its border the image goes on unchanged
    inner[:, -1] += weights[:, -2:].sum(axis=1)
    return inner


def nearest(input: Tensor, sizes: tuple, scales: list[float], shift: float) -> Tensor:
    """Each new pixel takes the old one below it: the pixel at (i + shift) * scale."""
    plane = input.array.shape[2:]
    factors = tuple(out // n for n, out in zip(plane, sizes, strict=True))
    if all(r * scale == 1 for r, scale in zip(factors, scales, strict=True)):
        # Each pixel is repeated: spread over a window of its own.
        ones = (1,) * len(sizes)
        windows, _ = pooling_windows(sizes, False, factors, factors, (0,) * len(sizes), ones)
        return SpreadWindows.apply(input, (*input.array.shape[:2], *sizes), windows)
    for dim, (n, out, scale) in enumerate(zip(plane, sizes, scales, strict=True), 2):
        # float32, as PyTorch: where the product is almost an integer, rounding decides.
        places = ((np.arange(out, dtype=np.float32) + shift) * np.float32(scale)).astype(np.int64)
        places = input.device.xp.asarray(np.minimum(places, n - 1).tolist())
        input = Index.apply(input, (dim,), places)
    return input


@checked
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Images [batch, channels, ...] enlarged or reduced to `size`, or by `scale_factor`.

    Args:
        mode: "nearest", "nearest-exact" (which rounds as other libraries do), "linear", "bilinear",
            "trilinear", "bicubic", or "area" (adaptive average pooling).
        align_corners: keep the centers of the corner pixels, not their outer edges.
        recompute_scale_factor: compute the scale from the sizes, not from `scale_factor`.
        antialias: a smaller image is an average; for bilinear and bicubic.

    Raises:
        ValueError: the arguments do not fit each other.
        RuntimeError: there is nothing to enlarge, or nothing is left.
        NotImplementedError: the mode is unknown, or is not for images of so many dimensions.
    """
    ndim, plane = input.array.ndim - 2, input.array.shape[2:]
    modes = {"nearest": ndim, "nearest-exact": ndim, "area": ndim}
    modes.update((name, curve[0]) for name, curve in CURVES.items())
    if modes.get(mode) != ndim or not 1 <= ndim <= 3:
        raise NotImplementedError(f"no mode {mode!r} for {ndim + 2}-D input")
    given = size if scale_factor is None else scale_factor
    if not isinstance(given, (tuple, list)):
        given = () if given is None else (given,) * ndim
    given = as_shape((given,)) if scale_factor is None else tuple(map(float, given))
    both = size is not None and (scale_factor is not None or recompute_scale_factor)
    if both or len(given) != ndim:
        raise ValueError("give either size or scale_factor: a number, or one for each dimension")
    if mode not in CURVES and align_corners is not None:
        raise ValueError(f"align_corners cannot be set in the mode {mode!r}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ValueError("antialias is for the modes bilinear and bicubic")
    sizes = given
    if size is None:
        sizes = tuple(math.floor(n * factor) for n, factor in zip(plane, given, strict=True))
    if 0 in input.array.shape[1:] or min(sizes) < 1:
        raise RuntimeError(f"Input and output sizes should be greater than 0: {plane}, {sizes}")
    # Refused before the loops over sizes if there is not as much memory.
    allocated(input.device.xp.empty, (*input.array.shape[:2], *sizes), input.array.dtype)
    scales = [n / out for n, out in zip(plane, sizes, strict=True)]
    if size is None and not recompute_scale_factor:
        scales = [1 / factor for factor in given]
    if mode == "area":
        return adaptive_avg_pool(ndim, input, sizes)
    if mode not in CURVES:
        return nearest(input, sizes, scales, 0.5 if mode == "nearest-exact" else 0.0)
    options = CURVES[mode][1], bool(align_corners), antialias
    matrices = [resize_matrix(*each, *options) for each in zip(plane, sizes, scales, strict=True)]
    return apply_matrices(input, matrices)


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


class Upsample(FunctionModule, function=interpolate, options=5):
    """interpolate as a module."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if isinstance(self.scale_factor, (tuple, list)):
            self.scale_factor = tuple(map(float, self.scale_factor))
        elif self.scale_factor is not None:
            self.scale_factor = float(self.scale_factor)

    def extra_repr(self) -> str:
        name = "size" if self.scale_factor is None else "scale_factor"
        return f"{name}={getattr(self, name)!r}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample with the mode "nearest"."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample with the mode "bilinear" and aligned corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None):
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(FunctionModule, function=pixel_shuffle):
    """pixel_shuffle as a module."""


class PixelUnshuffle(FunctionModule, function=pixel_unshuffle):
    """pixel_unshuffle as a module."""


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    x = tensor(np.arange(8.0).reshape(4, 1, 2))
    print("four pictures:", x.tolist())
    # -> four pictures: [[[0.0, 1.0]], [[2.0, 3.0]], [[4.0, 5.0]], [[6.0, 7.0]]]
    large = pixel_shuffle(x, 2)
    print("one:", large.tolist())  # -> one: [[[0.0, 2.0, 1.0, 3.0], [4.0, 6.0, 5.0, 7.0]]]
    print("and back:", np.array_equal(pixel_unshuffle(large, 2).array, x.array))
    # -> and back: True
    image = tensor(np.zeros((3, 4)))
    for function, argument, r in (
        (pixel_shuffle, x, 3),
        (pixel_unshuffle, x, 2),
        (pixel_shuffle, image, 1),
    ):
        try:
            function(argument, r)
        except RuntimeError as error:
            print(error)
    # -> pixel_shuffle expects channels divisible by 3^2, got 4
    # -> pixel_unshuffle expects sizes divisible by 2, got 1 and 2
    # -> expected at least 3 dimensions, got 2
    image = tensor(np.random.default_rng(0).normal(size=(1, 4, 3, 3)))
    layers = [Upsample(scale_factor=2), Upsample(scale_factor=(2, 3), mode="bilinear"), Upsample(5)]
    layers += [UpsamplingNearest2d(4), UpsamplingBilinear2d(scale_factor=2), PixelShuffle(2)]
    for layer in (*layers, PixelUnshuffle(3)):
        print(layer, layer(image).shape)
    # -> Upsample(scale_factor=2.0, mode='nearest') tinytorch.Size([1, 4, 6, 6])
    # -> Upsample(scale_factor=(2.0, 3.0), mode='bilinear') tinytorch.Size([1, 4, 6, 9])
    # -> Upsample(size=5, mode='nearest') tinytorch.Size([1, 4, 5, 5])
    # -> UpsamplingNearest2d(size=4, mode='nearest') tinytorch.Size([1, 4, 4, 4])
    # -> UpsamplingBilinear2d(scale_factor=2.0, mode='bilinear') tinytorch.Size([1, 4, 6, 6])
    # -> PixelShuffle(upscale_factor=2) tinytorch.Size([1, 1, 6, 6])
    # -> PixelUnshuffle(downscale_factor=3) tinytorch.Size([1, 36, 1, 1])
    image.requires_grad_()
    print("derivatives:", gradcheck(layers[-1], image) and gradgradcheck(layers[-1], image))
    # -> derivatives: True
