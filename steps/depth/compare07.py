"""Step compare07: Lerp: a point between two

A moving average of weights, a mixture of two pictures, a colour between two others: all are points
on the line from a to b, at a fraction w of the way. (Lerp is short for linear interpolation.)

    y = a + w (b - a)          dy/da = 1 - w,     dy/db = w,     dy/dw = b - a

Rounding makes it miss its end. In float32, with a = 1e8 and b = 1, b - a is rounded to -1e8, and at
w = 1 the formula gives 0, not 1. The same point counted from b, b - (1 - w) (b - a), is exact there
and misses a. So the formula chooses: below w = 0.5 it counts from a, from there on from b, the
nearer end. Both ends are met exactly.

For a number w Python chooses, for a tensor `where`. Here where's trap (step compare06) does no
harm: both results are finite.

lerp is a function of three inputs, and NaryElementwise of step elementwise08 was made for any
number of them: three derivatives are all that it takes. PyTorch does not convert types here, and
refuses integers.

The trap: w is not limited to 0 ... 1. Outside, the point lies beyond the ends.

`saves=(0, 1, 2)`: the three inputs are kept (step compare05).

Changed: nothing. New: interpolate, Lerp, lerp.
Try: return a + weight * step always.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import bool_, result_type, uint8
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.conversion import cast
from tinytorch.ops.elementwise import (
    NaryElementwise,
    as_type,
    attach,
    compute,
    entry,
    is_float,
    require_tensors,
)


class NondifferentiableElementwise(Function):
    """y = f(a) or f(a, b), element for element, by the formula (xp, a, b) -> y."""

    elementwise = True
    differentiable = False
    formula: Callable

    def forward(ctx, *inputs: Any) -> Any:
        return ctx.formula(ctx.xp, *inputs)


def predicate(name: str, formula: Any = None, written: bool = False) -> Callable[[Tensor], Tensor]:
    """A line of the table for one input: a question with a boolean answer for each element."""
    function = entry(name, NondifferentiableElementwise, formula or name)

    def operation(input: Tensor) -> Tensor:
        """The answer for each element, in the shape of `input`."""
        return function.apply(input)

    return attach(name, written)(operation)


def relation(
    names: str, formula: Any, operators: str = "", numbers: int = 1
) -> Callable[[Tensor, Any], Tensor]:
    """A line of the table for two inputs, which are brought to one type.

    `numbers` is how many of them may be Python numbers: none, the second, or either. For an operand
    that is neither a tensor nor a number, an operator returns NotImplemented: `x == None` is False.
    """
    function = entry(names, NondifferentiableElementwise, formula)

    def operation(input: Tensor, other: Any) -> Tensor:
        both = isinstance(input, Tensor) and isinstance(other, Tensor)
        if not (both and input.array.dtype is other.array.dtype):
            # At least one of the two must be a tensor.
            given = (input, other)[: 2 - numbers or not isinstance(other, Tensor)]
            require_tensors(names.split()[0], given)
            if not (is_float(input) and other.__class__ in (int, float)):
                input, other = operands(input, other)
        return function.apply(input, other)

    def operator(self: Tensor, other: Any) -> Tensor:
        known = isinstance(other, (Tensor, int, float, np.generic, np.ndarray))
        return operation(self, other) if known else NotImplemented

    operation.__doc__ = f"{names.split()[0]} of each pair of elements, broadcast."
    for name in operators.split():
        tensor_method(name)(in_place(operation) if name.startswith("__i") else operator)
    return attach(names)(operation)


eq = relation("eq", "equal", "__eq__")
ne = relation("ne not_equal", "not_equal", "__ne__")
lt = relation("lt less", "less", "__lt__")
le = relation("le less_equal", "less_equal", "__le__")
gt = relation("gt greater", "greater", "__gt__")
ge = relation("ge greater_equal", "greater_equal", "__ge__")

isnan = predicate("isnan")
isinf = predicate("isinf")
isfinite = predicate("isfinite")
# Comparisons take a fifth of the time of the array library's logical functions for numbers.
logical_not = predicate("logical_not", lambda xp, x: x == 0, written=True)
logical_and = relation("logical_and", lambda xp, a, b: (a != 0) & (b != 0), numbers=0)
logical_or = relation("logical_or", lambda xp, a, b: (a != 0) | (b != 0), numbers=0)
logical_xor = relation("logical_xor", lambda xp, a, b: (a != 0) ^ (b != 0), numbers=0)


# Bit by bit for integers, logical for booleans: mask & other, ~mask.
bitwise_and = relation("bitwise_and", "bitwise_and", "__and__ __rand__ __iand__", 2)
bitwise_or = relation("bitwise_or", "bitwise_or", "__or__ __ror__ __ior__", 2)
bitwise_xor = relation("bitwise_xor", "bitwise_xor", "__xor__ __rxor__ __ixor__", 2)
bitwise_not = predicate("bitwise_not", "invert", written=True)
invert = tensor_method("__invert__")(bitwise_not)


def shift(name: str) -> Callable:
    """The formula of a shift, which is for integers alone: NumPy would make int8 of booleans.

    Raises:
        NotImplementedError: the operands are booleans.
    """

    def formula(xp: Any, a: Any, b: Any) -> Any:
        if bool in (type(a), getattr(a, "dtype", None)):  # then b is boolean too
            raise NotImplementedError(f"{name} is not implemented for tinytorch.bool")
        return getattr(xp, name)(a, b)

    return formula


bitwise_left_shift = relation(
    "bitwise_left_shift", shift("left_shift"), "__lshift__ __ilshift__", 2
)


bitwise_right_shift = relation(
    "bitwise_right_shift", shift("right_shift"), "__rshift__ __irshift__", 2
)


lshift_from = tensor_method("__rlshift__")(lambda self, other: bitwise_left_shift(other, self))


rshift_from = tensor_method("__rrshift__")(lambda self, other: bitwise_right_shift(other, self))


# Whether |a - b| <= atol + rtol * |b|.
IsClose = entry(
    "isclose", NondifferentiableElementwise, lambda xp, a, b, *limits: xp.isclose(a, b, *limits)
)


@tensor_method("isclose")
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """|input - other| <= atol + rtol * |other|, for each pair.

    Raises:
        RuntimeError: the dtypes differ, or a tolerance is negative.
    """
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype!r} did not match {other.dtype!r}")
    if rtol < 0 or atol < 0:
        raise RuntimeError(f"rtol and atol must not be negative, but got {rtol} and {atol}")
    if rtol == atol == 0 and not input.is_floating_point():
        return eq(input, other)  # the sum above is a float64, which has 53 bits
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
    return input.array.shape == other.array.shape and bool(eq(input, other).array.all())


class Clamp(Function):
    """y = x between low and high. The gradient passes inside and at the bounds; outside it goes to
    the bound that took the place of x."""

    saves = 0, 1, 2
    elementwise = True

    def forward(ctx, x: Any, low: Any, high: Any) -> Any:
        ctx.saved = (x, low, high)
        if x.dtype.kind == "f":  # with two numbers clip takes half of the time
            low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
        return ctx.xp.clip(x, low, high)

    def backward(ctx, g: Any) -> Any:
        x, low, high = ctx.saved
        inside = (low is None or x >= low) & (high is None or x <= high)
        return (
            g * inside,
            None if ctx.edges[1] is None else g * ((x < low) & (high is None or low < high)),
            None if ctx.edges[2] is None else g * ((x > high) | (low is not None and low > high)),
        )


@attach("clamp clip")
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """The elements, no smaller than `min` and no larger than `max`: numbers, tensors or None."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    return compute(Clamp, (input, min, max), "biu" if min is None or max is None else "iu", 2)


# With one bound alone.
clamp_min = attach("clamp_min")(lambda input, min: clamp(input, min))
clamp_max = attach("clamp_max")(lambda input, max: clamp(input, None, max))


class Where(Function):
    """y = a where the condition holds, else b. Each gets the gradient of its own elements."""

    saves = (0,)
    elementwise = True

    def forward(ctx, condition: Any, a: Any, b: Any) -> Any:
        ctx.saved = (condition,)
        return ctx.xp.where(condition, a, b)

    def backward(ctx, g: Any) -> Any:
        (condition,) = ctx.saved
        return None, g * condition, g * ~condition


@checked
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """`input` where the boolean `condition` holds, else `other`: tensors or numbers, broadcast.

    where(condition) alone is `condition.nonzero(as_tuple=True)`.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition.dtype is uint8:  # masks of older programs, before PyTorch had booleans
        condition = condition != 0
    if condition.dtype is not bool_:
        raise RuntimeError(f"where(): condition must be a boolean tensor, not {condition.dtype!r}")
    if is_float(input) and is_float(other) and input.array.dtype is other.array.dtype:
        return Where.apply(condition, input, other)
    dtype = result_type(input, other)
    return cast(Where.apply(condition, as_type(input, dtype), as_type(other, dtype)), dtype)


@tensor_method("where")
def where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The elements of this tensor where `condition` holds, else those of `other`."""
    return where(condition, self, other)


def interpolate(xp: Any, a: Any, b: Any, weight: Any) -> Any:
    """a + weight * (b - a), computed from the nearer end, so that both ends are exact."""
    step = b - a
    if isinstance(weight, float):
        return a + weight * step if weight < 0.5 else b - (1 - weight) * step
    return xp.where(weight < 0.5, a + weight * step, b - (1 - weight) * step)


Lerp = entry(
    "lerp",
    NaryElementwise,
    interpolate,
    derivatives=(
        lambda xp, g, a, b, weight: g * (1 - weight),
        lambda xp, g, a, b, weight: g * weight,
        lambda xp, g, a, b, weight: g * (b - a),
    ),
    saves=(0, 1, 2),
)


@checked
@attach("lerp")
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight * (end - input): a point between the two.

    Raises:
        RuntimeError: the dtypes differ.
        NotImplementedError: the type is an integer type.
    """
    if not input.is_floating_point():
        raise NotImplementedError(f"lerp() is not implemented for {input.dtype!r}")
    for name, x in (("end", end), ("weight", weight)):
        if isinstance(x, Tensor) and x.dtype is not input.dtype:
            raise RuntimeError(f"expected dtype {input.dtype!r} for `{name}` but got {x.dtype!r}")
    return compute(Lerp, (input, end, weight), "f", 1)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import broadcast  # noqa: F401  (sum_to_size, for second derivatives)

    a, b = tensor([0.0, 10.0]), tensor([10.0, 20.0])
    print(lerp(a, b, 0.25).tolist(), lerp(a, b, tensor([0.5, 2.0])).tolist())
    # -> [2.5, 12.5] [5.0, 30.0]

    far, one = np.float32(1e8), np.float32(1)
    print("the formula as it stands:", far + np.float32(1) * (one - far))
    # -> the formula as it stands: 0.0
    ends = tensor(far), tensor(one)
    for weight in (0.0, 1.0, tensor(1.0)):
        print("from the nearer end:", lerp(*ends, weight).item())
        # -> from the nearer end: 100000000.0
        # -> from the nearer end: 1.0
        # -> from the nearer end: 1.0

    average = tensor([0.0])
    for _ in range(3):
        average.lerp_(tensor([1.0]), 0.5)
        print(average.item())
        # -> 0.5
        # -> 0.75
        # -> 0.875

    wrong = [
        lambda: lerp(tensor([1]), tensor([2]), 0.5),
        lambda: lerp(a, b.double(), 0.5),
    ]
    for call in wrong:
        try:
            call()
        except (NotImplementedError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")
            # -> NotImplementedError: lerp() is not implemented for tinytorch.int64
            # -> RuntimeError: expected dtype tinytorch.float32 for `end` but got tinytorch.float64

    a, b, w = (tensor([[n, n + 0.4]], dtype=float64, requires_grad=True) for n in (0.5, 1.5, 0.2))
    print("derivatives:", gradcheck(lerp, (a, b, w)), gradgradcheck(lerp, (a, b, w)))
    # -> derivatives: True True
