"""ops/indexing.py: x[key] in all its forms, read and assigned."""

import numpy as np
import pytest

import tinytorch
from tinytorch import tensor
from tinytorch.autograd import grad, gradcheck, gradgradcheck
from tinytorch.autograd.modes import FunctionMode
from tinytorch.ops.indexing import add_at


def values(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape)


MASK = np.array([[True, False, True], [False, False, True]])
# Keys that NumPy and PyTorch read in the same way, for an array of shape (2, 3, 4).
KEYS = {
    "int": 1,
    "negative int": -1,
    "numpy int": np.int64(1),
    "slice": slice(1, None),
    "step": (slice(None), slice(None, None, 2)),
    "slice over the end": (slice(5, 9),),
    "None": None,
    "dots": ...,
    "nothing": (),
    "mixed": (0, slice(1, 3), None, ..., -1),
    "all ints": (1, 2, 3),
    "dots in the middle": (0, ..., 1),
    "list": [1, 0, 1],
    "empty list": [],
    "range": range(2),
    "array": np.array([[0, 1], [1, 1]]),
    "array int32": np.array([1, -2], dtype=np.int32),
    "second dim": (slice(None), [2, 0, 0]),
    "last dim": (..., [3, 0, 3]),
    "two together": ([0, 1, 0], [2, 2, 2]),
    "two apart": ([0, 1], slice(None), [3, 0]),
    "broadcast": (np.array([[0], [1]]), np.array([2, 0])),
    "slice and lists": (slice(1), [0, 2], [1, 1]),
    "None and list": (None, [0, 0]),
    "mask": np.array([False, True]),
    "mask of two dims": MASK,
    "mask with int": (MASK, 1),
    "mask in the middle": (0, np.array([True, False, True])),
    "mask and list": (np.array([True, True]), [0, 1]),
    "mask of all": np.random.default_rng(0).random((2, 3, 4)) > 0.5,
    "empty mask": np.zeros((2, 3), bool),
    "True": True,
    "False": (False, 0),
}
BASIC = [name for name in KEYS if name in list(KEYS)[:12]]


def on(device, key):
    """A key with its arrays as tensors of the device."""
    if isinstance(key, tuple):
        return tuple(on(device, part) for part in key)
    return tensor(key, device=device) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("name", KEYS)
def test_getitem(name, device):
    data, key = values(2, 3, 4), KEYS[name]
    x = tensor(data, device=device, requires_grad=True)
    expected = data[list(key) if isinstance(key, range) else key]
    result = x[on(device, key)]
    assert result.shape == expected.shape
    assert np.array_equal(result.numpy(force=True), expected)
    assert (result._base is x) == (name in BASIC)
    assert gradcheck(lambda x: x[on(device, key)], x)
    assert gradgradcheck(lambda x: x[on(device, key)], x)


@pytest.mark.parametrize("name", KEYS)
def test_setitem(name, device):
    data, key = values(2, 3, 4), KEYS[name]
    x, expected = tensor(data, device=device), data.copy()
    part = expected[list(key) if isinstance(key, range) else key]
    new = np.arange(part.size, dtype=np.float64).reshape(part.shape)
    if name not in ("list", "array", "array int32", "second dim", "last dim", "None and list"):
        expected[key if not isinstance(key, range) else list(key)] = new
        x[on(device, key)] = tensor(new, device=device)
        assert np.array_equal(x.numpy(force=True), expected)
    x[on(device, key)] = 7
    expected[key if not isinstance(key, range) else list(key)] = 7.0
    assert np.array_equal(x.numpy(force=True), expected)


@pytest.mark.parametrize("name", KEYS)
def test_setitem_is_differentiable(name, device):
    # An element that is written twice would have no derivative: take a key without such.
    key = {"list": [1, 0], "array": np.array([[0, 1]])}.get(name, KEYS[name])
    key = {"second dim": (slice(None), [2, 0]), "last dim": (..., [3, 0])}.get(name, key)
    key = {"two together": ([0, 1, 0], [2, 2, 1]), "None and list": (None, [0, 1])}.get(name, key)
    key = np.array([1, 0]) if name == "array int32" else key

    def write(x, y):
        out = x * 1.0
        out[on(device, key)] = y
        return out * out

    x, y = (tensor(values(*s), device=device, requires_grad=True) for s in ((2, 3, 4), (1, 1)))
    if x[on(device, key)].ndim < 2:
        y = tensor(values(), device=device, requires_grad=True)
    assert gradcheck(write, (x, y))
    assert gradgradcheck(write, (x, y))


def test_an_element_chosen_twice_gets_both_gradients(device):
    x = tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    x[[0, 0, 2]].backward(tensor([1.0, 10.0, 100.0], device=device))
    assert x.grad.tolist() == [11.0, 0.0, 100.0]


def test_add_at_in_many_sizes(device):
    xp = tensor(0, device=device).device.xp
    rng = np.random.default_rng(0)
    for n, width, count in [(5, 1, 40), (3, 7, 10), (4, 2, 0), (0, 3, 0)]:
        start, rows = rng.standard_normal((n, width)), rng.integers(0, max(n, 1), count)
        new = rng.standard_normal((count, width))
        expected = start.copy()
        np.add.at(expected, rows, new)
        found = xp.zeros((n, width), start.dtype) + tensor(start, device=device).array
        add_at(found, tensor(rows, device=device).array, tensor(new, device=device).array)
        found = tinytorch.core.tensor.wrap(found, tensor(0, device=device).device)
        assert np.allclose(found.numpy(force=True), expected)


def test_a_slice_counts_from_the_end_and_takes_tensors_as_bounds(device):
    x = tensor(values(6), device=device)
    two = tensor(2, device=device)
    assert x[two:].shape == (4,) and x[-two:].shape == (2,) and x[two].shape == ()
    assert x[two]._base is x


def test_iteration_and_in(device):
    x = tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert [row.tolist() for row in x] == [[1.0, 2.0], [3.0, 4.0]]
    assert 3 in x and 5.0 not in x and tensor(4.0, device=device) in x
    a, b = x
    b.mul_(0.0)
    assert x.tolist() == [[1.0, 2.0], [0.0, 0.0]] and a.tolist() == [1.0, 2.0]


def test_assignment_casts_and_broadcasts(device):
    x = tensor([[1, 2, 3], [4, 5, 6]], device=device)
    x[0] = 1.7
    x[:, 1:] = tensor([[[9.9], [8.0]]], device=device)
    assert x.tolist() == [[1, 9, 9], [4, 8, 8]] and x.dtype is tinytorch.int64


def test_a_leaf_is_not_written_while_gradients_are_recorded(device):
    x = tensor([1.0, 2.0], device=device, requires_grad=True)
    for key in (0, [0], tensor([True, False], device=device)):
        with pytest.raises(RuntimeError, match="leaf"):
            x[key] = 0.0
    with tinytorch.no_grad():
        x[0] = 5.0
    assert x.tolist() == [5.0, 2.0]


def test_a_written_saved_tensor_is_noticed(device):
    x = tensor([1.0, 2.0], device=device, requires_grad=True)
    y = x * 1.0
    z = y * y
    y[[0]] = 0.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward(tensor([1.0, 1.0], device=device))


def test_nonzero(device):
    x = tensor([[0.0, 2.0], [3.0, 4.0]], device=device)
    assert x.nonzero().tolist() == [[0, 1], [1, 0], [1, 1]]
    assert x[x.nonzero(as_tuple=True)].tolist() == [2.0, 3.0, 4.0]
    assert x.nonzero().dtype is tinytorch.int64
    assert tensor(3.0, device=device).nonzero().shape == (1, 0)
    assert tensor(0.0, device=device).nonzero(as_tuple=True)[0].shape == (0,)


def test_types_stay(device):
    for dtype in (tinytorch.float32, tinytorch.int64, tinytorch.bool, tinytorch.float16):
        x = tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype, device=device)
        for out in (x[0], x[[0]], x[x.bool()], x.masked_select(x.bool())):
            assert out.dtype is dtype


ERRORS = {
    "int": (lambda x, d: x[5], IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
    "in a list": (lambda x, d: x[:, [0, 7]], IndexError, "index 7 is out of bounds"),
    "too many": (lambda x, d: x[0, 0, 0], IndexError, "too many indices for tensor"),
    "0-d": (lambda x, d: x[0, 0][0], IndexError, "0-dim"),
    "step": (lambda x, d: x[::-1], ValueError, "step must be greater than zero"),
    "float": (lambda x, d: x[1.5], IndexError, "1.5"),
    "float bound": (lambda x, d: x[:1.5], TypeError, "integer"),
    "float tensor": (lambda x, d: x[x[0]], IndexError, "long, int or bool"),
    "two dots": (lambda x, d: x[..., ...], IndexError, "single ellipsis"),
    "mask": (lambda x, d: x[d([True, False, True])], IndexError, r"mask \[3\] .* \[2, 3\]"),
    "lists": (lambda x, d: x[[0, 1], [0, 1, 2]], IndexError, "shape mismatch"),
    "text": (lambda x, d: x["a"], TypeError, "'str'"),
    "iteration": (lambda x, d: list(x[0, 0]), TypeError, "0-d"),
    "in": (lambda x, d: "a" in x, RuntimeError, "str"),
    "set a list": (lambda x, d: x.__setitem__(0, [1, 2, 3]), TypeError, "list"),
    "set a size": (lambda x, d: x.__setitem__(0, d([1.0, 2.0])), RuntimeError, "shape"),
    "set a type": (lambda x, d: x.__setitem__([0], d([1, 2, 3])), RuntimeError, "int64"),
    "select mask": (lambda x, d: x.masked_select(d([1, 0, 1])), RuntimeError, "BoolTensor"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name, device):
    function, error, message = ERRORS[name]
    with pytest.raises(error, match=message):
        function(tensor(values(2, 3), device=device), lambda data: tensor(data, device=device))


def test_the_second_derivative_through_one_index_used_twice(device):
    x = tensor(values(3), device=device, requires_grad=True)
    (first,) = grad((x[[0, 0, 1]] * x[[2, 0, 2]]).sum(), x, create_graph=True)
    (second,) = grad(first[0], x)
    # x0 x2 + x0^2 + x1 x2: the first derivative in x0 is x2 + 2 x0
    assert np.allclose(second.numpy(force=True), [2.0, 0.0, 1.0])


@pytest.mark.parametrize("key", [(..., None), (1,), (slice(1, None), 0), (None, slice(None), -1)])
def test_a_plain_key_makes_a_view(key):
    x = tinytorch.arange(6).reshape(2, 3)
    assert np.shares_memory(x[key].array, x.array)
    assert x[key].tolist() == x.array[key].tolist()


def test_a_bound_that_is_a_tensor_is_read_once():
    x, start = tinytorch.ones(4, requires_grad=True), tinytorch.tensor(1)
    y = x[start : start + 2]
    start += 1
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_a_mask_writes_like_its_places(device):
    x = tinytorch.arange(6.0, device=device).reshape(2, 3)
    x[x > 3] = tinytorch.tensor([7.0, 8.0], device=device)
    x[x < 1] = -1
    assert x.tolist() == [[-1.0, 1.0, 2.0], [3.0, 7.0, 8.0]]
    with pytest.raises(RuntimeError):
        x[x > 3] = tinytorch.ones(3, device=device)


def ways_to_a_row(x):
    """Row 1 of a tensor with two rows, however it is asked for."""
    return {"index": x[1], "unbind": x.unbind()[1], "for": list(x)[1], "split": x.split(1)[1][0]}


WAYS = list(ways_to_a_row(tinytorch.zeros(2, 1)))


@pytest.mark.parametrize("way", WAYS)
def test_a_row_of_which_nothing_is_recorded_is_a_view_all_the_same(way, device):
    x = tinytorch.zeros(2, 3, device=device)
    row, factor = ways_to_a_row(x)[way], tensor([2.0], requires_grad=True, device=device)
    assert row._base is x and row.grad_fn is None and row.device == x.device
    row += factor  # the row gets a history, and through it the whole
    assert x.tolist() == [[0, 0, 0], [2, 2, 2]]
    (x * tinytorch.ones(2, 3, device=device)).sum().backward()
    assert factor.grad.tolist() == [3.0]

    x = tinytorch.ones(2, 3, device=device)
    row = ways_to_a_row(x)[way]
    x *= factor  # and the whole one, and through it the row, and what is taken from the row
    assert row.requires_grad and grad(row[0], factor)[0].tolist() == [1.0]
    with tinytorch.no_grad():
        row = ways_to_a_row(x)[way]
    assert not row.requires_grad and row._base is x
    with pytest.raises(RuntimeError, match="no_grad mode"):
        row.add_(1)


@pytest.mark.parametrize("way", WAYS)
def test_a_row_in_inference_mode_is_what_its_base_is(way):
    x = tinytorch.zeros(2, 3)
    with tinytorch.inference_mode():
        inside = tinytorch.zeros(2, 3) + 1
        assert not ways_to_a_row(x)[way].is_inference()
        assert ways_to_a_row(inside)[way].is_inference()
    assert ways_to_a_row(inside)[way].is_inference()
    with pytest.raises(RuntimeError, match="outside InferenceMode"):
        ways_to_a_row(inside)[way].add_(1)


def test_a_mode_sees_each_row():
    class Names(FunctionMode):
        def __init__(self):
            self.names = []

        def call(self, function, args):
            self.names.append(function.__name__)
            return function.apply(*args)

    x = tinytorch.zeros(2, 3)
    with Names() as mode:
        x[0], x[-1], x.select(1, 2), x.unbind(), x.split(1)
    assert mode.names == ["Slice"] * 3 + ["Unbind", "Split"]
