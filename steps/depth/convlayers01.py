"""Step convlayers01: A convolution that checks its arguments

Convolution.apply takes a Geometry and trusts it. Give it a kernel that is larger than the picture,
and NumPy complains about negative dimensions. So the public function checks its arguments first,
and names what does not fit in the caller's terms: dimensions, channels, sizes.

    convolution(2, input [N, C, H, W], weight [O, C / groups, kh, kw], bias [O],
                stride, padding, dilation, groups)                      -> [N, O, H', W']

A number stands for as many as there are dimensions: a stride of 2 is (2, 2). One picture without a
batch, [C, H, W], is a batch of one, and the result loses that dimension again. Both are views.

The trap: a layer for 3 channels and a picture file with 4 (the fourth says how transparent a pixel
is). Read the message from its end: "to have 3 channels, but got 4 channels instead".

New: as_many, per_dimension, convolution.
Try: leave out the check of the channels, and read what is said about x[:, :3] then.
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.convolution import Convolution, geometry
from tinytorch.ops.matmul import check_operands

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def as_many(value: Any, n: int) -> tuple:
    """`value` for each of `n` dimensions: a number, or a sequence of numbers.

    Raises:
        TypeError: one of them is not an integer.
    """
    values = as_shape((value,))
    return values * n if len(values) == 1 else values


def per_dimension(name: str, value: Any, n: int, least: int = 0) -> tuple[int, ...]:
    """`as_many`, checked.

    Raises:
        RuntimeError: not `n` numbers, or one that is less than `least`.
    """
    values = as_many(value, n)
    if len(values) != n or min(values) < least:
        raise RuntimeError(f"{name} should be {n} numbers of at least {least}, but got {value}")
    return values


def convolution(
    n: int, input: Tensor, weight: Tensor, bias: Tensor | None, *options: Any
) -> Tensor:
    """The convolution over the last `n` dimensions. options: stride, padding, dilation, groups.

    Raises:
        RuntimeError: shapes, types or numbers do not fit.
    """
    stride, padding, dilation, groups = options
    check_operands("convolution", input, weight, *([] if bias is None else [bias]))
    shape, w_shape, kernel = input.array.shape, weight.array.shape, weight.array.shape[2:]
    if len(shape) not in (n + 1, n + 2) or len(w_shape) != n + 2:
        raise RuntimeError(
            f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input and a {n + 2}D weight, but "
            f"got input of size {list(shape)} and weight of size {list(w_shape)}"
        )
    batch = input if len(shape) == n + 2 else input.unsqueeze(0)
    shape = batch.array.shape
    stride = per_dimension("stride", stride, n, 1)
    dilation = per_dimension("dilation", dilation, n, 1)
    pads = tuple((p, p) for p in per_dimension("padding", padding, n))
    # The weight is [O, C / groups, *kernel].
    wanted = w_shape[1] * per_dimension("groups", groups, 1, 1)[0]
    if shape[1] != wanted or w_shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(w_shape)}, expected input{list(shape)} "
            f"to have {wanted} channels, but got {shape[1]} channels instead"
        )
    if bias is not None and bias.array.shape != w_shape[:1]:
        raise RuntimeError(
            f"Expected bias of size {list(w_shape[:1])}, but got {list(bias.array.shape)}"
        )
    geo = geometry(shape, w_shape, stride, pads, dilation, groups)
    if min(shape[2:] + geo.out) < 1:
        raise RuntimeError(f"Kernel size {kernel} can't be greater than input size {shape[2:]}")
    y = Convolution.apply(batch, weight, bias, geo)
    return y if batch is input else y.squeeze(0)


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    x, w, b = randn(2, 4, 9, 9), randn(6, 2, 3, 3), randn(6)
    try:
        large = geometry((2, 4, 9, 9), (6, 2, 12, 12), (1, 1), ((0, 0),) * 2, (1, 1), 2)
        Convolution.apply(x, randn(6, 2, 12, 12), b, large)
    except RuntimeError as reason:
        print("without a check:", str(reason)[:52])
        # -> without a check: convolution: negative dimensions are not allowed (sh
    print(convolution(2, x, w, b, 1, 0, 1, 2).shape)  # -> tinytorch.Size([2, 6, 7, 7])
    print(convolution(2, x[0], w, None, 2, (1, 0), 1, 2).shape)  # -> tinytorch.Size([6, 5, 4])
    print(convolution(1, randn(1, 3, 10), randn(5, 3, 4), None, 1, 0, 1, 1).shape)
    # -> tinytorch.Size([1, 5, 7])

    def refused(*args):
        try:
            convolution(2, *args)
        except RuntimeError as reason:
            print(str(reason)[-88:])

    refused(x, w[0], b, 1, 0, 1, 1)
    # -> ) input and a 4D weight, but got input of size [2, 4, 9, 9] and weight of size [2, 3, 3]
    refused(x[:, :3], w, b, 1, 0, 1, 2)
    # ->  [6, 2, 3, 3], expected input[2, 3, 9, 9] to have 4 channels, but got 3 channels instead
    refused(x, w, b[:2], 1, 0, 1, 2)  # -> Expected bias of size [6], but got [2]
    refused(x[:, :, :2], w, b, 1, 0, 1, 2)
    # -> Kernel size (3, 3) can't be greater than input size (2, 9)
    refused(x, w, b, (1, 2, 3), 0, 1, 2)
    # -> stride should be 2 numbers of at least 1, but got (1, 2, 3)
