"""The operators + - * / and the rule that brings their two operands together."""

import operator
import warnings
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place, with_out
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, DType, bool_, numpy_dtype, result_type
from tinytorch.core.tensor import Tensor, as_tensor, tensor_method
from tinytorch.ops.conversion import cast


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a + b

    def backward(ctx, g: Any) -> Any:
        return g, g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a - b

    def backward(ctx, g: Any) -> Any:
        return g, None if ctx.edges[1] is None else -g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    elementwise = True
    saves = 0, 1

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed: then its factor is not kept
        ctx.saved = (None if edge_b is None else a, None if edge_a is None else b)
        return a * b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        return None if b is None else g * b, None if a is None else g * a


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2 = -c / b."""

    elementwise = True
    saves = 0, 1

    def forward(ctx, a: Any, b: Any) -> Any:
        ctx.saved = (None if ctx.edges[1] is None else a, b)
        return a / b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        ga = g / b
        return ga, None if a is None else -ga * (a / b)


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x: Any) -> Any:
        return -x

    def backward(ctx, g: Any) -> Any:
        return -g


def number_like(number: Any, dtype: DType) -> Any:
    """A number as an operand for tensors of type `dtype`: an integer wraps around as they do."""
    if isinstance(number, np.generic):
        number = number.item()
    if dtype.name == "bfloat16":  # NumPy would answer with float32 to a Python float
        return numpy_dtype(dtype).type(number)
    if dtype.is_floating_point:
        return float(number)
    return np.asarray(number).astype(numpy_dtype(dtype)).item()


def operands(a: Any, b: Any, floating: bool = False) -> tuple[Any, Any]:
    """Bring two tensors, or a tensor and a number, to the type of their result.

    A number stays a number, which costs no array and, in NumPy 2 as in PyTorch, does not widen a
    float type. With `floating`, integers become the default float type. A NumPy array counts as a
    tensor.

    Raises:
        TypeError: an operand is neither a tensor nor a number.
    """
    if isinstance(a, Tensor) and type(b) is float and a.array.dtype.kind == "f":
        return a, b
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        a, b = as_tensor(a), as_tensor(b)
    a = a if isinstance(a, Tensor) or isinstance(b, Tensor) else as_tensor(a)  # add(2, 3)
    dtype = result_type(a, b)
    if floating and not dtype.is_floating_point:
        dtype = Defaults.dtype
    return (
        cast(a, dtype) if isinstance(a, Tensor) else number_like(a, dtype),
        cast(b, dtype) if isinstance(b, Tensor) else number_like(b, dtype),
    )


def in_old_order(name: str, count: int, named: Any, *given: Any) -> tuple:
    """The arguments of add(x, 2, y), which is written add(x, y, alpha=2) now: (y, 2); those of
    addcmul(x, 2, y, z): (y, z, 2). Two numbers are in the order of today.

    Args:
        count: how many tensors there should be after the number.
        named: the number that was given by name, or 1.
    Raises:
        TypeError: for other arguments.
    """
    number, *tensors = given
    is_number = not isinstance(number, Tensor)
    kinds = {isinstance(each, Tensor) for each in tensors}
    if len(tensors) == count and named == 1:
        if is_number and kinds == {False}:
            return given
        if kinds == {True} and (is_number or not (number.ndim or number.requires_grad)):
            text = (
                f"{name}(number, tensor) is deprecated: give the number by name, after the tensor"
            )
            warnings.warn(text, stacklevel=4)
            return *tensors, number
    types = ", ".join(type(each).__name__ for each in given)
    raise TypeError(f"{name}() received an invalid combination of arguments - got ({types})")


def scaled(input: Any, other: Any, alpha: Any) -> Any:
    """alpha * other, of an addition to `input`.

    Raises:
        RuntimeError: alpha is a float, and both are integers; or it does not fit their type.
    """
    dtype = result_type(input, other)
    if isinstance(alpha, float) and not dtype.is_floating_point:
        raise RuntimeError(f"alpha must be an integer for integral input tensors, got {alpha}")
    if not dtype.is_floating_point:
        as_tensor(alpha, dtype=dtype)  # checks it; as an operand of mul it would wrap around
    return mul(other, alpha)


@with_out
@tensor_method("add", "__add__", "__radd__")
def add(input: Tensor, other: Any, *old: Any, alpha: Any = 1) -> Tensor:
    """input + alpha * other, broadcast; the type of the result is `result_type(input, other)`."""
    if old:
        other, alpha = in_old_order("add", 1, alpha, other, *old)
    if alpha != 1:
        other = scaled(input, other, alpha)
    # Two tensors of one type are by far the most common case.
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Add.apply(input, other)
    return Add.apply(*operands(input, other))


@with_out
@tensor_method("sub", "subtract", "__sub__")
def sub(input: Any, other: Any, *old: Any, alpha: Any = 1) -> Tensor:
    """input - alpha * other, broadcast.

    Raises:
        RuntimeError: an operand is boolean.
    """
    if old:
        other, alpha = in_old_order("sub", 1, alpha, other, *old)
    if alpha != 1:
        other = scaled(input, other, alpha)
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Sub.apply(input, other)
    if isinstance(other, np.ndarray):
        other = as_tensor(other)
    if bool_ in (result_type(input), result_type(other)):
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported: use `^` or "
            "logical_xor() instead."
        )
    return Sub.apply(*operands(input, other))


@with_out
@tensor_method("mul", "multiply", "__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other, broadcast."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype:
            return Mul.apply(input, other)
    return Mul.apply(*operands(input, other))


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other, broadcast, in floating point also for integers."""
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        if input.array.dtype is other.array.dtype and input.array.dtype.kind == "f":
            return Div.apply(input, other)
    return Div.apply(*operands(input, other, floating=True))


@tensor_method("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input.

    Raises:
        RuntimeError: the tensor is boolean.
    """
    return Neg.apply(input)


@tensor_method("positive", "__pos__")
def positive(input: Tensor) -> Tensor:
    """The tensor itself.

    Raises:
        RuntimeError: the tensor is boolean.
    """
    if input.dtype is bool_:
        raise RuntimeError("positive() is not supported for bool tensors")
    return input


@tensor_method("__rsub__")
def rsub(self: Tensor, other: Any) -> Tensor:
    return sub(other, self)


@tensor_method("__rtruediv__")
def rdiv(self: Tensor, other: Any) -> Tensor:
    return true_divide(other, self)


add_ = tensor_method("add_", "__iadd__")(in_place(add, operator.iadd))
sub_ = tensor_method("sub_", "subtract_", "__isub__")(in_place(sub, operator.isub))
mul_ = tensor_method("mul_", "multiply_", "__imul__")(in_place(mul, operator.imul))
neg_ = tensor_method("neg_", "negative_")(in_place(neg))
true_divide_ = tensor_method("__itruediv__")(in_place(true_divide, operator.itruediv))
