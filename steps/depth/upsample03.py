"""Step upsample03: Nearest-neighbour interpolation

A generator makes a large picture of a small one, and a network that marks each pixel has to come
back to the size of its input. The simplest way: each pixel becomes a square of r x r.

We have it already. A sum over windows makes one number of r x r; its adjoint, SpreadWindows, writes
one number to r x r places (step pool02). So enlarging by a whole factor is SpreadWindows, and its
gradient is the sum of each square.

For other factors, new pixel i takes the old one below it:

    old = floor(i * scale)        scale = old size / new size

and this is an index for each dimension (step indexing04).

Two traps. For scale_factor=2.3, two pixels become floor(4.6) = 4, and the scale can be 1 / 2.3 or 2
/ 4: they choose different pixels. PyTorch takes the first, which you asked for. And i * scale is
rounded to float32 in PyTorch: where it is almost a whole number, rounding decides which pixel it
is.

New: a module, nn/modules/upsampling.py: nearest, interpolate.
Try: enlarge labels, a tensor of integers. A mean of two labels would be a third one.
"""

import functools
import math
from typing import Any

import numpy as np

from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.pooling import SpreadWindows, pooling_windows
from tinytorch.ops import elementwise, matmul, minmax, reduction  # noqa: F401 (their methods)
from tinytorch.ops.creation import allocated
from tinytorch.ops.indexing import Index


def nearest(input: Tensor, sizes: tuple, scales: list[float]) -> Tensor:
    """Each new pixel takes the old one below it: the pixel at i * scale."""
    plane = input.array.shape[2:]
    factors = tuple(out // n for n, out in zip(plane, sizes, strict=True))
    if all(r * scale == 1 for r, scale in zip(factors, scales, strict=True)):
        # Each pixel is repeated: spread over a window of its own.
        ones = (1,) * len(sizes)
        windows, _ = pooling_windows(sizes, False, factors, factors, (0,) * len(sizes), ones)
        return SpreadWindows.apply(input, (*input.array.shape[:2], *sizes), windows)
    for dim, (n, out, scale) in enumerate(zip(plane, sizes, scales, strict=True), 2):
        # float32, as PyTorch: where the product is almost an integer, rounding decides.
        places = (np.arange(out, dtype=np.float32) * np.float32(scale)).astype(np.int64)
        places = input.device.xp.asarray(np.minimum(places, n - 1).tolist())
        input = Index.apply(input, (dim,), places)
    return input


@checked
def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Images [batch, channels, ...] enlarged or reduced to `size`, or by `scale_factor`.

    Raises:
        ValueError: the arguments do not fit each other.
        RuntimeError: there is nothing to enlarge, or nothing is left.
    """
    ndim, plane = input.array.ndim - 2, input.array.shape[2:]
    given = size if scale_factor is None else scale_factor
    given = (given,) * ndim if isinstance(given, (int, float)) else tuple(given or ())
    both = size is not None and scale_factor is not None
    if both or len(given) != ndim:
        raise ValueError("give either size or scale_factor: a number, or one for each dimension")
    sizes = given
    if size is None:
        sizes = tuple(math.floor(n * factor) for n, factor in zip(plane, given, strict=True))
    if 0 in input.array.shape[1:] or min(sizes) < 1:
        raise RuntimeError(f"Input and output sizes should be greater than 0: {plane}, {sizes}")
    # Refused before the loops over sizes if there is not as much memory.
    allocated(input.device.xp.empty, (*input.array.shape[:2], *sizes), input.array.dtype)
    scales = [n / out for n, out in zip(plane, sizes, strict=True)]
    if size is None:
        scales = [1 / factor for factor in given]
    return nearest(input, sizes, scales)


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401 (it attaches backward)
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck

    image = tensor([[[[1.0, 2.0], [3.0, 4.0]]]], requires_grad=True)
    large = interpolate(image, scale_factor=2)
    for line in large.tolist()[0][0]:
        print(line)
    # -> [1.0, 1.0, 2.0, 2.0]
    # -> [1.0, 1.0, 2.0, 2.0]
    # -> [3.0, 3.0, 4.0, 4.0]
    # -> [3.0, 3.0, 4.0, 4.0]
    large.sum().backward()
    print("gradient:", image.grad.tolist())  # -> gradient: [[[[4.0, 4.0], [4.0, 4.0]]]]
    row = tensor([[[1, 2]]])
    print("to 5:", interpolate(row, 5).tolist(), "to 1:", interpolate(row, 1).tolist())
    # -> to 5: [[[1, 1, 1, 2, 2]]] to 1: [[[1]]]
    print("by 2.3:", interpolate(row, scale_factor=2.3).tolist())  # -> by 2.3: [[[1, 1, 1, 2]]]
    print("to 4:", interpolate(row, 4).tolist())  # -> to 4: [[[1, 1, 2, 2]]]
    for options in ((None, None), (2, 2), ((2, 2),), (None, 0.1)):
        try:
            interpolate(row, *options)
        except (ValueError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")
    # -> ValueError: give either size or scale_factor: a number, or one for each dimension
    # -> ValueError: give either size or scale_factor: a number, or one for each dimension
    # -> ValueError: give either size or scale_factor: a number, or one for each dimension
    # -> RuntimeError: Input and output sizes should be greater than 0: (2,), (0,)
    x = tensor(np.random.default_rng(0).normal(size=(1, 2, 3, 4)), requires_grad=True)
    for size in ((6, 8), (5, 3)):
        function = functools.partial(interpolate, size=size)
        print(size, gradcheck(function, x) and gradgradcheck(function, x))
    # -> (6, 8) True
    # -> (5, 3) True
