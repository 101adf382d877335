"""Step elementwise03: abs, relu, floor: derivatives at corners and jumps

Step 38c has met the corner: relu has two slopes at 0, and PyTorch takes 0. abs is the second one,
with -1 and 1 beside it, and again 0 is taken: g * sign(x), where sign(0) is 0. What is new are
jumps.

A staircase is flat, its slope counts as 0 everywhere, and nothing has to be saved. Such functions
have a base class of their own, `Staircase`; a line of the table without a derivative becomes a
subclass of it. `entry` makes a subclass of any base.

The trap: a gradient of 0 is not the same as no gradient. If a loss is computed from a floor,
training changes no weight and raises no error. (For this reason networks are trained on
probabilities, and not on the number of right answers.)

Two of the formulas need care. floor of an integer is the integer itself. The sign of nan is nan in
NumPy, but 0 in PyTorch. So sign is computed as (x > 0) - (x < 0): for nan, both are false.

Changed: unary_function, unary. New: as_formula, entry, Staircase, staircase; relu, floor, sign.
Try: write y >= 0 in relu's derivative. Which line of the demo changes?
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, DType, float32, numpy_dtype
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import arithmetic  # noqa: F401  (the operators)
from tinytorch.ops.conversion import cast


def as_formula(formula: Any) -> Callable:
    """A formula (xp, *inputs) -> array; a name stands for the array library's function."""
    if isinstance(formula, str):
        return lambda xp, *inputs: getattr(xp, formula)(*inputs)
    return formula


def entry(name: str, kind: type, formula: Any, **members: Any) -> type:
    """The Function of an entry of the table."""
    return type(name.title(), (kind,), {"formula": staticmethod(as_formula(formula)), **members})


def unary_function(name: str, formula: Any, derivative: Callable, keeps_y: bool = False) -> type:
    """The Function y = f(x), element for element, of a line of the table with one input.

    formula(xp, x) is f on an array, or names a function of the array library. derivative(xp, g,
    saved) is g * dy/dx, where `saved` is y if `keeps_y` says so, else x.
    """
    named = isinstance(formula, str)

    def forward(ctx, x: Any) -> Any:
        y = getattr(ctx.xp, formula)(x) if named else formula(ctx.xp, x)
        ctx.saved = (y if keeps_y else x,)
        return y

    def backward(ctx, g: Any) -> Any:
        return derivative(ctx.xp, g, ctx.saved[0])

    return entry(name, Function, formula, forward=forward, backward=backward)


class Staircase(Function):
    """y = f(x), where f is constant between its steps: the slope is 0, and nothing is saved."""

    def forward(ctx, x: Any) -> Any:
        return ctx.formula(ctx.xp, x)

    def backward(ctx, g: Any) -> Any:
        return g * 0


def require_tensors(name: str, inputs: tuple) -> None:
    """Checks that all inputs are tensors.

    Raises:
        TypeError: an input is not a tensor.
    """
    for x in inputs:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): arguments must be Tensors, not {type(x).__name__}")


def opmath_type(dtype: DType) -> DType:
    """The type in which operations on this one are computed: float32 for float16 and bfloat16,
    which are rounded once, at the end."""
    return float32 if dtype.itemsize == 2 and dtype.is_floating_point else dtype


def compute(function: type, input: Tensor, keeps: str) -> Tensor:
    """function.apply on an input of a type that suits it.

    Integers and booleans keep their type where `keeps` names its kind (as NumPy calls it). Where
    `keeps` is empty, they become the default float type. float16 and bfloat16 are computed as
    float32 and rounded once, at the end.

    Raises:
        TypeError: the input is not a tensor.
        NotImplementedError: the function has no result for this type.
    """
    require_tensors(function.__name__.lower(), (input,))
    dtype = input.dtype
    if not dtype.is_floating_point and numpy_dtype(dtype).kind not in keeps:
        if keeps:
            raise NotImplementedError(f"'{function.__name__}' not implemented for {dtype!r}")
        dtype = Defaults.dtype
    wide = opmath_type(dtype)
    return cast(function.apply(cast(input, wide)), dtype)


def unary(
    name: str,
    formula: Any,
    from_x: Callable | None = None,
    from_y: Callable | None = None,
    keeps: str = "",
) -> Callable[[Tensor], Tensor]:
    """One line of the table: dy/dx times g, computed from the input x or from the output y.

    Args:
        name: of the function.
        formula: (xp, x) -> y, or the name of a function of the array library.
        from_x: (xp, g, x) -> g * dy/dx. Without it and from_y the slope is 0: a `Staircase`.
        from_y: (xp, g, y) -> g * dy/dx, where y alone is enough.
        keeps: the kinds of integers and booleans that stay what they are; see `compute`.
    """
    function = entry(name, Staircase, formula)
    if derivative := from_x or from_y:
        function = unary_function(name, formula, derivative, from_y is not None)

    def operation(input: Tensor) -> Tensor:
        return compute(function, input, keeps)

    operation.__name__ = operation.__qualname__ = name
    operation.__doc__ = f"{name} of each element, in the shape of `input`."
    return tensor_method(name)(operation)


exp = unary("exp", "exp", from_y=lambda xp, g, y: g * y)
log = unary("log", "log", from_x=lambda xp, g, x: g / x)
sqrt = unary("sqrt", "sqrt", from_y=lambda xp, g, y: g / (2 * y))
sin = unary("sin", "sin", from_x=lambda xp, g, x: g * xp.cos(x))
cos = unary("cos", "cos", from_x=lambda xp, g, x: -g * xp.sin(x))
tanh = unary("tanh", "tanh", from_y=lambda xp, g, y: g - g * y * y)
sigmoid = unary(
    "sigmoid", lambda xp, x: 1 / (1 + xp.exp(-x)), from_y=lambda xp, g, y: g * y * (1 - y)
)
abs = unary("abs", "absolute", from_x=lambda xp, g, x: g * xp.sign(x), keeps="iu")
relu = unary(
    "relu", lambda xp, x: xp.maximum(x, 0), from_y=lambda xp, g, y: g * (y > 0), keeps="iu"
)


def staircase(name: str) -> Callable:
    """The formula of a function that makes floats whole and returns integers as they are."""
    return lambda xp, x: getattr(xp, name)(x) if x.dtype.kind == "f" else x.copy()


floor = unary("floor", staircase("floor"), keeps="iu")
sign = unary(
    "sign",  # and not that of the array library: the sign of nan is 0
    lambda xp, x: x.copy() if x.dtype == bool else xp.subtract(x > 0, x < 0, dtype=x.dtype),
    keeps="biu",
)


if __name__ == "__main__":
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    for function in (abs, relu, floor, sign):
        x = tensor([-1.5, 0.0, 1.5], requires_grad=True)
        y = function(x)
        y.backward(tensor([1.0, 1.0, 1.0]))
        print(f"{function.__name__:5} {y.tolist()} has slopes {x.grad.tolist()}")
        # -> abs   [1.5, 0.0, 1.5] has slopes [-1.0, 0.0, 1.0]
        # -> relu  [0.0, 0.0, 1.5] has slopes [0.0, 0.0, 1.0]
        # -> floor [-2.0, 0.0, 1.0] has slopes [0.0, 0.0, 0.0]
        # -> sign  [-1.0, 0.0, 1.0] has slopes [0.0, 0.0, 0.0]

    print("a staircase keeps", floor(x).grad_fn.saved)  # -> a staircase keeps ()
    print("integers:", floor(tensor([3, -3])).tolist(), sign(tensor([3, -3])).tolist())
    # -> integers: [3, -3] [1, -1]
    odd = np.array([math.nan, 2.0])
    print("the sign of nan:", sign(tensor(odd)).tolist(), " NumPy's:", np.sign(odd))
    # -> the sign of nan: [0.0, 1.0]  NumPy's: [nan  1.]
    print("of a boolean:", sign(tensor([True, False])).tolist())  # -> of a boolean: [True, False]

    # Away from the corners all derivatives are right. The second one of abs needs sign, which the
    # table has now. (That of relu asks whether y > 0, which a tensor can answer only in step
    # compare01.)
    inside = tensor([0.2, -0.5, 0.8], dtype=float64, requires_grad=True)
    for function in (abs, floor, sign):
        assert gradcheck(function, inside) and gradgradcheck(function, inside)
    print("relu of first order:", gradcheck(relu, inside))  # -> relu of first order: True
