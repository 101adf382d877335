"""Step elementwise04: Several names, and the in-place form

PyTorch gives each function up to four names: asin, arcsin, asin_, arcsin_. The two with the
underscore write the result into the memory of x. x.exp_() computes exp(x) and overwrites x with it.
Step 66c made such forms one by one.

`attach` does both for every line of the table: the first name is the function's own, the others are
aliases, and each has its in-place form.

Here the choice between x and y (step elementwise01) matters. What backward needs must not be
overwritten; if it was, check_saved raises an error (step 66b):

    exp kept its output.  y = exp(x), then x.sqrt_(): fine. x is not needed any more.
    sin kept its input.   y = sin(x), then x.sqrt_(): backward raises an error.

So it is worth some algebra to write a derivative from y: for sqrt, 1 / (2 sqrt(x)) is 1 / (2 y).

The trap: y.exp_() overwrites y for every operation that saved it, and their backward raises. Use it
for results that nothing else needs, such as x.add(1).exp_().

Changed: entry, unary_function and unary take several names; abs, sign. New: attach, asin, acos,
atan.
Try: asin's derivative is 1 / cos(y). Write it from y, and see which line of the demo changes.
"""

from collections.abc import Callable
from typing import Any

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

    return entry(names, Function, formula, forward=forward, backward=backward)


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
    "relu", lambda xp, x: xp.maximum(x, 0), from_y=lambda xp, g, y: g * (y > 0), keeps="iu"
)
asin = unary("asin arcsin", "arcsin", from_x=lambda xp, g, x: g / xp.sqrt(1 - x * x))
acos = unary("acos arccos", "arccos", from_x=lambda xp, g, x: -g / xp.sqrt(1 - x * x))
atan = unary("atan arctan", "arctan", from_x=lambda xp, g, x: g / (1 + x * x))


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
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    x = tensor([0.0, 1.0])
    print(asin(x).tolist(), x.arcsin().tolist(), Tensor.arcsin.__name__)
    # -> [0.0, 1.5708] [0.0, 1.5708] asin
    memory = x.array
    x.exp_()
    print("in place:", x.tolist(), x.array is memory)  # -> in place: [1.0, 2.7183] True
    print("abs:", tensor([-1, 2]).absolute_().tolist(), " sign:", tensor([-1, 2]).sgn().tolist())
    # -> abs: [1, 2]  sign: [-1, 1]

    # exp lets go of its input; sin and asin do not.
    for function in (exp, sin, asin):
        x = tensor([0.0, 0.5, 0.9], requires_grad=True) * 1.0
        y = function(x)
        x.sqrt_()
        try:
            y.backward(tensor([1.0, 1.0, 1.0]))
            print(function.__name__, "does not need its input any more")
            # -> exp does not need its input any more
        except RuntimeError as error:
            print(function.__name__, "complains:", error)
            # -> sin complains: one of the variables needed ... has been modified by an inplace ...
            # -> asin complains: one of the variables needed ... has been modified by an inplace ...

    x = tensor([0.2, 0.5, 0.8], dtype=float64, requires_grad=True)
    for function in (asin, acos, atan, lambda x: (x * 1.0).tanh_()):
        assert gradcheck(function, x) and gradgradcheck(function, x)
    print("all derivatives are right")  # -> all derivatives are right
