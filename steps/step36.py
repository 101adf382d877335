"""Step 36: Element types

A list of indices is no list of measurements, and until now tensor([0, 1, 2]) made floats of both.
From here on ints become int64, bools bool, floats the default type, float32. A tensor's dtype is a
DType: one object for each, with a name, a size in bytes, and a category.

The category is what PyTorch's rule for mixed operands is about. There are three,

    0 boolean   <   1 integer   <   2 floating point

and in a mix the higher category wins, with its own size. int64 with float32 is float32. NumPy says
float64, since float32 cannot hold every int64. True, and dear: from one forgotten array of indices
on, a whole network computes in float64, in twice the memory. Within a category the larger wins.

Numbers have even less to say. A Python number, and after it a 0-d tensor, counts only if its
category is higher than that of the tensors with dimensions: x * 2 and x * 2.0 leave a float32
tensor float32, and an integer tensor times 1.5 becomes the default float type, not float64.

float16 and bfloat16 both have 16 bits, and neither holds the other: together they give float32.
bfloat16 is float32 with its lower half cut off. Its bits look like an integer's, but cannot be
added like one: the demo does it, and 1 + 1 is not 2. NumPy has no bfloat16; the package ml_dtypes
brings one.

This step and the next hold the tensor alone; the engine is laid aside, and comes back in step 39
as it was (exp in step 50). The rule is put to work in step 42, where operands of two types meet.

Changed: tensor, Tensor.dtype. New: DType and its ten objects, promote_types, result_type, scan.
Try: promote_types(int64, float16). Is the answer one that you would want for a sum of indices?
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.core.device import Device, as_device

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
    """Makes `dtype` the type of new floating point tensors. TypeError where it is no float type."""
    if not isinstance(dtype, DType) or not dtype.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {dtype}")
    Defaults.dtype = dtype


def as_dtype(dtype: Any) -> DType:
    """A DType from a DType, its name, a Python type or a NumPy dtype; TypeError for others."""
    if isinstance(dtype, DType):
        return dtype
    if dtype is float:
        return Defaults.dtype
    if dtype is int:
        return int64
    if isinstance(dtype, str) and dtype in DType.by_name:
        return DType.by_name[dtype]
    try:
        return DType.by_numpy[np.dtype(dtype)]
    except (KeyError, TypeError):
        raise TypeError(f"not a tinytorch dtype: {dtype!r}") from None


def numpy_dtype(dtype: DType) -> np.dtype:
    """The numpy.dtype of `dtype`. RuntimeError for bfloat16 where ml_dtypes is not installed."""
    if dtype.numpy is None:
        raise RuntimeError(f"{dtype!r} needs the package ml_dtypes: pip install 'tinytorch[bf16]'")
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


class Size(tuple):
    """The shape of a tensor: a tuple that prints as PyTorch's and knows its number of elements."""

    def __repr__(self) -> str:
        return f"tinytorch.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):
        part = tuple.__getitem__(self, index)
        return Size(part) if isinstance(index, slice) else part

    def __add__(self, other):
        return Size(tuple(self) + tuple(other))

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))


class Tensor:
    """An n-dimensional array that can be differentiated.

    Attributes:
        array: the NumPy (or CuPy) array with the elements; the graph does not see changes of it.
        device: the Device where the array lives.
        requires_grad: whether gradients flow to this tensor.
        grad: what backward() has accumulated here, or None.
        grad_fn: the Function call that made this tensor, or None for a leaf.
    """

    # What most tensors never change is written once, here, and not into each of them.
    array: Any
    device: Device
    _requires_grad = False
    _grad_fn = None
    _grad = None
    n_outputs = 0  # in the graph a leaf is an end: a Function has 1 or more
    __array_ufunc__ = None  # numpy_array + tensor is our business, not NumPy's

    @property
    def shape(self) -> Size:
        return Size(self.array.shape)

    @property
    def dtype(self) -> DType:
        return DType.by_numpy[self.array.dtype]

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of dimension `dim`. IndexError where there is no such one."""
        if dim is None:
            return self.shape
        if not -max(self.array.ndim, 1) <= dim < max(self.array.ndim, 1) or not self.array.ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of "
                f"[{-self.array.ndim}, {self.array.ndim - 1}], but got {dim})"
                if self.array.ndim
                else "Dimension specified as 0 but tensor has no dimensions"
            )
        return self.array.shape[dim]

    def numel(self) -> int:
        return int(self.array.size)

    def __repr__(self) -> str:
        indent = " " * len("tensor(")  # the rows of a matrix stand below each other
        array = self.device.backend.to_numpy(self.array)
        return "tensor(" + str(array).replace("\n", "\n" + indent) + ")"

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._grad_fn is not None:
            if not value:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to "
                    "use a computed variable in a subgraph that doesn't require differentiation "
                    "use var_no_grad = var.detach()."
                )
            return
        self._requires_grad = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Sets requires_grad in place and returns the tensor."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self):
        return self._grad_fn

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def grad(self) -> "Tensor | None":
        return self._grad

    @grad.setter
    def grad(self, grad: "Tensor | None") -> None:
        self._grad = grad

    def detach(self) -> "Tensor":
        """The same memory as a tensor of its own, outside the graph."""
        return wrap(self.array.view(), self.device)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape as a plain tuple: what a backward pass asks a node or a leaf for."""
        return self.array.shape

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.device.backend.to_numpy(self.array).tolist()

    def item(self) -> int | float | bool:
        """The only element as a Python number. RuntimeError where there are more, or none."""
        if self.array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self.array.size} elements cannot be converted to Scalar"
            )
        return self.array.item()

    def __bool__(self) -> bool:
        if self.array.size != 1:
            many = "no values" if self.array.size == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        return bool(self.array.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.array.shape[0]


def wrap(array: Any, device: Device) -> Tensor:
    """A tensor around an array of `device`, without history. No copy, no check."""
    out = object.__new__(Tensor)
    out.array = array
    out.device = device
    return out


def tensor_method(*names: str) -> Callable:
    """Attaches a function to Tensor as a method: `@tensor_method("add", "__add__")`.

    The package never defines a method twice: RuntimeError. Only a program that you run yourself
    (a step, a notebook) may put its own version in the place of the package's.
    """

    def attach(function: Callable) -> Callable:
        for name in names:
            written = getattr(function, "fget", function)  # a property hides its function
            if name in Tensor.__dict__ and written.__module__ != "__main__":
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, function)
        return function

    return attach


def scan(data: Any, depth: int = 1) -> tuple[Any, tuple[int, ...], DType | None]:
    """Nested data as (plain lists and numbers, shape, type). `depth` is for messages."""
    if isinstance(data, Tensor):
        return data.tolist(), data.array.shape, data.dtype
    if isinstance(data, (np.ndarray, np.generic)):
        return data.tolist(), data.shape, as_dtype(data.dtype)
    if isinstance(data, (list, tuple, range)):
        parts, shape, dtype = [], None, None
        for item in data:
            part, its_shape, its_dtype = scan(item, depth + 1)
            if shape is not None and its_shape != shape:
                raise ragged(shape, its_shape, depth)
            parts.append(part)
            shape = its_shape
            if its_dtype is not None:
                dtype = its_dtype if dtype is None else promote_types(dtype, its_dtype)
        return parts, (len(parts), *(shape or ())), dtype
    if isinstance(data, str):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    try:
        return data, (), number_dtype(data)
    except TypeError:
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}") from None


def ragged(expected: tuple[int, ...], found: tuple[int, ...], dim: int) -> Exception:
    """The error for two parts of one sequence, from dimension `dim` on, that differ in shape."""
    for a, b in zip(expected, found, strict=False):
        if a != b:
            return ValueError(f"expected sequence of length {a} at dim {dim} (got {b})")
        dim += 1
    return TypeError(f"expected only numbers or only sequences at dim {dim}, got both")


def host_array(data: Any, dtype: DType | None) -> np.ndarray:
    """A new NumPy array with the elements of `data`; PyTorch's type where `dtype` is None."""
    if isinstance(data, (np.ndarray, np.generic)):
        return np.array(data, dtype=numpy_dtype(as_dtype(data.dtype) if dtype is None else dtype))
    if type(data) in (float, int, bool):
        found = number_dtype(data)
    else:
        data, _, found = scan(data)
    wanted = numpy_dtype((found or Defaults.dtype) if dtype is None else dtype)
    if wanted.kind in "iu" and found is not None and found.is_floating_point:
        values = np.trunc(np.array(data, dtype=np.float64))
        array = values.astype(wanted)
        if (array != values).any():
            wrong = np.extract(array != values, values)[0]
            raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {wrong}")
        return array
    return np.array(data, dtype=wanted)


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested sequences, or an array.

    Python floats become the default type, ints int64, bools bool; arrays keep theirs.
    Raises ValueError for ragged sequences, TypeError for strings, RuntimeError for other objects.
    """
    device = as_device(device)
    array = host_array(data, None if dtype is None else as_dtype(dtype))
    out = wrap(device.backend.from_numpy(array, device.index), device)
    if requires_grad:
        out.requires_grad = True
    return out


def as_tensor(data: Any) -> Tensor:
    """data itself if it is a Tensor, else a new one around it: a constant of the formula."""
    return data if isinstance(data, Tensor) else tensor(data)


if __name__ == "__main__":

    def error(action, *args, **kwargs):
        try:
            action(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError) as reason:
            return f"{type(reason).__name__}: {reason}"

    print(tensor([1, 2]).dtype, tensor([1, 2.5]).dtype, tensor(True).dtype)
    # -> tinytorch.int64 tinytorch.float32 tinytorch.bool
    print(
        "arrays keep theirs:", tensor(np.array([1.0])).dtype
    )  # -> arrays keep theirs: tinytorch.float64
    print(int16.itemsize, int16.category, float16.itemsize, float16.category)  # -> 2 1 2 2
    print(as_dtype("int64") is int64, as_dtype(np.float32) is float32)  # -> True True

    types = [bool_, uint8, int64, float16, bfloat16, float32, float64]
    print(" " * 10 + "".join(f"{b.name:>10}" for b in types))
    # ->             bool     uint8     int64   float16  bfloat16   float32   float64
    for a in types:
        print(f"{a.name:10}" + "".join(f"{promote_types(a, b).name:>10}" for b in types))
        # -> bool            bool     uint8     int64   float16  bfloat16   float32   float64
        # -> uint8          uint8     uint8     int64   float16  bfloat16   float32   float64
        # -> int64          int64     int64     int64   float16  bfloat16   float32   float64
        # -> float16      float16   float16   float16   float16   float32   float32   float64
        # -> bfloat16    bfloat16  bfloat16  bfloat16   float32  bfloat16   float32   float64
        # -> float32      float32   float32   float32   float32   float32   float32   float64
        # -> float64      float64   float64   float64   float64   float64   float64   float64

    indices, x = tensor([0, 1]), tensor([0.5, 1.5])
    print("NumPy:", (indices.array + x.array).dtype)  # -> NumPy: float64
    print("here: ", result_type(indices, x).name)  # -> here:  float32
    print(result_type(x, 2).name, result_type(x, 2.5).name)  # -> float32 float32
    print(result_type(indices, 1.5).name)  # -> float32
    double = tensor(np.array(1.0))
    print("0-d:", result_type(x, double).name, result_type(indices, double).name)
    # -> 0-d: float32 float64

    one = (np.ones(1, np.float32).view(np.uint32) >> 16).astype(np.uint16)  # bfloat16's bits of 1
    total = (one + one).astype(np.uint32) << 16
    print("1 + 1 in integers on bits:", total.view(np.float32)[0])
    # -> 1 + 1 in integers on bits: 1.7014118e+38

    print(error(tensor, [[1, 2], [3]]))
    # -> ValueError: expected sequence of length 2 at dim 1 (got 1)
    print(error(tensor, [300.0], dtype=uint8))
    # -> RuntimeError: value cannot be converted to tinytorch.uint8 without overflow: 300.0
    print(error(tensor, "12"))  # -> TypeError: new(): invalid data type 'str'
