"""The GPU in plain Python: places, barriers, shared memory, races."""

import pytest

from tinytorch.kernels.simulator import Dim3, launch


def test_every_thread_runs_once_and_knows_its_place():
    seen = []

    def kernel(t):
        seen.append((t.blockIdx, t.threadIdx, t.number))

    launch(kernel, (2, 2), (3, 2))
    assert len(seen) == len(set(seen)) == 24
    assert min(seen) == (Dim3(0, 0, 0), Dim3(0, 0, 0), 0)
    assert max(seen) == (Dim3(1, 1, 0), Dim3(2, 1, 0), 5)


def test_the_order_is_shuffled_from_a_seed():
    def order(seed):
        turns = []

        def kernel(t):
            turns.append(t.number)
            yield
            turns.append(t.number)

        launch(kernel, 1, 16, seed=seed)
        return turns

    assert order(0) == order(0) != order(1)
    first, second = order(0)[:16], order(0)[16:]
    assert sorted(first) == sorted(second) == list(range(16)) and first != second


def test_a_barrier_lets_nobody_through_before_all_have_come():
    def reverse(t, data):
        t.shared[t.threadIdx.x] = data[t.number]
        yield
        data[t.number] = t.shared[t.blockDim.x - 1 - t.threadIdx.x]

    data = list(range(8))
    launch(reverse, 2, 4, data)
    assert data == [3, 2, 1, 0, 7, 6, 5, 4]  # and shared memory belongs to one block


def test_a_barrier_that_some_threads_do_not_reach_is_an_error():
    def kernel(t, n):
        if t.number >= n:
            return
        yield
        yield

    launch(kernel, 2, 4, 8)
    with pytest.raises(RuntimeError, match="3 threads of 4 have ended"):
        launch(kernel, 2, 4, 5)


def test_a_race_loses_additions():
    def count(t, total):
        old = total[0]
        yield
        total[0] = old + 1

    total = [0]
    launch(count, 1, 32, total)
    assert total == [1]
