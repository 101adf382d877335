"""Step compare04: isclose, allclose and equal

0.1 + 0.2 == 0.3 is False: none of the three has an exact form in binary, and the sum is rounded
once more. Two ways to compute the same number differ in the last digits. So results are compared
with a tolerance:

    |a - b| <= atol + rtol * |b|

rtol is relative: 1e-5 allows for an error in the fifth digit, whatever the size of b. But for b =
0, a relative tolerance is 0 and allows no error at all. So there is an absolute part, atol.

The trap: the formula is not symmetric. b is the reference, and rtol is relative to its size.

`isclose` returns a boolean for each pair, and `allclose` one Python bool, which tests need. `equal`
is exact. It returns False for different shapes, where == would broadcast or raise. Two nans are
close only if equal_nan=True.

PyTorch is strict here: tensors of different types and negative tolerances are errors.

Changed: nothing. New: IsClose, isclose, allclose, equal.
Try: compare 1e-20 with 0 under atol=0.
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


if __name__ == "__main__":
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import arithmetic  # noqa: F401  (the operators)

    near = tensor([0.1], dtype=float64) + 0.2
    third = tensor([0.3], dtype=float64)
    print("0.1 + 0.2 == 0.3:", equal(near, third), " nearly so:", allclose(near, third))
    # -> 0.1 + 0.2 == 0.3: False  nearly so: True

    a, b = tensor([1.0, 1e-9, 100.0]), tensor([1.0001, 0.0, 100.0001])
    print(isclose(a, b).tolist(), isclose(a, b, rtol=1e-3).tolist())
    # -> [False, True, True] [True, True, True]
    one, more = tensor([1.0]), tensor([1.1])
    print("not symmetric:", allclose(one, more, 0.095), allclose(more, one, 0.095))
    # -> not symmetric: True False
    odd = tensor([math.nan])
    print("nan:", allclose(odd, odd), allclose(odd, odd, equal_nan=True), equal(odd, odd))
    # -> nan: False True False
    large = tensor([2**62])
    print("whole numbers:", isclose(large, large + 1, rtol=0, atol=0).tolist())
    # -> whole numbers: [False]
    print("shapes:", equal(tensor([1, 1]), tensor([1])), (tensor([1, 1]) == tensor([1])).tolist())
    # -> shapes: False [True, True]
    for wrong in (lambda: isclose(near, a), lambda: allclose(a, b, atol=-1.0)):
        try:
            wrong()
        except RuntimeError as error:
            print("RuntimeError:", error)
            # -> RuntimeError: tinytorch.float64 did not match tinytorch.float32
            # -> RuntimeError: rtol and atol must not be negative, but got 1e-05 and -1.0
