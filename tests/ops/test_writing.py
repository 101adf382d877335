"""Writes with a name: on a copy and in place, their gradients and refusals."""

import pytest

import tinytorch
from tinytorch import tensor
from tinytorch.autograd import gradcheck, gradgradcheck


def zeros(device):
    return tinytorch.zeros(2, 3, device=device)


CASES = {
    "index_fill": ((1, [0, -1], 5.0), [[5.0, 0.0, 5.0]] * 2),
    "index_copy": ((0, [1], [[1.0, 2.0, 3.0]]), [[0.0] * 3, [1.0, 2.0, 3.0]]),
    "index_put": ((([0, 1], [1, 2]), [7.0, 8.0]), [[0.0, 7.0, 0.0], [0.0, 0.0, 8.0]]),
    "masked_scatter": (
        ([True, False, True], [1.0, 2.0, 3.0, 4.0]),
        [[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]],
    ),
}


def arguments(name, device):
    def carry(value):
        if isinstance(value, tuple):
            return tuple(map(carry, value))
        return tensor(value, device=device) if isinstance(value, list) else value

    return tuple(map(carry, CASES[name][0]))


@pytest.mark.parametrize("name", CASES)
def test_on_a_copy_and_in_place(name, device):
    x = zeros(device)
    assert getattr(tinytorch, name)(x, *arguments(name, device)).tolist() == CASES[name][1]
    assert x.tolist() == [[0.0] * 3] * 2
    assert getattr(x, f"{name}_")(*arguments(name, device)) is x
    assert x.tolist() == CASES[name][1]


def test_gradients_of_both_orders():
    x = tinytorch.rand(2, 3, dtype=tinytorch.float64, requires_grad=True)
    y = tinytorch.rand(2, dtype=tinytorch.float64, requires_grad=True)
    twice = (tensor([1, 1]), tensor([0, 0]))
    mask = tensor([[True, False, False], [False, True, False]])
    for function in (
        lambda x, y: x.index_fill(1, tensor([2, 2]), y[0]) * x,
        lambda x, y: x.index_copy(1, tensor([2]), y[:, None]) * x,
        lambda x, y: x.index_put(twice, y, accumulate=True) ** 2,
        lambda x, y: x.masked_scatter(mask, y * y) * x,
    ):
        assert gradcheck(function, (x, y)) and gradgradcheck(function, (x, y))


def test_a_number_is_a_tensor_of_one():
    x, one = tensor(1.0), tensor([0])
    assert x.index_fill(0, one, 3).item() == 3 and x.shape == ()
    assert x.index_copy(0, one, tensor(4.0)).item() == 4


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda x: x.index_fill(1, tensor([7]), 5), IndexError),
        (lambda x: x.index_fill(1, tensor([0]), tensor([5.0])), RuntimeError),
        (lambda x: x.index_fill(1, tensor([[0]]), 5), RuntimeError),
        (lambda x: x.index_copy(0, tensor([-1]), x[:1]), IndexError),
        (lambda x: x.index_copy(0, tensor([1]), x[0]), IndexError),
        (lambda x: x.index_copy(0, tensor([1]), x[:1].double()), RuntimeError),
        (lambda x: x.index_put((tensor([0]),), tensor(1)), RuntimeError),
        (lambda x: x.masked_scatter(tensor([True, False, True]), tinytorch.ones(3)), RuntimeError),
        (lambda x: x.masked_scatter(tensor([1, 0, 1]), tinytorch.ones(6)), RuntimeError),
    ],
)
def test_refusals(call, error):
    with pytest.raises(error):
        call(zeros("cpu"))
