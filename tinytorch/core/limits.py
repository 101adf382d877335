"""The limits of the element types: how large, how small, how exact."""

import numpy as np

from tinytorch.core.dtype import DType, bfloat16, get_default_dtype


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
