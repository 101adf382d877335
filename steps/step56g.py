"""Step 56g: A table of functions

The core adds, subtracts, multiplies and divides. Exp, Sin, Tanh and Log of the first stages did
not come along: each was a class, but only two of its lines were its own, a formula and a
derivative. Dozens of functions are to come. So we keep those two lines and let a table make the
classes:

    name   formula        derivative times g      computed from
    exp    y = e^x        g * y                   the output y
    sin    y = sin x      g * cos x               the input x
    tanh   y = tanh x     g - g * y^2             the output y

Why from one or the other? What a derivative needs is kept until backward. If y is enough, x may be
freed or overwritten; if x is needed, y may be. Keeping both would cost twice the memory.

In a derivative, `xp` is NumPy, or the class Tensor if the gradient is to be differentiated again
(step 33). So one line of the table gives the derivatives of all orders.

What is the same for every line is written once. `attach` makes each function a method and adds its
in-place form: x.exp(), x.exp_(). `compute` settles the type: integers become floats for exp and
stay integers for abs. float16 and bfloat16 are computed in float32: 1 / (1 + e^-x) is three
operations, and each would round. `compute` rounds once.

Two things are left to the line itself:

- Its constants. np.log(2) is not a Python float but an np.float64, and a float32 array times that
  is float64: one such number, and every gradient behind it silently takes twice the memory.
  math.log(2) is a Python float and leaves the type alone.
- Its corners, where there is no derivative. abs and relu take 0. A staircase is flat: 0 everywhere.

PyTorch has such a table too, derivatives.yaml. From here on `abs` hides Python's own.

Changed: the finished core is imported.
New: entry, unary_function, Staircase, compute, attach, unary and 27 functions.
Try: give exp its derivative as from_x, not from_y, and see which lines of the demo notice.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, DType, float32, numpy_dtype, result_type
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import number_like
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

    return entry(names, Function, formula, forward=forward, backward=backward)


class Staircase(Function):
    """y = f(x), where f is constant between its steps: the slope is 0, and nothing is saved."""

    def forward(ctx, x: Any) -> Any:
        return ctx.formula(ctx.xp, x)

    def backward(ctx, g: Any) -> Any:
        return g * 0


def as_type(x: Any, dtype: DType) -> Any:
    """A tensor or a number as an operand of this type."""
    return cast(x, dtype) if isinstance(x, Tensor) else number_like(x, dtype)


def is_float(x: Any) -> bool:
    """Whether x is a float32 or float64 tensor, the most common case: it needs no other check."""
    return isinstance(x, Tensor) and x.array.dtype.char in "fd"


def require_tensors(name: str, inputs: tuple) -> None:
    """Checks that all inputs are tensors.

    Raises:
        TypeError: an input is not a tensor.
    """
    for x in inputs:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): arguments must be Tensors, not {type(x).__name__}")


def compute(function: type, inputs: tuple, keeps: str = "biu", numbers: int = 0) -> Tensor:
    """function.apply on inputs of one type; the last `numbers` of them may be Python numbers.

    Integers and booleans keep their type where `keeps` names its kind (as NumPy calls it). Where
    `keeps` is empty, they become the default float type. float16 and bfloat16 are computed as
    float32 and rounded once, at the end.

    Raises:
        TypeError: an input is not a tensor.
        NotImplementedError: the function has no result for this type.
    """
    require_tensors(function.__name__.lower(), inputs[: len(inputs) - numbers])
    first, *others = inputs
    if is_float(first) and all(x is None or isinstance(x, (int, float)) for x in others):
        return function.apply(first, *(x if x is None else float(x) for x in others))
    dtype = result_type(*(x for x in inputs if x is not None))
    if not dtype.is_floating_point and numpy_dtype(dtype).kind not in keeps:
        if keeps:
            raise NotImplementedError(f"'{function.__name__}' not implemented for {dtype!r}")
        dtype = Defaults.dtype
    wide = float32 if dtype.itemsize == 2 and dtype.is_floating_point else dtype
    return cast(function.apply(*(None if x is None else as_type(x, wide) for x in inputs)), dtype)


def attach(names: str, written: bool = True) -> Callable:
    """Attaches an operation as a method under all its names, with its in-place form if `written`:
    exp_ for exp."""

    def decorate(operation: Callable) -> Callable:
        operation.__name__ = operation.__qualname__ = names.split()[0]
        for name in names.split():
            tensor_method(name)(operation)
            if written:
                name_in_place = f"__i{name[2:]}" if name.startswith("__") else f"{name}_"
                tensor_method(name_in_place)(in_place(operation))
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
        return compute(function, (input,), keeps)

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
    from_y=lambda xp, g, y: g * (y > 0),
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


if __name__ == "__main__":
    from tinytorch.autograd.engine import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float16, float64
    from tinytorch.core.tensor import tensor

    ones = tensor([1.0, 1.0, 1.0])
    x = tensor([0.0, 1.0, 2.0], requires_grad=True)
    y = exp(x)
    print("exp:", y.tolist())  # -> exp: [1.0, 2.718, 7.389]
    print("made by", y.grad_fn.name())  # -> made by ExpBackward0
    print("it keeps its output:", y.grad_fn.saved[0] is y.array)  # -> it keeps its output: True
    y.backward(ones)
    print("its gradient is the same:", x.grad.tolist())
    # -> its gradient is the same: [1.0, 2.718, 7.389]

    # What is kept must not be overwritten. exp lets go of its input, sin does not.
    for function in (exp, sin):
        x = tensor([0.0, 1.0, 2.0], requires_grad=True) * 1.0
        y = function(x)
        x.sqrt_()
        try:
            y.backward(ones)
            print(function.__name__, "does not need its input any more")
            # -> exp does not need its input any more
        except RuntimeError as error:
            print(function.__name__, "complains:", error)
            # -> sin complains: one of the variables needed ... has been modified by an inplace ...

    # One line of the table, every order: sin, cos, -sin, -cos, sin at 1.
    x = tensor(1.0, dtype=float64, requires_grad=True)
    y, orders = sin(x), []
    for _ in range(5):
        orders.append(float(np.round(y.item(), 4)))
        (y,) = grad(y, x, create_graph=True)
    print("sin and its derivatives:", orders)
    # -> sin and its derivatives: [0.8415, 0.5403, -0.8415, -0.5403, 0.8415]

    # Types.
    print(exp(tensor([1, 2])).dtype, abs(tensor([-1, 2])).dtype)
    # -> tinytorch.float32 tinytorch.int64
    half = np.array(2.0, np.float16)
    print("rounded three times:", 1 / (1 + np.exp(-half)))  # -> rounded three times: 0.8804
    print("rounded once:", sigmoid(tensor(2.0, dtype=float16)).numpy())  # -> rounded once: 0.881
    print("the exact number:", 1 / (1 + math.exp(-2)))  # -> the exact number: 0.8807970779778823

    # The trap.
    row = np.ones(3, np.float32)
    print("float32 * math.log(2) is", (row * math.log(2)).dtype)
    # -> float32 * math.log(2) is float32
    print("float32 * np.log(2)   is", (row * np.log(2)).dtype)
    # -> float32 * np.log(2)   is float64

    # Corners and stairs.
    for function in (abs, relu, floor):
        x = tensor([-1.0, 0.0, 1.0], requires_grad=True)
        function(x).backward(ones)
        print(f"{function.__name__:5} has slopes", x.grad.tolist())
        # -> abs   has slopes [-1.0, 0.0, 1.0]
        # -> relu  has slopes [0.0, 0.0, 1.0]
        # -> floor has slopes [0.0, 0.0, 0.0]

    # The whole table against differences, twice: the second derivatives as well. (The derivative
    # of relu asks whether y > 0, which a tensor can answer only in step 57g.)
    inside = tensor([0.2, 0.5, 0.8], dtype=float64, requires_grad=True)
    beyond = tensor([1.2, 2.0, 3.0], dtype=float64, requires_grad=True)
    table = [exp, log, sqrt, sin, cos, tanh, sigmoid, abs, rsqrt, reciprocal, exp2, expm1, log2]
    table += [log10, log1p, tan, asin, acos, atan, sinh, cosh, asinh, acosh, atanh]
    table += [floor, sign]
    for function in table:
        x = beyond if function is acosh else inside
        assert gradcheck(function, x) and gradgradcheck(function, x), function
    print(len(table), "functions have the right derivatives of first and second order")
    # -> 26 functions have the right derivatives of first and second order
    print("relu of first order:", gradcheck(relu, inside))  # -> relu of first order: True
