"""What older programs write."""

import pytest

import tinytorch
from tinytorch.autograd import Variable


def test_typed_tensors_are_made_from_a_shape_or_from_elements():
    assert tinytorch.FloatTensor(2, 3).shape == (2, 3)
    assert tinytorch.LongTensor(tinytorch.ones(4, 1).size()).shape == (4, 1)
    exact = tinytorch.LongTensor([2**53 + 1])
    assert exact.dtype is tinytorch.int64 and exact.item() == 2**53 + 1
    assert tinytorch.ByteTensor().shape == (0,)
    assert tinytorch.Tensor(tinytorch.ones(2, 3).size()).shape == (2, 3)


def test_typed_tensors_answer_isinstance():
    x = tinytorch.ones(2)
    assert isinstance(x, tinytorch.FloatTensor) and not isinstance(x, tinytorch.LongTensor)
    assert isinstance(x.bool(), tinytorch.BoolTensor) and not isinstance(1.0, tinytorch.FloatTensor)


def test_type_names_and_casts():
    x = tinytorch.ones(2)
    assert x.type() == "tinytorch.FloatTensor" and x.bfloat16().type().endswith("BFloat16Tensor")
    for double in (tinytorch.float64, tinytorch.DoubleTensor, "torch.DoubleTensor"):
        assert x.type(double).dtype is tinytorch.float64
    with pytest.raises(ValueError, match="invalid type"):
        x.type("torch.NoTensor")


def test_new_has_the_type_and_the_device_of_the_tensor(device):
    x = tinytorch.ones(2, dtype=tinytorch.float64, device=device)
    for y, shape in ((x.new(3, 1), (3, 1)), (x.new(x.size()), (2,)), (x.new([1, 2, 3]), (3,))):
        assert (y.shape, y.dtype, y.device) == (shape, x.dtype, x.device)


def test_variable_is_a_leaf_on_the_same_memory():
    x = tinytorch.ones(2)
    v = Variable(x, requires_grad=True)
    (v * 3).sum().backward()
    assert v.grad.tolist() == [3.0, 3.0] and not x.requires_grad and v.data_ptr() == x.data_ptr()
