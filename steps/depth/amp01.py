"""Step amp01: Half precision: three kinds of numbers

Steps 85a to 85d use float16 in training. What do the types differ in?

    float32     1 sign    8 exponent   23 fraction     1e-38 .. 3e38       7 digits
    float16     1 sign    5 exponent   10 fraction     6e-8  .. 65504      3 digits
    bfloat16    1 sign    8 exponent    7 fraction     1e-38 .. 3e38       2 digits

The demo shows four accidents in float16. A number above 65504 is inf. One below 6e-8 is 0. A small
number that is added to a large one is lost: between 2048 and 4096 there are only even numbers. And
so an update of a weight disappears, however often it is repeated.

Matrix products suffer least. Each element of the result is added up in float32 and rounded once,
so its relative error is that of one rounding, 0.0005. Hence the plan of the next steps, mixed
precision: matrix products run in float16, while weights, sums and losses stay in float32.

bfloat16 has the range of float32, so overflow is no more likely than there, but it has fewer
digits. NumPy does not have it, so these steps use float16, which needs more care.

New: nothing in the framework.
Try: which is the smallest x for which np.float16(1) + np.float16(x) is greater than 1? Begin with
0.0005.
"""

import importlib

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import tensor
from tinytorch.ops.creation import full, ones
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    print("above 65504:", tensor([65504.0, 65520.0, -1e5]).half().tolist())
    # -> above 65504: [65504.0, inf, -inf]
    print("below 6e-8:", tensor([6e-8, 2e-8]).half().tolist())
    # -> below 6e-8: [5.960464477539063e-08, 0.0]

    total = np.float16(0)
    for _ in range(4096):
        total += np.float16(1)
    print("4096 ones, one after the other:", total)  # -> 4096 ones, one after the other: 2.048e+03
    print("the same, added up in float32:", ones(4096).half().sum().item())
    # -> the same, added up in float32: 4096.0

    weight = tensor([1.0]).half()
    for _ in range(1000):
        weight = weight - 0.0001
    print("1 - 1000 * 0.0001 =", weight.item(), "instead of 0.9")
    # -> 1 - 1000 * 0.0001 = 1.0 instead of 0.9

    # The square of 300 overflows, and with it the mean of squares, although the root would be 300.
    x = full((4,), 300.0)
    print("mean of squares:", (x.half() * x.half()).mean().item(), "and", (x * x).mean().item())
    # -> mean of squares: inf and 90000.0

    # A product of matrices is off by one rounding.
    manual_seed(0)
    a, b = randn(64, 256), randn(256, 64)
    exact = a.half().float() @ b.half().float()
    error = (a.half() @ b.half()).float() - exact
    print("largest error of a product:", ((error / exact).abs().max() < 2**-11).item())
    # -> largest error of a product: True
    print("bytes:", a.nbytes, "and", a.half().nbytes)  # -> bytes: 65536 and 32768
