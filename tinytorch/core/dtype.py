"""Element types, and PyTorch's rules for what an operation on two of them gives."""

from typing import Any

import numpy as np

try:  # NumPy has no bfloat16 of its own; the extra `bf16` brings one.
    from ml_dtypes import bfloat16 as numpy_bfloat16
except ImportError:
    numpy_bfloat16 = None


class DType:
    """The type of a tensor's elements. There is one object for each: compare them with `is` or ==.

    Attributes:
        name: "float32", ...
        numpy: the numpy.dtype with the same bits, or None where it needs a package that is missing.
        itemsize: bytes of one element.
        category: 0 boolean, 1 integer, 2 floating point: a higher one wins a promotion.
    """

    by_numpy: dict[np.dtype, "DType"] = {}
    by_name: dict[str, "DType"] = {}

    def __init__(self, name: str, numpy: Any, itemsize: int, category: int):
        self.name = name
        self.numpy = None if numpy is None else np.dtype(numpy)
        self.itemsize = itemsize
        self.category = category
        self.is_floating_point = category == 2
        self.is_complex = False
        self.is_signed = not (name == "bool" or name.startswith("uint"))
        DType.by_name[name] = self
        if numpy is not None:
            DType.by_numpy[self.numpy] = self

    def __repr__(self) -> str:
        return f"tinytorch.{self.name}"

    def __reduce__(self):
        return as_dtype, (self.name,)


bool_ = DType("bool", np.bool_, 1, 0)
uint8 = DType("uint8", np.uint8, 1, 1)
int8 = DType("int8", np.int8, 1, 1)
int16 = DType("int16", np.int16, 2, 1)
int32 = DType("int32", np.int32, 4, 1)
int64 = DType("int64", np.int64, 8, 1)
float16 = DType("float16", np.float16, 2, 2)
bfloat16 = DType("bfloat16", numpy_bfloat16, 2, 2)
float32 = DType("float32", np.float32, 4, 2)
float64 = DType("float64", np.float64, 8, 2)


class Defaults:
    """The floating point type that Python floats and new tensors get."""

    dtype = float32


def get_default_dtype() -> DType:
    return Defaults.dtype


def set_default_dtype(dtype: DType) -> None:
    """Make `dtype` the type of new floating point tensors.

    Raises:
        TypeError: it is not a floating point type.
    """
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype}")
    Defaults.dtype = dtype


def as_dtype(dtype: Any) -> DType:
    """A DType from a DType, its name, a Python type or a NumPy dtype.

    Raises:
        TypeError: it is none of these, or tinytorch does not have the type.
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str) and dtype in DType.by_name:
        return DType.by_name[dtype]
    try:
        return DType.by_numpy[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise TypeError(f"not a tinytorch dtype: {dtype!r}") from None


def numpy_dtype(dtype: DType) -> np.dtype:
    """The numpy.dtype of `dtype`.

    Raises:
        RuntimeError: `dtype` is bfloat16 and ml_dtypes is not installed.
    """
    if dtype.numpy is None:
        raise RuntimeError(f"{dtype!r} needs the package ml_dtypes: pip install ml_dtypes")
    return dtype.numpy


def promote_types(a: DType, b: DType) -> DType:
    """The smallest type that both fit in, by PyTorch's table: int64 with float32 is float32."""
    if a is b:
        return a
    if a.category != b.category:
        return a if a.category > b.category else b
    if a.category == 2:
        if a.itemsize == b.itemsize:  # float16 and bfloat16: neither holds the other
            return float32
        return a if a.itemsize > b.itemsize else b
    return DType.by_numpy[np.promote_types(a.numpy, b.numpy)]


def number_dtype(number: Any) -> DType:
    """The type that a Python number stands for when no tensor decides."""
    if isinstance(number, (bool, np.bool_)):
        return bool_
    if isinstance(number, (int, np.integer)):
        return int64
    if isinstance(number, (float, np.floating)):
        return Defaults.dtype
    raise TypeError(f"expected a Tensor or a number, not {type(number).__name__}")


def result_type(*operands: Any) -> DType:
    """The type of an operation's result, from tensors, DTypes and Python numbers.

    Tensors with dimensions decide. A 0-d tensor counts only if it is of a higher category
    (bool < integer < floating point), and so does, after it, a Python number:

        int64 tensor + 1.5 -> default float type        float32 tensor + 2 -> float32
        float32 [3] + float64 [] -> float32             int64 [3] + float64 [] -> float64
    """
    ranked: list[DType | None] = [None, None, None]  # tensors, 0-d tensors, numbers
    for operand in operands:
        if isinstance(operand, DType):
            rank, dtype = 0, operand
        elif hasattr(operand, "array"):
            rank, dtype = int(operand.array.ndim == 0), operand.dtype
        else:
            rank, dtype = 2, number_dtype(operand)
        ranked[rank] = dtype if ranked[rank] is None else promote_types(ranked[rank], dtype)
    result = None
    for dtype in ranked:
        if result is None:
            result = dtype
        elif dtype is not None and dtype.category > result.category:
            result = promote_types(result, dtype)
    if result is None:
        raise ValueError("result_type() needs at least one tensor or number")
    return result


def can_cast(from_: DType, to: DType) -> bool:
    """Whether a result of type `from_` may be stored as `to` without a change of category."""
    return from_.category <= to.category
