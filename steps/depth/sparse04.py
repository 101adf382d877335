"""Step sparse04: Sparse tensors: places and values that do not fit

sparse_coo_tensor takes what it gets. A place outside of the size is not noticed: in a matrix of 2
rows and 2 columns the place (0, 2) is number 0 * 2 + 2 of the flattened matrix, and this is the
place (1, 0). One value for two places fails only in to_dense, with an error about the "source" of
index_add.

Three conditions make places and values fit: the indices have two dimensions, there are as many
values as places, and each index is at least 0 and below the size of its dimension.

The trap is the last one for a size that is not given: the smallest that has all places follows from
the indices, so only a negative index can be wrong.

requires_grad=True makes the values a leaf of their own, cut off from the tensor that was given, as
`tensor` does with its data.

Changed: sparse_coo_tensor.
Try: take the loop over the sizes out. Which errors are missing then?
"""

import importlib
import math
from typing import Any

from tinytorch.core.dtype import DType, int64
from tinytorch.core.tensor import Size, Tensor, as_tensor, tensor_method
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.creation import zeros
from tinytorch.ops.gather import index_add
from tinytorch.ops.indexing import nonzero
from tinytorch.ops.joining import stack
from tinytorch.ops.shape import reshape
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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.autograd.backward")

    # Without a check the place (0, 2) is another one.
    outside = SparseTensor(tensor([[0], [2]]), tensor([7.0]), (2, 2))
    print(outside.to_dense().tolist())  # -> [[0.0, 0.0], [7.0, 0.0]]

    for wrong in (
        lambda: sparse_coo_tensor([[0, 1]], [1.0]),
        lambda: sparse_coo_tensor([0, 1], [1.0, 1.0]),
        lambda: sparse_coo_tensor([[0], [2]], [7.0], (2, 2)),
        lambda: sparse_coo_tensor([[0, -1]], [1.0, 1.0]),
    ):
        try:
            wrong()
        except RuntimeError as error:
            print(error)
    # -> sparse_coo_tensor: indices [dimensions, n] and n values expected, but got [1, 2] and [1]
    # -> sparse_coo_tensor: indices [dimensions, n] and n values expected, but got [2] and [2]
    # -> size is inconsistent with indices: 2 does not hold [2]
    # -> size is inconsistent with indices: 1 does not hold [0, -1]

    s = sparse_coo_tensor([[0, 1]], [1.0, 2.0], requires_grad=True)
    s.to_dense().square().sum().backward()
    print(s._values().grad.tolist(), s._values().is_leaf)  # -> [2.0, 4.0] True
