"""Products of matrices in C: against NumPy, for all forms of operands and sizes of registers."""

import numpy as np
import pytest

import tinytorch
from tests.compiler.native import Build
from tinytorch.compiler import product_code
from tinytorch.compiler.product_code import ProductKernel
from tinytorch.compiler.program import compile_graph
from tinytorch.threads import set_num_threads


@pytest.fixture(params=[(64, 32), (32, 16), (16, 16)], ids=["64 bytes", "32 bytes", "16 bytes"])
def registers(request, monkeypatch):
    """Blocks for other processors: their vectors are compiled for this one, too."""
    monkeypatch.setattr(product_code, "registers", lambda compiler: request.param)


@pytest.fixture
def small(monkeypatch):
    """Small products are in C, too."""
    monkeypatch.setattr(product_code, "SMALLEST", 0)


def random(*shape, dtype="float32"):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def check(builder, product, *others, kernels=1):
    """Compiles the graph; `kernels` of its steps are products in C, and the results are NumPy's."""
    program = compile_graph(builder.graph(product, *others))
    found = [step for step in program.schedule if isinstance(step, ProductKernel)]
    assert len(found) == kernels
    for got, node in zip(program(builder.arrays), (product, *others), strict=True):
        want = builder.values[node]
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        near = 1e-4 if want.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(got, want, atol=near * max(1, abs(want).max()), rtol=0)
    return program


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(768, 128, 40), (64, 256, 784), (37, 95, 61), (24, 16, 400)])
@pytest.mark.parametrize("form", ["NN", "NT", "TN", "TT"])
def test_of_two_matrices(sizes, form, dtype, registers, small):
    m, n, terms = sizes
    a, b = (m, terms), (terms, n)
    shapes = a[:: -1 if form[0] == "T" else 1], b[:: -1 if form[1] == "T" else 1]
    builder = Build(*(random(*shape, dtype=dtype) for shape in shapes))
    nodes = [
        builder.transpose(x, (1, 0)) if letter == "T" else x
        for x, letter in zip(builder.inputs, form, strict=True)
    ]
    check(builder, builder.matmul(*nodes))


@pytest.mark.parametrize("shapes", [((3, 2), (3, 2)), ((3, 1), (2,)), ((), (3, 2)), ((5,), ())])
def test_of_many_pairs(shapes, registers, small):
    first, second = shapes
    builder = Build(random(*first, 20, 30), random(*second, 30, 48))
    check(builder, builder.matmul(*builder.inputs))


def test_reads_the_parts_of_one_array(small):
    """Queries and keys of attention: slices of one array, with heads that change places."""
    builder = Build(random(2, 32, 3 * 64))
    (x,) = builder.inputs
    heads = []
    for start in (0, 64):
        part = builder.view_at(x, (slice(None), slice(None), slice(start, start + 64)))
        heads.append(builder.transpose(builder.reshape(part, (2, 32, 4, 16)), (0, 2, 1, 3)))
    keys = builder.transpose(heads[1], (0, 1, 3, 2))
    program = check(builder, builder.matmul(heads[0], keys))
    assert len(program.schedule) == 1  # no views, no copies
    assert "contiguous(x0)" in program.python_source


def test_of_a_matrix_with_itself(small):
    builder = Build(random(64, 40))
    (x,) = builder.inputs
    check(builder, builder.matmul(x, builder.transpose(x, (1, 0))))


def test_reads_backwards(small):
    builder = Build(random(33, 40), random(40, 64))
    x, y = builder.inputs
    turned = builder.view_at(x, (slice(None, None, -1), slice(None, None, -2)))
    half = builder.view_at(y, (slice(None, None, 2),))
    check(builder, builder.matmul(turned, half))


def test_a_view_that_others_need_stays(small):
    builder = Build(random(64, 64), random(64, 64))
    x, y = builder.inputs
    turned = builder.transpose(x, (1, 0))
    check(builder, builder.matmul(turned, y), turned)


def test_inputs_with_any_strides(small):
    """What is given to a program may lie otherwise than in the trace."""
    builder = Build(random(64, 80), random(80, 64))
    program = check(builder, builder.matmul(*builder.inputs))
    x, y = builder.arrays
    (got,) = program([np.asfortranarray(x), np.repeat(y, 2, axis=1)[:, ::2]])
    np.testing.assert_allclose(got, x @ y, atol=1e-4)


def test_infinity_and_nan_stay_where_they_are(registers, small):
    x, y = random(30, 40), random(40, 70)
    x[3, 5], x[4, 6], y[7, 69] = np.nan, np.inf, -np.inf
    builder = Build(x, y)
    (got,) = compile_graph(builder.graph(builder.matmul(*builder.inputs)))([x, y])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(x @ y))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(x @ y))


def test_threads_share_the_work(registers, small):
    builder = Build(random(3, 100, 500), random(3, 500, 64))
    product = builder.matmul(*builder.inputs)
    before = tinytorch.get_num_threads()
    try:
        set_num_threads(3)
        check(builder, product)
    finally:
        set_num_threads(before)


@pytest.mark.parametrize(
    "shapes, dtype",
    [
        (((100, 100), (100, 100)), "float32"),  # a fifth of the last vectors is empty
        (((8, 8), (8, 8)), "float32"),
        (((64,), (64, 4096)), "float32"),
        (((128, 128), (128, 128)), "int64"),
        (((128, 128), (128, 128)), "float16"),
        (((1024, 1024), (1024, 1024)), "float32"),
        (((4096, 512), (512, 10)), "float32"),
    ],
)
def test_what_stays_with_the_array_library(shapes, dtype, monkeypatch):
    monkeypatch.setattr(product_code, "registers", lambda compiler: (64, 32))
    builder = Build(*((random(*shape) * 4).astype(dtype) for shape in shapes))
    program = compile_graph(builder.graph(builder.matmul(*builder.inputs)))
    assert not any(isinstance(step, ProductKernel) for step in program.schedule)


def test_gradients_of_a_network():
    """Each of the products of a linear layer, forward and backward."""
    tinytorch.manual_seed(0)
    model = tinytorch.nn.Sequential(
        tinytorch.nn.Linear(96, 128), tinytorch.nn.GELU(), tinytorch.nn.Linear(128, 64)
    )
    x = tinytorch.tensor(random(64, 96), requires_grad=True)

    def gradients(function):
        function(x).square().mean().backward()
        found = [x.grad, *(p.grad for p in model.parameters())]
        x.grad = None
        model.zero_grad()
        return [g.numpy().copy() for g in found]

    compiled = tinytorch.compile(model)
    for got, want in zip(gradients(compiled), gradients(model), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
