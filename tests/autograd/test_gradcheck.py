"""The gradient check passes what is right and catches what is wrong."""

import pytest

import tinytorch
from tinytorch.autograd import GradcheckError, gradcheck, gradgradcheck
from tinytorch.autograd.node import Function


def leaf(data, device="cpu", **options):
    return tinytorch.tensor(data, device=device, requires_grad=True, dtype=tinytorch.float64)


class WrongFactor(Function):
    """y = x^2 with half of its slope."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    def backward(ctx, g):
        return g * ctx.saved[0]


class WrongElement(Function):
    """A slope that is wrong in one element only."""

    def forward(ctx, x):
        ctx.mask = x * 0.0 + 1.0
        ctx.mask[..., -1] = 1.01
        return x * 2.0

    def backward(ctx, g):
        return g * 2.0 * ctx.mask


class WrongSign(Function):
    """a - b, with + for the slope of b."""

    def forward(ctx, a, b):
        return a - b

    def backward(ctx, g):
        return g, g


class WrongTranspose(Function):
    """y = x read in another order, whose gradient is not brought back: every sum is right."""

    def forward(ctx, x):
        return ctx.xp.flip(x)

    def backward(ctx, g):
        return g


class WrongSecond(Function):
    """The first derivative is right; as a constant of the graph it has no second."""

    def forward(ctx, x):
        ctx.save_for_backward(2.0 * x)
        return x * x

    def backward(ctx, g):
        return g * ctx.saved[0]


class Missing(Function):
    """A gradient that is not there."""

    def forward(ctx, x):
        return x * 2.0

    def backward(ctx, g):
        return None


@pytest.mark.parametrize(
    "function",
    [WrongFactor, WrongElement, WrongTranspose, Missing],
    ids=lambda function: function.__name__,
)
def test_a_wrong_backward_is_caught(function, device):
    x = leaf([[0.5, 1.0, 1.5], [0.3, 0.2, 0.7]], device)
    with pytest.raises(GradcheckError, match="Jacobian mismatch for input 0"):
        gradcheck(function.apply, x)
    assert not gradcheck(function.apply, x, raise_exception=False)


class RowSums(Function):
    """The sum of each row, with a gradient that still has the shape of the sums."""

    def forward(ctx, x):
        return x.sum(axis=1, keepdims=True)

    def backward(ctx, g):
        return g


class OneMore(Function):
    """2 x, with a gradient that has one dimension more."""

    def forward(ctx, x):
        return x * 2.0

    def backward(ctx, g):
        return (g * 2.0).reshape(1, *g.shape)


class ProductOfSums(Function):
    """x^2 summed along rows; the derivative of its gradient is not summed back."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * x).sum(axis=1, keepdims=True)

    def backward(ctx, g):
        if isinstance(g, tinytorch.Tensor):
            return TwiceProduct.apply(ctx.saved[0], g)
        return 2.0 * ctx.saved[0] * g


class TwiceProduct(Function):
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        return 2.0 * x * g

    def backward(ctx, h):
        x, g = ctx.saved
        return 2.0 * g * h, 2.0 * x * h  # the second has the shape of x, not of g


@pytest.mark.parametrize("function", [RowSums, OneMore])
def test_a_gradient_of_another_shape_is_caught_though_it_broadcasts(function, device):
    x = leaf([[0.5, 0.5, 0.5]] * 2, device)
    for check in (gradcheck, gradgradcheck):
        with pytest.raises(GradcheckError, match="Analytical gradient has incorrect size"):
            check(function.apply, x)
        assert not check(function.apply, x, raise_exception=False)


def test_a_second_gradient_of_another_shape_is_caught(device):
    x = leaf([[1.0, -2.0, 0.5]], device)
    assert gradcheck(ProductOfSums.apply, x)
    with pytest.raises(GradcheckError, match="incorrect size.*for input 1"):
        gradgradcheck(ProductOfSums.apply, x)


def test_every_input_is_checked(device):
    a, b = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    with pytest.raises(GradcheckError, match="input 1"):
        gradcheck(WrongSign.apply, (a, b))
    assert gradcheck(lambda a: WrongSign.apply(a, b.detach()), a)


def test_a_wrong_second_derivative_is_caught(device):
    x = leaf([0.5, 1.0], device)
    assert gradcheck(WrongSecond.apply, x)
    with pytest.raises(GradcheckError):
        gradgradcheck(WrongSecond.apply, x)


def test_what_is_right_passes(device):
    x, k = leaf([[0.5, 1.0]], device), tinytorch.tensor([2.0, 3.0], device=device)
    for function in (
        lambda x: x * x * x,
        lambda x: (x + 1.0, x / (x + 2.0)),  # several outputs
        lambda x: [x * k, k],  # one of them constant
        lambda x: x.expand(3, 2) * 2.0,
    ):
        assert gradcheck(function, x)
        assert gradgradcheck(function, x)


def test_inputs_are_left_as_they_were(device):
    x = leaf([0.5, 1.0], device)
    gradcheck(lambda x: x * x, x)
    gradgradcheck(lambda x: x * x, x)
    assert x.tolist() == [0.5, 1.0] and x.grad is None


def test_arguments_that_are_no_tensors_are_passed_on():
    x = leaf([0.5, 1.0])
    assert gradcheck(lambda x, n, name: x * n, (x, 3.0, "text"))


def test_without_an_input_to_check_it_refuses():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(lambda x: x * x, tinytorch.tensor([1.0]))


def test_given_cotangents():
    x = leaf([0.5, 1.0])
    assert gradgradcheck(lambda x: x * x * x, x, leaf([1.0, -2.0]))


def test_options_of_pytorch():
    """Those that change nothing are taken; one that asks for another check is refused."""
    x = leaf([1.0, 2.0])
    options = {"fast_mode": True, "nondet_tol": 1e-5, "check_batched_grad": False}
    for check in (gradcheck, gradgradcheck):
        assert check(lambda x: x**3, (x,), check_undefined_grad=False, **options)
        for wrong in ("check_forward_ad", "fast"):
            with pytest.raises(TypeError, match=wrong):
                check(lambda x: x**3, (x,), **{wrong: True})
