"""Writes with a name: index_fill, index_copy, index_put, masked_scatter, and in-place forms."""

from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.core.dtype import bool_
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import add
from tinytorch.ops.broadcast import broadcast_tensors, expand
from tinytorch.ops.conversion import clone
from tinytorch.ops.creation import zeros
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.gather import check_source, line, masked_fill
from tinytorch.ops.indexing import AddIndex, Index, IndexPut, check_same_dtype, parse
from tinytorch.ops.shape import flatten, reshape


@tensor_method("index_fill")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` with one number at the places `index` of dimension `dim`."""
    if index.array.ndim > 1:
        raise RuntimeError(f"index_fill: Index has to be a vector/scalar, it has {index.ndim} dims")
    ndim, dim = input.array.ndim, normalize_dim(dim, input.array.ndim)
    mask = zeros((input.array.shape or (1,))[dim], dtype=bool_, device=input.device)
    mask[index] = True  # once for each place, also where the index names it twice
    shape = (mask.array.size, *(1,) * (ndim - dim - 1))[:ndim]
    return masked_fill(input, reshape(mask, shape), value)


@tensor_method("index_copy")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the slices of `source` at the places `index` of dimension `dim`."""
    dims, index = line("index_copy", input, dim, index)
    check_source("index_copy", input, dims, index, source, IndexError)
    return IndexPut.apply(input, source, dims, index)


@tensor_method("index_put")
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with out[indices] = values, or += where a place may come twice."""
    check_same_dtype("index_put", input, values)
    if accumulate:
        _, dims, places = parse(input, tuple(indices))
        values = expand(values, Index.apply(input.detach(), dims, *places).array.shape)
        return add(input, AddIndex.apply(values, input.array.shape, dims, *places))
    out = clone(input)
    out[tuple(indices)] = values
    return out


@tensor_method("masked_scatter")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` with the first elements of `source` where the mask is true; broadcast."""
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, got {mask.dtype!r}")
    check_same_dtype("masked_scatter", input, source)
    input, mask = broadcast_tensors(input, mask)
    out = clone(input)
    out[mask] = flatten(source)[: int(mask.array.sum())]
    return out


index_fill_, index_copy_, index_put_, masked_scatter_ = (
    tensor_method(f"{write.__name__}_")(in_place(write))
    for write in (index_fill, index_copy, index_put, masked_scatter)
)
