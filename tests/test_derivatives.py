"""What the tests' own check of second derivatives finds."""

import numpy as np
import pytest

from tests.derivatives import second_derivatives
from tinytorch import tensor
from tinytorch.autograd import Function, GradcheckError


class Square(Function):
    """x * x, whose gradient has a gradient that `wrong` changes."""

    @staticmethod
    def forward(ctx, x, wrong):
        ctx.save_for_backward(x)
        ctx.wrong = wrong
        return x.detach() ** 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return ctx.wrong(2 * g * x), None


def one_entry(g):
    """The value as it is; the gradient of one entry of 60 is off by a thousandth."""
    factor = np.ones(g.shape)
    factor[1, 2, 3] = 1.001
    return g * tensor(factor) + (g * tensor(1 - factor)).detach()


def numbers(device="cpu"):
    return tensor(np.random.default_rng(0).normal(size=(3, 4, 5)), device=device).requires_grad_()


def test_right_ones(device):
    x, y = numbers(device), numbers(device)
    assert second_derivatives(lambda x: Square.apply(x, lambda g: g), x)
    assert second_derivatives(lambda x, y: ((x * y).exp(), x.sum(0), y.detach()), (x, y))
    assert second_derivatives(lambda x, y: x * y, [x, y.detach()])


@pytest.mark.parametrize("wrong", [lambda g: g.detach(), one_entry], ids=["cut off", "one entry"])
def test_wrong_ones(wrong):
    with pytest.raises(GradcheckError):
        second_derivatives(lambda x: Square.apply(x, wrong), numbers())
