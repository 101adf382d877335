"""What a call saves is known by its role: an input, an output, or a constant."""

import pytest

import tinytorch
from tinytorch.autograd import grad
from tinytorch.autograd.modes import FunctionMode
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor


class CheckRoles(FunctionMode):
    """Compares the declared roles of each call with what it really saved."""

    def __init__(self):
        self.checked = set()

    def call(self, function, args):
        out = function.apply(*args)
        node = out.grad_fn if isinstance(out, Tensor) else None
        if type(node) is function and function.saves is not None:
            assert len(node.saved) == len(function.saves), function
            for value, role in zip(node.saved, function.saves, strict=True):
                if value is not None and role is not None:
                    expected = args[role] if role >= 0 else out
                    assert value is getattr(expected, "array", expected), (function, role)
            self.checked.add(function.__name__)
        return out


EXPRESSIONS = [
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: 2.0 / y,
    lambda x, y: x * 2.0,
    lambda x, y: x.exp() + y.log(),
    lambda x, y: x.tanh() + y.sqrt() + x.sigmoid(),
    lambda x, y: x.sin() + y.cos() + x.abs() + y.erf(),
    lambda x, y: tinytorch.maximum(x, y) + tinytorch.atan2(x, y),
    lambda x, y: x**y + 2.0**x + y**0.5,
    lambda x, y: x[0, 0] * y[1, 1] / x.sum(),  # 0-d results, which NumPy gives as scalars
]


def test_declared_roles_are_what_was_saved(device):
    x = tinytorch.tensor([[0.5, 1.0], [1.5, 0.7]], device=device, requires_grad=True)
    y = tinytorch.tensor([[1.5, 0.2], [0.5, 0.9]], device=device, requires_grad=True)
    with CheckRoles() as mode:
        for expression in EXPRESSIONS:
            expression(x, y)
    assert {"Mul", "Div", "Exp", "Log", "Tanh"} <= mode.checked


def test_new_data_between_two_calls_does_not_cut_the_second_derivative():
    x = tinytorch.tensor([2.0, 3.0], dtype=tinytorch.float64, requires_grad=True)
    y = x * 1
    y.data = y.data.clone()
    z = (y**3).sum()
    (g,) = grad(z, x, create_graph=True)
    assert g.requires_grad
    assert grad(g.sum(), x)[0].tolist() == [12.0, 18.0]


def test_a_copy_that_forward_saves_is_a_constant():
    class Square(Function):
        def forward(ctx, x):
            ctx.saved = (x, x.copy())
            return x * x

        def backward(ctx, g):
            x, copied = ctx.saved
            return g * (x + copied)

    x = tinytorch.tensor([3.0], requires_grad=True)
    y = Square.apply(x)
    assert list(y.grad_fn.saves) == [0, None]
    (g,) = grad(y, x, tinytorch.ones(1), create_graph=True)
    assert g.item() == 6.0 and grad(g, x, tinytorch.ones(1))[0].item() == 1.0


@pytest.mark.parametrize("mistake", [lambda x: len(3), lambda x: int("x"), lambda x: {}["a"]])
def test_errors_of_the_programmer_come_through(mistake):
    class Wrong(Function):
        def forward(ctx, x):
            return mistake(x)

    with pytest.raises((TypeError, ValueError, KeyError)):
        Wrong.apply(tinytorch.tensor([1.0]))


def test_a_parameter_can_be_the_only_operand():
    parameter = tinytorch.nn.Parameter(tinytorch.tensor([1.0, -2.0]))
    (-parameter).sum().backward()
    assert parameter.grad.tolist() == [-1.0, -1.0]
