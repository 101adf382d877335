"""Step elementwise15: Faster powers and remainders

In float32, x ** 5 costs NumPy far more than x * x * x * x * x: a power is computed through
logarithms, one element at a time, and through even slower code where x is negative. A whole
exponent needs no logarithm:

    x^5 = (x^2)^2 x        two squares and a product

`power` halves the exponent again and again: this is exponentiation by squaring. From 9 on, the
products make larger rounding errors than NumPy's power, so NumPy computes it. -2 is 1 / x^2, and
-0.5 is 1 / sqrt(x).

NumPy's remainder of floats calls C's fmod for each element, which divides bit by bit: the larger
the quotient, the longer it takes. The formula a - b * round(a / b) takes four fast operations
instead. In float32 it would lose digits. In float64, with twice as many, the product of a quotient
below 2^28 and a float32 is exact, and so is the difference. If a quotient is larger, or infinite,
NumPy computes the whole array.

A zero needs the right sign: fmod(-6, 3) is -0.0 in PyTorch and in C, so copysign sets it. And a
Python number is rounded to float32 first, as in every other operation: 0.3 becomes 0.30000001.

The trap: the faster way must give the same results. The demo compares them element by element, and
measures the times.

Changed: any_power, slope_of_exponent, pow, remainder_op. New: SMALL_POWERS, power.
Try: leave `exact` out, and take the remainder of 1e30 and 7.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import in_place
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import Defaults, DType, float32, numpy_dtype, result_type
from tinytorch.core.tensor import Tensor, as_tensor, tensor_method
from tinytorch.ops.arithmetic import mul, number_like, sub, true_divide
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


def check_fits(number: int, dtype: DType) -> None:
    """Checks that an integer type holds the number.

    Raises:
        RuntimeError: it would wrap around.
    """
    if not dtype.is_floating_point and number_like(number, dtype) != number:
        raise RuntimeError(f"value cannot be converted to {dtype!r} without overflow: {number}")


def opmath_type(dtype: DType) -> DType:
    """The type in which operations on this one are computed: float32 for float16 and bfloat16,
    which are rounded once, at the end."""
    return float32 if dtype.itemsize == 2 and dtype.is_floating_point else dtype


def compute(
    function: type, inputs: tuple, keeps: str = "biu", numbers: int = 0, fits: bool = False
) -> Tensor:
    """function.apply on inputs of one type; the last `numbers` of them may be Python numbers.

    Integers and booleans keep their type where `keeps` names its kind (as NumPy calls it). Where
    `keeps` is empty, they become the default float type. float16 and bfloat16 are computed as
    float32 and rounded once, at the end.

    Raises:
        TypeError: an input is not a tensor.
        NotImplementedError: the function has no result for this type.
        RuntimeError: with `fits`, the last input is an integer that the type does not hold.
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
    if fits and isinstance(inputs[-1], (int, np.integer)):
        check_fits(inputs[-1], dtype)
    wide = opmath_type(dtype)
    result = function.apply(*(None if x is None else as_type(x, wide) for x in inputs))
    return cast(result, dtype)


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
ceil = unary("ceil", staircase("ceil"), keeps="iu")
trunc = unary("trunc fix", staircase("trunc"), keeps="iu")
Round = entry("round", Staircase, staircase("rint"))  # halves go to the even neighbour


@attach("round")
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest multiple of 10^-decimals; what lies halfway goes to the even neighbour.

    Raises:
        NotImplementedError: integers, rounded to another place than 0.
    """
    if decimals == 0:
        return compute(Round, (input,), "iu")
    if not input.is_floating_point():
        raise NotImplementedError(f"round with decimals is not implemented for {input.dtype!r}")
    x = cast(input, opmath_type(input.dtype))  # float16 ends at 65504
    if decimals > 0:
        x = true_divide(round(mul(x, 10.0**decimals)), 10.0**decimals)
    else:
        x = mul(round(true_divide(x, 10.0**-decimals)), 10.0**-decimals)
    return cast(x, input.dtype)


# dy/dx is 1; y is kept, so that x may be overwritten.
frac = unary("frac", lambda xp, x: x - xp.trunc(x), from_y=lambda xp, g, y: g, keeps="f")
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


class NaryElementwise(Function):
    """y = f(a, b, ...), element for element, broadcast. `derivatives` holds one function for each
    input: (xp, g, a, b, ...) -> g * dy/d(input).
    """

    elementwise = True
    formula: Callable
    derivatives: tuple[Callable, ...]

    def forward(ctx, *inputs: Any) -> Any:
        ctx.saved = inputs
        return ctx.formula(ctx.xp, *inputs)

    def backward(ctx, g: Any) -> Any:
        return tuple(
            None if edge is None else derivative(ctx.xp, g, *ctx.saved)
            for edge, derivative in zip(ctx.edges, ctx.derivatives, strict=True)
        )


def mirrored(derivative: Callable) -> Callable:
    """The derivative for the second input of a function that is symmetric in its inputs."""
    return lambda xp, g, a, b: derivative(xp, g, b, a)


def binary(
    names: str,
    formula: Any,
    *derivatives: Callable,
    keeps="biu",
    numbers=0,
    fits=False,
    written=True,
) -> Callable[[Tensor, Any], Tensor]:
    """A line of the table for two inputs.

    Args:
        derivatives: (xp, g, a, b) -> g * dy/da, then g * dy/db. The first is enough for a function
            that is symmetric in its inputs.
        keeps: the kinds of integers and booleans that keep their type; see `compute`.
        numbers: how many inputs may be Python numbers: none, the second, or either of them.
        fits: whether an integer as second input has to fit the type; otherwise it wraps around.
        written: whether there is an in-place form.
    """
    if len(derivatives) == 1:
        derivatives = (*derivatives, mirrored(derivatives[0]))
    function = entry(names, NaryElementwise, formula, derivatives=derivatives, saves=(0, 1))

    def operation(input: Tensor, other: Any) -> Tensor:
        if isinstance(input, Tensor) and isinstance(other, Tensor):
            dtype = input.array.dtype
            if dtype is other.array.dtype and dtype.char in "fd":
                return function.apply(input, other)
        if numbers and isinstance(other, np.ndarray):  # a NumPy array counts as a tensor
            other = as_tensor(other)
        allowed = 0 if other is None else min(numbers, 1 + isinstance(other, Tensor))
        return compute(function, (input, other), keeps, allowed, fits)

    operation.__doc__ = f"{names.split()[0]} of each pair of elements, broadcast."
    return attach(names, written)(operation)


def gradient_of_larger(xp: Any, g: Any, a: Any, b: Any) -> Any:
    """The gradient of the larger input, half of it where both are equal. A comparison with nan is
    false, so where one input is nan, both get the whole gradient."""
    return (g * ~(a < b) + g * ~(a <= b)) / 2


maximum = binary("maximum", "maximum", gradient_of_larger, written=False)
minimum = binary("minimum", "minimum", mirrored(gradient_of_larger), written=False)


def nonzero_sum_of_squares(a: Any, b: Any) -> Any:
    """a^2 + b^2, or 1 where that is 0: as a divisor it makes the slope of an angle 0 there."""
    total = a * a + b * b
    return total + (total == 0)


atan2 = binary(
    "atan2 arctan2",
    "arctan2",
    lambda xp, g, a, b: g * b / nonzero_sum_of_squares(a, b),
    lambda xp, g, a, b: -g * a / nonzero_sum_of_squares(a, b),
    keeps="",
)
hypot = binary("hypot", "hypot", lambda xp, g, a, b: g * a / xp.hypot(a, b), keeps="f")


SMALL_POWERS = frozenset(range(2, 9))


def power(a: Any, b: Any) -> Any:
    """a ** b. Small whole numbers b become products, which take a tiny part of the time of a power:
    a^5 is (a^2)^2 a."""
    if isinstance(b, (int, float)):
        if b in SMALL_POWERS:
            root = a if b < 4 else power(a, b // 2)
            return root * root * a if b % 2 else root * root
        if type(b) is float and (b in (-1, -0.5) or -b in SMALL_POWERS):
            return 1 / (a if b == -1 else power(a, -b))
    return a**b


def any_power(xp: Any, a: Any, b: Any) -> Any:
    """a ** b, also for negative integers b in an array: rounded towards 0, the result is 1, -1 or
    0.

    NumPy refuses them; PyTorch refuses only a negative number.

    Raises:
        RuntimeError: an integer is raised to a negative number.
    """
    if isinstance(b, (int, float)) or b.dtype.kind != "i":
        return power(a, b)
    return a ** xp.abs(b) * ((b >= 0) | (xp.abs(a) == 1))


def slope_of_exponent(xp: Any, g: Any, a: Any, b: Any) -> Any:
    """g * a^b log(a). Where a is 0, that is 0 for b >= 0, and -inf for b < 0, as in PyTorch."""
    y = power(a, b)
    if not isinstance(a, (int, float)):
        return g * (y * xp.log(a + ((a == 0) & (b >= 0))))
    if a == 0:
        return g * (0 - y * (b < 0))
    return g * (y * (math.log(a) if a > 0 else math.nan))


# b + (b == 0) - 1 is b - 1, and 0 for b = 0: b * a^(b - 1) would be 0 * infinity for a = 0.
pow = binary(
    "pow __pow__",
    any_power,
    lambda xp, g, a, b: g * (b * power(a, b + (b == 0) - 1)),
    slope_of_exponent,
    keeps="iu",
    numbers=2,
    fits=True,
)


@attach("square")
def square(input: Tensor) -> Tensor:
    """input * input."""
    return pow(input, 2)


def division(formula: Any) -> Callable:
    """A formula that divides and keeps integers.

    Raises:
        RuntimeError: an integer divisor is 0.
    """
    formula = as_formula(formula)

    def divide(xp: Any, a: Any, b: Any) -> Any:
        divisor = xp.asarray(b)
        if divisor.dtype.kind in "biu" and not divisor.all():
            raise RuntimeError("ZeroDivisionError")
        return formula(xp, a, b)

    return divide


floor_divide = binary(
    "floor_divide __floordiv__",
    division("floor_divide"),
    lambda xp, g, a, b: g * 0,
    keeps="iu",
    numbers=2,
)


def remainder_op(
    names: str, name: str, rounding: str, numbers: int
) -> Callable[[Tensor, Any], Tensor]:
    """The line of a remainder, a - b * round(a / b), by the rounding "floor" or "trunc".

    For many float32 numbers this formula in float64 takes between a half and a tenth of the time of
    the array library's function: the larger the quotients, the less. It is exact while they are
    below 2^28; else the library's function is called.
    """

    def formula(xp: Any, a: Any, b: Any) -> Any:
        library = getattr(xp, name)
        if xp.result_type(a, b) != np.float32:
            return library(a, b)
        # First as float32, which a Python number is not yet.
        a, b = (xp.asarray(x, np.float32).astype(np.float64) for x in (a, b))
        whole = getattr(xp, rounding)(a / b)
        left = a - whole * b
        exact = whole.size and xp.abs(whole).max() < 2**28 and xp.isfinite(left).all()
        left = xp.copysign(left, a if rounding == "trunc" else b) if exact else library(a, b)
        return left.astype(np.float32)

    slopes = lambda xp, g, a, b: g, lambda xp, g, a, b: -g * getattr(xp, rounding)(a / b)
    return binary(names, division(formula), *slopes, keeps="iu", numbers=numbers)


remainder = remainder_op("remainder __mod__", "remainder", "floor", 2)
fmod = remainder_op("fmod", "fmod", "trunc", 1)


def swapped(name: str, operation: Callable) -> Callable:
    """The operator with a number on the left: 2 ** x."""
    return tensor_method(name)(lambda self, other: operation(other, self))


rpow = swapped("__rpow__", pow)
rfloordiv = swapped("__rfloordiv__", floor_divide)
rmod = swapped("__rmod__", remainder)
magnitude = tensor_method("__abs__")(lambda self: abs(self))


@attach("div divide true_divide")
def div(input: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, broadcast, in floating point also for integers.

    rounding_mode: "floor" rounds down and "trunc" towards 0, and integers stay integers.

    Raises:
        RuntimeError: another rounding_mode, or an integer is divided by 0.
    """
    if rounding_mode is None:
        return true_divide(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        dtype = result_type(input, other)
        if dtype.is_floating_point:
            return trunc(true_divide(input, other))
        # Integers may be too large for a floating point quotient.
        input = cast(as_tensor(input), dtype)
        return floor_divide(sub(input, fmod(input, other)), other)
    raise RuntimeError(f"div expected rounding_mode 'trunc' or 'floor', but got {rounding_mode!r}")


if __name__ == "__main__":
    import timeit
    from functools import partial

    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import broadcast  # noqa: F401  (sum_to_size, for second derivatives)

    def ratio(*functions):
        slow, fast = (min(timeit.repeat(f, number=3, repeat=5)) for f in functions)
        return slow / fast

    x = np.linspace(-2.0, 2.0, 20_000, dtype=np.float32)
    t = tensor(x)
    print(
        f"x ** 5: NumPy takes {ratio(lambda: x**5, lambda: power(x, 5)):.0f} times as long"
    )  # -> ...
    large = x[:8000] * 1e6
    quick = partial(fmod, tensor(large), 0.3)
    print(
        f"fmod: NumPy takes {ratio(lambda: np.fmod(large, 0.3), quick):.0f} times as long"
    )  # -> ...

    rest, exact = (t % 0.3).numpy(), (x.astype(float) % float(np.float32(0.3))).astype(np.float32)
    print("close:", np.allclose(power(x, 5), x**5), " the same:", np.array_equal(rest, exact))
    # -> close: True  the same: True
    print(power(3, 5), power(2.0, -4.0), power(4.0, -1.0), power(4.0, -0.5), power(2.0, 0.5))
    # -> 243 0.0625 0.25 0.5 1.4142
    far = np.float32(1e30)
    print("a large quotient:", (tensor(far) % 7.0).item(), far % np.float32(7))
    # -> a large quotient: 1.0 1.0
    print("the sign of 0:", fmod(tensor(-6.0), 3.0).item(), remainder(tensor(-6.0), 3.0).item())
    # -> the sign of 0: -0.0 0.0

    a = tensor([[0.5, 1.5, 0.9]], dtype=float64, requires_grad=True)
    b = tensor([[2.0], [1.2]], dtype=float64, requires_grad=True)
    for function in (lambda x: x**3, lambda x: x**-2.0, lambda x: x**-0.5, lambda x: x % 0.4):
        assert gradcheck(function, a) and gradgradcheck(function, a)
    print("two tensors:", gradcheck(pow, (a, b)), gradcheck(fmod, (a, b)))
    # -> two tensors: True True
