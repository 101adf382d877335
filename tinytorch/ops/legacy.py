"""What older programs write: FloatTensor(2, 3), x.type(), x.new(...), x.t_(), Variable(x)."""

from collections.abc import Callable
from typing import Any

from tinytorch.autograd.inplace import check_writable
from tinytorch.core import dtype as types
from tinytorch.core.device import cpu
from tinytorch.core.tensor import Size, Tensor, tensor, tensor_method
from tinytorch.ops.conversion import to
from tinytorch.ops.creation import empty
from tinytorch.ops.shape import squeeze, t, transpose, unsqueeze


class TypedTensor:
    """FloatTensor, LongTensor and their kin, which older programs write as if they were classes:
    FloatTensor(2, 3) is a new tensor of that shape on the CPU, LongTensor([1, 2]) one of these
    elements, and isinstance(x, FloatTensor) asks for the type of x."""

    known: dict[types.DType, "TypedTensor"] = {}

    def __init__(self, name: str, dtype: types.DType):
        self.name, self.dtype = name, dtype
        TypedTensor.known[dtype] = self

    def __call__(self, *data: Any, device: Any = "cpu") -> Tensor:
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            return tensor(data[0], dtype=self.dtype, device=device)
        return empty(*data or (0,), dtype=self.dtype, device=device)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is self.dtype and x.device is cpu


FloatTensor = TypedTensor("FloatTensor", types.float32)
DoubleTensor = TypedTensor("DoubleTensor", types.float64)
HalfTensor = TypedTensor("HalfTensor", types.float16)
BFloat16Tensor = TypedTensor("BFloat16Tensor", types.bfloat16)
LongTensor = TypedTensor("LongTensor", types.int64)
IntTensor = TypedTensor("IntTensor", types.int32)
ShortTensor = TypedTensor("ShortTensor", types.int16)
CharTensor = TypedTensor("CharTensor", types.int8)
ByteTensor = TypedTensor("ByteTensor", types.uint8)
BoolTensor = TypedTensor("BoolTensor", types.bool_)


@tensor_method("type")
def type_of(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of this tensor's type, "tinytorch.FloatTensor"; or, as `to` does it, the tensor as
    another type: a dtype, FloatTensor, or such a name. ValueError for a name of none."""
    if dtype is None:
        place = "" if self.device is cpu else f"{self.device.type}."
        return f"tinytorch.{place}{TypedTensor.known[self.dtype].name}"
    if isinstance(dtype, str):
        named = {typed.name: typed for typed in TypedTensor.known.values()}
        if dtype.partition(".")[2] not in named:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = named[dtype.partition(".")[2]]
    return to(self, dtype=getattr(dtype, "dtype", dtype), non_blocking=non_blocking)


@tensor_method("new")
def new(self: Tensor, *data: Any) -> Tensor:
    """x.new(2, 3) is a new tensor of that shape, x.new([1, 2]) one of these elements, with the type
    and on the device of x. Prefer new_empty and new_tensor, which say which."""
    return TypedTensor.known[self.dtype](*data, device=self.device)


def in_place_view(function: Callable) -> Callable:
    """x.unsqueeze_(0): x itself gets the shape of x.unsqueeze(0), on the same memory."""

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self)
        whole = self
        if self._base is None:  # it becomes a view, of what it was
            whole = object.__new__(type(self))
            whole.__dict__.update(self.__dict__)
        self.__dict__.update(function(whole, *args, **kwargs).__dict__)
        return self

    return tensor_method(f"{function.__name__}_")(method)


squeeze_, unsqueeze_, transpose_, t_ = map(in_place_view, (squeeze, unsqueeze, transpose, t))


def variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """autograd.Variable, of which Tensor took the place: the memory of `data` as a new leaf."""
    return data.detach().requires_grad_(requires_grad)
