"""Tensors: how they are made, what they share, what they refuse, and how they leave again."""

import collections
import copy
import gc
import io
import pickle
import threading
import warnings
import weakref

import numpy as np
import pytest

import tinytorch
from tinytorch.core.tensor import Size, Tensor, tensor_method, wrap
from tinytorch.core.version import storage_of


def tensor(data, device="cpu", **options):
    return tinytorch.tensor(data, device=device, **options)


# Making tensors.


@pytest.mark.parametrize(
    "data, name, shape",
    [
        (1, "int64", ()),
        (1.5, "float32", ()),
        (True, "bool", ()),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        ([1, 2.5], "float32", (2,)),
        ([True, 2], "int64", (2,)),
        ((1, (2)), "int64", (2,)),
        (range(3), "int64", (3,)),
        ([np.float64(1), 2], "float64", (2,)),
        ([np.int8(1), np.int8(2)], "int8", (2,)),
        (np.float64(1.5), "float64", ()),
        (np.int8(3), "int8", ()),
        (np.zeros((2, 3)), "float64", (2, 3)),
        ([[1, 2], [3, 4]], "int64", (2, 2)),
        ([range(2), (3, 4)], "int64", (2, 2)),
    ],
    ids=repr,
)
def test_tensor_takes_its_type_from_the_data(data, name, shape, device):
    made = tensor(data, device)
    assert (made.dtype.name, made.shape) == (name, shape)
    assert made.is_leaf and not made.requires_grad and made.grad is None
    torch = pytest.importorskip("torch")
    theirs = torch.tensor(data)
    assert (f"torch.{name}", tuple(shape)) == (str(theirs.dtype), tuple(theirs.shape))


def test_tensor_of_tensors():
    parts = [tensor(1), tensor(2.5)]
    assert tinytorch.tensor(parts).tolist() == [1.0, 2.5]
    assert tinytorch.tensor(parts).dtype is tinytorch.float32
    assert tinytorch.tensor([tensor([1]), tensor([[2.5]]), 3]).tolist() == [1.0, 2.5, 3.0]
    assert tinytorch.tensor([[tensor([True])]]).tolist() == [[True]]
    for elements, error in (([1.0, 2.0], ValueError), ([1, 2], TypeError), ([], ValueError)):
        with pytest.raises(error, match="only one element tensors"):
            tinytorch.tensor([tensor(elements)])


@pytest.mark.parametrize(
    "data, error, message",
    [
        ([1, [2]], TypeError, "only numbers or only sequences at dim 1"),
        ([[1], 2], TypeError, "only numbers or only sequences at dim 1"),
        ([[1, [2]], [3, 4]], TypeError, "only numbers or only sequences at dim 2"),
        ([[1, 2], [3]], ValueError, "expected sequence of length 2 at dim 1 .got 1"),
        ([[[1], [2]], [[3], []]], ValueError, "expected sequence of length 1 at dim 2 .got 0"),
        ("text", TypeError, "str"),
        (["text"], TypeError, "str"),
        (object(), RuntimeError, "Could not infer dtype of object"),
        ([None], RuntimeError, "Could not infer dtype of NoneType"),
        ({1: 2}, RuntimeError, "Could not infer dtype of dict"),
        (np.array(["text"]), TypeError, "U4"),
        (np.array([1j]), TypeError, "complex128"),
        (2**70, RuntimeError, "."),
    ],
)
def test_what_is_no_tensor_is_refused(data, error, message):
    with pytest.raises(error, match=message):
        tinytorch.tensor(data)


def test_an_element_that_does_not_fit_is_refused():
    nan, whole = float("nan"), tinytorch.int64
    for value, dtype in (
        (300, tinytorch.uint8),
        (300.5, tinytorch.uint8),
        (2**40, tinytorch.int32),
    ):
        with pytest.raises(RuntimeError, match="cannot be converted"):
            tinytorch.tensor([value], dtype=dtype)
    for value in (nan, 1e40, 2.0**63):
        with pytest.raises(RuntimeError, match="cannot be converted"):
            tinytorch.tensor(value, dtype=whole)
    assert tinytorch.tensor([2.7, -2.7, 2.0**62], dtype=whole).tolist() == [2, -2, 2**62]
    assert tinytorch.tensor([0.5, 0.0, nan], dtype=tinytorch.bool).tolist() == [True, False, True]
    assert tinytorch.tensor(1e40).tolist() == float("inf")


def test_tensor_copies(device):
    source = np.array([1.0, 2.0])
    made = tensor(source, device)
    source[0] = 9.0
    assert made.tolist() == [1.0, 2.0]
    again = tinytorch.tensor(made)
    again += 1.0
    assert made.tolist() == [1.0, 2.0]


def test_only_float_tensors_require_grad(device):
    for options in ({"dtype": tinytorch.int64}, {"dtype": tinytorch.bool}):
        with pytest.raises(RuntimeError, match="floating point"):
            tensor([1, 0], device, requires_grad=True, **options)
        with pytest.raises(RuntimeError, match="floating point"):
            tensor([1, 0], device, **options).requires_grad_()
    assert tensor([1.0], device).requires_grad_().requires_grad


def test_the_class_itself_makes_float_tensors():
    assert Tensor(2, 3).shape == (2, 3)
    assert Tensor([1, 2]).tolist() == [1.0, 2.0]
    assert Tensor([1, 2]).dtype is tinytorch.float32
    assert Tensor().shape == (0,)


# Sharing memory.


def test_from_numpy_shares_memory_both_ways():
    array = np.array([1.0, 2.0])
    shared = tinytorch.from_numpy(array)
    array[0] = 5.0
    assert shared.tolist() == [5.0, 2.0]
    shared *= 2.0
    assert array.tolist() == [10.0, 4.0]
    assert np.shares_memory(shared.numpy(), array)


def test_as_tensor_shares_where_it_can():
    array = np.array([1.0, 2.0])
    assert np.shares_memory(tinytorch.as_tensor(array).numpy(), array)
    assert tinytorch.as_tensor(array, dtype=tinytorch.float32).dtype is tinytorch.float32
    made = tensor([1.0])
    assert tinytorch.as_tensor(made) is made
    assert tinytorch.as_tensor(made, dtype=tinytorch.float64).dtype is tinytorch.float64
    assert tinytorch.as_tensor([1, 2]).dtype is tinytorch.int64


def test_from_numpy_refuses():
    with pytest.raises(TypeError, match="expected np.ndarray .got list"):
        tinytorch.from_numpy([1.0])
    with pytest.raises(TypeError, match="not a tinytorch dtype"):
        tinytorch.from_numpy(np.array(["a"]))
    with pytest.raises(ValueError, match="stride"):
        tinytorch.from_numpy(np.arange(3)[::-1])


def test_numpy_shares_and_refuses_a_graph():
    x = tensor([1.0, 2.0])
    x.numpy()[0] = 7.0
    assert x.tolist() == [7.0, 2.0]
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="Can't call numpy.. on Tensor that requires grad"):
        x.numpy()
    with pytest.raises(RuntimeError, match="requires grad"):
        np.asarray(x)
    assert x.numpy(force=True).tolist() == [7.0, 2.0]


def test_numpy_functions_take_tensors():
    x = tensor([1.0, 4.0])
    assert np.asarray(x).tolist() == [1.0, 4.0]
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert np.sqrt(np.asarray(x)).tolist() == [1.0, 2.0]
    copied = np.array(x)
    copied[0] = 9.0
    assert x.tolist() == [1.0, 4.0]


def test_a_numpy_operator_leaves_the_work_to_the_tensor():
    x = tensor([1.0, 2.0])
    y = np.float64(2.0) * x
    assert isinstance(y, Tensor) and y.dtype is tinytorch.float32


def test_detach_shares_memory_and_leaves_the_graph(device):
    x = tensor([1.0, 2.0], device, requires_grad=True)
    y = x * 2.0
    for apart in (y.detach(), y.data):
        assert not apart.requires_grad and apart.grad_fn is None and apart.is_leaf
        assert storage_of(apart.array) is storage_of(y.array)
    assert y.requires_grad


def test_data_replaces_the_array_and_keeps_the_rest(device):
    x = tensor([1.0, 2.0], device, requires_grad=True)
    x.data = tensor([5.0, 6.0, 7.0], device)
    assert x.tolist() == [5.0, 6.0, 7.0] and x.requires_grad
    with pytest.raises(TypeError):
        x.data = [1.0]


# What a tensor is like.


def test_shape_and_size(device):
    x = tensor(np.zeros((2, 3, 4), np.float32), device)
    assert x.shape == x.size() == Size((2, 3, 4)) == (2, 3, 4)
    assert repr(x.shape) == "tinytorch.Size([2, 3, 4])"
    assert isinstance(x.shape[:2], Size) and isinstance(x.shape + (5,), Size)
    assert (x.shape[-1], x.size(-1), x.size(0), len(x)) == (4, 4, 2, 2)
    assert (x.ndim, x.dim(), x.numel(), x.shape.numel()) == (3, 3, 24, 24)
    assert (x.element_size(), x.itemsize, x.nbytes) == (4, 4, 96)
    assert tensor(1.0, device).numel() == Size(()).numel() == 1
    for dim in (3, -4):
        with pytest.raises(IndexError, match=rf"\[-3, 2\], but got {dim}"):
            x.size(dim)
    with pytest.raises(IndexError, match="tensor has no dimensions"):
        tensor(1.0, device).size(0)
    with pytest.raises(TypeError, match="len.. of a 0-d tensor"):
        len(tensor(1.0, device))


def test_grad_takes_only_what_fits(device):
    x = tensor([1.0, 2.0], device)
    x.grad = tensor([3.0, 4.0], device)
    assert x.grad.tolist() == [3.0, 4.0]
    x.grad = None
    assert x.grad is None
    with pytest.raises(TypeError, match="expected to be a Tensor or None"):
        x.grad = 1.0
    with pytest.raises(RuntimeError, match="shape"):
        x.grad = tensor([1.0], device)
    with pytest.raises(RuntimeError, match="dtype"):
        x.grad = tensor([1.0, 2.0], device, dtype=tinytorch.float64)


def test_a_computed_tensor_cannot_drop_its_history(device):
    y = tensor([1.0], device, requires_grad=True) * 2.0
    with pytest.raises(RuntimeError, match="leaf variables.*detach"):
        y.requires_grad = False
    y.requires_grad = True
    assert y.grad_fn is not None


def test_tensors_are_told_apart_by_identity(device):
    x, y = tensor([1.0], device), tensor([1.0], device)
    assert len({x, y, x}) == 2
    assert hash(x) == hash(x)


# Leaving for Python.


def test_item_and_tolist_give_python_numbers(device):
    for data, kind in ((2, int), (2.5, float), (True, bool)):
        assert type(tensor(data, device).item()) is kind
        assert type(tensor([[data]], device).item()) is kind
        assert type(tensor([data], device).tolist()[0]) is kind
        assert type(tensor(data, device).tolist()) is kind
    for dtype in (tinytorch.float16, tinytorch.bfloat16):
        assert type(tensor(0.5, device, dtype=dtype).item()) is float
        assert type(tensor([0.5], device, dtype=dtype).tolist()[0]) is float
    for data in ([], [1, 2]):
        with pytest.raises(RuntimeError, match=f"{len(data)} elements cannot be converted"):
            tensor(data, device).item()


def test_bool_is_only_for_one_element(device):
    assert bool(tensor(2.0, device)) and not bool(tensor([[0]], device))
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        bool(tensor([1.0, 2.0], device))
    with pytest.raises(RuntimeError, match="no values is ambiguous"):
        bool(tensor([], device))


def test_numbers_out_of_tensors(device):
    assert float(tensor([2.5], device)) == 2.5
    assert int(tensor(2.9, device)) == 2
    assert list(range(5))[tensor(3, device)] == 3
    with pytest.raises(TypeError, match="only integer tensors"):
        list(range(5))[tensor(3.0, device)]
    for convert in (float, int):
        with pytest.raises(ValueError, match="array of size 1"):
            convert(tensor([1.0, 2.0], device))


def test_format():
    assert f"{tensor(2.5):.3f}" == "2.500"
    assert f"{tensor(2.5)}" == "2.5"
    assert f"{tensor([2.5])}" == "tensor([2.5000])"
    with pytest.raises(TypeError):
        format(tensor([2.5]), ".3f")


# Copies.


def test_pickle_keeps_everything_of_a_leaf(device):
    x = tensor([1.0, 2.0], device, dtype=tinytorch.float64, requires_grad=True)
    again = pickle.loads(pickle.dumps(x))
    assert again.tolist() == x.tolist() and again.array is not x.array
    assert (again.dtype, again.device, again.requires_grad) == (x.dtype, x.device, True)
    assert again.is_leaf and again.grad is None


def test_pickle_refuses_a_graph():
    x = tensor([1.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        pickle.dump(x * 2.0, io.BytesIO())


def test_pickle_of_a_subclass():
    again = pickle.loads(pickle.dumps(Marked([1.0, 2.0])))
    assert type(again) is Marked and again.tolist() == [1.0, 2.0]


class Marked(Tensor):
    pass


def test_deepcopy_owns_its_memory_and_gradient(device):
    x = tensor([1.0, 2.0], device, requires_grad=True)
    x.grad = tensor([3.0, 4.0], device)
    twin = copy.deepcopy(x)
    x.data += 10.0
    x.grad += 10.0
    assert twin.tolist() == [1.0, 2.0] and twin.grad.tolist() == [3.0, 4.0]
    assert twin.requires_grad and twin.is_leaf


def test_deepcopy_keeps_what_is_shared_shared():
    x = tensor([1.0], requires_grad=True)
    a, b = copy.deepcopy([x, x])
    assert a is b and a is not x
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly"):
        copy.deepcopy(x * 2.0)


def test_deepcopy_has_hooks_of_its_own():
    x = tensor([1.0], requires_grad=True)
    x.register_hook(lambda grad: grad * 2.0)
    twin = copy.deepcopy(x)
    twin.register_hook(lambda grad: grad * 10.0)
    for leaf in (x, twin, pickle.loads(pickle.dumps(x))):  # hooks are not copied, as in PyTorch
        (leaf * 1.0).backward()
    assert (x.grad.item(), twin.grad.item()) == (2.0, 10.0)


def test_a_copied_view_is_no_view():
    x = tensor([[1.0, 2.0]])
    assert copy.deepcopy(x.expand(3, 2)).stride() == (0, 1)  # as in PyTorch
    twin = copy.deepcopy(x.T)
    assert twin._base is None and twin._view is None
    twin += 1.0
    assert (x.tolist(), twin.tolist()) == ([[1.0, 2.0]], [[2.0], [3.0]])


def test_clone_copies_and_stays_in_the_graph(device):
    x = tensor([1.0, 2.0], device, requires_grad=True)
    y = x.clone()
    assert y.array is not x.array and y.grad_fn is not None
    y.backward(tensor([1.0, 3.0], device))
    assert x.grad.tolist() == [1.0, 3.0]


# Methods.


def test_tensor_method_refuses_to_overwrite():
    def add(self, other):
        return self

    add.__module__ = "tinytorch.ops.a_second_one"
    with pytest.raises(RuntimeError, match="method 'add' already"):
        tensor_method("add")(add)

    def fresh(self):
        return self

    tensor_method("fresh_of_this_test")(fresh)
    try:
        assert Tensor.fresh_of_this_test is fresh
        tensor_method("fresh_of_this_test")(lambda self: 2)  # a program may replace a method
        assert tinytorch.ones(1).fresh_of_this_test() == 2
    finally:
        del Tensor.fresh_of_this_test


def test_wrap_neither_copies_nor_checks():
    array = np.zeros(3)
    assert wrap(array, tinytorch.device("cpu")).array is array


def test_a_tensor_dies_with_its_last_reference(device):
    gc.disable()
    try:
        x = tensor([1.0], device, requires_grad=True)
        watch = weakref.ref(x)
        del x
        assert watch() is None
    finally:
        gc.enable()


def test_is_tensor():
    assert tinytorch.is_tensor(tensor(1.0)) and not tinytorch.is_tensor(1.0)


def test_numpy_and_tensors_in_one_formula():
    x, a = tinytorch.tensor([1.0, 4.0]), np.array([2.0, 3.0], np.float32)
    for both in (x + a, a + x):
        assert isinstance(both, tinytorch.Tensor) and both.tolist() == [3.0, 7.0]
    assert (x == a).tolist() == [False, False] and (x.numpy() == x).tolist() == [True, True]
    assert (x > a).tolist() == [False, True]
    assert isinstance(np.sqrt(x), tinytorch.Tensor) and np.sqrt(x).tolist() == [1.0, 2.0]
    w = tinytorch.ones(2, requires_grad=True)
    (w * a).sum().backward()
    assert w.grad.tolist() == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        np.exp(w)


def test_a_tensor_is_made_from_any_sequence():
    assert tinytorch.tensor(collections.deque([1.0, 2.0])).tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="invalid data type"):
        tinytorch.tensor("ab")


def test_memory_formats():
    x = tensor([[1, 2, 3], [4, 5, 6]]).t()
    assert x.to(tinytorch.float32, memory_format=tinytorch.contiguous_format).is_contiguous()
    assert not x.float(memory_format=tinytorch.preserve_format).is_contiguous()
    assert x.clone(memory_format=tinytorch.contiguous_format).is_contiguous()
    assert x.to(memory_format=tinytorch.preserve_format) is x


def test_deepcopy_keeps_what_is_shared_by_views(device):
    base = tinytorch.arange(12.0, device=device).reshape(3, 4)
    parts = [base, base[1:3], base.T, base[0, 1:], base.expand(2, 3, 4), base.detach()]
    copies = copy.deepcopy(parts)
    assert [x.tolist() for x in copies] == [x.tolist() for x in parts]
    assert [x.stride() for x in copies] == [x.stride() for x in parts]
    copies[0].mul_(2.0)
    assert [x.tolist() for x in copies] == [(2 * x).tolist() for x in parts]
    assert base[0, 1].item() == 1.0
    fortran = tinytorch.from_numpy(np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    x, row = copy.deepcopy([fortran, fortran[1]])
    x.zero_()
    assert row.tolist() == [0.0] * 3 and fortran[1].tolist() == [3.0, 4.0, 5.0]
    gaps = tinytorch.from_numpy(np.arange(12.0)[::2])
    assert copy.deepcopy(gaps).tolist() == gaps.tolist()


def test_a_new_thread_does_not_warn():
    results = []

    def run(make):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results.append(make())

    for make in MAKERS.values():  # a new thread each: the first thing that it does
        thread = threading.Thread(target=run, args=(make,))
        thread.start()
        thread.join()
    assert len(results) == len(MAKERS) and all(x.isinf().any().item() for x in results)


def test_a_refusal_in_a_new_thread_does_not_warn():
    errors = []

    def run():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                tinytorch.linspace(0, 1e300, 3)
            except RuntimeError as error:
                errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert errors == ["value cannot be converted to tinytorch.float32 without overflow: 1e+300"]


ZERO = tinytorch.zeros(1)
MAKERS = {
    "tensor": lambda: tinytorch.tensor([1e300]),
    "Tensor": lambda: tinytorch.Tensor([1e300]),
    "as_tensor": lambda: tinytorch.as_tensor([1e300]),
    "new_tensor": lambda: ZERO.new_tensor([1e300]),
    "arange": lambda: tinytorch.arange(0, 1e39, 3e38),
    "division": lambda: (ZERO + 1) / ZERO,
}


@pytest.mark.parametrize(
    "data, name",
    [
        ([0.5, 1.5], "float32"),
        ([1, True], "int64"),
        ([True, 1, 2.5], "float32"),
        ([[1, 2], [3, 4.5]], "float32"),
        ([[True], [False]], "bool"),
        ([1, np.float64(2)], "float64"),
        ([[1, 2], [True, np.int32(3)]], "int64"),
        (range(3), "int64"),
        ([[], []], "float32"),
    ],
)
def test_the_types_of_nested_numbers(data, name):
    x = tinytorch.tensor(data)
    assert x.dtype is getattr(tinytorch, name)
    assert x.tolist() == np.array(data, dtype=name).tolist()
