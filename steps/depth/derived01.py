"""Step derived01: Catalogue: operations made of others

Programs call more operations than a library has to implement. Each of these takes a few lines of
existing operations, which bring its derivatives. Read cumprod, and skim the rest.

    cumprod            running products: what is left of a picture after t steps of noise
    addcmul, addcdiv   input + value * a * b, input + value * a / b: Adam, written by hand
    cdist              the distances between all rows of two matrices
    fill_diagonal_     a number on the diagonal: no item is compared with itself
    index_copy         slices written at given places: a cache that is filled step by step
    hstack, vstack     cat, side by side or one below the other
    tril_indices, triu_indices   the places of a triangle
    cartesian_prod     every element of one vector with every one of the others: a grid of settings
    var_mean, std_mean a spread and the mean that it is about
    vector_norm        norm, under the name that torch.linalg has for it

cumprod by hand would be a loop over n elements. Instead y is multiplied by itself, shifted by one
place: now each y_i holds two factors. Shift by two, and it holds four; log2(n) products are enough.
(The shortest formula of the derivative, y / x_i, is 0 / 0 at a zero. Here nothing is divided.)

New: the functions of the table, and the in-place forms cumprod_, addcmul_, addcdiv_, index_copy_.
Try: let `steps` grow by 1 instead of doubling. Which factors does y_3 get twice?
"""

import importlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import bool_, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops.arithmetic import add, in_old_order, mul, sub
from tinytorch.ops.creation import meshgrid, ones, zeros
from tinytorch.ops.cumulative import Shift
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.elementwise import attach, div, require_tensors
from tinytorch.ops.gather import index_along_dim, masked_fill
from tinytorch.ops.indexing import IndexPut, check_same_dtype, nonzero
from tinytorch.ops.joining import cat, stack, tensor_list
from tinytorch.ops.matmul import check_operands
from tinytorch.ops.norm import norm
from tinytorch.ops.reduction import mean, reduction, std, var
from tinytorch.ops.shape import reshape, unsqueeze
from tinytorch.ops.slicing import tril, triu

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@reduction
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along `dim`, y_i = x_1 ... x_i; those of integers and booleans are int64.

    Each round doubles the number of factors: 1, 2, 4, ... As nothing is divided, the derivatives
    are right at zeros too.
    """
    dim, steps = normalize_dim(dim, input.array.ndim), 1
    y = input.to(dtype or input.dtype)
    y = y if y.is_floating_point() or dtype else y.long()
    while y.array.ndim and steps < y.array.shape[dim]:
        y, steps = mul(y, Shift.apply(y, dim, steps, 1.0)), 2 * steps
    return y.clone() if y is input else y


cumprod_ = tensor_method("cumprod_")(in_place(cumprod))


@attach("addcmul")
def addcmul(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *old: Tensor, value: Any = 1
) -> Tensor:
    """input + value * tensor1 * tensor2, as optimizers write it."""
    if old:
        tensor1, tensor2, value = in_old_order("addcmul", 2, value, tensor1, tensor2, *old)
    require_tensors("addcmul", (input, tensor1, tensor2))
    return add(input, mul(tensor1, tensor2), alpha=value)


@attach("addcdiv")
def addcdiv(
    input: Tensor, tensor1: Tensor, tensor2: Tensor, *old: Tensor, value: Any = 1
) -> Tensor:
    """input + value * tensor1 / tensor2.

    Raises:
        RuntimeError: both are of integer types.
    """
    if old:
        tensor1, tensor2, value = in_old_order("addcdiv", 2, value, tensor1, tensor2, *old)
    require_tensors("addcdiv", (input, tensor1, tensor2))
    if not (tensor1.is_floating_point() or tensor2.is_floating_point()):
        raise RuntimeError("addcdiv does not divide integers by integers: convert one to a float")
    return add(input, div(tensor1, tensor2), alpha=value)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The distances of order p between the rows of x1 [..., n, d] and x2 [..., m, d]: [..., n, m].

    Raises:
        RuntimeError: for integers, for vectors, where d differs, and for a negative p.
    """
    check_operands("cdist", x1, x2)
    a, b = x1.array.shape, x2.array.shape
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-1] or not p >= 0 or not x1.is_floating_point():
        raise RuntimeError(
            f"cdist: expected two batches of rows of floats, of one length, and p >= 0, but got "
            f"{list(a)} and {list(b)} of {x1.dtype!r}, and p = {p}"
        )
    return norm(sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), p, -1)


@tensor_method("index_copy")
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` whose slices `index` of dimension `dim` are those of `source`, in order.

    Raises:
        RuntimeError: `source` has another type.
        IndexError: `source` does not have a slice for each index.
    """
    dims, index = index_along_dim("index_copy", input, dim, index)
    check_same_dtype("index_copy", input, source)
    shape, found = list(input.array.shape), list(source.array.shape)
    for place in dims:
        shape[place] = index.array.size
    if shape != found and source.array.ndim:
        raise IndexError(f"index_copy(): the shape of source is {found}, and should be {shape}")
    return IndexPut.apply(input, reshape(source, shape), dims, index)


index_copy_ = tensor_method("index_copy_")(in_place(index_copy))


@tensor_method("fill_diagonal_")
@in_place
def fill_diagonal(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Writes a number to [0, 0], [1, 1], ...; with `wrap`, a tall matrix has further diagonals.

    Raises:
        RuntimeError: a vector, or more than two dimensions of different sizes.
    """
    if self.array.ndim < 2 or (self.array.ndim > 2 and len({*self.array.shape}) > 1):
        raise RuntimeError(f"fill_diagonal_: [n, m] or [n, n, ...] expected, got {self.shape}")
    mask = zeros(self.array.shape, dtype=bool_, device=self.device)
    self.device.xp.fill_diagonal(mask.array, True, wrap)
    return masked_fill(self, mask, fill_value)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side: joined along dimension 1, and vectors and numbers along 0."""
    parts = [x if x.array.ndim else reshape(x, (1,)) for x in tensor_list("hstack", tensors)]
    return cat(parts, 0 if parts[0].array.ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors one below the other: joined along dimension 0, where a vector is a row."""
    parts = tensor_list("vstack", tensors)
    return cat([x if x.array.ndim > 1 else reshape(x, (1, -1)) for x in parts], 0)


def tril_indices(row: int, col: int, offset: int = 0, *, dtype=int64, device=None) -> Tensor:
    """The places [2, n] of the triangle that `tril` keeps in a [row, col] matrix."""
    kept = tril(ones(row, col, dtype=bool_, device=device), offset)
    return nonzero(kept).to(dtype).T.contiguous()


def triu_indices(row: int, col: int, offset: int = 0, *, dtype=int64, device=None) -> Tensor:
    """The places [2, n] of the triangle that `triu` keeps in a [row, col] matrix."""
    kept = triu(ones(row, col, dtype=bool_, device=device), offset)
    return nonzero(kept).to(dtype).T.contiguous()


@checked
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of vectors, one a row: [n * m * ..., k]; of one vector, itself.

    Raises:
        RuntimeError: a tensor is not a vector.
    """
    for x in tensors:
        if x.array.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x.array.shape)}")
    grids = [reshape(grid, (-1,)) for grid in meshgrid(*tensors, indexing="ij")]
    return grids[0] if len(grids) == 1 else stack(grids, 1)


def moments(
    function: Callable, x: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> tuple[Tensor, Tensor]:
    """(function(x), mean(x)) over the same dimensions; var_mean(x, False) gives `unbiased`."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    spread = function(x, dim, unbiased, keepdim, correction=correction)
    return spread, mean(x, dim, keepdim)


def var_mean(
    input: Tensor, dim: Any = None, unbiased=None, keepdim=False, *, correction=None, axis=None
) -> tuple[Tensor, Tensor]:
    """(var, mean) over `dim`: what a layer that standardises its weights asks for."""
    return moments(var, input, dim if axis is None else axis, unbiased, keepdim, correction)


def std_mean(
    input: Tensor, dim: Any = None, unbiased=None, keepdim=False, *, correction=None, axis=None
) -> tuple[Tensor, Tensor]:
    """(std, mean) over `dim`."""
    return moments(std, input, dim if axis is None else axis, unbiased, keepdim, correction)


def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """torch.linalg.vector_norm: `norm`, with its order second and 2 by default."""
    return norm(x, ord, dim, keepdim, dtype)


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.ops.creation import linspace

    importlib.import_module("tinytorch.core.printing")

    x = tensor([2.0, 0.0, 3.0, 4.0], requires_grad=True)
    print(cumprod(tensor([1, 2, 3, 4]), 0).tolist(), cumprod(x, 0).tolist())
    # -> [1, 2, 6, 24] [2.0, 0.0, 0.0, 0.0]
    print(grad(cumprod(x, 0).sum(), x)[0].tolist())  # -> [1.0, 32.0, 0.0, 0.0]
    kept = cumprod(1 - linspace(1e-4, 0.02, 1000), 0)
    print(f"after 1000 steps of noise, {kept[-1].item():.1e} of the picture is left")
    # -> after 1000 steps of noise, 4.0e-05 of the picture is left

    # A step of Adam, as papers' programs write it.
    p, g = tensor([1.0, 1.0]), tensor([0.5, -4.0])
    m, v = zeros(2), zeros(2)
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m / 0.1, (v / 0.001).sqrt(), value=-0.01)
    print(p)  # -> tensor([0.9900, 1.0100])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the order of arguments of older programs
        print(m.addcmul(0.1, g, g), m.addcdiv(0.1, g, g))
    # -> tensor([0.0750, 1.2000]) tensor([ 0.1500, -0.3000])

    points = tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    print(cdist(points, points[:2]).tolist())  # -> [[0.0, 5.0], [5.0, 0.0], [10.0, 5.0]]
    print(vector_norm(points, 1, 1).tolist())  # -> [0.0, 7.0, 14.0]

    cache = zeros(4, 2)
    cache.index_copy_(0, tensor([2, 0]), tensor([[1.0, 2.0], [3.0, 4.0]]))
    print(cache.tolist())  # -> [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0], [0.0, 0.0]]

    print(zeros(3, 2).fill_diagonal_(1).tolist())  # -> [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]

    row = tensor([1, 2])
    print(hstack((row, row)).tolist(), vstack((row, row)).tolist(), hstack((cache, cache)).shape)
    # -> [1, 2, 1, 2] [[1, 2], [1, 2]] tinytorch.Size([4, 4])
    print(tril_indices(3, 3, -1).tolist(), triu_indices(3, 3, 1).tolist())
    # -> [[1, 2, 2], [0, 0, 1]] [[0, 0, 1], [1, 2, 2]]
    print(cartesian_prod(row, row * 10).tolist(), cartesian_prod(row) is row)
    # -> [[1, 10], [1, 20], [2, 10], [2, 20]] False
    print(var_mean(points, 0)[0].tolist(), std_mean(points, False)[1].item())  # -> [9.0, 16.0] 3.5
    print(std_mean(points, axis=0)[0].tolist())  # -> [3.0, 4.0]

    for wrong in (
        lambda: cartesian_prod(cache),
        lambda: addcdiv(row, row, row),
        lambda: cdist(row, row),
        lambda: index_copy(cache, 0, tensor([1]), cache),
        lambda: row.fill_diagonal_(0),
    ):
        try:
            wrong()
        except (RuntimeError, IndexError) as error:
            print(str(error).partition(",")[0])
    # -> Expect a 1D vector
    # -> addcdiv does not divide integers by integers: convert one to a float
    # -> cdist: expected two batches of rows of floats
    # -> index_copy(): the shape of source is [4
    # -> fill_diagonal_: [n
