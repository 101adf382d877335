"""The strict device is as strict as it should be: what CuPy would refuse, it refuses."""

import numpy as np
import pytest

from tests.strict import MISSING, StrictArray, xp


@pytest.fixture
def array():
    return StrictArray(np.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    "mix",
    [
        lambda a: a + np.ones(3),
        lambda a: np.ones(3) + a,
        lambda a: np.exp(a),
        lambda a: np.concatenate([a, a]),
        lambda a: np.asarray(a),
        lambda a: np.array([a, a]),
        lambda a: xp.add(a, np.ones(3)),
        lambda a: xp.asarray(np.ones(3)),
        lambda a: xp.stack([a, np.ones((2, 3))]),
        lambda a: a[np.array([0])],
        lambda a: a.__setitem__(0, np.ones(3)),
        lambda a: a.sum(out=np.ones(())),
    ],
)
def test_it_mixes_with_no_array_of_numpy(array, mix):
    with pytest.raises(TypeError):
        mix(array)


def test_functions_that_cupy_lacks_are_lacking():
    for name in MISSING:
        assert not hasattr(xp, name)
    assert hasattr(xp, "exp") and hasattr(xp, "linalg") and not hasattr(xp.linalg, "vecdot")


def test_results_without_dimensions_stay_arrays(array):
    for x in (array.sum(), xp.exp(array).max(), array[0, 1], array[1][2], -array.sum()):
        assert type(x) is StrictArray and x.shape == ()
    assert float(array[0, 1]) == 1.0 and array[0, 1].item() == 1.0


def test_views_know_the_array_that_owns_their_memory(array):
    for view in (
        array.T,
        array[0],
        array[0, 0],
        array.reshape(6)[1:],
        xp.broadcast_to(array, (4, 2, 3)),
    ):
        assert view.base is array
    assert (array + 1).base is None and array[[0, 1]].base is None
    row = array[1]
    row += 10
    array[0, 0] = 7
    assert array.tolist() == [[7.0, 1.0, 2.0], [13.0, 14.0, 15.0]]
