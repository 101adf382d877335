"""What older programs write."""

import numpy as np
import pytest

import tinytorch
from tinytorch.autograd import Variable


def test_typed_tensors_are_made_from_a_shape_or_from_elements():
    assert tinytorch.FloatTensor(2, 3).shape == (2, 3)
    assert tinytorch.LongTensor(tinytorch.ones(4, 1).size()).shape == (4, 1)
    exact = tinytorch.LongTensor([2**53 + 1])
    assert exact.dtype is tinytorch.int64 and exact.item() == 2**53 + 1
    assert tinytorch.FloatTensor().shape == (0,)
    assert tinytorch.Tensor(tinytorch.ones(2, 3).size()).shape == (2, 3)


def test_typed_tensors_answer_isinstance():
    x = tinytorch.ones(2)
    assert isinstance(x, tinytorch.FloatTensor) and not isinstance(x, tinytorch.LongTensor)
    assert isinstance(x.long(), tinytorch.LongTensor) and not isinstance(1.0, tinytorch.FloatTensor)


def test_type_casts():
    x = tinytorch.ones(2)
    assert x.type(tinytorch.float64).dtype is tinytorch.float64
    for long in (tinytorch.int64, tinytorch.LongTensor):
        assert x.type(long).dtype is tinytorch.int64
    assert (x > 0).type(tinytorch.Tensor).tolist() == [1.0, 1.0]
    for dtype in (tinytorch.float16, tinytorch.int64, tinytorch.uint8, tinytorch.bool):
        named = x.type(x.to(dtype).type())
        assert named.dtype is dtype
    for wrong in ("FloatTensor", "torch.ComplexTensor", "float32"):
        with pytest.raises(ValueError, match=f"invalid type: '{wrong}'"):
            x.type(wrong)


def test_variable_is_a_leaf_on_the_same_memory():
    x = tinytorch.ones(2)
    v = Variable(x, requires_grad=True)
    (v * 3).sum().backward()
    assert v.grad.tolist() == [3.0, 3.0] and not x.requires_grad and v.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("name", ["add", "sub"])
def test_a_number_before_the_tensor(name, device):
    a, b = np.array([1.0, -2.0], np.float32), np.array([3.0, 0.5], np.float32)
    wanted = a + 2 * b if name == "add" else a - 2 * b
    x, y = tinytorch.tensor(a, device=device), tinytorch.tensor(b, device=device)
    for call in (
        lambda: getattr(x, name)(2, y),
        lambda: getattr(tinytorch, name)(x, 2, y),
        lambda: getattr(tinytorch, name)(x, tinytorch.tensor(2.0, device=device), y),
        lambda: getattr(tinytorch, name)(x, 2, y, out=tinytorch.zeros(2, device=device)),
        lambda: getattr(x.clone(), f"{name}_")(2.0, y),
    ):
        with pytest.warns(UserWarning, match="deprecated"):
            np.testing.assert_allclose(call().cpu().numpy(), wanted)
    w = x.clone().requires_grad_()
    with pytest.warns(UserWarning):
        found = getattr(w.clone(), f"{name}_")(2, w * w)  # is recorded
    found.sum().backward()
    np.testing.assert_allclose(w.grad.cpu().numpy(), 1 + (4 if name == "add" else -4) * a)


def test_a_number_before_two_tensors(device):
    x, y, z = (tinytorch.tensor(v, device=device) for v in ([1.0, 2.0], [3.0, 4.0], [2.0, 8.0]))
    with pytest.warns(UserWarning, match="deprecated"):
        assert x.addcmul(2, y, z).tolist() == [13.0, 66.0]
    with pytest.warns(UserWarning, match="deprecated"):
        assert tinytorch.addcdiv(x, -1, y, z).tolist() == [-0.5, 1.5]
    with pytest.warns(UserWarning, match="deprecated"):
        assert x.clone().addcdiv_(2, y, z).tolist() == [4.0, 3.0]


def test_other_orders_of_arguments_are_refused():
    x, y = tinytorch.tensor([1.0, 2.0]), tinytorch.tensor([3.0, 4.0])
    leaf = tinytorch.tensor(2.0, requires_grad=True)
    for wrong in (
        lambda: x.add(y, y),
        lambda: x.add(y, 2),
        lambda: x.add_(leaf, y),
        lambda: x.add_(2, y, y),
        lambda: x.sub(1, 2, 3),
        lambda: x.add_(2, y, alpha=3),
        lambda: x.addcmul(y, y, 2),
        lambda: x.addcmul(2, y, y, y),
    ):
        with pytest.raises(TypeError):
            wrong()
    assert x.tolist() == [1.0, 2.0] and x.add(1, 2).tolist() == [3.0, 4.0]


def test_a_fraction_of_integers_is_refused():
    x = tinytorch.tensor([1, 2])
    for call in (x.add, x.sub, x.clone().add_, x.clone().sub_):
        with pytest.raises(RuntimeError, match="alpha must be an integer"):
            call(x, alpha=0.5)
    assert x.add(x.float(), alpha=0.5).tolist() == [1.5, 3.0] and x.add(x, alpha=2).tolist() == [
        3,
        6,
    ]
