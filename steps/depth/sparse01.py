"""Step sparse01: Sparse tensors: only the elements that are not 0

A graph of 2,708 papers that cite each other is a matrix of 2,708 rows and columns: 7.3 million
numbers, 29 MB as float32. 10,556 of them are not 0. The places and the values of these are enough,
0.2 MB:

    0  0  3                 indices  0  1  1     (rows)
    4  0  5                          2  0  2     (columns)
                            values   3  4  5

A SparseTensor holds both as ordinary tensors. `to_dense` makes the whole matrix of them. Seen as
one long row of numbers, the matrix has the element (row, column) at row * columns + column; `flat`
computes this for all places at once. index_add (step gather04) adds each value there. These are
differentiable operations, so gradients reach the values. `to_sparse` goes the other way: nonzero
(step indexing10) finds the places.

The trap: a place may occur twice, as where one paper cites another one twice. Its element is the
sum of both values. So to_dense adds the values, and must not assign them.

PyTorch's words: sparse_coo_tensor, COO, for "coordinates"; a tensor with all its elements is dense.

New: SparseTensor, sparse_coo_tensor, to_sparse.
Try: assign the values in to_dense, with everything[self.flat()] = values. Which line shows it?
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


class SparseTensor:
    """A tensor of which only some elements are stored: `elements[i]` at the place `places[:, i]`.
    A place that occurs twice has the sum.
    """

    def __init__(self, indices: Tensor, values: Tensor, size: tuple):
        self.places, self.elements, self.sizes = indices, values, Size(size)

    def flat(self) -> Tensor:
        """The places, counted in the flattened tensor."""
        steps = [math.prod(self.sizes[i + 1 :]) for i in range(len(self.sizes))]
        return (self.places * as_tensor(steps, device=self.places.device).reshape(-1, 1)).sum(0)

    def to_dense(self) -> Tensor:
        """The tensor with all its elements."""
        values = self.elements
        everything = zeros(math.prod(self.sizes), dtype=values.dtype, device=values.device)
        return reshape(index_add(everything, 0, self.flat(), values), self.sizes)


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
    from tinytorch.ops.creation import arange

    importlib.import_module("tinytorch.autograd.backward")

    values = tensor([3.0, 4.0, 5.0], requires_grad=True)
    s = sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values)
    print(s.flat().tolist(), s.to_dense().tolist())
    # -> [2, 3, 5] [[0.0, 0.0, 3.0], [4.0, 0.0, 5.0]]
    (s.to_dense() * tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])).sum().backward()
    print(values.grad.tolist())  # -> [1.0, 2.0, 2.0]
    twice = sparse_coo_tensor([[0, 0]], [1, 2], (2,))
    print(twice.to_dense().tolist())  # -> [3, 0]

    # A matrix of 300 x 300, of which one element in a hundred is not 0.
    dense = (arange(90_000) % 100 == 7).reshape(300, 300).float()
    sparse = dense.to_sparse()
    print(sparse.to_dense().equal(dense))  # -> True
    print(dense.nbytes, sparse.places.nbytes + sparse.elements.nbytes)  # -> 360000 18000
