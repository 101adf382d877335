"""What older programs write."""

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
