"""Copies, and moves from one element type or device to another."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.device import Device, as_device
from tinytorch.core.dtype import DType, as_dtype, numpy_dtype
from tinytorch.core.tensor import Tensor, from_numpy, tensor_method


class MemoryFormat:
    """The order of a tensor's elements in memory: tinytorch.preserve_format or contiguous_format.

    PyTorch has formats for images besides, channels_last, which tinytorch does not.
    """

    def __init__(self, name: str, order: str):
        self.name, self.order = name, order  # the order by NumPy's name

    def __repr__(self) -> str:
        return f"tinytorch.{self.name}"


preserve_format = MemoryFormat("preserve_format", "K")
contiguous_format = MemoryFormat("contiguous_format", "C")


class Clone(Function):
    """y = a copy of x with memory of its own;  dy/dx = 1. Order K keeps transposed ones so."""

    def forward(ctx, x: Any, order: str = "K") -> Any:
        return x.copy("C" if 0 in x.strides else order)  # 0 in an expanded one, not in its copy

    def backward(ctx, g: Any) -> Any:
        return g


class Cast(Function):
    """y = x as another element type. The gradient goes back as the type of x."""

    def forward(ctx, x: Any, dtype: Any, order: str = "K") -> Any:
        ctx.dtype = x.dtype
        return x.astype(dtype, "C" if 0 in x.strides else order)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Cast, g, ctx.dtype)

    def name(ctx) -> str:
        return "ToCopyBackward0"


class Transfer(Function):
    """y = x on another device. The gradient travels back to the device of x.

    With non_blocking the backend may start a copy to the device and not wait for its end.
    """

    def forward(ctx, x: Any, device: Device, non_blocking: bool = False) -> Any:
        ctx.source = ctx.device
        ctx.device, ctx.xp = device, device.xp
        host = ctx.source.backend.to_numpy(x)
        if non_blocking:
            return device.backend.send(host, device.index)
        return device.backend.from_numpy(host, device.index)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Transfer, g, ctx.source)

    def name(ctx) -> str:
        return "ToCopyBackward0"


def cast(input: Tensor, dtype: DType, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """`input` as `dtype`; the tensor itself where it is of that type. Integers get no gradient."""
    if input.dtype is dtype:
        return input
    if not dtype.is_floating_point:
        input = input.detach()
    if memory_format is preserve_format:
        return Cast.apply(input, numpy_dtype(dtype))
    return Cast.apply(input, numpy_dtype(dtype), memory_format.order)


@tensor_method("to")
def to(
    self: Tensor,
    *args: Any,
    device: Any = None,
    dtype: DType | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: MemoryFormat = preserve_format,
) -> Tensor:
    """The tensor with another dtype or on another device: `x.to(float64)`, `x.to("cuda:0")`,
    `x.to(device, dtype)`, `x.to(other)` for both as `other` has them.

    Returns the tensor itself where nothing changes, unless copy=True. A copy lies in memory as
    `memory_format` says.

    Raises:
        TypeError: an argument is not a dtype, device, tensor or flag.
    """
    for arg in reversed(args):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (DType, type)):  # or a Python type: float is float64
            dtype = arg
        elif isinstance(arg, (str, int, Device)) and not isinstance(arg, bool):
            device = arg
        elif isinstance(arg, bool):
            non_blocking, copy = arg, copy or non_blocking
        elif arg is not None:
            raise TypeError(f"to() received an invalid argument of type {type(arg).__name__}")
    out = self
    if dtype is not None:
        out = cast(out, as_dtype(dtype), memory_format)
    if device is not None and as_device(device) is not out.device:
        out = Transfer.apply(out, as_device(device), non_blocking)
    return Clone.apply(out, memory_format.order) if copy and out is self else out


@tensor_method("clone")
def clone(input: Tensor, *, memory_format: MemoryFormat = preserve_format) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    return Clone.apply(input, memory_format.order)


@tensor_method("cpu")
def cpu_copy(self: Tensor) -> Tensor:
    return to(self, device="cpu")


@tensor_method("cuda")
def cuda_copy(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    return to(self, device="cuda" if device is None else device, non_blocking=non_blocking)


def caster(name: str, dtype: str) -> Callable[[Tensor], Tensor]:
    """The method `name` that casts to `dtype`, such as x.float()."""
    target = as_dtype(dtype)

    def method(self: Tensor, memory_format: MemoryFormat = preserve_format) -> Tensor:
        return cast(self, target, memory_format)

    return tensor_method(name)(method)


CAST_METHODS = "double float half bfloat16 long int short char byte bool"
CAST_TYPES = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool"
casters = list(map(caster, CAST_METHODS.split(), CAST_TYPES.split()))


@tensor_method("type_as")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor with the element type of `other`."""
    return cast(self, other.dtype)


@tensor_method("__array_wrap__")
def array_wrap(self: Tensor, array: Any, context: Any = None, scalar: bool = False) -> Tensor:
    """Makes a Tensor of the result of a NumPy function: np.sin(tensor)."""
    return from_numpy(np.asarray(array))
