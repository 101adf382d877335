"""Step 56e: A number that does not fit its type

where(mask, x, 300) puts 300 into a tensor of int8. NumPy casts it: 300 becomes 44, as 300 is 256
more than 44, and nobody is told. A mask value of 1e300 in a float32 tensor becomes inf.

    int8         -128 to 127, all else wraps around
    uint8        0 to 255; -1 is 255, and means "the last one" so often that it is let through
    float32      to 3.4e38, all else is inf; inf itself is meant

When two tensors are computed with, results wrap around as in C, which is what an integer type says.
A number that a person writes is different: it was meant as it stands. So it is checked where it
becomes an element: by where, full and masked_fill of the next steps.

(PyTorch does the same: "value cannot be converted to type int8_t without overflow".)

New: checked_number, in tinytorch/ops/scalar.py.
Try: checked_number(2.9, int32), and then with float16.
"""

from typing import Any

import numpy as np

from tinytorch.core.dtype import DType, number_dtype, numpy_dtype


def checked_number(number: Any, dtype: DType) -> Any:
    """A number as an element of this type: a fraction is cut off for integer types, and negative
    numbers wrap around for unsigned ones.

    Raises:
        RuntimeError: the number does not fit the type.
        TypeError: it is not a number.
    """
    number_dtype(number)  # raises TypeError
    array = np.asarray(number).astype(numpy_dtype(dtype))
    fits = not np.isinf(array) or np.isinf(number)
    if dtype.category == 1:
        fits = abs(number) <= np.iinfo(array.dtype).max + (dtype.is_signed and number < 0)
    if not fits:
        raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {number}")
    return array.item()


if __name__ == "__main__":
    from tinytorch.core.dtype import float32, int8, uint8

    np.seterr(over="ignore")  # as everywhere in the package (step 43d)

    # What NumPy does.
    print(np.asarray(300).astype(np.int8), np.asarray(1e300).astype(np.float32))  # -> 44 inf

    for number, dtype in ((300, int8), (1e300, float32), ("1", float32)):
        try:
            checked_number(number, dtype)
        except (RuntimeError, TypeError) as error:
            print(type(error).__name__, error)
    # -> RuntimeError value cannot be converted to tinytorch.int8 without overflow: 300
    # -> RuntimeError value cannot be converted to tinytorch.float32 without overflow: 1e+300
    # -> TypeError ...
    print(checked_number(127, int8), checked_number(2.9, int8), checked_number(-1, uint8))
    # -> 127 2 255
    print(checked_number(float("inf"), float32))  # -> inf
