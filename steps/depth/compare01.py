"""Step compare01: Comparisons in the package's dress

Step 38a built the comparisons. Here they get types and devices, and the manners that Python and
PyTorch expect. The result is a tensor of booleans that requires no gradient: the class is not
differentiable, and nothing is saved.

A class that defines __eq__ loses Python's __hash__. Sets and dictionaries should compare tensors by
identity, as in PyTorch. So the core keeps __hash__ (step tensor05), and `x in {x: 1}` is True.

x == None must be False, not a tensor or an error, because programs often test it. For an operand
that is neither a number nor a tensor, the operator returns NotImplemented. Python then tries the
other operand, and then compares identities. For `<` it raises a TypeError.

The traps of step 38a are still there: 0 < x < 1, and `x in [a, b]`, ask for the truth value of
several elements, and raise.

Changed: relation; eq, ne, lt, le, gt, ge and their operators. New: NondifferentiableElementwise.
Try: let the operators always return operation(self, other). What is x == None now?
"""

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


def relation(names: str, formula: Any, operators: str = "") -> Callable[[Tensor, Any], Tensor]:
    """A line of the table for two inputs, which are brought to one type.

    For an operand that is neither a tensor nor a number, an operator returns NotImplemented:
    `x == None` is False.
    """
    function = entry(names, NondifferentiableElementwise, formula)

    def operation(input: Tensor, other: Any) -> Tensor:
        require_tensors(names.split()[0], (input,))
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


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.elementwise import relu

    x = tensor([-1.0, 0.0, 0.5, 2.0], requires_grad=True)
    print("x > 0:", (x > 0).tolist(), " requires grad:", (x > 0).requires_grad)
    # -> x > 0: [False, False, True, True]  requires grad: False
    print(eq(tensor([1, 2]), tensor([1.0, 2.5])).tolist(), (2 > x).tolist())
    # -> [True, False] [True, True, True, False]
    print(x.less_equal(0.0).tolist(), tensor([[1], [2]]).ne(tensor([1, 2])).tolist())
    # -> [True, True, False, False] [[False, True], [True, False]]

    questions = {"0 < x < 1": lambda: 0 < x < 1, "x in [a]": lambda: x in [-x]}
    questions["x < None"] = lambda: x < None
    for name, question in questions.items():
        try:
            question()
        except (RuntimeError, TypeError) as error:
            print(f"{name}: {error}")
            # -> 0 < x < 1: Boolean value of Tensor with more than one value is ambiguous
            # -> x in [a]: Boolean value of Tensor with more than one value is ambiguous
            # -> x < None: '<' not supported between instances of 'Tensor' and 'NoneType'
    print("x == None:", x == None, " x != 'a':", x != "a")  # noqa: E711
    # -> x == None: False  x != 'a': True
    print("x in {x: 1}:", x in {x: 1})  # -> x in {x: 1}: True
    try:
        lt([1.0], x)
    except TypeError as error:
        print("TypeError:", error)  # -> TypeError: lt(): arguments must be Tensors, not list

    # What waited for an answer: the second derivative of relu.
    a = tensor([[0.5, -1.5, 0.9]], dtype=float64, requires_grad=True)
    print(gradgradcheck(relu, a))  # -> True
