"""Storage, stride and offset: what a view shares, and what a write through it does to gradients."""

import numpy as np
import pytest

import tinytorch as tt
from tinytorch.autograd import gradcheck, gradgradcheck
from tinytorch.ops import reduction, shape, storage  # noqa: F401  (attach their methods)


@pytest.fixture
def t(device):
    return tt.tensor([[1, 2, 3], [4, 5, 6]], device=device)


def test_the_seeds_examples(t):
    assert tt.tensor(np.zeros((4, 8)), device=t.device).stride() == (8, 1)
    assert t.stride() == (3, 1) and t.storage_offset() == 0
    assert t.storage()[1 * 3 + 2 * 1] == 6
    assert t.T.stride() == (1, 3) and not t.T.is_contiguous()
    assert t.T.storage().tolist() == [1, 2, 3, 4, 5, 6]
    assert t.T.storage().data_ptr() == t.storage().data_ptr() == t.data_ptr()
    assert t.T.contiguous().storage().tolist() == [1, 4, 2, 5, 3, 6]
    assert t.T.contiguous().data_ptr() != t.data_ptr()
    assert t.clone().data_ptr() != t.data_ptr()
    assert t.expand(2, 2, 3).stride() == (0, 3, 1)


def test_offset_and_address_of_a_view(t):
    part = t.narrow(0, 1, 1).narrow(1, 1, 2)  # 5 6
    assert part.storage_offset() == 4
    assert part.data_ptr() == t.data_ptr() + 4 * 8
    assert part.storage().tolist() == [1, 2, 3, 4, 5, 6]
    assert part.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()


def test_sizes_of_storages(t):
    typed, untyped = t.storage(), t.untyped_storage()
    assert (typed.size(), len(typed), typed.nbytes()) == (6, 6, 48)
    assert (untyped.size(), len(untyped), untyped.nbytes()) == (48, 48, 48)
    assert typed.dtype is tt.int64 and untyped.device is t.device
    assert untyped.tolist()[:9] == [1, 0, 0, 0, 0, 0, 0, 0, 2]
    assert typed[-1] == 6
    with pytest.raises(IndexError, match="index 6 out of range for storage of size 6"):
        typed[6]
    empty = tt.tensor([], device=t.device)
    assert empty.storage().tolist() == [] and empty.data_ptr() == 0
    assert tt.tensor(7, device=t.device).storage().tolist() == [7]


def test_a_storage_prints_its_elements():
    printed = repr(tt.tensor([1, 2]).storage())
    assert (
        printed == " 1\n 2\n[tinytorch.storage.TypedStorage(dtype=tinytorch.int64, device=cpu) "
        "of size 2]"
    )


def test_a_write_into_the_storage_is_seen_by_all_views_and_by_the_graph(device):
    x = tt.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    y = x * x  # saves x
    view = x.detach().narrow(0, 1, 2)
    x.detach().storage()[2] = 9.0
    assert view.tolist() == [2.0, 9.0]
    assert x._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(tt.tensor([1.0, 1.0, 1.0], device=device))


def test_memory_of_a_numpy_slice_is_all_of_the_array():
    whole = np.arange(10.0)
    t = tt.from_numpy(whole[2:8:2])
    assert t.storage_offset() == 2 and t.stride() == (2,)
    assert t.storage().tolist() == whole.tolist()
    columns = tt.from_numpy(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    assert columns.stride() == (1, 2) and columns.storage().tolist() == [0, 3, 1, 4, 2, 5]


WINDOWS = {
    "overlapping": (lambda x: x.unfold(0, 2, 1)),
    "without overlap": (lambda x: x.unfold(1, 2, 2)),
    "of a transpose": (lambda x: x.T.unfold(-2, 3, 1)),
    "of windows": (lambda x: x.unfold(0, 2, 1).unfold(1, 2, 2)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_gradients_to_second_order(name, device):
    x = tt.tensor(np.arange(12.0).reshape(3, 4), device=device, requires_grad=True)
    assert gradcheck(WINDOWS[name], (x,))
    assert gradgradcheck(WINDOWS[name], (x,))


def test_a_view_by_hand_reads_any_place(device):
    x = tt.tensor(np.arange(12.0).reshape(3, 4), device=device)
    for view, size, stride, offset in (
        (x.as_strided((3, 3), (1, 1)), (3, 3), (1, 1), 0),
        (x.as_strided((2, 2, 2), (1, 0, 3)), (2, 2, 2), (1, 0, 3), 0),
        (x.T.as_strided((2, 3), (4, 1), 1), (2, 3), (4, 1), 1),
        (x[1].as_strided((2, 2), (2, 1)), (2, 2), (2, 1), 4),
        (x[1].as_strided((2,), (1,), 0), (2,), (1,), 0),
        (x.as_strided((), (), 5), (), (), 5),
        (x.as_strided((0, 2), (1, 1)), (0, 2), (1, 1), 0),
    ):
        expected = np.array(
            [offset + np.dot(index, stride) for index in np.ndindex(*size)], np.float64
        )
        assert view.tolist() == expected.reshape(size).tolist()


def test_the_gradient_of_a_view_by_hand(device):
    x = tt.arange(6.0, dtype=tt.float64, device=device, requires_grad=True)
    for view in (
        lambda x: x.as_strided((4, 3), (1, 1)),
        lambda x: x.reshape(2, 3).t().as_strided((2, 2), (3, 1), 1),
        lambda x: x[2:4].as_strided((), ()),
        lambda x: x[:1].expand(4).as_strided((2,), (0,)),
    ):
        assert tt.autograd.gradcheck(view, x) and tt.autograd.gradgradcheck(view, x)
    y = tt.zeros(4, device=device)
    view = y.as_strided((2,), (1,))
    y.add_(tt.ones(4, device=device, requires_grad=True))
    assert view.sum().requires_grad
    with pytest.raises(RuntimeError, match="cannot be written in place"):
        tt.zeros(4, device=device).as_strided((2,), (1,)).add_(x[:2].float())


def test_a_view_by_hand_shares_memory(t):
    view = t.as_strided((2, 2), (3, 2), 0)
    assert view.tolist() == [[1, 3], [4, 6]]
    view.mul_(10)
    assert t.tolist() == [[10, 2, 30], [40, 5, 60]]
    windows = tt.tensor([0.0, 1, 2, 3, 4, 5, 6], device=t.device).unfold(0, 3, 2)
    assert windows.tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert windows.stride() == (2, 1)
    assert tt.tensor(3.0, device=t.device).unfold(0, 1, 1).tolist() == [3.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.as_strided((3, 3), (3, 1)), RuntimeError, "need 72 bytes"),
        (lambda t: t.as_strided((2,), (-1,)), RuntimeError, "stride .-1. .* must not be negative"),
        (lambda t: t.as_strided((3,), (1, 1)), RuntimeError, "mismatch in length"),
        (lambda t: t.as_strided((2,), (1,), -1), RuntimeError, "offset -1 must not"),
        (lambda t: t.as_strided((2,), (1,), 5), RuntimeError, "need .* bytes from a storage"),
        (lambda t: t.as_strided((-2,), (1,)), RuntimeError, "must not be negative"),
        (lambda t: t.unfold(0, 3, 1), RuntimeError, "maximum size for tensor at dimension 0 is 2"),
        (lambda t: t.unfold(0, 2, 0), RuntimeError, "step is 0 but must be > 0"),
        (lambda t: t.unfold(0, -1, 1), RuntimeError, "size is -1"),
        (lambda t: t.unfold(5, 2, 1), IndexError, "Dimension out of range"),
        (lambda t: t.T.view(6), RuntimeError, "view size is not compatible"),
    ],
)
def test_bad_input(t, call, error, message):
    with pytest.raises(error, match=message):
        call(t)


# In-place operations through views: the right gradient, or an error.


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y.T.narrow(0, 1, 2),
        lambda y: y.unfold(1, 2, 2),
        lambda y: y.unfold(1, 2, 2).narrow(0, 1, 2),
    ],
)
def test_a_write_through_a_view_reaches_the_gradient(device, view):
    """y is written through the view; the same with NumPy says which elements changed."""
    start = np.arange(12.0).reshape(3, 4) + 1
    x = tt.tensor(start, device=device, requires_grad=True)
    y = x * 2
    view(y).mul_(5)
    changed = np.zeros((3, 4))
    mask = tt.from_numpy(changed)
    view(mask).add_(1)
    assert y.tolist() == (start * 2 * (1 + 4 * changed)).tolist()
    (y * y).sum().backward()
    factor = 2 * (1 + 4 * changed)
    assert x.grad.tolist() == (2 * factor**2 * start).tolist()


def test_a_recorded_write_into_windows_that_overlap_is_refused(device):
    x = tt.tensor(np.ones((3, 4)), device=device, requires_grad=True)
    y = x * 2
    with pytest.raises(RuntimeError, match="cannot be written in place"):
        y.unfold(0, 2, 1).mul_(5)
    tt.tensor(np.ones((3, 4)), device=device).unfold(0, 2, 1).mul_(5)


def test_views_follow_a_base_that_was_written(device):
    x = tt.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    y = x * 1
    windows, part = y.unfold(0, 2, 1), y.narrow(0, 1, 2)
    y.mul_(2)
    assert windows.tolist() == [[2, 4], [4, 6]]
    (windows.sum() + part.sum()).backward()
    assert x.grad.tolist() == [2.0, 6.0, 4.0]


def test_views_and_base_share_one_version(device):
    base = tt.tensor(np.ones((2, 3)), device=device)
    view = base.as_strided((2,), (3,))
    view.add_(1)
    assert base._version == view._version == base.T._version == 1
    base.add_(1)
    assert view._version == 2


def test_a_base_in_column_order_keeps_its_views(device):
    x = tt.tensor(np.arange(12.0).reshape(3, 4), device=device, requires_grad=True)
    y = x.T * 2  # lies column by column, so that the transpose of it is one row of memory
    y.T.view(-1).mul_(3)
    (y * 1).sum().backward()
    assert x.grad.tolist() == [[6.0] * 4] * 3


def test_a_storage_moves_to_another_device(strict_device):
    here = tt.arange(3).untyped_storage()
    there = here.to(strict_device)
    assert there.device.type == "strict" and there.nbytes() == 24
    assert there.cpu().tolist() == here.tolist() and here.cpu() is here
