"""Sparse tensors: the elements that are not 0, and their places (COO)."""

import math
from typing import Any

from tinytorch.autograd.inplace import with_out
from tinytorch.core.dtype import DType, float32, int64
from tinytorch.core.printing import format_tensor
from tinytorch.core.tensor import Size, Tensor, as_tensor, tensor_method
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import zeros
from tinytorch.ops.gather import index_add, index_select
from tinytorch.ops.indexing import nonzero
from tinytorch.ops.joining import cat, stack
from tinytorch.ops.matmul import matmul as dense_matmul
from tinytorch.ops.matmul import mm as dense_mm
from tinytorch.ops.shape import reshape, unsqueeze
from tinytorch.ops.sorting import unique


class SparseError(RuntimeError, AttributeError):
    """A sparse tensor has no array of all its elements: as an error of use, and as a name that is
    not there, for code that asks whether it is."""


class SparseTensor(Tensor):
    """A tensor of which only some elements are stored: row `_indices()[:, i]` has `_values()[i]`. A
    place that occurs twice has the sum. All gradients go to the values.

    Raises:
        RuntimeError: for an operation that only tensors with all elements have.
    """

    is_sparse = True

    def __init__(self, indices: Tensor, values: Tensor, size: tuple, coalesced: bool = False):
        self.places, self.elements, self.sizes = indices, values, Size(size)
        self.device, self.coalesced = values.device, coalesced

    @property
    def array(self) -> Any:
        raise SparseError("not implemented for sparse tensors: to_dense() has all elements")

    @property
    def shape(self) -> Size:
        return self.sizes

    @property
    def ndim(self) -> int:
        return len(self.sizes)

    @property
    def dtype(self) -> DType:
        return self.elements.dtype

    @property
    def requires_grad(self) -> bool:
        return self.elements.requires_grad

    def size(self, dim: int | None = None) -> Any:
        return self.sizes if dim is None else self.sizes[dim]

    def _indices(self) -> Tensor:
        return self.places

    def _values(self) -> Tensor:
        return self.elements

    def _nnz(self) -> int:
        return self.elements.numel()

    def flat(self) -> Tensor:
        """The places, counted in the flattened tensor."""
        steps = [math.prod(self.sizes[i + 1 :]) for i in range(self.ndim)]
        return (self.places * as_tensor(steps, device=self.device).reshape(-1, 1)).sum(0)

    def to_dense(self) -> Tensor:
        """The tensor with all its elements."""
        everything = zeros(math.prod(self.sizes), dtype=self.dtype, device=self.device)
        return reshape(index_add(everything, 0, self.flat(), self.elements), self.sizes)

    def is_coalesced(self) -> bool:
        """Whether each place occurs once, in order."""
        return self.coalesced

    def known(self) -> "SparseTensor":
        if not self.coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor: call .coalesce() first")
        return self

    def indices(self) -> Tensor:
        """The places of a coalesced tensor."""
        return self.known().places

    def values(self) -> Tensor:
        """The values of a coalesced tensor."""
        return self.known().elements

    def coalesce(self) -> "SparseTensor":
        """The same tensor with each place once, in order: values of one place are added."""
        if self.coalesced:
            return self
        places, which = unique(self.flat(), return_inverse=True)
        nothing = zeros(places.shape, dtype=self.dtype, device=self.device)
        values = index_add(nothing, 0, which, self.elements)
        indices = []
        for n in reversed(self.sizes):
            indices.append(places % n)
            places = places // n
        return SparseTensor(stack(indices[::-1]), values, self.sizes, True)

    def t(self) -> "SparseTensor":
        if self.ndim > 2:
            raise RuntimeError(f"t() expects at most 2 dimensions, but got {self.ndim}")
        return SparseTensor(self.places.flip(0), self.elements, self.sizes[::-1])

    def to(self, *args: Any, **kwargs: Any) -> "SparseTensor":
        values = self.elements.to(*args, **kwargs)
        return SparseTensor(self.places.to(values.device), values, self.sizes, self.coalesced)

    def __matmul__(self, other: Tensor) -> Tensor:
        return product(self, other)

    mm = matmul = __matmul__

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return product(self.t(), other.T).T

    def __add__(self, other: Tensor) -> Tensor:
        """With a sparse tensor, sparse; with another one, not."""
        if not isinstance(other, SparseTensor):
            return self.to_dense() + other
        if self.sizes != other.sizes:
            raise RuntimeError(f"add: sparse tensors of sizes {self.sizes} and {other.sizes}")
        places, values = cat([self.places, other.places], 1), cat([self.elements, other.elements])
        return SparseTensor(places, values, self.sizes).coalesce()

    def __mul__(self, other: Any) -> "SparseTensor":
        """With a number, or with a dense tensor that broadcasts to this one."""
        if isinstance(other, Tensor) and other.ndim:
            other = other.expand(self.sizes)[tuple(self.places)]
        return SparseTensor(self.places, self.elements * other, self.sizes, self.coalesced)

    # Python asks the class of the right operand first, as it is a subclass of the left one's.
    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        """As PyTorch prints it: the places, the values, and what there is to say of the whole."""
        places = format_tensor(self.places, "tensor(indices=tensor")
        values = format_tensor(self.elements.detach(), "       values=tensor")
        text = f"size={tuple(self.sizes)}, nnz={self._nnz()}, layout=tinytorch.sparse_coo"
        note = ", requires_grad=True" if self.requires_grad else ""
        return f"{places},\n{values},\n       {text}{note})"


def sparse_coo_tensor(
    indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> SparseTensor:
    """A sparse tensor from the places [dimensions, n] of its elements and their n values. Without a
    size, the smallest that has these places.

    Raises:
        RuntimeError: there are not as many values as places, or a place is outside.
    """
    values = as_tensor(values, dtype=dtype, device=device)
    indices = as_tensor(indices, device=values.device).to(int64)
    if indices.ndim != 2 or values.shape != indices.shape[1:]:
        raise RuntimeError(
            f"sparse_coo_tensor: indices [dimensions, n] and n values expected, but got "
            f"{list(indices.shape)} and {list(values.shape)}"
        )
    size = (indices.amax(1) + 1).tolist() if size is None else as_shape((size,))
    for row, n in zip(indices.tolist(), size, strict=True):
        if row and not 0 <= min(row) <= max(row) < n:
            raise RuntimeError(f"size is inconsistent with indices: {n} does not hold {row}")
    values = values.detach().requires_grad_() if requires_grad else values
    return SparseTensor(indices, values, tuple(size))


@tensor_method("to_sparse")
def to_sparse(self: Tensor) -> SparseTensor:
    """The elements that are not 0, and their places."""
    places = nonzero(self).T.contiguous()
    return SparseTensor(places, self[tuple(places)], self.shape, True)


def product(sparse: SparseTensor, other: Tensor) -> Tensor:
    """A sparse matrix [n, m] times a matrix [m, p] or a vector [m]. Each stored element takes its
    row of the other matrix along; the rows are added up.

    Raises:
        RuntimeError: the sizes do not fit.
    """
    if other.ndim == 1:
        return product(sparse, unsqueeze(other, 1))[:, 0]
    if sparse.ndim != 2 or other.ndim != 2 or sparse.sizes[1] != other.shape[0]:
        shapes = f"{list(sparse.sizes)} and {list(other.shape)}"
        raise RuntimeError(f"sparse: matrices expected whose sizes fit, but got {shapes}")
    rows, columns = sparse.places
    parts = unsqueeze(sparse.elements, 1) * index_select(other, 0, columns)
    nothing = zeros(sparse.sizes[0], other.shape[1], dtype=parts.dtype, device=parts.device)
    return index_add(nothing, 0, rows, parts)


@with_out
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices, of which one may be sparse."""
    if isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor):
        return input @ mat2
    return dense_mm(input, mat2)


@with_out
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, of which one side may be a sparse matrix."""
    if isinstance(input, SparseTensor) or isinstance(other, SparseTensor):
        return input @ other
    return dense_matmul(input, other)


def FloatTensor(indices: Tensor, values: Tensor, size: Any) -> SparseTensor:
    """What sparse_coo_tensor was in older programs."""
    return sparse_coo_tensor(indices, values, size, dtype=float32)
