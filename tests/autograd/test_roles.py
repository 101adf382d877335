"""What a call saves is known by its role: an input, an output, or a constant."""

import importlib
import inspect
import pkgutil
import re

import pytest

import tinytorch
import tinytorch.nn.functional as F
from tinytorch import linalg
from tinytorch.autograd import grad
from tinytorch.autograd.custom import CustomFunction
from tinytorch.autograd.modes import FunctionMode
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor
from tinytorch.ops.elementwise import NaryElementwise
from tinytorch.ops.indexing import IndexPut


def all_functions():
    """Every operation of the package: the subclasses of Function, but for those of users."""
    for module in pkgutil.walk_packages(tinytorch.__path__, "tinytorch."):
        importlib.import_module(module.name)
    todo, found = [Function], []
    while todo:
        todo += (new := todo.pop().__subclasses__())
        found += new
    return [
        each
        for each in found
        if each.__module__.startswith("tinytorch.") and not issubclass(each, CustomFunction)
    ]


def saving_method(function):
    """The method by which the calls of a Function save arrays, or None."""
    for method in (getattr(function, name, None) for name in ("forward", "save")):
        if method and re.search(r"save_for_backward\(|ctx\.saved = ", inspect.getsource(method)):
            return method
    return None


class CheckRoles(FunctionMode):
    """Compares the declared roles of each call with what a search finds."""

    def __init__(self):
        self.checked = set()

    def call(self, function, args):
        out = function.apply(*args)
        first = out[0] if isinstance(out, tuple) else out
        node = first.grad_fn if isinstance(first, Tensor) else None
        if type(node) is function and len(node.saved):
            inputs = [x.array if isinstance(x, Tensor) else x for x in args]
            outputs = [y.array for y in (out if isinstance(out, tuple) else (out,))]
            found = node.roles_of(inputs, outputs)
            assert len(node.saved) == len(node.saves), function
            for value, role, real in zip(node.saved, node.saves, found, strict=True):
                if role is None:
                    assert value is None or real is None, (function, node.saves, found)
                elif value is not None:
                    saved = inputs[role] if role >= 0 else outputs[~role]
                    assert value is saved, (function, node.saves, found)
            self.checked.add(saving_method(function).__qualname__)
        return out


def recurrent(kind, **options):
    def call(x, y):
        module = kind(2, 2, **options).to(x.device)
        return module(tinytorch.stack([x, y, x * y]))[0]

    return call


EXPRESSIONS = [
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: 2.0 / y,
    lambda x, y: x * 2.0,
    lambda x, y: x.exp() + y.log(),
    lambda x, y: x.tanh() + y.sqrt() + x.sigmoid(),
    lambda x, y: x.sin() + y.cos() + x.abs() + y.erf(),
    lambda x, y: tinytorch.maximum(x, y) + tinytorch.atan2(x, y),
    lambda x, y: x**y + 2.0**x + y**0.5 + tinytorch.lerp(x, y, x * y),
    lambda x, y: x[0, 0] * y[1, 1] / x.sum(),  # 0-d results, which NumPy gives as scalars
    lambda x, y: x @ y + x @ y[0],
    lambda x, y: linalg.solve(x, y) + linalg.cholesky(x @ x.mT + y.detach() * 0 + 1),
    lambda x, y: F.gelu(x) + F.silu(y) + F.elu(x) + F.leaky_relu(y) + F.softplus(x),
    lambda x, y: F.hardtanh(x) + F.linear(x, y, y[0]),
    lambda x, y: F.embedding(tinytorch.tensor([1, 0, 1], device=x.device), x),
    lambda x, y: F.mse_loss(x, y) + F.huber_loss(x, y) + F.binary_cross_entropy_with_logits(x, y),
    lambda x, y: F.cross_entropy(x, tinytorch.tensor([1, 0], device=x.device)),
    lambda x, y: F.layer_norm(x, (2,), y[0], y[1]) + F.rms_norm(x, (2,), y[0]),
    lambda x, y: F.batch_norm(x, None, None, y[0], y[1], training=True),
    lambda x, y: F.batch_norm(x, y[0].detach(), y[1].detach()),
    lambda x, y: F.max_pool2d(x[None], 2) + F.avg_pool2d(y[None], 2),
    lambda x, y: F.max_pool2d(x[None], 2, return_indices=True)[0],
    lambda x, y: F.adaptive_avg_pool2d(x[None], 1),
    lambda x, y: F.conv1d(x[None], y[:, :, None], y[0]) + F.conv_transpose1d(x[None], y[..., None]),
    lambda x, y: F.scaled_dot_product_attention(x, y, x + y, is_causal=True),
    lambda x, y: F.scaled_dot_product_attention(x, y, x + y, dropout_p=0.5, attn_mask=x > 0),
    recurrent(tinytorch.nn.RNN),
    recurrent(tinytorch.nn.RNN, nonlinearity="relu", bias=False),
    recurrent(tinytorch.nn.LSTM),
    recurrent(tinytorch.nn.GRU),
    lambda x, y: x.clamp(0.6, 1.2) + x.clamp(y * 0.5, y * 2) + x.clamp(max=1.0),
    lambda x, y: tinytorch.where(x > y, x, y) + x.masked_fill(x > 1, 0.0),
    lambda x, y: x.prod() + x.prod(1) + x.norm() + y.norm(p=3, dim=0),
    lambda x, y: x.amax() + x.amin(1) + x.max() + x.max(1).values + y.sort(0).values[0],
    lambda x, y: x.gather(1, tinytorch.tensor([[1], [0]], device=x.device)) + y.median(),
    lambda x, y: (
        x[[0, 1, 0]].sum()
        + x[[0, 1], [1, 1]]
        + y[x > 0.9].sum()
        + x.take_along_dim(tinytorch.tensor([[1], [0]], device=x.device), 1)
    ),
    lambda x, y: IndexPut.apply(x, y[0], (0,), tinytorch.tensor([1], device=x.device)),
    lambda x, y: x.var() + x.var(1) + x.std() + y.std(0),
    lambda x, y: x.softmax(1) + x.log_softmax(0) + x.logsumexp(1) + x.logsumexp((0, 1)),
]


def test_declared_roles_are_what_was_saved(device):
    x = tinytorch.tensor([[0.5, 1.0], [1.5, 0.7]], device=device, requires_grad=True)
    y = tinytorch.tensor([[1.5, 0.2], [0.5, 0.9]], device=device, requires_grad=True)
    with CheckRoles() as mode:
        for expression in EXPRESSIONS:
            z = expression(x, y)
            gradients = grad((z * z).sum(), (x, y), create_graph=True, allow_unused=True)
            assert any(g is not None for g in gradients)
    methods = map(saving_method, filter(outside_the_compiler, all_functions()))
    assert {method.__qualname__ for method in methods if method} <= mode.checked


def outside_the_compiler(function):
    """The compiler's forms of operations run in traces only, and are not differentiated twice."""
    return not function.__module__.startswith("tinytorch.compiler.")


@pytest.mark.parametrize("function", all_functions(), ids=lambda each: each.__qualname__)
def test_a_function_that_saves_declares_roles(function):
    method = saving_method(function)
    if method and function is not NaryElementwise:  # the rows of the table declare them
        assert function.saves is not None or "ctx.saves = " in inspect.getsource(method)


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
