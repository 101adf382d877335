"""Writing in place: new elements in old memory, and a gradient that is right or an error."""

import gc
import pickle
import sys
from types import SimpleNamespace

import pytest

import tinytorch
from tinytorch.autograd import grad, gradgradcheck
from tinytorch.core import version
from tinytorch.core.version import versions


def leaf(data, device="cpu"):
    return tinytorch.tensor(data, device=device, requires_grad=True)


def constant(data, device="cpu"):
    return tinytorch.tensor(data, device=device)


def ones_like(x):
    return tinytorch.tensor(1.0, device=x.device).expand(x.shape).clone()


# Elements.


def test_writes_into_the_same_memory(device):
    x = constant([1.0, 2.0], device)
    before, view = x.array, x.detach()
    x += 1.0
    x.mul_(constant([2.0, 3.0], device)).sub_(1.0)
    x /= 2.0
    x.neg_()
    assert x.array is before
    assert view.tolist() == [-1.5, -4.0]


def test_a_number_that_is_one_of_the_elements_counts_as_it_was_before(device):
    for name, expected in (("mul_", [4.0, 6.0]), ("sub_", [0.0, 1.0]), ("add_", [4.0, 5.0])):
        x = constant([2.0, 3.0], device)
        before = x.array
        assert getattr(x, name)(x[0]).tolist() == expected
        assert x.array is before and x._version == 1


def test_the_type_stays_or_the_write_is_refused(device):
    whole = constant([1, 2], device)
    whole += 1
    assert whole.dtype is tinytorch.int64
    for write in (lambda: whole.add_(0.5), lambda: whole.div_(2)):
        with pytest.raises(RuntimeError, match="result type tinytorch.float32 can't be cast"):
            write()
    single = constant([1.0], device)
    single += tinytorch.tensor([0.5], dtype=tinytorch.float64, device=device)
    assert (single.dtype, single.tolist()) == (tinytorch.float32, [1.5])


def test_the_shape_stays_or_the_write_is_refused(device):
    x = constant([1.0], device)
    with pytest.raises(RuntimeError, match=r"shape \[1\] doesn't match the broadcast shape \[2\]"):
        x += constant([1.0, 2.0], device)
    wide = constant([[1.0, 2.0]] * 2, device)
    wide += constant([10.0, 20.0], device)
    assert wide.tolist() == [[11.0, 22.0]] * 2
    assert x.tolist() == [1.0]


def test_an_expanded_tensor_cannot_be_written(device):
    x = constant([1.0], device).expand(3)
    with pytest.raises(RuntimeError, match="more than one element"):
        x += 1.0


# Versions.


def test_the_version_counts_writes_through_all_views(device):
    x = constant([[1.0, 2.0]], device)
    same, wide, apart = x.detach(), x.expand(1, 2), x.clone()
    assert [t._version for t in (x, same, wide, apart)] == [0, 0, 0, 0]
    x += 1.0
    same += 1.0
    assert [t._version for t in (x, same, wide, apart)] == [2, 2, 2, 0]


def test_the_counts_are_forgotten_with_the_storage():
    gc.collect()
    before = len(versions)
    x = constant([1.0])
    x += 1.0
    assert len(versions) == before + 1
    del x
    assert len(versions) == before


# Leaves.


def test_a_leaf_that_requires_grad_is_not_written(device):
    x = leaf([1.0, 2.0], device)
    for target in (x, x.expand(1, 2)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            target += 1.0
    assert x.tolist() == [1.0, 2.0]
    with tinytorch.no_grad():
        x += 1.0
    x.data.mul_(2.0)
    x.detach().add_(1.0)
    assert x.tolist() == [5.0, 7.0]
    assert x.is_leaf and x.requires_grad


def test_a_constant_that_meets_a_gradient_joins_the_graph(device):
    total, x = constant([0.0, 0.0], device), leaf([1.0, 2.0], device)
    for factor in (1.0, 10.0):
        total += x * factor
    assert total.requires_grad and not total.is_leaf
    total.backward(ones_like(total))
    assert x.grad.tolist() == [11.0, 11.0]


def test_under_no_grad_a_write_is_not_recorded(device):
    total, x = constant([0.0], device), leaf([1.0], device)
    with tinytorch.no_grad():
        total += x
    assert not total.requires_grad


# Gradients through writes.

WRITES = {
    "add_": (lambda y, b: y.add_(b), lambda y, b: y + b),
    "sub_": (lambda y, b: y.sub_(b), lambda y, b: y - b),
    "mul_": (lambda y, b: y.mul_(b), lambda y, b: y * b),
    "div_": (lambda y, b: y.div_(b), lambda y, b: y / b),
    "neg_": (lambda y, b: y.neg_(), lambda y, b: -y),
    "exp_": (lambda y, b: y.exp_(), lambda y, b: y.exp()),
    "sqrt_": (lambda y, b: y.sqrt_(), lambda y, b: y.sqrt()),
    "sigmoid_": (lambda y, b: y.sigmoid_(), lambda y, b: y.sigmoid()),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_has_the_gradients_of_the_operation(name, device):
    write, operation = WRITES[name]
    results = []
    for apply in (write, operation):
        x, b = leaf([0.5, 1.5], device), leaf([2.0, 3.0], device)
        y = x * 2.0
        z = apply(y, b) * b
        first = grad(z, [x, b], ones_like(z), create_graph=True)
        second = grad([g * g for g in first], [x, b], [ones_like(x)] * 2, allow_unused=True)
        results.append([g.tolist() for g in (z, *first, *second)])
    assert results[0] == results[1]


def test_a_write_into_a_view_reaches_the_base(device):
    x, b = leaf([[1.0, 2.0], [3.0, 4.0]], device), leaf([[10.0, 100.0]], device)
    y = x * 1.0
    row = y[:1]
    row *= b
    assert y.tolist() == [[10.0, 200.0], [3.0, 4.0]]
    y.backward(ones_like(y))
    assert x.grad.tolist() == [[10.0, 100.0], [1.0, 1.0]]
    assert b.grad.tolist() == [[1.0, 2.0]]


def test_a_write_into_the_base_reaches_its_views(device):
    x = leaf([[1.0, 2.0], [3.0, 4.0]], device)
    y = x * 1.0
    row = y[1]
    y *= 10.0
    assert row.tolist() == [30.0, 40.0]
    row.backward(ones_like(row))
    assert x.grad.tolist() == [[0.0, 0.0], [10.0, 10.0]]


def test_views_of_views(device):
    x = leaf([[1.0, 2.0], [3.0, 4.0]], device)
    y = x * 1.0
    turned = y.transpose(0, 1)
    element = turned[0][1]  # y[1, 0]
    element *= 5.0
    other = turned[1]  # y[:, 1]
    other += element
    assert y.tolist() == [[1.0, 17.0], [15.0, 19.0]]
    y.backward(ones_like(y))
    assert x.grad.tolist() == [[1.0, 1.0], [15.0, 1.0]]


def test_second_derivatives_through_views():
    def function(a, b):
        y = a * b
        part = y[:, 0]
        part *= b[:, 1]
        y[1] += part
        return y * y

    inputs = [
        tinytorch.tensor([[0.5, 1.0], [1.5, 0.7]], dtype=tinytorch.float64, requires_grad=True)
        for _ in range(2)
    ]
    assert gradgradcheck(function, inputs)


# A saved tensor that was changed is an error, never a wrong number.


def changes(device):
    """Ways to change a tensor x: directly, and through views and detached tensors."""

    def directly(x):
        x.add_(1.0)

    def through_detach(x):
        x.detach().add_(1.0)

    def through_data(x):
        x.data.add_(1.0)

    def through_a_view(x):
        x[0].add_(1.0)

    def through_an_index(x):
        x[0] = 1.0

    def without_recording(x):
        with tinytorch.no_grad():
            x.add_(1.0)

    return [
        directly,
        through_detach,
        through_data,
        through_a_view,
        through_an_index,
        without_recording,
    ]


@pytest.mark.parametrize("change", changes(None), ids=lambda change: change.__name__)
def test_a_saved_tensor_that_was_changed(change, device):
    x, w = leaf([1.0, 2.0], device), leaf([3.0, 4.0], device)
    y = x * 1.0
    product = y * w  # saves y for the gradient of w
    change(y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation.*version 1"):
        product.backward(ones_like(product))


def test_a_saved_result_that_was_changed(device):
    y = leaf([1.0, 2.0], device).exp()
    y += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward(ones_like(y))


def test_what_was_not_saved_may_change(device):
    x = leaf([1.0, 2.0], device)
    y = x * 1.0
    z = y * 3.0  # needs no y for its gradient
    y += 1.0
    z.backward(ones_like(z))
    assert x.grad.tolist() == [3.0, 3.0]


def test_a_change_before_saving_is_no_fault(device):
    x = leaf([1.0, 2.0], device)
    y = x * 1.0
    y += 1.0
    (y * y).backward(ones_like(y))
    assert x.grad.tolist() == [4.0, 6.0]


def test_a_view_made_under_no_grad_is_not_written_with_recording(device):
    y = leaf([1.0, 2.0], device) * 1.0
    with tinytorch.no_grad():
        view = y[:1]
        view += 1.0
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        view += 1.0


def test_a_read_only_or_foreign_operand(device):
    x = constant([1.0], device)
    with pytest.raises(TypeError):
        x += "text"
    with pytest.raises(TypeError):
        x.add_([1.0])


def test_a_write_of_another_thread_does_not_set_the_clock_back(monkeypatch):
    """Wherever a thread can be interrupted in bump_version, another one writes in between."""
    x, other = constant([1.0]), constant([1.0])
    real, times = version.next_sequence_nr, []

    def between(frame, event, arg):
        if frame.f_code is not version.bump_version.__code__:
            return None
        sys.settrace(None)
        version.bump_version(other.array)
        times.append(version.last_write[0])
        sys.settrace(between)
        return between

    def asked():
        time = real()
        between(SimpleNamespace(f_code=version.bump_version.__code__), "line", None)
        return time

    monkeypatch.setattr(version, "next_sequence_nr", asked)
    sys.settrace(between)
    version.bump_version(x.array)
    sys.settrace(None)
    assert len(times) > 5 and times == sorted(times, reverse=True)
    assert version.last_write[0] <= times[-1]


def test_no_python_runs_when_a_storage_is_forgotten():
    """A Ctrl-C in a weak reference's Python callback would be lost."""
    x, ran = constant([1.0]).add_(1.0), []
    sys.setprofile(lambda frame, event, arg: ran.append((frame.f_code.co_filename, event)))
    del x
    sys.setprofile(None)
    assert not [name for name, event in ran if event == "call"]


OVERLAPPING = {
    "add_": lambda x, y: y.add_(x),
    "mul_": lambda x, y: y.mul_(x),
    "pow_": lambda x, y: y.pow_(x),
    "lerp_": lambda x, y: y.lerp_(x, 0.5),
    "clamp_": lambda x, y: y.clamp_(x),
    "addcmul_": lambda x, y: y.addcmul_(x, x),
    "copy_": lambda x, y: y.copy_(x),
    "scatter_": lambda x, y: y.scatter_(0, tinytorch.arange(5), x),
    "index_add_": lambda x, y: y.index_add_(0, tinytorch.arange(5), x),
    "index_copy_": lambda x, y: y.index_copy_(0, tinytorch.arange(5), x),
    "an assignment": lambda x, y: y.__setitem__(slice(None), x),
    "out of add": lambda x, y: tinytorch.add(x, 1, out=y),
    "out of sub": lambda x, y: tinytorch.sub(x, y, out=y),
    "out of mul": lambda x, y: tinytorch.mul(x, y, out=y),
}


@pytest.mark.parametrize("ahead", [1, -1], ids=["forwards", "backwards"])
@pytest.mark.parametrize("name", OVERLAPPING)
def test_operands_that_overlap_count_as_they_were_before(name, ahead):
    """PyTorch refuses most of these. Here the operand is read before it is overwritten."""
    whole = tinytorch.arange(6.0)
    x, y = (whole[:-1], whole[1:]) if ahead == 1 else (whole[1:], whole[:-1])
    expected = y.clone()
    OVERLAPPING[name](x.clone(), expected)
    OVERLAPPING[name](x, y)
    assert y.tolist() == expected.tolist()


def test_a_product_into_the_memory_of_its_factors():
    square = tinytorch.arange(4.0).reshape(2, 2)
    expected = (square @ square).tolist()
    assert tinytorch.matmul(square, square, out=square).tolist() == expected


WITH_OUT = "add sub mul matmul mm bmm exp div maximum cat stack sum mean clamp".split()


@pytest.mark.parametrize("name", WITH_OUT)
def test_functions_with_out_can_be_pickled(name):
    function = getattr(tinytorch, name)
    assert pickle.loads(pickle.dumps(function)) is function


@pytest.mark.parametrize("name", ["add", "sub", "mul", "matmul", "exp", "sum"])
def test_methods_have_no_out(name):
    x = tinytorch.ones(2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'out'"):
        getattr(x, name)(*[x] * (name not in ("exp", "sum")), out=x)


def test_with_out_says_which_argument_is_wrong_and_warns_at_the_line_of_the_call():
    x = tinytorch.ones(2)
    with pytest.raises(
        TypeError, match=r"matmul\(\): argument 'other' \(position 2\) must be Tensor"
    ):
        tinytorch.matmul(x, 2)
    with pytest.warns(UserWarning, match="was resized") as found:
        tinytorch.add(x, x, out=tinytorch.ones(3))
    assert found[0].filename == __file__
