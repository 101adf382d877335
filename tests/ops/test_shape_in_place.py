"""unsqueeze_, transpose_ and the like: the tensor itself gets another shape."""

import pytest

import tinytorch


@pytest.mark.parametrize("name, args", [("unsqueeze_", (1,)), ("t_", ()), ("transpose_", (0, 1))])
def test_the_tensor_becomes_its_view(device, name, args):
    x = tinytorch.arange(6.0, device=device).reshape(2, 3)
    same, expected = x, getattr(x, name[:-1])(*args)
    assert getattr(x, name)(*args) is same
    assert x.tolist() == expected.tolist() and x.data_ptr() == expected.data_ptr()


def test_a_view_that_becomes_another_view_writes_into_its_base(device):
    base = tinytorch.zeros(2, 3, device=device, requires_grad=True) * 1
    row = base[1]
    row.unsqueeze_(0).add_(2)
    assert base.tolist() == [[0, 0, 0], [2, 2, 2]]
    with pytest.raises(RuntimeError, match="leaf"):
        tinytorch.zeros(2, requires_grad=True).unsqueeze_(0)


def test_gradients_pass_the_new_shape(device):
    x = tinytorch.ones(3, device=device, requires_grad=True)
    y = x * 2
    y.unsqueeze_(0)
    y.mul_(tinytorch.tensor([[1.0, 2.0, 3.0]], device=device))
    y.sum().backward()
    assert x.grad.tolist() == [2, 4, 6]


def test_resize_keeps_the_elements_in_memory(device):
    x = tinytorch.arange(6, device=device)
    view = x[2:]
    assert view.resize_(2, 1).tolist() == [[2], [3]]
    assert x.resize_(3).tolist() == [0, 1, 2] and x.resize_(6).tolist() == [0, 1, 2, 3, 4, 5]
    assert x.resize_as_(tinytorch.zeros(2, 4))[0].tolist() == [0, 1, 2, 3]


def test_a_view_made_before_is_not_given_another_gradient(device):
    x = tinytorch.arange(4.0, device=device).reshape(2, 2).requires_grad_()
    y = x * 1
    row = y[0]
    y.t_().mul_(2)
    with pytest.raises(RuntimeError, match="base of a view"):
        row.sum().backward()
    (y * tinytorch.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)).sum().backward()
    assert x.grad.tolist() == [[2, 6], [4, 8]]
    assert y[0].tolist() == [0, 4]
