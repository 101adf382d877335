"""The kernels of stage 15 of the main road run on the package's simulator too."""

import math

import numpy as np
import pytest

from steps.companion.notebook import load
from tinytorch.cuda.random import philox
from tinytorch.kernels.simulator import launch


@pytest.mark.parametrize("name", ["matmul_naive", "matmul_tiled"])
@pytest.mark.parametrize("seed", range(3))
def test_products(name, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 10, (5, 6)), rng.integers(0, 10, (6, 7))
    c = [None] * 35
    memory = a.ravel().tolist(), b.ravel().tolist(), c
    launch(getattr(load("81a"), name), (2, 2), (4, 4), *memory, 5, 6, 7, seed=seed)
    assert c == (a @ b).ravel().tolist()


@pytest.mark.parametrize("seed", range(3))
def test_softmax(seed):
    logits, y = [1000.0, 999.0, 0.0, -5.0, -5.0, -4.0], [None] * 6
    launch(load("81b").softmax_kernel, 2, 4, logits, y, 3, seed=seed)
    for row in (0, 3):
        powers = [math.exp(x - max(logits[row : row + 3])) for x in logits[row : row + 3]]
        assert y[row : row + 3] == pytest.approx([p / sum(powers) for p in powers])


@pytest.mark.parametrize("seed", [0, 1, 2**40 + 3])
def test_philox_draws_the_same_words(seed):
    counters = np.arange(100, dtype=np.uint64)
    ours = load("81c").philox
    assert (ours(counters, seed) == philox(counters, seed)).all()
    assert (ours(99, seed) == philox(counters, seed)[99]).all()
