"""ops/joining.py: cat, stack and their opposites."""

import numpy as np
import pytest

import tinytorch
from tinytorch import tensor
from tinytorch.autograd import grad, gradcheck, gradgradcheck
from tinytorch.ops.joining import constant_pad


def values(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


# name: (our operation on tensors, NumPy's on arrays, shapes of the inputs)
JOIN = {
    "cat": (lambda *x: tinytorch.cat(x), lambda *x: np.concatenate(x), [(2, 3), (1, 3), (0, 3)]),
    "cat dim": (
        lambda *x: tinytorch.cat(x, -1),
        lambda *x: np.concatenate(x, -1),
        [(2, 3), (2, 1)],
    ),
    "cat one": (lambda *x: tinytorch.cat(x), lambda *x: x[0], [(2, 3)]),
    "cat with (0,)": (
        lambda *x: tinytorch.cat(x, 1),
        lambda *x: np.concatenate(x[::2], 1),
        [(2, 3), (0,), (2, 3)],
    ),
    "stack": (lambda *x: tinytorch.stack(x), lambda *x: np.stack(x), [(2, 3), (2, 3)]),
    "stack last": (lambda *x: tinytorch.stack(x, -1), lambda *x: np.stack(x, -1), [(2,), (2,)]),
    "stack 0-d": (lambda *x: tinytorch.stack(x), lambda *x: np.stack(x), [(), (), ()]),
    "pad": (
        lambda x: constant_pad(x, (1, 2, 0, 1), 5.0),
        lambda x: np.pad(x, ((0, 1), (1, 2)), constant_values=5.0),
        [(2, 3)],
    ),
    "pad and cut": (
        lambda x: constant_pad(x, (-1, 1)),
        lambda x: np.pad(x[:, 1:], ((0, 0), (0, 1))),
        [(2, 3)],
    ),
}
CUT = {
    "split": (lambda x: x.split(2), lambda x: (x[:2], x[2:4], x[4:]), (5, 2)),
    "split list": (
        lambda x: x.split([1, 0, 3], dim=-1),
        lambda x: (x[:, :1], x[:, 1:1], x[:, 1:]),
        (2, 4),
    ),
    "split in one": (lambda x: x.split(9), lambda x: (x,), (5, 2)),
    "split nothing": (lambda x: x.split(3), lambda x: (x,), (0, 2)),
    "chunk": (lambda x: x.chunk(3), lambda x: (x[:2], x[2:4], x[4:]), (5, 2)),
    "chunk into fewer": (lambda x: x.chunk(4, 1), lambda x: np.split(x, 3, 1), (2, 6)),
    "unbind": (lambda x: x.unbind(), lambda x: tuple(x), (3, 2)),
    "unbind dim": (lambda x: x.unbind(-1), lambda x: tuple(x.T), (3, 2)),
    "unbind 1-d": (lambda x: x.unbind(), lambda x: tuple(x), (3,)),
    "unbind one": (lambda x: x.unbind(), lambda x: tuple(x), (1, 2)),
}


@pytest.mark.parametrize("name", JOIN)
def test_joining(name, device):
    ours, numpys, shapes = JOIN[name]
    data = [values(*shape) for shape in shapes]
    x = [tensor(each, device=device, requires_grad=True) for each in data]
    assert np.array_equal(ours(*x).numpy(force=True), numpys(*data))
    assert gradcheck(ours, x)
    assert gradgradcheck(ours, x)


@pytest.mark.parametrize("name", CUT)
def test_cutting(name, device):
    ours, numpys, shape = CUT[name]
    data = values(*shape)
    x = tensor(data, device=device, requires_grad=True)
    parts, expected = ours(x), numpys(data)
    assert isinstance(parts, tuple) and len(parts) == len(expected)
    for part, other in zip(parts, expected, strict=True):
        assert part._base is x and np.array_equal(part.numpy(force=True), other)
    assert gradcheck(ours, x)
    assert gradgradcheck(ours, x)


@pytest.mark.parametrize("name", CUT)
def test_a_write_into_a_part_reaches_the_whole_and_its_gradient(name, device):
    cut, _, shape = CUT[name]

    def function(x, y):
        base = x * 1.0
        parts = cut(base)
        parts[-1].add_(y)
        return base * base, *(part * part for part in parts)

    x, y = (tensor(values(*s), device=device, requires_grad=True) for s in (shape, ()))
    assert gradcheck(function, (x, y))
    assert gradgradcheck(function, (x, y))


def test_a_part_that_nobody_used_has_gradient_zero(device):
    x = tensor(values(3, 2), device=device, requires_grad=True)
    middle = x.unbind()[1]
    (middle * middle).backward(tensor([1.0, 1.0], dtype=tinytorch.float64, device=device))
    assert (x.grad.numpy(force=True)[[0, 2]] == 0).all() and (
        x.grad.numpy(force=True)[1] != 0
    ).all()


def test_one_tensor_joined_with_itself_gets_both_gradients(device):
    x = tensor(values(2), device=device, requires_grad=True)
    weight = tensor([1.0, 2.0, 10.0, 20.0], dtype=tinytorch.float64, device=device)
    (found,) = grad(tinytorch.cat([x, x]), x, weight)
    assert found.tolist() == [11.0, 22.0]


def test_types_are_promoted(device):
    a, b = tensor([1, 2], device=device), tensor([0.5], device=device, requires_grad=True)
    joined = tinytorch.cat([a, b])
    assert joined.dtype is tinytorch.float32 and joined.tolist() == [1.0, 2.0, 0.5]
    assert tinytorch.stack([a, a.bool()]).dtype is tinytorch.int64
    joined.backward(tensor([1.0, 1.0, 3.0], device=device))
    assert b.grad.tolist() == [3.0] and b.grad.dtype is tinytorch.float32


ERRORS = {
    "cat of nothing": (lambda x: tinytorch.cat([]), ValueError, "non-empty"),
    "cat of a tensor": (lambda x: tinytorch.cat(x), TypeError, "not Tensor"),
    "cat of a number": (lambda x: tinytorch.cat([x, 3]), TypeError, "element 1, but got int"),
    "cat of 0-d": (lambda x: tinytorch.cat([x.sum(), x.sum()]), RuntimeError, r"shapes are \[\]"),
    "cat of other dims": (lambda x: tinytorch.cat([x, x[None]]), RuntimeError, "must match"),
    "cat of other sizes": (
        lambda x: tinytorch.cat([x, x[:, :2]]),
        RuntimeError,
        r"except in dimension 0, .*: the shapes are \[2, 3\] and \[2, 2\]",
    ),
    "cat dim": (lambda x: tinytorch.cat([x], 2), IndexError, "but got 2"),
    "stack of nothing": (lambda x: tinytorch.stack([]), RuntimeError, "non-empty"),
    "stack": (lambda x: tinytorch.stack([x, x.T]), RuntimeError, "equal size"),
    "stack dim": (lambda x: tinytorch.stack([x], 3), IndexError, "but got 3"),
    "split 0": (lambda x: x.split(0), RuntimeError, "split_size 0"),
    "split -1": (lambda x: x.split(-1), RuntimeError, "split_size -1"),
    "split sizes": (lambda x: x.split([1, 2]), RuntimeError, "sum exactly to 2"),
    "split 0-d": (lambda x: x[0, 0].split(1), RuntimeError, "1-dim"),
    "chunk": (lambda x: x.chunk(0), RuntimeError, "chunk"),
    "unbind 0-d": (lambda x: x[0, 0].unbind(), IndexError, "no dimensions"),
    "pad odd": (lambda x: constant_pad(x, (1, 2, 3)), RuntimeError, "even"),
    "pad too many": (lambda x: constant_pad(x, (1,) * 6), RuntimeError, "at most 4"),
    "pad away": (lambda x: constant_pad(x, (-2, -2)), RuntimeError, "takes more"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, device):
    function, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        function(tensor(values(2, 3), device=device))


def test_unbound_rows_know_their_base():
    x = tinytorch.zeros(2, 3, requires_grad=True)
    y = x * 1
    for row in y:
        row.add_(row.sum() + 1)
    y.sum().backward()
    assert y.tolist() == [[1.0] * 3] * 2 and x.grad.tolist() == [[4.0] * 3] * 2
