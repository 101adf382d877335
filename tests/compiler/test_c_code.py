"""The generated C gives what NumPy gives: values, types, nan, infinity, the sign of zero."""

import math
import random

import numpy as np
import pytest

from tests.compiler.native import COMPILER, Build, Compiled
from tinytorch.compiler.graph import without_dead_code
from tinytorch.compiler.kernel import Kernel

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
ONE = """negative exp expm1 exp2 log log1p log2 log10 sin cos tan sinh cosh tanh arcsin arccos
    arctan arcsinh arccosh arctanh cbrt sqrt floor ceil trunc rint absolute fabs sign reciprocal
    square isnan isinf isfinite signbit logical_not positive""".split()
TWO = """add subtract multiply divide maximum minimum fmax fmin power arctan2 hypot copysign fmod
    floor_divide remainder logaddexp less less_equal greater equal not_equal logical_and
    logical_or logical_xor""".split()
SPECIAL = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 2.5, -2.5, 1e-30, -3, 7, 0.5, 1e30, -1e-40]


def same(got: np.ndarray, want: np.ndarray, rtol: float) -> None:
    """Equal to rounding, and with the sign of zero."""
    assert got.dtype == want.dtype
    if want.dtype.kind == "f":
        np.testing.assert_allclose(got, want, rtol=rtol, atol=0)
        np.testing.assert_array_equal(
            np.signbit(got) & ~np.isnan(got), np.signbit(want) & ~np.isnan(want)
        )
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values(dtype, tmp_path):
    numbers = np.array(SPECIAL, dtype)
    pairs = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    more = np.concatenate([numbers, np.linspace(-90, 90, 301).astype(dtype)])
    b = Build(*pairs, more)
    x, y, z = b.inputs
    outputs = [b.op(op, x, y) for op in TWO] + [b.op(op, z) for op in ONE]
    program = Compiled(b.graph(*outputs), tmp_path)
    assert all(isinstance(unit, Kernel) for unit in program.schedule)
    for node, got in zip(outputs, program(*b.arrays), strict=True):
        same(got, b.values[node], 4e-6 if dtype == np.float32 else 1e-14)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8"])
def test_integers(dtype, tmp_path):
    low = 0 if dtype == "uint8" else -9
    numbers = np.arange(low, 10).astype(dtype)
    limits = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    numbers = np.concatenate([numbers, limits])
    pairs = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    b = Build(*pairs)
    x, y = b.inputs
    ops = "add subtract multiply maximum minimum floor_divide remainder less equal divide arctan2"
    outputs = [b.op(op, x, y) for op in (ops + " bitwise_and bitwise_or bitwise_xor").split()]
    outputs += [b.op(op, x) for op in "negative absolute sign square invert sqrt".split()]
    outputs += [b.op("astype", x, np.dtype(t)) for t in ("float32", "int64", "uint8", "bool")]
    outputs += [b.add(x, 3), b.multiply(x, 0.5), b.remainder(x, 4), b.where(b.less(x, y), x, 0)]
    program = Compiled(b.graph(*(o for o in outputs if o.dtype != np.float16)), tmp_path)
    kept = [o for o in outputs if o.dtype != np.float16]
    for node, got in zip(kept, program(*b.arrays), strict=True):
        same(got, b.values[node], 1e-6)


def test_numbers_are_rounded_as_in_numpy(tmp_path):
    x = np.linspace(-3, 3, 101).astype(np.float32)
    b = Build(x, np.arange(101), x > 0)
    x, k, mask = b.inputs
    outputs = [
        b.multiply(x, 0.1),
        b.add(k, 0.1),
        b.multiply(mask, 2),
        b.add(x, np.float64(0.1)),
        b.multiply(x, b.op("constant", np.float32(0.1), np.array(np.float32(0.1)))),
        b.where(mask, x, -np.inf),
        b.add(x, np.nan),
        b.greater(k, 2.5),
        b.add(mask, mask),
        b.multiply(mask, x),
        b.logical_not(mask),
    ]
    b.check(tmp_path, *outputs, rtol=0, atol=0)


REDUCTIONS = "sum mean prod max min any all".split()


@pytest.mark.parametrize("shape", [(7, 300), (3, 4, 5), (1000,), (2, 3, 4, 6), (1, 9), (300, 1)])
def test_reductions(shape, tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=shape).astype(np.float32)
    holed = x.copy()
    holed.flat[3] = np.nan
    whole = rng.integers(-3, 4, shape)
    b = Build(holed, whole)
    outputs = []
    for of in b.inputs:
        for axis in {(0,), (len(shape) - 1,), tuple(range(len(shape))), (0, *range(2, len(shape)))}:
            for op in REDUCTIONS:
                outputs.append(b.reduce(op, of, *axis, keepdims=op in ("max", "sum")))
    b.check(tmp_path, *outputs, rtol=1e-5)


def test_a_sum_is_no_less_accurate_than_numpy(tmp_path):
    x = np.random.default_rng(2).uniform(0, 1, (3, 100_000)).astype(np.float32)
    b = Build(x)
    row, all_ = b.reduce("sum", b.inputs[0], 1), b.reduce("sum", b.inputs[0], 0, 1)
    got_row, got_all = Compiled(b.graph(row, all_), tmp_path)(x)
    exact = x.sum(1, dtype=float)
    assert (np.abs(got_row - exact) <= np.abs(b.values[row] - exact)).all()
    assert abs(got_all - exact.sum()) <= abs(b.values[all_] - exact.sum())


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_give_the_same(threads, tmp_path):
    rng = np.random.default_rng(3)
    b = Build(
        rng.normal(size=(300, 400)).astype(np.float32), rng.normal(size=400).astype(np.float32)
    )
    x, w = b.inputs
    y = b.tanh(b.multiply(x, w))
    top = b.reduce("max", y, 1, keepdims=True)
    outputs = [b.exp(b.subtract(y, top)), b.reduce("sum", b.exp(x), 0), b.reduce("sum", x, 0, 1)]
    program = b.check(tmp_path, *outputs, threads=threads, rtol=1e-5)
    assert "omp parallel for" in program.source


def random_program(seed: int) -> tuple[Build, list]:
    """A graph of random operations, and some of its nodes as outputs."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    shape = r.choice([(6, 8), (3, 5, 4), (2, 3, 2, 4), (12,), (40, 30), (4, 600)])

    def array(shape: tuple) -> np.ndarray:
        values = rng.normal(size=shape)
        kind = r.choice([*["float32"] * 6, "float64", "int32", "int64", "bool", "uint8"])
        if kind == "bool":
            return values > 0
        return values.astype(kind) if kind.startswith("f") else (np.abs(values) * 3).astype(kind)

    def part() -> tuple:
        """A shape that broadcasts to `shape`."""
        dims = tuple(n if r.random() < 0.6 else 1 for n in shape)
        return dims[r.choice([0, 0, 0, len(shape) - 1]) :]

    b = Build(*(array(shape if r.random() < 0.6 else part()) for _ in range(4)))
    pool = list(b.inputs)
    for _ in range(r.randrange(4, 25)):
        x, y = (r.choice(pool[-6:] if r.random() < 0.8 else pool) for _ in range(2))
        dims, kind = len(x.shape), r.random()
        try:
            if kind < 0.25:
                new = b.op(r.choice("negative exp tanh sqrt absolute log1p square sign".split()), x)
            elif kind < 0.6:
                y = y if r.random() < 0.7 else r.choice([2.0, 3, 0.5, True, -1])
                pair = (x, y) if r.random() < 0.7 else (y, x)
                ops = "add subtract multiply divide maximum minimum less equal logical_and"
                new = b.op(r.choice(ops.split()), *pair)
            elif kind < 0.7:
                new = b.where(b.greater(x, 0), y, r.choice([0.0, 1, x]))
            elif kind < 0.85 and dims:
                axes = r.choice(
                    [(dims - 1,), (0,), tuple(r.sample(range(dims), r.randint(1, dims)))]
                )
                new = b.reduce(r.choice(REDUCTIONS), x, *sorted(axes), keepdims=r.random() < 0.6)
            elif kind < 0.9 and dims:
                shapes = [(x.shape[0], -1), (-1,), (*x.shape, 1), (1, *x.shape)]
                new = b.reshape(x, b.values[x].reshape(r.choice(shapes)).shape)
            elif kind < 0.94:
                new = b.transpose(x, tuple(r.sample(range(dims), dims)))
            elif kind < 0.97:
                new = b.view_at(
                    x, r.choice([(slice(None), None, ...), (slice(0, 2), ...), (0, ...)])
                )
            else:
                x = b.astype(x, np.dtype(np.float32))
                new = b.matmul(x, b.transpose(x, tuple(range(dims))[::-1]))
            pool.append(new)
        except (ValueError, TypeError, IndexError):  # no such operation for these arrays
            continue
    outputs = [x for x in dict.fromkeys([*r.sample(pool, min(3, len(pool))), pool[-1]])]
    outputs = [x for x in outputs if x in b.nodes] or [b.negative(b.absolute(b.inputs[0]))]
    b.nodes = without_dead_code(b.nodes, outputs)
    return b, outputs


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed, tmp_path):
    b, outputs = random_program(seed)
    b.check(tmp_path, *outputs, threads=1 + seed % 2, rtol=2e-4, atol=2e-4)


def test_erf(tmp_path):
    """The polynomial is right for all sizes, and where erf is 1; and it keeps nan."""
    numbers = np.concatenate([np.linspace(-5, 5, 20_001), [1e-30, np.inf, -np.inf, np.nan, 1e30]])
    wide = np.array([math.erf(x) for x in numbers])
    single = np.array([math.erf(x) for x in numbers.astype(np.float32)])
    b = Build(numbers, numbers.astype(np.float32))
    for node, want in zip(b.inputs, (wide, single.astype(np.float32)), strict=True):
        b.nodes.append(b.node("erf", want, (node,)))
    got_wide, got = Compiled(b.graph(*b.nodes), tmp_path)(*b.arrays)
    np.testing.assert_allclose(got_wide, wide, rtol=1e-14)
    np.testing.assert_allclose(got, single, rtol=4e-7)
    assert got[-4] == 1 and got[-3] == -1 and np.isnan(got[-2])


def test_a_float_cut_to_an_integer_and_back_has_no_negative_zero(tmp_path):
    b = Build(np.array([-0.5, -0.0, 1.5, -2.5] * 9))
    whole = b.astype(b.inputs[0], np.dtype(np.int32))
    outputs = [b.astype(whole, np.dtype(float)), b.multiply(whole, 0.5), b.add(whole, b.inputs[0])]
    for node, got in zip(outputs, Compiled(b.graph(*outputs), tmp_path)(*b.arrays), strict=True):
        same(got, b.values[node], 0)
