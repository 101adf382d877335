"""Step sparse02: A sparse tensor is a Tensor without an array

The SparseTensor of step sparse01 is not a Tensor. s.shape is an AttributeError, print(s) shows an
address, and a program that moves, counts or prints its tensors has to know which of them are
sparse.

So SparseTensor becomes a subclass of Tensor. It answers itself what the places and values tell:
shape, ndim, size, dtype, requires_grad.

The trap: a subclass inherits all operations, and each of them works on `array`, which a sparse
tensor does not have. `array` is now a property that raises an error, so exp and all others fail
with one message. (exp(0) is 1: the result would not be sparse.)

PyTorch's words: is_sparse; _indices, _values and _nnz, the number of stored elements, begin with an
underscore because a place may occur twice in them.

Changed: SparseTensor. New: its array, shape, ndim, dtype, requires_grad, size, _indices, _values,
_nnz, __repr__.
Try: leave the property `array` out, and read the error of s.exp().
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
from tinytorch.ops.shape import reshape

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

    def __init__(self, indices: Tensor, values: Tensor, size: tuple):
        self.places, self.elements, self.sizes = indices, values, Size(size)
        self.device = values.device

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
    return SparseTensor(places, self[tuple(places)], self.shape)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.autograd.backward")

    values = tensor([3.0, 4.0, 5.0], requires_grad=True)
    s = sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values)
    print(s)
    # -> tensor(indices=[[0, 1, 1], [2, 0, 2]], values=[3.0, 4.0, 5.0], size=(2, 3), nnz=3, ...
    print(s.shape, s.size(1), s.ndim, s.dtype)
    # -> tinytorch.Size([2, 3]) 3 2 tinytorch.float32
    print(isinstance(s, Tensor), s.is_sparse, s.requires_grad, s._nnz(), s._values() is values)
    # -> True True True 3 True
    print(s._indices().tolist())  # -> [[0, 1, 1], [2, 0, 2]]
    try:
        s.exp()
    except RuntimeError as error:
        print(error)  # -> not implemented for sparse tensors: to_dense() has all elements
    print(s.to_dense().tolist())  # -> [[0.0, 0.0, 3.0], [4.0, 0.0, 5.0]]
