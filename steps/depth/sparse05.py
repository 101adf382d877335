"""Step sparse05: Sparse matrices times others: a network on a graph

A network on a graph gives each paper the sum, or the mean, of its neighbours' features: A @ X, with
the sparse A of the graph (for a mean, its values are 1 / number of neighbours). Products with 0
need not be computed. Each entry (row, column, value) multiplies one row of X, that of its column,
and adds it to one row of the result:

    out[row] += value * X[column]                 index_select, a product, index_add

10,556 rows are added, instead of 2,708 * 2,708. All three operations are differentiable, so A @ X
is differentiable too, with respect to the values and to X. If A has a place twice, index_add adds
both.

X @ A is (A^T X^T)^T, and `t` exchanges the two rows of the indices. The trap is the order in which
Python asks: for `X @ A` it calls the method of X first, a Tensor that does not know A. But if the
class of the right operand is a subclass of the left one's, and has __rmatmul__, Python calls that
first. This is why SparseTensor has to be a subclass of Tensor (step sparse02).

PyTorch's words: torch.sparse.mm, torch.spmm.

New: SparseTensor.t, __matmul__, __rmatmul__, product.
Try: leave __rmatmul__ out, and read the error of X @ A.
"""

import importlib
import math
from typing import Any

from tinytorch.core.dtype import DType, int64
from tinytorch.core.tensor import Size, Tensor, as_tensor, tensor_method
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import zeros
from tinytorch.ops.gather import index_add, index_select
from tinytorch.ops.indexing import nonzero
from tinytorch.ops.joining import stack
from tinytorch.ops.shape import reshape, unsqueeze
from tinytorch.ops.sorting import unique

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison minmax gather indexing matmul reduction shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
        raise RuntimeError("not implemented for sparse tensors: to_dense() has all elements")

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

    def __matmul__(self, other: Tensor) -> Tensor:
        return product(self, other)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return product(self.t(), other.T).T

    def __repr__(self) -> str:
        return (
            f"tensor(indices={self.places.tolist()}, values={self.elements.tolist()}, "
            f"size={tuple(self.sizes)}, nnz={self._nnz()}, layout=tinytorch.sparse_coo)"
        )


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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    importlib.import_module("tinytorch.autograd.backward")

    # Three papers in a row: the second cites both others.
    values = tensor([1.0, 1.0, 1.0, 1.0], requires_grad=True)
    graph = sparse_coo_tensor([[0, 1, 1, 2], [1, 0, 2, 1]], values, (3, 3))
    x = tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]], requires_grad=True)
    y = graph @ x
    print(y.tolist())  # -> [[2.0, 20.0], [4.0, 40.0], [2.0, 20.0]]
    y.sum().backward()
    print(x.grad.tolist(), values.grad.tolist())
    # -> [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]] [22.0, 11.0, 33.0, 22.0]
    print((graph @ tensor([1.0, 2.0, 3.0])).tolist())  # -> [2.0, 4.0, 2.0]

    # From the right, against dense matrices; a place that occurs twice.
    manual_seed(0)
    wide, left = sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3)), randn(4, 2)
    difference = left @ wide - left @ wide.to_dense()
    print(difference.shape, difference.abs().max().item())  # -> tinytorch.Size([4, 3]) 0.0

    three = sparse_coo_tensor([[0], [0], [1]], [1.0])
    for wrong in (lambda: graph @ x.T, three.t):
        try:
            wrong()
        except RuntimeError as error:
            print(error)
    # -> sparse: matrices expected whose sizes fit, but got [3, 3] and [2, 3]
    # -> t() expects at most 2 dimensions, but got 3
