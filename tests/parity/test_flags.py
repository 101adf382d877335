"""Arguments that are True or False, against PyTorch: which other values are refused, and how."""

import math

import numpy as np
import pytest

import tinytorch

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)

# `flag` is each of VALUES.
CALLS = """
L.ones(2).requires_grad_(flag)
L.ones(2).requires_grad_(requires_grad=flag)
setattr(L.ones(2), "requires_grad", flag)
L.tensor([1.0], requires_grad=flag)
L.tensor([1], requires_grad=flag)
L.ones(2).new_tensor([1.0], requires_grad=flag)
L.zeros(2, requires_grad=flag)
L.full((2,), 1.0, requires_grad=flag)
L.ones(2).new_zeros(2, requires_grad=flag)
L.ones_like(L.ones(2), requires_grad=flag)
L.arange(2.0, requires_grad=flag)
L.rand(2, requires_grad=flag)
L.randn_like(L.ones(2), requires_grad=flag)
nn.Parameter(L.ones(2), flag)
nn.Linear(2, 2).requires_grad_(flag)
L.ones(2, 3).sum(0, flag)
L.ones(2, 3).sum(0, keepdim=flag)
L.ones(2, 3).sum(axis=0, keepdims=flag)
L.sum(L.ones(2, 3), 0, flag)
L.ones(2, 3).mean(0, keepdim=flag)
L.ones(2, 3).prod(0, flag)
L.ones(2, 3).max(0, flag)[0]
L.ones(2, 3).min(0, keepdim=flag)[1]
L.ones(2, 3).amax(0, flag)
L.ones(2, 3).argmin(0, keepdim=flag)
L.ones(2, 3).argmax(keepdim=flag)
L.ones(2, 3).all(0, flag)
L.ones(2, 3).any(0, keepdim=flag)
L.ones(2, 3).var(0, keepdim=flag)
L.ones(2, 3).std(0, True, flag)
L.std_mean(L.ones(2, 3), 0, keepdim=flag)[1]
L.ones(2, 3).norm(2, 0, flag)
L.linalg.vector_norm(L.ones(2, 3), dim=0, keepdim=flag)
L.ones(2, 3).logsumexp(0, flag)
L.ones(2, 3).median(0, keepdim=flag)[0]
L.ones(2, 3).kthvalue(1, 0, flag)[1]
L.ones(2, 3).quantile(0.5, 0, flag)
L.ones(2, 3).nansum(0, keepdim=flag)
L.ones(2, 3).nanmean(0, flag)
L.ones(2, 3).sort(0, flag)[0]
L.sort(L.ones(2, 3), descending=flag)[1]
L.ones(2, 3).sort(stable=flag)[0]
L.ones(2, 3).argsort(0, flag)
L.argsort(L.ones(2, 3), stable=flag)
L.ones(2, 3).topk(2, 1, flag)[0]
L.topk(L.ones(2, 3), 2, sorted=flag)[0]
L.tensor([1, 2, 1]).unique(flag)
L.unique(L.tensor([1, 2, 1]), return_inverse=flag)[0]
L.tensor([1, 2, 1]).unique(return_counts=flag)[0]
F.max_pool1d(L.ones(1, 1, 4), 2, ceil_mode=flag)
F.max_pool2d(L.ones(1, 1, 5, 5), 2, None, 0, 1, flag)
F.max_pool3d(L.ones(1, 1, 2, 2, 2), 2, ceil_mode=flag)
F.avg_pool1d(L.ones(1, 1, 5), 2, ceil_mode=flag)
F.avg_pool2d(L.ones(1, 1, 5, 5), 2, count_include_pad=flag)
nn.MaxPool2d(2, ceil_mode=flag)(L.ones(1, 1, 5, 5))
nn.AvgPool1d(2, count_include_pad=flag)(L.ones(1, 1, 5))
F.pairwise_distance(L.ones(2, 3), L.zeros(2, 3), keepdim=flag)
"""
VALUES = (
    "True False 1 0 100 2.0 nan None 'a' [True] np.True_ np.int64(1) L.tensor(True) L.tensor(1)"
)


def outcome(library, call, value):
    """What the result is like, or the kind of the error."""
    names = {"L": library, "nn": library.nn, "F": library.nn.functional, "np": np, "nan": math.nan}
    try:
        result = eval(call, {**names, "flag": eval(value, names)})
    except Exception as error:
        return type(error)
    if isinstance(result, library.Tensor):
        return tuple(result.shape), result.requires_grad
    return result is None  # a module is not compared


@pytest.mark.parametrize("value", VALUES.split())
@pytest.mark.parametrize("call", CALLS.strip().split("\n"))
def test_a_flag_is_what_it_is_in_pytorch(call, value):
    assert outcome(tinytorch, call, value) == outcome(torch, call, value)
