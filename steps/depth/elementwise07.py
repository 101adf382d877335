"""Step elementwise07: A function inside a formula

Later steps add lines to the table whose formulas need a function of the table. Take the loss of a
yes-or-no question, softplus(x) = log(1 + e^x): its derivative is sigmoid(x). The line could say

    from_x=lambda xp, g, x: g / (1 + xp.exp(-x))

On an array that is right. For x = -100, e^100 is inf in float32, and 1 / inf is the 0 that it
should be. But when the gradient is differentiated again, the formula runs on Tensors, and each of
its operations has its own derivative. That of the division is (1 / inf)^2, that of exp is inf, and
their product, 0 * inf, is nan. The sigmoid of the table, y (1 - y), gives 0.

So on Tensors the formula must call `sigmoid`, one node with a finite derivative; on arrays it
computes the three operations. functools.singledispatch chooses the body by the type of the first
argument. The body under the decorator is for all types; another one is registered for Tensor.

The trap: xp alone does not help. NumPy has no sigmoid, so xp.sigmoid works for Tensors only.
(xp.exp works for both.)

Changed: nothing. New: sigmoid_of, sigmoid_of_tensor.
Try: remove sigmoid_of_tensor. All values stay the same, but one second derivative does not.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
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


def entry(names: str, kind: type, formula: Any, **members: Any) -> type:
    """The Function of an entry of the table."""
    name = names.split()[0].title().replace("_", "")
    return type(name, (kind,), {"formula": staticmethod(as_formula(formula)), **members})


def unary_function(names: str, formula: Any, derivative: Callable, keeps_y: bool = False) -> type:
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

    role = ~0 if keeps_y else 0  # what is saved is output 0 or input 0
    return entry(names, Function, formula, forward=forward, backward=backward, saves=(role,))


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


def attach(names: str) -> Callable:
    """Attaches an operation as a method under all its names, with its in-place form: exp_ for
    exp."""

    def decorate(operation: Callable) -> Callable:
        operation.__name__ = operation.__qualname__ = names.split()[0]
        for name in names.split():
            tensor_method(name)(operation)
            tensor_method(f"{name}_")(in_place(operation))
        return operation

    return decorate


def unary(
    names: str,
    formula: Any,
    from_x: Callable | None = None,
    from_y: Callable | None = None,
    keeps: str = "",
) -> Callable[[Tensor], Tensor]:
    """One line of the table: dy/dx times g, computed from the input x or from the output y.

    Args:
        names: of the function, the first one and aliases.
        formula: (xp, x) -> y, or the name of a function of the array library.
        from_x: (xp, g, x) -> g * dy/dx. Without it and from_y the slope is 0: a `Staircase`.
        from_y: (xp, g, y) -> g * dy/dx, where y alone is enough.
        keeps: the kinds of integers and booleans that stay what they are; see `compute`.
    """
    function = entry(names, Staircase, formula)
    if derivative := from_x or from_y:
        function = unary_function(names, formula, derivative, from_y is not None)

    def operation(input: Tensor) -> Tensor:
        if isinstance(input, Tensor) and input.array.dtype.char in "fd":
            return function.apply(input)
        return compute(function, input, keeps)

    operation.__doc__ = f"{names.split()[0]} of each element, in the shape of `input`."
    return attach(names)(operation)


exp = unary("exp", "exp", from_y=lambda xp, g, y: g * y)
log = unary("log", "log", from_x=lambda xp, g, x: g / x)
sqrt = unary("sqrt", "sqrt", from_y=lambda xp, g, y: g / (2 * y))
sin = unary("sin", "sin", from_x=lambda xp, g, x: g * xp.cos(x))
cos = unary("cos", "cos", from_x=lambda xp, g, x: -g * xp.sin(x))
tanh = unary("tanh", "tanh", from_y=lambda xp, g, y: g - g * y * y)
sigmoid = unary(
    "sigmoid", lambda xp, x: 1 / (1 + xp.exp(-x)), from_y=lambda xp, g, y: g * y * (1 - y)
)
abs = unary("abs absolute", "absolute", from_x=lambda xp, g, x: g * xp.sign(x), keeps="iu")
relu = unary(
    "relu",
    lambda xp, x: xp.maximum(x, xp.zeros(x.shape[x.ndim > 2 :], x.dtype)),  # of one image
    from_y=lambda xp, g, y: g * (y != 0),  # y is not negative; where it is nan, g passes
    keeps="iu",
)

# Powers, exponentials and logarithms.
rsqrt = unary("rsqrt", lambda xp, x: 1 / xp.sqrt(x), from_y=lambda xp, g, y: g * y * y * y * -0.5)
reciprocal = unary("reciprocal", lambda xp, x: 1 / x, from_y=lambda xp, g, y: -g * y * y)
exp2 = unary("exp2", "exp2", from_y=lambda xp, g, y: g * y * math.log(2))
expm1 = unary("expm1", "expm1", from_y=lambda xp, g, y: g * y + g)
log2 = unary("log2", "log2", from_x=lambda xp, g, x: g / (x * math.log(2)))
log10 = unary("log10", "log10", from_x=lambda xp, g, x: g / (x * math.log(10)))
log1p = unary("log1p", "log1p", from_x=lambda xp, g, x: g / (1 + x))

# Angles, and their relatives on the hyperbola.
tan = unary("tan", "tan", from_y=lambda xp, g, y: g + g * y * y)
asin = unary("asin arcsin", "arcsin", from_x=lambda xp, g, x: g / xp.sqrt(1 - x * x))
acos = unary("acos arccos", "arccos", from_x=lambda xp, g, x: -g / xp.sqrt(1 - x * x))
atan = unary("atan arctan", "arctan", from_x=lambda xp, g, x: g / (1 + x * x))
sinh = unary("sinh", "sinh", from_x=lambda xp, g, x: g * xp.cosh(x))
cosh = unary("cosh", "cosh", from_x=lambda xp, g, x: g * xp.sinh(x))
asinh = unary("asinh arcsinh", "arcsinh", from_x=lambda xp, g, x: g / xp.sqrt(x * x + 1))
acosh = unary("acosh arccosh", "arccosh", from_x=lambda xp, g, x: g / xp.sqrt(x * x - 1))
atanh = unary("atanh arctanh", "arctanh", from_x=lambda xp, g, x: g / (1 - x * x))


def staircase(name: str) -> Callable:
    """The formula of a function that makes floats whole and returns integers as they are."""
    return lambda xp, x: getattr(xp, name)(x) if x.dtype.kind == "f" else x.copy()


floor = unary("floor", staircase("floor"), keeps="iu")
sign = unary(
    "sign sgn",  # and not that of the array library: the sign of nan is 0
    lambda xp, x: x.copy() if x.dtype == bool else xp.subtract(x > 0, x < 0, dtype=x.dtype),
    keeps="biu",
)


@functools.singledispatch
def sigmoid_of(x: Any, xp: Any) -> Any:
    """1 / (1 + exp(-x)) of an array."""
    return 1 / (1 + xp.exp(-x))


@sigmoid_of.register(Tensor)
def sigmoid_of_tensor(x: Tensor, xp: Any) -> Tensor:
    """The same for a Tensor: its derivative is finite where exp(-x) overflows."""
    return sigmoid(x)


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    def formula(xp, x):
        return xp.log1p(xp.exp(x))

    by_hand = unary("by_hand", formula, from_x=lambda xp, g, x: g / (1 + xp.exp(-x)))
    softplus = unary("softplus", formula, from_x=lambda xp, g, x: g * sigmoid_of(x, xp))

    for function in (by_hand, softplus):
        x = tensor(-100.0, requires_grad=True)
        (first,) = grad(function(x), x, create_graph=True)
        (second,) = grad(first, x)
        print(f"{function.__name__}'' at -100:", first.item(), second.item())
        # -> by_hand'' at -100: 0.0 nan
        # -> softplus'' at -100: 0.0 0.0

    x = tensor([0.2, -0.5, 0.8], dtype=float64, requires_grad=True)
    print("both orders:", gradcheck(softplus, x), gradgradcheck(softplus, x))
    # -> both orders: True True
    print(sigmoid_of(np.array([0.0, -1000.0]), np).tolist(), sigmoid_of(tensor(0.0), Tensor).item())
    # -> [0.5, 0.0] 0.5
