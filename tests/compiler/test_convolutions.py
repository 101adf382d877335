"""Convolutions in C: against PyTorch or eager, which of them are in C, and their scratch memory."""

import numpy as np
import pytest

import tinytorch
from tinytorch import nn
from tinytorch.compiler import convolution_code, program
from tinytorch.nn import functional as F

FORMS = ("convolve", "convolve_input", "convolve_weight")
# Images, channels, size, output channels, kernel, stride, padding, dilation, groups; and which of
# the three forms are in C with registers of 16 to 64 bytes.
CASES = [
    (2, 32, (9, 11), 24, (3, 3), 1, 0, 1, 1, "111"),
    (2, 32, (9, 11), 40, (3, 2), (2, 1), (1, 2), (1, 2), 1, "101"),
    (3, 32, (7, 7), 32, (3, 3), 2, 1, 1, 2, "101"),
    (2, 10, (12, 5), 10, (5, 5), 1, 2, 1, 1, "111"),
    (2, 32, (17,), 33, (3,), 1, 1, 1, 1, "111"),
    (2, 40, (50,), 20, (4,), 3, 2, 2, 1, "101"),
    (1, 33, (1, 1), 32, (1, 1), 1, 0, 1, 1, "111"),
    (2, 64, (13, 13), 96, (1, 1), 2, 0, 1, 1, "101"),
    (2, 32, (9, 9), 32, (3, 3), 1, 3, 1, 1, "101"),
    (3, 64, (6, 40), 32, (3, 3), 1, (0, 1), (2, 3), 2, "111"),
    (2, 32, (30, 3), 48, (7, 1), 1, (3, 0), 1, 1, "111"),
    (70, 32, (2, 2), 32, (2, 2), 1, 1, 1, 1, "111"),
    (2, 1, (9, 9), 32, (3, 3), 1, 1, 1, 1, "001"),
    (2, 8, (4, 5, 6), 16, (3, 3, 3), 1, 1, 1, 1, "000"),
    (2, 8, (9, 9), 8, (3, 3), 1, 1, 1, 8, "000"),
]


@pytest.fixture(params=[(64, 32), (32, 16), (16, 16)], ids=["64 bytes", "32 bytes", "16 bytes"])
def registers(request, monkeypatch):
    """Blocks for other processors: their vectors are compiled for this one, too."""
    monkeypatch.setattr(convolution_code, "registers", lambda compiler: request.param)


@pytest.fixture
def found(monkeypatch):
    """For each form of the programs that are compiled, whether it is in C."""
    found = {}

    def noted(node, name):
        kernel = convolution_code.convolution_kernel(node, name)
        if node.op in FORMS:
            found[node.op] = kernel is not None
        return kernel

    monkeypatch.setattr(program, "convolution_kernel", noted)
    return found


def results(function, arrays, **options):
    """The value and the gradients of a function of tensors, as arrays."""
    tensors = [tinytorch.tensor(a, requires_grad=True) for a in arrays]
    y = function(*tensors, **options)
    g = np.random.default_rng(1).normal(size=y.shape).astype(arrays[0].dtype)
    y.backward(tinytorch.tensor(g))
    return [y.detach().numpy(), *(x.grad.numpy() for x in tensors)]


def check(function, arrays, tolerance=None):
    expected = results(function, arrays)
    tolerance = tolerance or (1e-4 if arrays[0].dtype == np.float32 else 1e-12)
    for a, b in zip(results(tinytorch.compile(function), arrays), expected, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=tolerance * max(1, abs(b).max()), rtol=0)


def arrays_of(images, channels, size, out, kernel, groups, dtype):
    rng = np.random.default_rng(0)
    shapes = (images, channels, *size), (out, channels // groups, *kernel), (out,)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_forms_are_those_of_eager(case, dtype, registers, found):
    images, channels, size, out, kernel, stride, padding, dilation, groups, in_c = case
    conv = getattr(F, f"conv{len(size)}d")

    def function(x, w, b):
        return conv(x, w, b, stride, padding, dilation, groups)

    check(function, arrays_of(images, channels, size, out, kernel, groups, dtype))
    assert "".join(str(int(found[form])) for form in FORMS) == in_c


def test_transposed_convolutions(found):
    x, w, b = arrays_of(2, 32, (9, 9), 32, (3, 3), 1, "float32")
    check(lambda x, w, b: F.conv_transpose2d(x, w, b, padding=1), [x, w, b])
    assert all(found.values()) and len(found) == 3
    options = {"stride": 2, "padding": 1, "output_padding": 1}
    check(lambda x, w, b: F.conv_transpose2d(x, w, b, **options), [x, w, b])
    check(lambda x, w, b: F.conv_transpose2d(x, w, b, 1, 0, 1, 1, 2), [x, w, b])


def test_halves_stay_with_the_array_library(found):
    check(F.conv2d, arrays_of(2, 32, (9, 9), 32, (3, 3), 1, "float16"), 1e-2)
    assert not any(found.values())


def test_layers_with_one_function_have_scratch_memory_of_their_own(found):
    tinytorch.manual_seed(0)
    layers = [nn.Conv2d(32, 32, 3, padding=1) for _ in range(4)]
    model = nn.Sequential(*(x for layer in layers for x in (layer, nn.BatchNorm2d(32), nn.Tanh())))
    x = tinytorch.randn(4, 32, 6, 6)
    expected = model.double()(x.double()).square().sum()
    expected.backward()
    gradients = [p.grad.numpy().copy() for p in model.parameters()]
    model.zero_grad()
    compiled = tinytorch.compile(model.float())
    compiled(x).square().sum().backward()
    assert all(found.values())
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        np.testing.assert_allclose(
            p.grad.numpy(), gradient, atol=1e-3 * max(1, abs(gradient).max())
        )


def test_an_array_that_is_not_in_a_row_and_one_array_as_both_arguments():
    x, w, _ = arrays_of(2, 32, (9, 9), 32, (3, 3), 1, "float32")
    check(lambda x, w: F.conv2d(x.transpose(2, 3), w.transpose(2, 3)), [x, w])
    square = np.random.default_rng(0).normal(size=(32, 32, 5, 5)).astype("float32")
    check(lambda x: F.conv2d(x, x, padding=2), [square])


def test_second_derivatives_inside_of_a_compiled_function():
    x, w, b = arrays_of(2, 16, (6, 6), 16, (3, 3), 1, "float64")

    def penalty(x, w, b):
        y = F.conv2d(x, w, b).tanh().sum()
        gradients = tinytorch.autograd.grad(y, [x, w, b], create_graph=True)
        return sum((g * g).sum() for g in gradients)

    check(penalty, [x, w, b])


def test_threads_give_the_same():
    x, w, b = arrays_of(5, 32, (12, 12), 48, (3, 3), 1, "float64")

    def function(x, w, b):
        return F.conv2d(x, w, b, padding=1)

    before, alone = tinytorch.get_num_threads(), results(tinytorch.compile(function), [x, w, b])
    try:
        tinytorch.set_num_threads(2)
        several = results(tinytorch.compile(function), [x, w, b])
    finally:
        tinytorch.set_num_threads(before)
    for a, b in zip(alone, several, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_the_numpy_backend_has_no_kernels_of_convolutions():
    x, w, b = (tinytorch.tensor(a) for a in arrays_of(2, 32, (9, 9), 32, (3, 3), 1, "float32"))
    compiled = tinytorch.compile(F.conv2d, backend="numpy")
    assert abs(compiled(x, w, b) - F.conv2d(x, w, b)).max() < 1e-4


def test_the_registers_of_processors():
    names = convolution_code.registers.__wrapped__(("no compiler of this name",))
    assert names == (16, 16)
    width, count = convolution_code.registers(tuple(convolution_code.find_compiler()))
    assert width in (16, 32, 64) and count in (16, 32)


def test_errors_are_those_of_eager():
    x, w, b = (tinytorch.tensor(a) for a in arrays_of(2, 32, (9, 9), 32, (3, 3), 1, "float32"))
    compiled = tinytorch.compile(F.conv2d)
    compiled(x, w, b)
    for wrong in ((x[:, :3], w, b), (x, w, b[:2]), (x[:, :, :2], w, b), (x.double(), w, b)):
        with pytest.raises(RuntimeError) as eager:
            F.conv2d(*wrong)
        with pytest.raises(RuntimeError) as error:
            compiled(*wrong)
        assert str(error.value) == str(eager.value)
