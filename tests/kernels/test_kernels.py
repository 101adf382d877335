"""The kernels in CUDA C: the compiler takes them, and on the CPU they compute the right numbers."""

import functools
import math

import numpy as np
import pytest

import tinytorch
from tests.kernels import emulator
from tinytorch.cuda import backend
from tinytorch.cuda.random import PHILOX, PhiloxSource, philox
from tinytorch.kernels import basic, products, rows
from tinytorch.kernels.kernel import C_NAMES, Kernel

KERNELS = [
    basic.add_kernel,
    basic.copy_kernel,
    products.naive_kernel,
    products.tiled_kernel,
    rows.softmax_kernel,
    rows.add_at_kernel,
]
# CuPy writes the frame of an ElementwiseKernel. This is the same frame, for the tests.
philox_kernel = Kernel(
    "philox",
    'extern "C" __global__ void philox(const T* counters, unsigned long long seed, unsigned int* '
    "words, long long n) {\n  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; "
    "i += (long long)gridDim.x * blockDim.x) {\n    unsigned long long counter = counters[i];\n"
    + PHILOX
    + "}}\n",
    ("int64",),
)
rng = np.random.default_rng(0)


# --- do they compile? ------------------------------------------------------------------------


@functools.cache
def nvrtc():
    """CuPy's binding of NVIDIA's compiler, which needs no GPU; None where it cannot be loaded."""
    if backend.cupy is None:
        return None
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError):
        return None
    return nvrtc


@pytest.mark.parametrize("architecture", ["compute_75", "compute_90"])
@pytest.mark.parametrize("kernel", [*KERNELS, philox_kernel], ids=lambda kernel: kernel.name)
def test_nvidias_compiler_takes_the_source(kernel, architecture):
    compiler = nvrtc()
    if compiler is None:
        pytest.skip("NVRTC is not here: pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12")
    for dtype in kernel.types:
        program = compiler.createProgram(kernel.text(dtype), f"{kernel.name}.cu", (), ())
        try:
            compiler.compileProgram(program, (f"--gpu-architecture={architecture}",))
            assert kernel.name in compiler.getPTX(program).decode()
        except compiler.NVRTCError as error:
            raise AssertionError(compiler.getProgramLog(program)) from error
        finally:
            compiler.destroyProgram(program)


# --- do they compute the right numbers? ---------------------------------------------------------


@pytest.fixture(scope="session")
def emulate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    if reason := emulator.why_not(folder):
        pytest.skip(reason)
    return functools.cache(lambda kernel, dtype: emulator.Emulated(kernel, dtype, folder))


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_add_takes_any_grid(emulate, dtype):
    a, b = (rng.integers(0, 100, 1001).astype(dtype) for _ in range(2))
    for blocks in (1, 3, 40):  # fewer threads than elements, and more
        c = np.full_like(a, -1)
        emulate(basic.add_kernel, dtype).launch((blocks,), (32,), a, b, c, np.int64(a.size))
        assert (c == a + b).all()


@pytest.mark.parametrize("step", [1, 7, 32])
def test_copy_touches_each_element_once(emulate, step):
    x = np.arange(1, 304, dtype=np.float32)
    y = np.zeros_like(x)
    kernel = emulate(basic.copy_kernel, "float32")
    kernel.launch((10,), (32,), x, y, np.int64(x.size), np.int64(step))
    assert (x == y).all()


@pytest.mark.parametrize(
    "kernel", [products.naive_kernel, products.tiled_kernel], ids=lambda k: k.name
)
def test_matrix_products(emulate, kernel):
    for m, k, n in [(1, 1, 1), (16, 16, 16), (17, 33, 20), (5, 40, 18)]:
        a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
        c = np.full((m, n), np.nan)
        grid = (math.ceil(n / 16), math.ceil(m / 16))
        emulate(kernel, "float64").launch(
            grid, (16, 16), a, b, c, np.int32(m), np.int32(k), np.int32(n)
        )
        np.testing.assert_allclose(c, a @ b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("columns", [1, 5, 32, 100, 300])
def test_softmax_of_rows(emulate, columns):
    x = rng.standard_normal((3, columns)).astype(np.float32)
    x[1] += 1000.0
    y = np.full_like(x, np.nan)
    threads = min(256, 32 * math.ceil(columns / 128))
    emulate(rows.softmax_kernel, "float32").launch((3,), (threads,), x, y, np.int32(columns))
    expected = tinytorch.softmax(tinytorch.from_numpy(x), 1).numpy()
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    assert np.isfinite(y).all()


def test_softmax_of_a_row_with_nan_is_nan(emulate):
    x = np.array([[1.0, np.nan, 2.0, 3.0]])
    y = np.zeros_like(x)
    emulate(rows.softmax_kernel, "float64").launch((1,), (32,), x, y, np.int32(4))
    assert np.isnan(y).all()


def test_add_at_adds_to_one_row_from_many_threads(emulate):
    out, places = np.zeros((5, 3)), rng.integers(0, 5, 40)
    values = rng.standard_normal((40, 3))
    expected = out.copy()
    np.add.at(expected, places, values)
    n, width = np.int64(values.size), np.int64(3)
    emulate(rows.add_at_kernel, "float64").launch((4,), (32,), out, places, values, n, width)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-13)


def test_philox_in_c_is_philox_in_numpy(emulate):
    counters = np.array([0, 1, 2**32, 2**63 + 5], np.uint64)
    words = np.zeros((4, 4), np.uint32)
    seed = np.uint64(0x123456789ABCDEF0)
    kernel = emulate(philox_kernel, "int64")
    kernel.launch((1,), (32,), counters.view(np.int64), seed, words, np.int64(4))
    assert (words == philox(counters, int(seed))).all()


# --- the generic versions ------------------------------------------------------------------------


def test_generic_versions(device):
    place = tinytorch.device(device)

    def put(array):
        return place.backend.from_numpy(np.ascontiguousarray(array), None)

    def get(array):
        return place.backend.to_numpy(array)

    a, b = rng.standard_normal((20, 30)), rng.standard_normal((20, 30))
    assert (get(basic.add(put(a), put(b))) == a + b).all()
    assert (get(basic.copy(put(a), 7)) == a).all()
    for tiled in (False, True):
        product = get(products.matmul(put(a), put(b.T), tiled))
        np.testing.assert_allclose(product, a @ b.T, rtol=1e-12, atol=1e-13)
    counters = np.arange(5, dtype=np.uint64)
    assert (get(philox(put(counters), 7)) == philox(counters, 7)).all()


def test_a_kernel_takes_what_it_was_written_for():
    row = np.ones((4, 4), np.float32)
    assert rows.softmax_kernel.fits(row)
    assert not rows.softmax_kernel.fits(row.astype(np.float16))
    assert not rows.softmax_kernel.fits(row.T[1:])
    assert not basic.add_kernel.fits(row, row.astype(np.float64))
    assert set(basic.add_kernel.types) == set(C_NAMES)


@pytest.mark.cuda
@pytest.mark.skipif(not backend.is_available(), reason="no CuPy, or no GPU")
def test_kernels_on_the_gpu():
    import cupy

    for dtype in (np.float32, np.float64):
        a, b = (rng.standard_normal((300, 500)).astype(dtype) for _ in range(2))
        on_gpu = cupy.asarray(a), cupy.asarray(b)
        np.testing.assert_array_equal(cupy.asnumpy(basic.add(*on_gpu)), a + b)
        np.testing.assert_array_equal(cupy.asnumpy(basic.copy(on_gpu[0], 7)), a)
        for tiled in (False, True):
            product = products.matmul(on_gpu[0], cupy.ascontiguousarray(on_gpu[1].T), tiled)
            np.testing.assert_allclose(cupy.asnumpy(product), a @ b.T, rtol=1e-3, atol=1e-3)
        x = tinytorch.tensor(a * 1000, device="cuda")
        y = tinytorch.softmax(tinytorch.tensor(a * 1000), 1)
        np.testing.assert_allclose(x.softmax(1).cpu().numpy(), y.numpy(), rtol=1e-4, atol=1e-7)
        out, places = cupy.zeros((10, 500), dtype), rng.integers(0, 10, 300)
        rows.add_at(out, cupy.asarray(places), on_gpu[0])
        expected = np.zeros((10, 500), dtype)
        np.add.at(expected, places, a)
        np.testing.assert_allclose(cupy.asnumpy(out), expected, rtol=1e-3, atol=1e-3)


# --- random numbers -----------------------------------------------------------------------------


def test_philox_gives_the_published_words():
    # From the reference implementation's known answers: counter 0, key 0.
    words = philox(np.zeros(1, np.uint64), 0)
    assert [int(word) for word in words[0]] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_philox_draws(dtype):
    dtype = tinytorch.core.dtype.as_dtype(dtype).numpy
    if dtype is None:
        pytest.skip("bfloat16 needs ml_dtypes")
    source = PhiloxSource(tinytorch.device("cpu"))
    source.seed(3)
    drawn = source.uniform((50, 400), dtype)
    assert drawn.dtype == dtype and drawn.shape == (50, 400)
    values = drawn.astype(np.float64)
    assert 0 <= values.min() and values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01 and abs(values.var() - 1 / 12) < 0.005
    normal = source.normal((20000,), dtype).astype(np.float64)
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    assert abs((normal**4).mean() - 3) < 0.3


def test_philox_integers_states_and_permutations():
    source = PhiloxSource(tinytorch.device("cpu"))
    source.seed(2**64 - 1)
    values = source.integers(-2, 3, (5000,), np.dtype(np.int64))
    assert sorted(set(values.tolist())) == [-2, -1, 0, 1, 2]
    assert np.bincount(values + 2).min() > 900
    state = source.get_state()
    first = source.uniform((7,), np.dtype(np.float32))
    second = source.uniform((7,), np.dtype(np.float32))
    source.set_state(state)
    assert (source.uniform((7,), np.dtype(np.float32)) == first).all()
    assert (first != second).all()
    assert sorted(source.permutation(9).tolist()) == list(range(9))
    assert source.uniform((), np.dtype(np.float64)).shape == ()
    assert source.uniform((0, 3), np.dtype(np.float64)).shape == (0, 3)
