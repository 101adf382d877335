"""Arguments that are not as they should be: refused, and never a wrong number in silence."""

import re

import numpy as np
import pytest

import tinytorch
from tinytorch.nn import functional as F
from tinytorch.utils.data import DataLoader

INT8, MASK = tinytorch.zeros(2, dtype=tinytorch.int8), tinytorch.tensor([True, False])
X, MATRIX = tinytorch.arange(5), tinytorch.ones(3, 3)
IMAGE = tinytorch.arange(16.0).reshape(1, 1, 4, 4)
WRONG = {
    "masked_fill": (RuntimeError, lambda: INT8.masked_fill(MASK, 300)),
    "masked_fill_": (RuntimeError, lambda: INT8.clone().masked_fill_(MASK, -129)),
    "masked_fill, tensor": (RuntimeError, lambda: INT8.masked_fill(MASK, tinytorch.tensor(300))),
    "masked_fill, float": (RuntimeError, lambda: MATRIX.masked_fill(MATRIX > 2, 1e300)),
    "where": (RuntimeError, lambda: tinytorch.where(MASK, INT8, 300)),
    "where, first": (RuntimeError, lambda: tinytorch.where(MASK, 300, INT8)),
    "where, float": (RuntimeError, lambda: tinytorch.where(MASK, tinytorch.ones(2), 1e300)),
    "randperm": (RuntimeError, lambda: tinytorch.randperm(2**63)),
    "arange": (RuntimeError, lambda: tinytorch.arange(2**63)),
    "arange, wrapping": (RuntimeError, lambda: tinytorch.arange(2**63, 2**63 + 3)),
    "roll": (TypeError, lambda: tinytorch.roll(X, "2", 0)),
    "roll, float": (TypeError, lambda: tinytorch.roll(X, 1.0)),
    "repeat_interleave": (TypeError, lambda: tinytorch.repeat_interleave(X, "2")),
    "repeat_interleave, float": (TypeError, lambda: X.repeat_interleave(2.0)),
    "triu": (TypeError, lambda: MATRIX.triu(1.5)),
    "tril": (TypeError, lambda: MATRIX.tril("1")),
    "select": (TypeError, lambda: MATRIX.select(0, True)),
    "narrow": (TypeError, lambda: MATRIX.narrow(0, np.array(1), 1)),
    "split": (TypeError, lambda: MATRIX.split(True)),
    "linspace": (TypeError, lambda: tinytorch.linspace(0, 1, np.array(3))),
    "randint, float": (TypeError, lambda: tinytorch.randint(2.5, (3,))),
    "randint, bool": (TypeError, lambda: tinytorch.randint(False, 3, (3,))),
    "linear": (RuntimeError, lambda: F.linear(MATRIX, MATRIX, tinytorch.ones(1, 1, 2, 1, 3))),
    "linear, rows": (RuntimeError, lambda: F.linear(MATRIX, MATRIX, tinytorch.ones(2, 3, 3))),
    "zeros": (RuntimeError, lambda: tinytorch.zeros(10**15)),
    "zeros, no address": (RuntimeError, lambda: tinytorch.zeros(10**10, 10**10)),
    "ones, no integer": (RuntimeError, lambda: tinytorch.ones(10**30)),
    "rand": (RuntimeError, lambda: tinytorch.rand(10**15)),
    "randint": (RuntimeError, lambda: tinytorch.randint(9, (10**15,))),
    "randperm, memory": (RuntimeError, lambda: tinytorch.randperm(10**15)),
    "arange, memory": (RuntimeError, lambda: tinytorch.arange(10**15)),
    "expand": (RuntimeError, lambda: tinytorch.ones(1).expand(10**19)),
    "clamp": (RuntimeError, lambda: INT8.clamp(0, 300)),
    "clamp_": (RuntimeError, lambda: INT8.clone().clamp_(-300, 0)),
    "clamp, float": (RuntimeError, lambda: MATRIX.clamp(0, 1e39)),
    "lerp": (RuntimeError, lambda: MATRIX.lerp(MATRIX, 1e39)),
    "scatter": (RuntimeError, lambda: INT8.scatter(0, tinytorch.tensor([0]), 300)),
    "pad": (RuntimeError, lambda: F.pad(INT8, (1, 1), value=300)),
    "pad, unsigned": (RuntimeError, lambda: F.pad(INT8.byte(), (1, 1), value=-1)),
    "linspace, int8": (RuntimeError, lambda: tinytorch.linspace(0, 300, 3, dtype=tinytorch.int8)),
    "pow": (RuntimeError, lambda: INT8**300),
    "pow_": (RuntimeError, lambda: INT8.clone().pow_(np.int64(300))),
    "pow, unsigned": (RuntimeError, lambda: INT8.byte() ** -1),
    "alpha": (RuntimeError, lambda: INT8.add(INT8, alpha=300)),
    "index_add": (RuntimeError, lambda: INT8.index_add(0, X[:1], INT8[:1], alpha=300)),
    "fill_, complex": (RuntimeError, lambda: tinytorch.ones(2).fill_(1j)),
    "softplus, complex": (RuntimeError, lambda: F.softplus(MATRIX, 1, 1j)),
    "uniform_": (RuntimeError, lambda: tinytorch.ones(2).uniform_(float("nan"), 1.0)),
    "normal_": (RuntimeError, lambda: tinytorch.ones(2).normal_(0.0, float("nan"))),
    "normal": (RuntimeError, lambda: tinytorch.normal(0.0, float("nan"), (2,))),
    "exponential_": (RuntimeError, lambda: tinytorch.ones(2).exponential_(float("nan"))),
    "cdist": (RuntimeError, lambda: tinytorch.cdist(MATRIX, MATRIX, float("nan"))),
    "bce": (RuntimeError, lambda: F.binary_cross_entropy(MATRIX, MATRIX * 3)),
    "kl_div": (RuntimeError, lambda: F.kl_div(X, X, reduction="sum")),
    "one_hot": (ValueError, lambda: F.one_hot(X, 2**63)),
    "einsum": (TypeError, lambda: tinytorch.einsum([1.5], X)),
    "one_hot, memory": (RuntimeError, lambda: F.one_hot(X, 2**45)),
    "eye, memory": (RuntimeError, lambda: tinytorch.eye(3, 2**45)),
    "linspace, memory": (RuntimeError, lambda: tinytorch.linspace(0, 1, 2**45)),
    "repeat, memory": (RuntimeError, lambda: X.repeat(2**45)),
    "repeat_interleave, memory": (RuntimeError, lambda: X.repeat_interleave(2**62)),
    "contiguous, memory": (RuntimeError, lambda: X[:1].expand(2**45).contiguous()),
    "pad, memory": (RuntimeError, lambda: F.pad(MATRIX, (2**45, 0))),
    "adaptive pooling": (RuntimeError, lambda: F.adaptive_avg_pool2d(MATRIX[None], 10**9)),
    "adaptive max pooling": (RuntimeError, lambda: F.adaptive_max_pool2d(MATRIX[None], 10**9)),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    kind, call = WRONG[name]
    with pytest.raises(kind):
        call()


@pytest.mark.parametrize("dim", [True, False, np.array(1), 1.0, "1", np.float64(1)], ids=str)
@pytest.mark.parametrize(
    "name", ["sum", "softmax", "cumsum", "argmax", "unsqueeze", "flip", "unbind"]
)
def test_what_is_not_a_dim(name, dim):
    with pytest.raises(TypeError):
        getattr(MATRIX, name)(dim)


FLAGS = {
    "requires_grad_": lambda flag: tinytorch.ones(2).requires_grad_(flag),
    "tensor": lambda flag: tinytorch.tensor([1.0], requires_grad=flag),
    "full": lambda flag: tinytorch.full((2,), 1.0, requires_grad=flag),
    "rand": lambda flag: tinytorch.rand(2, requires_grad=flag),
    "sum": lambda flag: MATRIX.sum(0, keepdim=flag),
    "mean": lambda flag: MATRIX.mean(0, flag),
    "max": lambda flag: MATRIX.max(0, keepdims=flag),
    "argmax": lambda flag: tinytorch.argmax(MATRIX, 0, flag),
    "quantile": lambda flag: MATRIX.quantile(0.5, 0, flag),
    "var": lambda flag: MATRIX.var(0, True, flag),
    "std": lambda flag: MATRIX.std(0, unbiased=flag),
    "sort": lambda flag: MATRIX.sort(0, flag),
    "argsort": lambda flag: tinytorch.argsort(MATRIX, descending=flag),
    "topk": lambda flag: MATRIX.topk(1, 0, flag),
    "unique": lambda flag: X.unique(return_inverse=flag),
    "max_pool": lambda flag: F.max_pool2d(IMAGE, 2, ceil_mode=flag),
    "avg_pool": lambda flag: F.avg_pool1d(IMAGE[0], 2, count_include_pad=flag),
    "var_mean": lambda flag: tinytorch.var_mean(MATRIX, 0, keepdim=flag),
}


@pytest.mark.parametrize("value", [1, 0, 2.0, None, "yes", np.True_, MASK[0]], ids=repr)
@pytest.mark.parametrize("name", FLAGS)
def test_what_is_not_a_flag(name, value):
    if value is None and name in ("full", "rand", "std"):
        return  # None is the default there
    with pytest.raises(TypeError, match=rf"^{name}\(\): argument '\w+' must be bool, not "):
        FLAGS[name](value)


@pytest.mark.parametrize("value", [1, 0, 2.0, None, np.True_], ids=repr)
def test_requires_grad_is_set_to_a_flag(value):
    x = tinytorch.ones(2)
    with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
        x.requires_grad = value
    assert x.requires_grad is False


@pytest.mark.parametrize("size", [True, 2.0, "2", None], ids=str)
@pytest.mark.parametrize("name", "expand reshape view repeat new_zeros new_ones".split())
def test_what_is_not_a_size(name, size):
    with pytest.raises(TypeError):
        getattr(tinytorch.ones(1), name)(size, 1)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, tinytorch.tensor])
def test_integers_of_other_kinds_count_as_integers(kind):
    one, two = kind(1), kind(2)
    assert tinytorch.zeros(two, 3).shape == (2, 3) and MATRIX[:two].sum(one).shape == (2,)
    assert tinytorch.ones(4).reshape(two, two).shape == (2, 2)
    assert MATRIX.narrow(one, one, two).shape == (3, 2)
    assert X.roll(two).tolist() == [3, 4, 0, 1, 2] and MATRIX.triu(one).sum().item() == 3
    assert X.repeat_interleave(two).shape == (10,) and MATRIX.transpose(kind(0), one).shape == (
        3,
        3,
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.float16], ids=str)
def test_numpy_numbers_are_numbers(kind):
    x, two = tinytorch.ones(2), kind(2)
    for y in (x * two, two * x, x + two, x**two, x.clamp(min=two), x.masked_fill(MASK, two)):
        assert y.dtype is tinytorch.float32 and y[0].item() in (1, 2, 3)
    assert tinytorch.where(MASK, two, x).dtype is tinytorch.float32
    assert x.add(x, alpha=two).tolist() == [3, 3] and x.clone().fill_(two).tolist() == [2, 2]
    half = (INT8 + two) if kind is np.int64 else x.half() * two
    assert half.dtype is (tinytorch.int8 if kind is np.int64 else tinytorch.float16)
    assert tinytorch.full((2,), two).tolist() == [2, 2]


def test_a_size_of_numpy_makes_a_tensor_of_that_size():
    assert tinytorch.Tensor(np.int64(3)).shape == tinytorch.Tensor(3).shape == (3,)


@pytest.mark.parametrize("name", "exp neg sum mean reshape roll tril clone softmax cumsum".split())
@pytest.mark.parametrize("value", [[1.0], None, np.ones(2), "x"], ids=lambda v: type(v).__name__)
def test_what_is_not_a_tensor(name, value):
    more = {"reshape": [(1,)], "roll": [1], "softmax": [0], "cumsum": [0]}.get(name, [])
    with pytest.raises(TypeError):
        getattr(tinytorch, name)(value, *more)


# Functions that read their tensor's array first, and the right arguments after it.
READS_FIRST = {
    "sort argsort squeeze flatten t diag unique ravel numel detach is_floating_point": (),
    "is_complex": (),
    "zeros_like ones_like empty_like randn_like nan_to_num": (),
    "unsqueeze unbind flip roll chunk split topk repeat_interleave tile multinomial": (1,),
    "transpose select": (0, 1),
    "gather index_select": (0, tinytorch.tensor([0])),
    "matmul mm outer equal addcmul addcdiv where": (MATRIX, MATRIX),
}


@pytest.mark.parametrize("value", [3, 1.5, None, [1.0], "x", np.ones(2)], ids=str)
@pytest.mark.parametrize("name", [name for names in READS_FIRST for name in names.split()])
def test_a_wrong_first_argument_is_named(name, value):
    more = next(args for names, args in READS_FIRST.items() if name in names.split())
    count = 1 if name in ("matmul", "mm", "outer", "equal") else len(more)
    with pytest.raises(TypeError) as error:
        getattr(tinytorch, name)(value, *more[:count])
    assert type(value).__name__ in str(error.value)


def test_the_message_names_function_argument_and_position():
    for call, message in {
        lambda: tinytorch.sort(3): "sort(): argument 'input' (position 1) must be Tensor, not int",
        lambda: MATRIX.gather(0, 3): "gather(): argument 'index' (position 3) must be Tensor, not",
        lambda: tinytorch.topk(MATRIX, True): "topk(): argument 'k' (position 2) must be int, not",
        lambda: tinytorch.split(
            2, 1
        ): "split(): argument 'tensor' (position 1) must be Tensor, not",
        lambda: F.mse_loss(1.0, MATRIX): "mse_loss(): argument 'input' (position 1) must be Tensor",
        lambda: tinytorch.broadcast_tensors(MATRIX, 1): "argument 'tensors' (position 1) must be",
    }.items():
        with pytest.raises(TypeError) as error:
            call()
        assert message in str(error.value)


def test_a_failure_for_another_reason_is_passed_on():
    with pytest.raises(IndexError, match="Dimension out of range"):
        tinytorch.sort(MATRIX, 7)
    with pytest.raises(TypeError, match="unexpected keyword"):
        tinytorch.sort(MATRIX, dimension=0)
    with pytest.raises(TypeError) as error:
        tinytorch.sort(3)
    assert isinstance(error.value.__cause__, AttributeError)


NAMES = {
    "repeat(): argument 'sizes'": lambda: X.repeat("2"),
    "zeros(): argument 'sizes'": lambda: tinytorch.zeros(2, 3.0),
    "sum(): argument 'dim'": lambda: MATRIX.sum(1.5),
    "layer_norm(): argument 'eps' (position 5)": lambda: F.layer_norm(MATRIX, (3,), eps=1j),
    "eye(): argument 'n'": lambda: tinytorch.eye(2.0),
    "conv2d(): argument 'stride'": lambda: F.conv2d(MATRIX[None], MATRIX[None, None], stride=1.5),
    "LayerNorm(): argument 'normalized_shape'": lambda: tinytorch.nn.LayerNorm(1.5),
    "DataLoader(): argument 'num_workers'": lambda: DataLoader([1], num_workers=2.0),
    "DataLoader(): argument 'prefetch_factor'": lambda: DataLoader(
        [1], num_workers=1, prefetch_factor=2.5
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_an_error_names_function_and_argument(name):
    with pytest.raises(
        TypeError, match=f"^{re.escape(name)} must be (int|float), not (str|float|complex)$"
    ):
        NAMES[name]()


@pytest.mark.parametrize(
    "name", "new_zeros new_ones flip tile repeat expand resize_ reshape view".split()
)
def test_a_call_without_sizes_is_refused(name):
    with pytest.raises(TypeError, match="missing"):
        getattr(tinytorch.ones(()), name)()
    with pytest.raises(TypeError, match="missing"):
        tinytorch.zeros()
    assert tinytorch.zeros(()).shape == tinytorch.ones(1).view(()).shape == ()
    assert tinytorch.ones(1).reshape([]).shape == tinytorch.ones(1).reshape(shape=()).shape == ()


def test_a_generator_is_one():
    with pytest.raises(TypeError, match="generator must be a Generator, not int"):
        DataLoader([1], generator=3)


SIZES = {
    "arange": lambda n: tinytorch.arange(n(0), n(10), n(2)),
    "linspace": lambda n: tinytorch.linspace(n(5), n(1), n(5)),
    "max_pool2d": lambda n: F.max_pool2d(IMAGE, n(2), n(2), n(1)),
    "avg_pool2d": lambda n: F.avg_pool2d(IMAGE, n(2), n(2), n(1)),
    "adaptive_avg_pool2d": lambda n: F.adaptive_avg_pool2d(IMAGE, n(3)),
    "adaptive_max_pool2d": lambda n: F.adaptive_max_pool2d(IMAGE, n(3)),
    "interpolate": lambda n: F.interpolate(IMAGE, n(9)),
    "interpolate, scale": lambda n: F.interpolate(IMAGE, scale_factor=n(2), mode="bilinear"),
    "conv2d": lambda n: F.conv2d(IMAGE, IMAGE[:, :, :2, :2], None, n(3), n(100), n(60)),
    "unfold": lambda n: tinytorch.arange(300).unfold(0, n(120), n(120)),
    "F.unfold": lambda n: F.unfold(IMAGE, n(2), n(1), n(100), n(60)),
    "pixel_shuffle": lambda n: F.pixel_shuffle(IMAGE.reshape(1, 16, 1, 1), n(4)),
    "LayerNorm": lambda n: tinytorch.nn.LayerNorm(n(4))(IMAGE),
    "RMSNorm": lambda n: tinytorch.nn.RMSNorm(n(4))(IMAGE),
    "ZeroPad2d": lambda n: tinytorch.nn.ZeroPad2d(n(1))(IMAGE),
    "CircularPad2d": lambda n: tinytorch.nn.CircularPad2d(n(1))(IMAGE),
    "diagonal": lambda n: MATRIX.diagonal(n(1)),
}


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.int8])
@pytest.mark.parametrize("name", SIZES)
def test_numbers_of_numpy_are_numbers(name, kind):
    expected, found = SIZES[name](int), SIZES[name](kind)
    assert found.dtype is expected.dtype and found.tolist() == expected.tolist()


def test_what_fits_is_taken():
    small = tinytorch.tensor([100, -100], dtype=tinytorch.int8)
    assert small.clamp(-128, 127).tolist() == [100, -100]
    assert (small + 300).tolist() == [-112, -56]  # the operands of + wrap around, as in PyTorch
    assert tinytorch.tensor([-1, 3], dtype=tinytorch.uint8).tolist() == [255, 3]
    assert tinytorch.linspace(-5, 10, 4, dtype=tinytorch.uint8).tolist() == [251, 170, 90, 10]
    assert tinytorch.arange(False, 10, 2).dtype is tinytorch.int64


@pytest.mark.parametrize("name", ["leaky_relu", "elu"])
def test_an_infinite_slope(name):
    x = tinytorch.tensor([2.0, -1.0], requires_grad=True)
    y = getattr(F, name)(x, float("inf"))
    y.sum().backward()
    assert y.tolist() == [2.0, -np.inf] and x.grad.tolist() == [1.0, np.inf]


def test_softplus_of_infinities_and_relu_of_nan():
    assert F.softplus(tinytorch.tensor([np.inf, -np.inf])).tolist() == [np.inf, 0.0]
    x = tinytorch.tensor([np.nan, 1.0, 0.0], requires_grad=True)
    x.relu().sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["scatter", "index_copy"])
def test_a_written_0_d_tensor_gets_no_gradient(name):
    x, source = (tinytorch.tensor(n, requires_grad=True) for n in (1.0, 3.0))
    (getattr(x, name)(0, tinytorch.tensor(0), source) * 2).exp().backward()
    assert x.grad.item() == 0 and source.grad.item() == pytest.approx(2 * np.exp(6))
