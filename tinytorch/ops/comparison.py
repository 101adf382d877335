"""Comparison, logic and bits, through which no gradient flows, and choices that rest on them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import bool_, result_type
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import add, mul, operands, sub
from tinytorch.ops.conversion import cast
from tinytorch.ops.elementwise import as_type, attach, compute, is_float, require_tensors


class Discrete(Function):
    """y = f(a) or f(a, b), element for element, by the array library's function of that name."""

    elementwise = True
    differentiable = False
    ufunc: str

    def forward(ctx, *inputs: Any) -> Any:
        return getattr(ctx.xp, ctx.ufunc)(*inputs)


def predicate(name: str) -> Callable[[Tensor], Tensor]:
    """A question about each element: a line of the table for one input."""
    function = type(name, (Discrete,), {"ufunc": name})

    def operation(input: Tensor) -> Tensor:
        require_tensors(name, (input,))
        return function.apply(input)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{name} of each element, as a boolean tensor."
    return tensor_method(name)(operation)


def relation(
    name: str, ufunc: str, *operators: str, numbers: int = 1
) -> Callable[[Tensor, Any], Tensor]:
    """A line of the table for two inputs, which are brought to one type.

    `numbers` says whether none, the second or each of them may be a Python number. An operator
    leaves to Python what is neither a tensor nor a number: `x == None` is False.
    """
    function = type(name, (Discrete,), {"ufunc": ufunc})

    def operation(input: Tensor, other: Any) -> Tensor:
        if not (
            input.__class__ is other.__class__ is Tensor and input.array.dtype is other.array.dtype
        ):
            require_tensors(name, (input, other)[: 2 - numbers])
            if not (is_float(input) and other.__class__ in (int, float)):
                input, other = operands(input, other)
        return function.apply(input, other)

    def operator(self: Tensor, other: Any) -> Tensor:
        known = isinstance(other, (Tensor, int, float, np.generic))
        return operation(self, other) if known else NotImplemented

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{name} of each pair of elements, broadcast."
    tensor_method(*operators)(operator)
    return tensor_method(name)(operation)


eq = relation("eq", "equal", "__eq__")
ne = relation("ne", "not_equal", "__ne__")
lt = relation("lt", "less", "__lt__")
le = relation("le", "less_equal", "__le__")
gt = relation("gt", "greater", "__gt__")
ge = relation("ge", "greater_equal", "__ge__")

isnan = predicate("isnan")
isinf = predicate("isinf")
isfinite = predicate("isfinite")
logical_not = predicate("logical_not")
logical_and = relation("logical_and", "logical_and", numbers=0)
logical_or = relation("logical_or", "logical_or", numbers=0)
logical_xor = relation("logical_xor", "logical_xor", numbers=0)

# On integers bit by bit; on booleans they are the logical ones: mask & other, ~mask.
bitwise_and = relation("bitwise_and", "bitwise_and", "__and__", "__rand__", numbers=2)
bitwise_or = relation("bitwise_or", "bitwise_or", "__or__", "__ror__", numbers=2)
bitwise_xor = relation("bitwise_xor", "bitwise_xor", "__xor__", "__rxor__", numbers=2)
bitwise_left_shift = relation("bitwise_left_shift", "left_shift", "__lshift__")
bitwise_right_shift = relation("bitwise_right_shift", "right_shift", "__rshift__")
bitwise_and_ = tensor_method("bitwise_and_", "__iand__")(in_place(bitwise_and))
bitwise_or_ = tensor_method("bitwise_or_", "__ior__")(in_place(bitwise_or))
bitwise_xor_ = tensor_method("bitwise_xor_", "__ixor__")(in_place(bitwise_xor))


class BitwiseNot(Discrete):
    """y = ~x: every bit turned, or the opposite of a boolean."""

    ufunc = "invert"


@tensor_method("bitwise_not", "__invert__")
def bitwise_not(input: Tensor) -> Tensor:
    """~input. RuntimeError for floating point."""
    return BitwiseNot.apply(input)


class IsClose(Function):
    """Whether |a - b| <= atol + rtol * |b|."""

    elementwise = True
    differentiable = False

    def forward(ctx, a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
        return ctx.xp.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


@tensor_method("isclose")
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """|input - other| <= atol + rtol * |other|, for each pair. RuntimeError for unequal dtypes."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype!r} did not match {other.dtype!r}")
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"rtol and atol must not be negative, but got {rtol} and {atol}")
    return IsClose.apply(input, other, rtol, atol, equal_nan)


@tensor_method("allclose")
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close: see `isclose`."""
    return bool(isclose(input, other, rtol, atol, equal_nan).array.all())


@tensor_method("equal")
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and the same elements."""
    return input.shape == other.shape and bool(eq(input, other).array.all())


class Clamp(Function):
    """y = x between low and high. The gradient passes inside and at the borders; outside it goes
    to the border that took the place of x."""

    elementwise = True

    def forward(ctx, x: Any, low: Any, high: Any) -> Any:
        ctx.saved = (x, low, high)
        return ctx.xp.clip(x, low, high)

    def backward(ctx, g: Any) -> Any:
        x, low, high = ctx.saved
        below = False if low is None else x < low
        above = False if high is None else x > high
        crossed = False if low is None or high is None else low > high  # then high wins
        return (
            g * ~(below | above),
            None if ctx.edges[1] is None else g * (below > crossed),
            None if ctx.edges[2] is None else g * (above | crossed),
        )


@attach("clamp clip")
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """The elements, no smaller than `min` and no larger than `max`: numbers, tensors or None."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    return compute(Clamp, (input, min, max), numbers=2)


class Where(Function):
    """y = a where the condition holds, else b. Each gets the gradient of its own elements."""

    elementwise = True

    def forward(ctx, condition: Any, a: Any, b: Any) -> Any:
        ctx.saved = (condition,)
        return ctx.xp.where(condition, a, b)

    def backward(ctx, g: Any) -> Any:
        (condition,) = ctx.saved
        return None, g * condition, g * ~condition


def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where the boolean `condition` holds, else `other`: tensors or numbers, broadcast.

    where(condition) alone gives the indices, as `condition.nonzero(as_tuple=True)`.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition.dtype is not bool_:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype!r}"
        )
    if is_float(input) and is_float(other) and input.array.dtype is other.array.dtype:
        return Where.apply(condition, input, other)
    dtype = result_type(input, other)
    return cast(Where.apply(condition, as_type(input, dtype), as_type(other, dtype)), dtype)


@tensor_method("where")
def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The elements of this tensor where `condition` holds, else those of `other`."""
    return where(condition, self, other)


@attach("lerp")
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input): a point between the two."""
    if input.dtype is not end.dtype:
        raise RuntimeError(f"expected dtype {input.dtype!r} for `end` but got dtype {end.dtype!r}")
    return add(input, mul(sub(end, input), weight))
