"""Step compare06: where in the package's dress: numbers, masks, one argument

Step 38b built where, and its trap: it chooses among results, and that is too late. Where the other
branch is infinite, 0 * infinity is nan, so choose the input (the double where). PyTorch has the
same nan.

New is what it accepts. a and b may be numbers, and the result has their common type as usual. The
condition must be boolean: an integer mask would make g * ~c nonsense, as ~1 is -2. (A mask of
uint8, from the time before there were booleans, is taken; PyTorch warns about it.)

As a method it is x.where(c, other): x where the condition holds. where(c) alone gives the indices
of the true elements: it calls c.nonzero, which comes in step indexing10.

New: Where, where, where_method.
Try: where(x > 0, log(x), 0) at 0. Is its gradient nan as well?
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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import broadcast  # noqa: F401  (sum_to_size, for second derivatives)
    from tinytorch.ops.elementwise import sqrt

    a, b = tensor([1.0, 2.0, 3.0], requires_grad=True), tensor([[10.0], [20.0]], requires_grad=True)
    y = where(a > 1.5, a, b)
    print(y.tolist())  # -> [[10.0, 2.0, 3.0], [20.0, 2.0, 3.0]]
    for g in grad(y, [a, b], tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])):
        print(g.tolist())
        # -> [0.0, 2.0, 2.0]
        # -> [[1.0], [1.0]]

    zero = tensor(0.0, requires_grad=True)
    late = where(zero > 0, sqrt(zero), 0.0)
    early = where(zero > 0, sqrt(where(zero > 0, zero, 1.0)), 0.0)
    print("both are", late.item(), early.item())  # -> both are 0.0 0.0
    for y in (late, early):
        print("slope:", grad(y, [zero])[0].item())
        # -> slope: nan
        # -> slope: 0.0

    n = tensor([1, 2, 3])
    print(where(n > 1, n, 0.5).dtype, n.where(n > 1, 0).tolist())  # -> tinytorch.float32 [0, 2, 3]
    print(where(tensor([0, 7, 1], dtype=uint8), n, 0).tolist())  # -> [0, 2, 3]
    for wrong in (lambda: where(n, 1, 0), lambda: where(n > 1)):
        try:
            wrong()
        except (RuntimeError, AttributeError) as error:
            print(f"{type(error).__name__}: {error}")
            # -> RuntimeError: where(): condition must be a boolean tensor, not tinytorch.int64
            # -> AttributeError: 'Tensor' object has no attribute 'nonzero'

    a = tensor([[0.5, 1.5, 0.9]], dtype=float64, requires_grad=True)
    b = tensor([[1.0], [1.2]], dtype=float64, requires_grad=True)

    def choose(a, b):
        return where(a > b, a * a, b)

    print("derivatives:", gradcheck(choose, (a, b)), gradgradcheck(choose, (a, b)))
    # -> derivatives: True True
