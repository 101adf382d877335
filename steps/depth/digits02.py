"""Step digits02: finfo and iinfo: the limits of a type

The loss of step digits01 is the logarithm of a probability, and the probability is exp(x) divided
by a sum. Why not write it like that? With a logit of 1,000 the result is nan. exp(89) is larger
than the largest number of float32, so it is inf; inf / inf is nan. log_softmax (step softmax02)
subtracts the largest logit first, and then all exponents are at most 0.

How large is the largest number? Each floating point type has its limits:

    max                the largest number; float16 ends at 65,504
    tiny               the smallest above 0 with all its digits
    eps                the distance from 1 to the next number, 2^-23 for float32

They follow from how the bits are shared out between exponent and mantissa. bfloat16 has the 8 bits
of exponent that float32 has, so it reaches as far; of the mantissa it keeps 7 bits, so eps is 2^-7.
NumPy does not know this type, so its limits are computed here. For integers there are max and min
only.

PyTorch has the same two classes, with the same fields.

Changed: a new module, core/limits.py. New: finfo, iinfo.
Try: in float16, how many ones can be added to 0, one after the other, before the sum stays as it
is?
"""

import importlib

import numpy as np

from tinytorch.core.dtype import DType, bfloat16, get_default_dtype
from tinytorch.core.tensor import tensor

# The other operations are methods of Tensor: importing their modules brings them there.
for name in "arithmetic comparison elementwise indexing matmul reduction shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class finfo:
    """The limits of a floating point type: bits, eps, max, min, tiny, smallest_normal."""

    def __init__(self, dtype: DType | None = None):
        dtype = get_default_dtype() if dtype is None else dtype
        if not dtype.is_floating_point:
            raise TypeError(f"finfo() takes a floating point type, not {dtype!r}: use iinfo")
        self.dtype, self.bits = dtype.name, dtype.itemsize * 8
        if dtype is bfloat16:  # 8 bits of mantissa, float32's exponent
            self.eps, self.tiny = 2.0**-7, 2.0**-126
            self.max = (2.0 - 2.0**-7) * 2.0**127
        else:
            info = np.finfo(dtype.numpy)
            self.eps, self.tiny, self.max = float(info.eps), float(info.tiny), float(info.max)
        self.min, self.smallest_normal = -self.max, self.tiny
        self.resolution = 10.0 ** -int(np.floor(-np.log10(self.eps)))

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        limits = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"finfo({limits}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer type: bits, max, min."""

    def __init__(self, dtype: DType):
        if dtype.category != 1:
            raise TypeError(f"iinfo() takes an integer type, not {dtype!r}: use finfo")
        info = np.iinfo(dtype.numpy)
        self.bits, self.max, self.min = info.bits, info.max, info.min


if __name__ == "__main__":
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.core.dtype import float16, float32, int8, int64
    from tinytorch.ops.softmax import log_softmax

    limits = finfo(float32)
    print("float32 ends at", limits.max, "and 1 +", limits.eps, "is the number after 1")
    # -> float32 ends at 3.4028234663852886e+38 and 1 + 1.1920928955078125e-07 is the number after 1
    print("exp(88) and exp(89):", tensor([88.0, 89.0]).exp().tolist())
    # -> exp(88) and exp(89): [1.651636e+38, inf]
    large = tensor([1000.0, 0.0])
    print("as it is written:", (large.exp() / large.exp().sum()).log())
    # -> as it is written: tensor([nan, -inf])
    print("log_softmax:     ", log_softmax(large, dim=0))
    # -> log_softmax:      tensor([    0., -1000.])

    for dtype in (float16, bfloat16, float32):
        info = finfo(dtype)
        print(f"{info.dtype:9} {info.bits} bits, max {info.max:.3g}, eps {info.eps:.2g}")
    # -> float16   16 bits, max 6.55e+04, eps 0.00098
    # -> bfloat16  16 bits, max 3.39e+38, eps 0.0078
    # -> float32   32 bits, max 3.4e+38, eps 1.2e-07
    print(finfo(), finfo().tiny == finfo().smallest_normal)
    # -> finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, ...
    print("int8 goes from", iinfo(int8).min, "to", iinfo(int8).max)  # -> int8 goes from -128 to 127
    for call in (lambda: finfo(int64), lambda: iinfo(float32)):
        try:
            call()
        except TypeError as error:
            print(error)
            # -> finfo() takes a floating point type, not tinytorch.int64: use iinfo
            # -> iinfo() takes an integer type, not tinytorch.float32: use finfo
