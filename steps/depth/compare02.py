"""Step compare02: isnan and its kin, and the logical functions

nan == nan is False: "not a number" equals nothing, itself included. So `x == nan` cannot find the
nan that has spoiled a training run. It takes a test of one number. There are four:

    isnan        is it nan?               isinf        is it inf or -inf?
    isfinite     is it neither?           logical_not  is it 0?

`predicate` makes them, as `relation` makes comparisons. In PyTorch, operations that return another
type have mostly no in-place form: there is no isnan_, but there is logical_not_, which writes 0 and
1 into x. `written` says whether a line has one.

logical_and, logical_or and logical_xor (exactly one of the two) combine such results. Every element
that is not 0 counts as true. They are functions, because a class cannot redefine Python's `and`: it
always needs one truth value. As in PyTorch, both inputs must be tensors: numbers=0.

NumPy's logical functions are slow for numbers: (a != 0) & (b != 0) takes less than half of the
time.

The trap: nan is true. It is not 0.

Changed: relation. New: predicate, isnan, isinf, isfinite, logical_not, logical_and, logical_or,
logical_xor.
Try: find the nan of the demo with x != x.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import operands
from tinytorch.ops.elementwise import (
    attach,
    entry,
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

    `numbers` is how many of them may be Python numbers: none, or the second.
    For an operand that is neither a tensor nor a number, an operator returns NotImplemented:
    `x == None` is False.
    """
    function = entry(names, NondifferentiableElementwise, formula)

    def operation(input: Tensor, other: Any) -> Tensor:
        require_tensors(names.split()[0], (input, other)[: 2 - numbers])
        return function.apply(*operands(input, other))

    def operator(self: Tensor, other: Any) -> Tensor:
        known = isinstance(other, (Tensor, int, float, np.generic, np.ndarray))
        return operation(self, other) if known else NotImplemented

    operation.__doc__ = f"{names.split()[0]} of each pair of elements, broadcast."
    for name in operators.split():
        tensor_method(name)(operator)
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


if __name__ == "__main__":
    import timeit

    from tinytorch.core.tensor import tensor

    x = tensor([1.0, math.nan, -math.inf, 0.0])
    print("== nan:", (x == math.nan).tolist(), " isnan:", isnan(x).tolist())
    # -> == nan: [False, False, False, False]  isnan: [False, True, False, False]
    print("isinf:", isinf(x).tolist(), " isfinite:", isfinite(x).tolist())
    # -> isinf: [False, False, True, False]  isfinite: [True, False, False, True]
    print("not:", logical_not(x).tolist(), " in place:", tensor([3.0, 0.0]).logical_not_().tolist())
    # -> not: [False, False, False, True]  in place: [0.0, 1.0]
    print("isnan_:", hasattr(Tensor, "isnan_"))  # -> isnan_: False

    a, b = tensor([0, 0, 2, 2]), tensor([0, 1, 0, 1])
    for function in (logical_and, logical_or, logical_xor):
        print(f"{function.__name__:11}", function(a, b).tolist())
        # -> logical_and [False, False, False, True]
        # -> logical_or  [False, True, True, True]
        # -> logical_xor [False, True, True, False]
    for wrong in (lambda: logical_and(a, 1), lambda: isnan(2.0)):
        try:
            wrong()
        except TypeError as error:
            print("TypeError:", error)
            # -> TypeError: logical_and(): arguments must be Tensors, not int
            # -> TypeError: isnan(): argument 'input' (position 1) must be Tensor, not float

    numbers = np.random.default_rng(0).integers(0, 2, 100_000).astype(np.float32)
    t = tensor(numbers)
    slow = min(timeit.repeat(lambda: np.logical_and(numbers, numbers), number=3, repeat=5))
    fast = min(timeit.repeat(lambda: logical_and(t, t), number=3, repeat=5))
    print(f"NumPy's logical_and takes {slow / fast:.1f} times as long")  # -> ...
