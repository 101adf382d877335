"""Step compare03: Bitwise operators, for masks and integers

`&`, `|` and `~` are Python's operators for the bits of an integer: 6 & 3 is 2, since 110 and 011
have the middle bit in common. A boolean is one bit. So for booleans they are and, or and not, and
unlike `and` they are operators that a class can define. (The second derivatives of maximum and pow
need them too.)

    mask = (0 < x) & (x < 1)          not 0 < x < 1, which raises (step compare01)

The trap: the parentheses are needed. `&` binds more tightly than `<`, and 0 < x & x < 1 is 0 < (x &
x) < 1: an error, which for floats is about `&`, and for integers about the truth value of a tensor.

A number may stand on either side, but one of the two must be a tensor: numbers=2. The operators
come in three forms: __and__, __rand__ for 3 & x (order does not matter here), and __iand__, for
mask &= other, which writes into mask.

With the last lines of the table, `relation` gets its fast path too (step elementwise05): two
tensors of one type, the most common case, go straight to the operation, and so does a float tensor
with a number.

x << n moves the bits of x by n places to the left, which multiplies by 2^n, and >> moves them back.
Here the order matters: 2 << x calls x.__rlshift__(2), which exchanges the two. A boolean has no
second place: where NumPy turns both into int8, PyTorch refuses, and so does the formula of `shift`.

PyTorch: bitwise_and and so on, the same operators. They refuse floats.

Changed: relation. New: bitwise_and, bitwise_or, bitwise_xor, bitwise_not, invert, shift,
bitwise_left_shift, bitwise_right_shift, lshift_from, rshift_from.
Try: leave out the parentheses in the demo's mask.
"""

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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import broadcast  # noqa: F401  (sum_to_size, for second derivatives)
    from tinytorch.ops.elementwise import maximum, pow

    x = tensor([-1.0, 0.0, 0.5, 2.0])
    mask = (0 < x) & (x < 1)
    print("inside:", mask.tolist(), " outside:", (~mask).tolist())
    # -> inside: [False, False, True, False]  outside: [True, True, False, True]
    memory = mask.array
    mask |= x > 1
    print("or larger:", mask.tolist(), mask.array is memory)
    # -> or larger: [False, False, True, True] True

    bits = tensor([1, 6])
    print((bits & 3).tolist(), (3 | bits).tolist(), (bits ^ bits).tolist(), (~bits).tolist())
    # -> [1, 2] [3, 7] [0, 0] [-2, -7]
    print((bits << 2).tolist(), (bits >> bits).tolist(), (2 << bits).tolist(), (9 >> bits).tolist())
    # -> [4, 24] [0, 0] [4, 128] [4, 0]
    for wrong in (
        lambda: x & x,
        lambda: True << mask,
        lambda: bitwise_and(1, 2),
        lambda: 0 < bits & bits < 9,
    ):
        try:
            wrong()
        except (TypeError, RuntimeError) as error:
            print(f"{type(error).__name__}: {error}")
            # -> NotImplementedError: bitwiseand() is not implemented for float32 and float32
            # -> NotImplementedError: left_shift is not implemented for tinytorch.bool
            # -> TypeError: bitwise_and(): arguments must be Tensors, not int
            # -> RuntimeError: Boolean value of Tensor with more than one value is ambiguous
    print("of two types:", (bits == tensor([1.0, 2.0])).tolist())  # -> of two types: [True, False]

    # What waited for ~ and &: the second derivatives of maximum and of a power.
    a = tensor([[0.5, 1.5, 0.9]], dtype=float64, requires_grad=True)
    b = tensor([[1.0], [1.2]], dtype=float64, requires_grad=True)
    print(gradgradcheck(maximum, (a, b)), gradgradcheck(pow, (a, b)))  # -> True True
