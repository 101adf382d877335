"""Step elementwise05: Fast paths for the common case

Networks compute in float32, and the checks in `compute` have the same outcome each time. For a
small tensor they take a large part of the call's time: the demo measures it. Three changes make
small and large calls faster, and change no result.

A float32 or float64 tensor goes straight to the operation. NumPy calls these types "f" and "d".

In each call, `roles_of` finds out which input or output a saved array is (step 32e). For a line of
the table the answer is always the same, so the class declares it: `saves` holds 0 for input 0, and
~0 for output 0.

relu, the most frequent function, compares each element with zero. NumPy's loop over two arrays is
faster than its loop over an array and a number. But an array of zeros as large as x would double
the memory. So for a batch of images the zeros have the size of one image, are broadcast, and stay
in the cache.

The trap: a fast path is a second way to the same result, and the two can drift apart. So both end
in the same function.apply.

Changed: unary_function, unary, relu.
Try: write `x.shape` for x.shape[x.ndim > 2 :] in relu, and compare the times.
"""

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
    import timeit

    from tinytorch.core.tensor import tensor

    def seconds(function, number):
        return min(timeit.repeat(function, number=number, repeat=7)) / number

    # A small tensor: the questions of compute, and the answer that is known.
    x = tensor([1.0, 2.0], requires_grad=True)
    Exp = type(exp(x).grad_fn)
    asked, known = seconds(lambda: compute(Exp, x, ""), 2000), seconds(lambda: exp(x), 2000)
    print(
        f"exp of two numbers: {asked * 1e6:.1f} us with questions, {known * 1e6:.1f} without"
    )  # -> ...
    print("declared roles:", Exp.saves, type(sin(x).grad_fn).saves)  # -> declared roles: (-1,) (0,)

    # A large one: NumPy's maximum of an array and a number, and ours.
    images = np.random.default_rng(0).standard_normal((16, 32, 28, 28), dtype=np.float32)
    t = tensor(images)
    number, zeros = seconds(lambda: np.maximum(images, 0), 5), seconds(lambda: relu(t), 5)
    print(f"relu of 400,000 numbers: {number * 1e3:.2f} ms, {zeros * 1e3:.2f} ms")  # -> ...

    print("the same:", np.array_equal(relu(t).numpy(), np.maximum(images, 0)))  # -> the same: True
    print("integers:", relu(tensor([[-1, 2]])).tolist(), relu(tensor(-3)).item())
    # -> integers: [[0, 2]] 0
