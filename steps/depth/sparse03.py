"""Step sparse03: coalesce: each place once, in order

Two citations of one paper are two entries at one place. print(s) of step sparse02 shows them as
they were given, (1, 0) twice and not in order. A program that reads the elements one by one, to
square them or to find the largest, needs their sums: `coalesce` makes them.

    places     (1, 0) (0, 1) (1, 0)          values   1  2  4
    flat          2      1      2                             row * columns + column
    unique        1  2                       which    1  0  1
    values        2  5                                index_add, at `which`

`unique` (step sorting06) sorts the flattened places, and says for each entry which of them it is.
Division by the sizes, from the last one to the first, makes rows and columns of them again. The
places that nonzero finds are in order, so to_sparse marks its result as coalesced.

The trap: `values()` of a tensor that is not coalesced would give parts of a sum to a program that
takes them for elements. It is an error, as in PyTorch; `_values()` gives what is stored.

Changed: SparseTensor.__init__, to_sparse. New: SparseTensor.is_coalesced, known, indices, values,
coalesce.
Try: take `reversed` out of coalesce. Which places does the demo print?
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
) -> SparseTensor:
    """A sparse tensor from the places [dimensions, n] of its elements and their n values. Without a
    size, the smallest that has these places.
    """
    values = as_tensor(values, dtype=dtype, device=device)
    indices = as_tensor(indices, device=values.device).to(int64)
    size = (indices.amax(1) + 1).tolist() if size is None else as_shape((size,))
    return SparseTensor(indices, values, tuple(size))


@tensor_method("to_sparse")
def to_sparse(self: Tensor) -> SparseTensor:
    """The elements that are not 0, and their places."""
    places = nonzero(self).T.contiguous()
    return SparseTensor(places, self[tuple(places)], self.shape, True)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.autograd.backward")

    values = tensor([1.0, 2.0, 4.0], requires_grad=True)
    s = sparse_coo_tensor([[1, 0, 1], [0, 1, 0]], values, (2, 2))
    try:
        s.values()
    except RuntimeError as error:
        print(error)  # -> Cannot get values on an uncoalesced tensor: call .coalesce() first
    print(s._values().square().sum().item(), "of", s.to_dense().square().sum().item())
    # -> 21.0 of 29.0
    once = s.coalesce()
    print(once.indices().tolist(), once.values().tolist(), once.coalesce() is once)
    # -> [[0, 1], [1, 0]] [2.0, 5.0] True
    (once.values() * tensor([1.0, 10.0])).sum().backward()
    print(values.grad.tolist())  # -> [10.0, 1.0, 10.0]
    wide = sparse_coo_tensor([[1, 0, 1], [2, 1, 2]], [1, 2, 4], (2, 3)).coalesce()
    print(wide.indices().tolist())  # -> [[0, 1], [1, 2]]
    sparse = tensor([[0.0, 7.0], [0.0, 0.0]]).to_sparse()
    print(sparse.indices().tolist(), sparse.is_coalesced(), s.is_coalesced())
    # -> [[0], [1]] True False
