"""Function: what one call computes, records, saves and forgets."""

import gc
import weakref

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import grad, gradcheck, gradgradcheck
from tinytorch.autograd.node import AccumulateGrad, Function
from tinytorch.core.tensor import Tensor


def leaf(data, device="cpu", **options):
    return tinytorch.tensor(data, device=device, requires_grad=True, **options)


class Cube(Function):
    """y = x^3;   dy/dx = 3 x^2."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    def backward(ctx, g):
        (x,) = ctx.saved
        return 3.0 * x * x * g


class Exp(Function):
    """y = e^x;   dy/dx = y: what is saved is the output."""

    def forward(ctx, x):
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        return g * ctx.saved[0]


class SumAndProduct(Function):
    """s = a + b, p = a b, and how many elements are positive (an integer: no gradient)."""

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a + b, a * b, ctx.xp.sum(a > 0)

    def backward(ctx, gs, gp, gn):
        a, b = ctx.saved
        return gs + gp * b, gs + gp * a


class Scale(Function):
    """y = k x, with a plain number k."""

    def forward(ctx, x, k):
        ctx.k = k
        return x * k

    def backward(ctx, g):
        return ctx.call(Scale, g, ctx.k)


class Above(Function):
    """y = x > limit, which has no derivative."""

    differentiable = False

    def forward(ctx, x, limit):
        return (x > limit) * 1.0


# One call.


def test_a_call_without_gradients_leaves_nothing(device):
    y = Cube.apply(tinytorch.tensor([1.0, 2.0], device=device))
    assert y.tolist() == [1.0, 8.0]
    assert not y.requires_grad and y.grad_fn is None and y.is_leaf


def test_a_call_with_gradients_leaves_a_node(device):
    x = leaf([1.0, 2.0], device)
    y = Cube.apply(x)
    assert y.requires_grad and not y.is_leaf
    assert isinstance(y.grad_fn, Cube) and y.grad_fn.name() == "CubeBackward0"
    (following,) = y.grad_fn.next_functions
    assert isinstance(following[0], AccumulateGrad) and following[0].variable is x
    assert following[0].next_functions == ()
    z = Scale.apply(y, 2.0)
    assert z.grad_fn.next_functions == ((y.grad_fn, 0), (None, 0))


def test_under_no_grad_nothing_is_recorded(device):
    x = leaf([1.0, 2.0], device)
    with tinytorch.no_grad():
        y = Cube.apply(x)
    assert not y.requires_grad and y.grad_fn is None


def test_a_function_without_derivative_gives_constants(device):
    x = leaf([1.0, 2.0], device)
    y = Above.apply(x, 1.5)
    assert y.tolist() == [0.0, 1.0] and not y.requires_grad


def test_results_without_dimensions_are_arrays(device):
    x = leaf(2.0, device)
    for y in (Cube.apply(x), Exp.apply(x), x * x, x + 1.0, -x, x / 2.0):
        assert type(y.array) is type(x.array)
        assert y.dtype is tinytorch.float32


# Derivatives.


@pytest.mark.parametrize(
    "function",
    [Cube.apply, Exp.apply, lambda x: SumAndProduct.apply(x, x * x)[:2], lambda x: x / (x * x)],
    ids=["Cube", "Exp", "SumAndProduct", "quotient"],
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
def test_first_and_second_derivative(function, shape, device):
    values = np.random.default_rng(0).uniform(0.5, 1.5, shape)
    x = leaf(values, device)
    assert gradcheck(function, x)
    assert gradgradcheck(function, x)


def test_a_saved_output_makes_no_cycle(device):
    gc.collect()
    gc.disable()
    try:
        x = leaf([0.5, 1.0], device)
        y = Exp.apply(x)
        watch = weakref.ref(y.grad_fn)
        del y
        assert watch() is None
    finally:
        gc.enable()


def test_a_saved_output_has_a_right_second_derivative(device):
    x = leaf(0.5, device, dtype=tinytorch.float64)
    y = Exp.apply(x)
    for _ in range(4):
        (y,) = grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(np.exp(0.5))


def test_what_was_saved_is_freed_by_backward(device):
    x = leaf([1.0], device)
    y = Cube.apply(x)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


# Several outputs.


def test_each_output_knows_its_number(device):
    a, b = leaf([1.0, -2.0], device), leaf([3.0, 4.0], device)
    s, p, n = SumAndProduct.apply(a, b)
    assert (s.output_nr, p.output_nr) == (0, 1)
    assert s.grad_fn is p.grad_fn
    assert n.item() == 1 and not n.requires_grad
    (s * p).backward(tinytorch.tensor([1.0, 1.0], device=device))
    # d(s p)/da = p + s b
    assert a.grad.tolist() == [3.0 + 4.0 * 3.0, -8.0 + 2.0 * 4.0]


def test_an_output_that_nobody_used_has_a_zero_gradient(device):
    a, b = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    s, p, _ = SumAndProduct.apply(a, b)
    ones = tinytorch.tensor([1.0, 1.0], device=device)
    assert grad(p, [a, b], ones)[0].tolist() == [3.0, 4.0]
    s, p, _ = SumAndProduct.apply(a, b)
    assert grad(s, [a, b], ones)[0].tolist() == [1.0, 1.0]


# Only what is needed.


def test_needs_input_grad(device):
    seen = []

    class Watch(Function):
        def forward(ctx, a, b, k):
            seen.append(ctx.needs_input_grad)
            return a + b

        def backward(ctx, g):
            return g, g

    x, c = leaf(1.0, device), tinytorch.tensor(2.0, device=device)
    for args in ((x, c, 3), (c, x, 3), (x, x, 3), (c, c, 3)):
        Watch.apply(*args)
    assert seen == [
        (True, False, False),
        (False, True, False),
        (True, True, False),
        (False, False, False),
    ]


def test_a_rule_that_is_not_needed_is_not_called(device):
    called = []

    class Log(Function):
        def forward(ctx, x):
            return x + 0.0

        def backward(ctx, g):
            called.append("Log")
            return g

    x, c = leaf(2.0, device), tinytorch.tensor(3.0, device=device)
    constant = Log.apply(c)  # no gradient flows to c
    (x * constant).backward()
    assert called == [] and c.grad is None
    with tinytorch.no_grad():
        hidden = Log.apply(x)
    (x * hidden + x * Log.apply(x).detach()).backward()
    assert called == []


def test_mul_keeps_only_the_factor_that_it_needs(device):
    x, c = leaf([2.0], device), tinytorch.tensor([3.0], device=device)
    a, b = (x * c).grad_fn.saved
    assert a is None and b is c.array


def test_the_frozen_part_of_a_model_is_unchanged(device):
    frozen, trained = tinytorch.tensor([1.0, 2.0], device=device), leaf([3.0, 4.0], device)
    (frozen * trained).backward(tinytorch.tensor([1.0, 1.0], device=device))
    assert frozen.grad is None and trained.grad.tolist() == [1.0, 2.0]


# Broadcasting.

SHAPES = [
    ((2, 3), (3,)),
    ((2, 1), (1, 3)),
    ((), (2, 3)),
    ((2, 3), ()),
    ((0, 3), (3,)),
    ((1,), (0,)),
]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["+", "-", "*", "/"])
def test_gradients_of_broadcast_inputs(shapes, name, device):
    operation = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "/": lambda a, b: a / b,
    }[name]
    rng = np.random.default_rng(1)
    a, b = (leaf(rng.uniform(0.5, 1.5, shape), device) for shape in shapes)
    assert gradcheck(operation, (a, b))
    assert gradgradcheck(operation, (a, b))


def test_shapes_that_do_not_fit_are_both_named(device):
    a, b = leaf([[1.0, 2.0, 3.0]] * 2, device), leaf([1.0, 2.0], device)
    for operation in (lambda: a + b, lambda: a * b, lambda: a - b, lambda: a / b):
        with pytest.raises(RuntimeError, match=r"a \(3\).*b \(2\).*dimension 1.*\[2, 3\].*\[2\]"):
            operation()


def test_numpys_errors_become_pytorchs(device):
    class Reshape(Function):
        def forward(ctx, x):
            return x.reshape((7,))

    with pytest.raises(RuntimeError, match=r"reshape: .*\[2\]"):
        Reshape.apply(leaf([1.0, 2.0], device))


def test_operators_refuse_what_is_no_number():
    x = tinytorch.tensor([1.0, 2.0])
    for other in ("text", None, [1.0, 2.0], object()):
        with pytest.raises(TypeError):
            x + other
        with pytest.raises(TypeError):
            other * x


def test_a_function_without_rules_says_so():
    class Nothing(Function):
        pass

    class OneWay(Function):
        def forward(ctx, x):
            return x + 1.0

    with pytest.raises(NotImplementedError, match="Nothing has no forward"):
        Nothing.apply(leaf(1.0))
    with pytest.raises(NotImplementedError, match="OneWay has no backward"):
        OneWay.apply(leaf(1.0)).backward()


def test_the_node_prints_its_name():
    y = leaf(1.0) * 2.0
    assert repr(y.grad_fn).startswith("<MulBackward0 object at 0x")
    assert repr(y.grad_fn.next_functions[0][0]).startswith("<AccumulateGrad object at 0x")


def test_results_are_plain_tensors():
    class Special(Tensor):
        pass

    x = Special([1.0, 2.0])
    x.requires_grad = True
    y = x * 2.0
    y.backward(tinytorch.tensor([1.0, 1.0]))
    assert type(y) is Tensor and x.grad.tolist() == [2.0, 2.0]


def operation(function):
    """apply() of a Function whose forward is `function`."""
    return type("Operation", (Function,), {"forward": lambda ctx, *args: function(*args)}).apply


def test_errors_of_the_array_library_are_translated():
    x = tinytorch.ones(2, 3)
    with pytest.raises(RuntimeError, match=r"matmul: .*shapes \[2, 3\] and \[2, 3\]") as found:
        operation(lambda a, b: a @ b)(x, x)
    assert type(found.value) is RuntimeError  # and not NotImplementedError: the types are fine
    with pytest.raises(RuntimeError, match="axis 5 is out of bounds"):
        operation(lambda a: a.sum(5))(x)
    with pytest.raises(NotImplementedError, match="not implemented for float32 and float32"):
        operation(lambda a, b: a ^ b)(x, x)


def test_errors_of_the_programmer_are_not_translated():
    x = tinytorch.ones(2, 3)
    with pytest.raises(ValueError, match="invalid literal"):
        operation(lambda a: int("two"))(x)
    with pytest.raises(TypeError, match="takes"):
        operation(lambda a: a.mean(1, 2, 3, 4, 5))(x)


@pytest.mark.parametrize("n", [4096, 65536])
def test_gradients_of_halves_are_added_up_as_float32(n):
    # In float16 a sum of halves stays at 1024: the next number is 1025.
    bias = leaf([1.0, 1.0], dtype=tinytorch.float16)
    x = tinytorch.ones(n, 2, dtype=tinytorch.float16)
    (x + bias).backward(tinytorch.full((n, 2), 0.5, dtype=tinytorch.float16))
    assert bias.grad.dtype is tinytorch.float16 and bias.grad.tolist() == [n / 2] * 2
    back = tinytorch.full((n, 1), 0.5, dtype=tinytorch.float16).sum_to_size(1, 1)
    assert back.dtype is tinytorch.float16 and back.tolist() == [[n / 2]]
