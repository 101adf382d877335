"""Step compare05: Clamp: a gradient inside the bounds

clamp(x, low, high) replaces what is too small by low and what is too large by high. Programs use it
to keep a logarithm away from 0, or a probability ratio near 1.

    x < low       y = low       the gradient goes to low, if low requires grad
    inside        y = x         to x
    x > high      y = high      to high

At a bound itself there is a corner, as at the 0 of relu. PyTorch gives x the gradient there, and so
do we: <= and >=. (maximum, of step elementwise09, shares it with the other input. PyTorch's two
functions differ in the same way.)

The trap: a parameter that clamp cuts off gets no gradient, so training never brings it back inside.
Clamp results rather than parameters.

One bound is enough, and None stands for the other; without either, clamp raises. If low > high, the
result is high, as in NumPy, and so the gradient goes to high. The gradient of a bound is computed
only if the bound needs one.

For floats, a missing bound is replaced by an infinite one: NumPy has a fast loop for two numbers.

`saves = 0, 1, 2` declares that the three arguments are kept (step node02).

Changed: nothing. New: Clamp, clamp, clamp_min, clamp_max.
Try: write x > low in place of x >= low in Clamp, and see which line of the demo changes.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.elementwise import (
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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import broadcast  # noqa: F401  (sum_to_size, for second derivatives)

    x = tensor([-1.0, 0.0, 0.5, 2.0], requires_grad=True)
    y = clamp(x, 0, 1)
    y.backward(tensor([1.0, 1.0, 1.0, 1.0]))
    print("clamp:", y.tolist(), " gradient:", x.grad.tolist())
    # -> clamp: [0.0, 0.0, 0.5, 1.0]  gradient: [0.0, 1.0, 1.0, 0.0]

    low = tensor([0.25], requires_grad=True)
    x.clip(low).backward(tensor([1.0, 10.0, 100.0, 1000.0]))
    print("the bound gets:", low.grad.tolist())  # -> the bound gets: [11.0]
    n = tensor([-5, 5])
    print("integers:", clamp_min(n, 0).tolist(), clamp_max(n, 0).tolist(), n.clamp(-1, 1.5).dtype)
    # -> integers: [0, 5] [-5, 0] tinytorch.float32
    print("crossed:", clamp(x, 2, 1).tolist(), " in place:", tensor([3.0]).clamp_(max=1).tolist())
    # -> crossed: [1.0, 1.0, 1.0, 1.0]  in place: [1.0]
    try:
        clamp(x)
    except RuntimeError as error:
        print("RuntimeError:", error)
        # -> RuntimeError: torch.clamp: At least one of 'min' or 'max' must not be None

    a = tensor([[0.5, 1.5, 0.9]], dtype=float64, requires_grad=True)
    b = tensor([[1.0], [1.2]], dtype=float64, requires_grad=True)
    for function in (lambda a, b: clamp(a, 0.6, b), lambda a, b: clamp(a, b)):
        print(gradcheck(function, (a, b)), gradgradcheck(function, (a, b)))
        # -> True True
        # -> True True
