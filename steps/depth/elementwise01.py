"""Step elementwise01: The table of operations in the package's dress

Step 72a built it: a line of a table has a name, a formula and a derivative, and the table makes the
class and the method. Here it gets the package's form. The formulas take `xp`, the array library:
NumPy, CuPy, or the class Tensor where the gradient is to be differentiated again (step 33). So one
line gives derivatives of all orders on all devices. In the derivative of sin, xp.cos is np.cos for
arrays; for Tensors it is the method Tensor.cos, which the table has attached.

    name   formula        derivative times g      computed from
    exp    y = e^x        g * y                   the output y
    sin    y = sin x      g * cos x               the input x
    tanh   y = tanh x     g - g * y^2             the output y

unary_function calls type(name, bases, members), as a class statement does. What a derivative needs
is declared by the choice of `from_x` or `from_y`: only that is kept until backward.

PyTorch has such a table too, derivatives.yaml, from which a program generates C++.

Changed: unary; exp, sqrt, sin, cos, tanh. New: unary_function; log, sigmoid.
Try: give exp its derivative as from_x, not from_y, and see which lines of the demo notice.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops import arithmetic  # noqa: F401  (the operators)


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


def unary(
    name: str, formula: Any, from_x: Callable | None = None, from_y: Callable | None = None
) -> Callable[[Tensor], Tensor]:
    """One line of the table: dy/dx times g, computed from the input x or from the output y.

    Args:
        name: of the function.
        formula: (xp, x) -> y, or the name of a function of the array library.
        from_x: (xp, g, x) -> g * dy/dx.
        from_y: (xp, g, y) -> g * dy/dx, where y alone is enough.
    """
    function = unary_function(name, formula, from_x or from_y, from_y is not None)

    def operation(input: Tensor) -> Tensor:
        return function.apply(input)

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


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
    from tinytorch.core.dtype import float64
    from tinytorch.core.tensor import tensor

    ones = tensor([1.0, 1.0, 1.0])
    x = tensor([0.0, 1.0, 2.0], requires_grad=True)
    y = x.exp()
    print("exp:", y.tolist())  # -> exp: [1.0, 2.7183, 7.3891]
    print("made by", y.grad_fn.name())  # -> made by ExpBackward0
    print("it keeps its output:", y.grad_fn.saved[0] is y.array)  # -> it keeps its output: True
    print("sin keeps its input:", sin(x).grad_fn.saved[0] is x.array)
    # -> sin keeps its input: True
    y.backward(ones)
    print("the gradient of exp is exp:", x.grad.tolist())
    # -> the gradient of exp is exp: [1.0, 2.7183, 7.3891]

    # One line of the table, every order: sin, cos, -sin, -cos, sin at 1.
    x = tensor(1.0, dtype=float64, requires_grad=True)
    y, orders = sin(x), []
    for _ in range(5):
        orders.append(float(np.round(y.item(), 4)))
        (y,) = grad(y, x, create_graph=True)
    print("sin and its derivatives:", orders)
    # -> sin and its derivatives: [0.8415, 0.5403, -0.8415, -0.5403, 0.8415]

    # The whole table against differences, twice: the second derivatives as well.
    x = tensor([0.2, 0.5, 0.8], dtype=float64, requires_grad=True)
    for function in (exp, log, sqrt, sin, cos, tanh, sigmoid):
        print(function.__name__, gradcheck(function, x), gradgradcheck(function, x))
        # -> exp True True
        # -> log True True
        # -> sqrt True True
        # -> sin True True
        # -> cos True True
        # -> tanh True True
        # -> sigmoid True True
