"""Step 72a: A table that makes operations

Exp, Sin, Tanh, Log: each was a class of ten lines, and two of them mattered, a formula and a
derivative. PyTorch has about a hundred such functions. So a line of a table states these two, and
the class is made from it:

    name   formula       gradient           computed from
    exp    y = e^x       g * y              the output y
    sin    y = sin x     g * cos x          the input x
    tanh   y = tanh x    g - g * y^2        the output y

A class statement calls type(name, bases, members). `unary` makes the same call, with a forward and
a backward written around the two formulas, and attaches the result to Tensor as a method.

Why from x or from y? What the derivative needs is kept until backward. Where y is enough, x may be
freed or overwritten (step 66a); where x is needed, y may be. Keeping both would hold twice the
memory.

The trap: in a formula `xp` is NumPy, or the class Tensor where the gradient is to be differentiated
again (step 33). np.cos written in the line of sin would be right once and fail the second time.

PyTorch has such a table, derivatives.yaml, from which a program writes C++.

New: unary, and five functions. They take the place of the package's.
Try: give exp its gradient as from_x instead of from_y. Which lines of the demo notice?

In depth: elementwise01 to elementwise18, compare01 to compare11.
"""

from tinytorch.autograd.backward import grad
from tinytorch.autograd.gradcheck import gradcheck, gradgradcheck
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import tensor, tensor_method
from tinytorch.ops import arithmetic  # noqa: F401  (the operators)


def unary(name, formula, from_x=None, from_y=None):
    """The operation y = f(x) of each element.

    formula(xp, x) is y. Its gradient is from_x(xp, g, x) or from_y(xp, g, y).
    """

    def forward(ctx, x):
        y = formula(ctx.xp, x)
        ctx.save_for_backward(x if from_y is None else y)
        return y

    def backward(ctx, g):
        (saved,) = ctx.saved
        return (from_y or from_x)(ctx.xp, g, saved)

    function = type(name.title(), (Function,), {"forward": forward, "backward": backward})

    @tensor_method(name)
    def operation(input):
        return function.apply(input)

    return operation


exp = unary("exp", lambda xp, x: xp.exp(x), from_y=lambda xp, g, y: g * y)
sqrt = unary("sqrt", lambda xp, x: xp.sqrt(x), from_y=lambda xp, g, y: g / (2 * y))
sin = unary("sin", lambda xp, x: xp.sin(x), from_x=lambda xp, g, x: g * xp.cos(x))
cos = unary("cos", lambda xp, x: xp.cos(x), from_x=lambda xp, g, x: -g * xp.sin(x))
tanh = unary("tanh", lambda xp, x: xp.tanh(x), from_y=lambda xp, g, y: g - g * y * y)


if __name__ == "__main__":
    x = tensor([0.0, 1.0, 2.0], requires_grad=True)
    y = x.exp()
    print("exp keeps its output:", y.grad_fn.saved[0] is y.array)  # here: PyTorch hides it
    # -> exp keeps its output: True
    print("sin its input:", sin(x).grad_fn.saved[0] is x.array)  # here: the same
    # -> sin its input: True

    # One line, all orders: sin, cos, -sin, -cos, sin at 1.
    x = tensor(1.0, dtype=float64, requires_grad=True)
    y, orders = sin(x), []
    for _ in range(5):
        orders.append(f"{y.item():.4f}")
        (y,) = grad(y, x, create_graph=True)
    print(*orders)  # -> 0.8415 0.5403 -0.8415 -0.5403 0.8415

    # The table against differences, and its derivatives once more.
    x = tensor([0.2, 0.5, 0.8], dtype=float64, requires_grad=True)
    right = [gradcheck(f, (x,), raise_exception=False) for f in (exp, sqrt, tanh)]
    print(*right, *[gradgradcheck(f, (x,)) for f in (exp, sqrt, tanh)])
    # -> True True True True True True
