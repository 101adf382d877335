"""Step elementwise02: The type of a result

The table of step elementwise01 hands its arrays to NumPy as they are, and two results are wrong:

    exp of integers        float64, but our default type is float32
    sigmoid in float16     0.88037 at 2; the float16 nearest to the right number is 0.88086

The second is a matter of rounding. 1 / (1 + e^-x) is three operations, and in float16 each of them
rounds to 11 binary digits. So halves are computed as float32, and rounded once, at the end.

`compute` does both for all lines of the table. A line says only which other types it keeps: `keeps`
holds NumPy's letters for kinds of types, b for bool, i for signed, u for unsigned integers. exp
keeps none: they become the default float type. abs keeps "iu": an integer has an absolute value of
its own type, and a boolean has none, so that it is refused.

The trap: this avoids the rounding inside one operation only. A chain of operations on halves still
rounds between them (step elementwise16 changes that).

PyTorch does the same on the CPU. The type in which it computes has the name opmath_type there.

Changed: unary. New: opmath_type, compute, require_tensors, abs. From here on `abs` hides Python's.
Try: write `wide = dtype` in compute. What is the sigmoid of 2 now?
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

    return type(name.title(), (Function,), {"forward": forward, "backward": backward})


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
        from_x: (xp, g, x) -> g * dy/dx.
        from_y: (xp, g, y) -> g * dy/dx, where y alone is enough.
        keeps: the kinds of integers and booleans that stay what they are; see `compute`.
    """
    function = unary_function(name, formula, from_x or from_y, from_y is not None)

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


if __name__ == "__main__":
    from tinytorch.core.dtype import float16, float64, set_default_dtype
    from tinytorch.core.tensor import tensor

    # What NumPy does.
    half = np.array(2.0, np.float16)
    print("NumPy:", np.exp(np.array([1, 2])).dtype, (1 / (1 + np.exp(-half))).item())
    # -> NumPy: float64 0.88037
    print("ours:", exp(tensor([1, 2])).dtype, sigmoid(tensor(2.0, dtype=float16)).item())
    # -> ours: tinytorch.float32 0.88086
    print("the exact number:", 1 / (1 + math.exp(-2)))  # -> the exact number: 0.8807970779778823

    set_default_dtype(float64)
    print("by default:", exp(tensor([1, 2])).dtype)  # -> by default: tinytorch.float64
    print("integers stay:", abs(tensor([-1, 2])).tolist(), abs(tensor([-1, 2])).dtype)
    # -> integers stay: [1, 2] tinytorch.int64
    for wrong in (lambda: abs(tensor([True])), lambda: exp(2.0)):
        try:
            wrong()
        except (NotImplementedError, TypeError) as error:
            print(f"{type(error).__name__}: {error}")
            # -> NotImplementedError: 'Abs' not implemented for tinytorch.bool
            # -> TypeError: exp(): argument 'input' (position 1) must be Tensor, not float
