"""Operations made of operations: cumprod, cdist, tensordot, cross, nan_to_num, and so on."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import bool_, get_default_dtype, int64
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import add, in_old_order, mul, sub
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.comparison import isnan, where
from tinytorch.ops.conversion import clone
from tinytorch.ops.creation import meshgrid, ones, zeros
from tinytorch.ops.cumulative import Shift
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.elementwise import abs, attach, div, exp, log, maximum, require_tensors
from tinytorch.ops.gather import gather, index_along_dim, masked_fill
from tinytorch.ops.indexing import IndexPut, check_same_dtype, nonzero
from tinytorch.ops.joining import cat, stack, tensor_list
from tinytorch.ops.matmul import add_scaled, check_operands, matmul
from tinytorch.ops.norm import norm
from tinytorch.ops.reduction import mean, reduction, std, sum, var
from tinytorch.ops.shape import permute, reshape, unsqueeze
from tinytorch.ops.slicing import key_along, tril, triu


@checked
@attach("nan_to_num")
def nan_to_num(input: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    """A copy with numbers in place of nan (0, if none is given), inf and -inf (the largest and the
    smallest of the type). Integers stay as they are."""
    if not input.is_floating_point():
        return clone(input)
    limits = finfo(input.dtype)
    out = where(isnan(input), nan or 0.0, input)
    out = where(input == math.inf, limits.max if posinf is None else posinf, out)
    return where(input == -math.inf, limits.min if neginf is None else neginf, out)


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


@tensor_method("index_fill")
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy of `input` with `value`, a number or a 0-d tensor, in the slices `index` of `dim`.

    Raises:
        RuntimeError: the value has dimensions, or does not fit the type.
    """
    dims, index = index_along_dim("index_fill", input, dim, index)
    chosen = zeros(input.array.shape[dims[0]] if dims else (), dtype=bool_, device=input.device)
    chosen.array[index.array if dims else ()] = index.array.size > 0
    after = input.array.ndim - dims[0] - 1 if dims else 0
    return masked_fill(input, reshape(chosen, chosen.array.shape + (1,) * after), value)


index_fill_ = tensor_method("index_fill_")(in_place(index_fill))


@tensor_method("masked_scatter")
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy of `input` whose elements under the mask are those of `source`, one after the other.

    Raises:
        RuntimeError: the mask is not boolean, `source` is too short or of another type.
    """
    if mask.dtype is not bool_:
        raise RuntimeError(f"masked_scatter: expected a boolean mask, but got {mask.dtype!r}")
    check_same_dtype("masked_scatter", input, source)
    input, mask = broadcast_tensors(input, mask)
    places = nonzero(reshape(mask, (-1,)))[:, 0]
    count = places.array.size
    if count > source.array.size:
        raise RuntimeError(f"masked_scatter: {count} values wanted, and source has fewer")
    return IndexPut.apply(input, reshape(source, (-1,))[:count], (), places)


masked_scatter_ = tensor_method("masked_scatter_")(in_place(masked_scatter))


@tensor_method("take_along_dim")
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """`gather` with broadcast sizes: what argsort and argmax of a dimension give, looked up.
    Without `dim`, of both as vectors. A negative index counts from the end."""
    if dim is None:
        input, indices, dim = reshape(input, (-1,)), reshape(indices, (-1,)), 0
    n = input.array.ndim
    if n != indices.array.ndim:
        raise RuntimeError(
            f"take_along_dim(): input has {n} dimensions, and indices {indices.array.ndim}"
        )
    dim = normalize_dim(dim, n)
    pairs = zip(input.array.shape, indices.array.shape, strict=True)
    sizes = [[max(a, b) if 0 not in (a, b) else 0, b][i == dim] for i, (a, b) in enumerate(pairs)]
    whole = list(sizes)
    whole[dim] = input.array.shape[dim]
    indices = add(indices, mul(indices < 0, whole[dim]))
    return gather(input.expand(whole), dim, indices.expand(sizes))


@checked
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """The product summed over pairs of dimensions: the last `dims` of a with the first of b, or
    those that two lists name.

    Raises:
        RuntimeError: the sizes of a pair differ, or `dims` is negative or of another form.
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.array.ndim, b.array.ndim):
            raise RuntimeError(f"tensordot expects 0 <= dims <= the dimensions, but got {dims}")
        dims = range(-dims, 0), range(dims)
    left, right = ([dim] if isinstance(dim, int) else list(dim) for dim in dims)
    if len(left) != len(right):
        raise RuntimeError(f"tensordot expects pairs of dimensions, but got {left} and {right}")
    for i, j in zip(left, right, strict=True):  # a size of 1 is repeated
        if a.array.shape[i] == 1:
            b = sum(b, j, True, dtype=b.dtype)
        elif b.array.shape[j] == 1:
            a = sum(a, i, True, dtype=a.dtype)
    left = [normalize_dim(dim, a.array.ndim) for dim in left]
    right = [normalize_dim(dim, b.array.ndim) for dim in right]
    sizes = [[x.array.shape[dim] for dim in d] for x, d in ((a, left), (b, right))]
    if sizes[0] != sizes[1]:
        raise RuntimeError(f"contracted dimensions need to match, but are {sizes[0]}, {sizes[1]}")
    rest = [dim for dim in range(a.array.ndim) if dim not in left]
    others = [dim for dim in range(b.array.ndim) if dim not in right]
    n = math.prod(sizes[0])
    shape = [a.array.shape[dim] for dim in rest], [b.array.shape[dim] for dim in others]
    rows = reshape(permute(a, rest + left), (math.prod(shape[0]), n))
    columns = reshape(permute(b, right + others), (n, math.prod(shape[1])))
    return reshape(matmul(rows, columns), shape[0] + shape[1])


@tensor_method("cross")
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The product that is perpendicular to both vectors of length 3, which lie along `dim`; the
    first dimension of size 3, if None.

    Raises:
        RuntimeError: `dim` is not of size 3, or there is no such dimension.
    """
    input, other = broadcast_tensors(input, other)
    if dim is None:
        dim = next((i for i, n in enumerate(input.array.shape) if n == 3), None)
    dim = dim if dim is None else normalize_dim(dim, input.array.ndim)
    if dim is None or input.array.shape[dim] != 3:
        shape = list(input.array.shape)
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {shape}")
    return sub(
        mul(input.roll(-1, dim), other.roll(-2, dim)), mul(input.roll(-2, dim), other.roll(-1, dim))
    )


@checked
@attach("logaddexp", written=False)
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(a) + exp(b)), of which the larger one is taken out: nothing overflows."""
    largest = maximum(input, other).detach()
    largest = masked_fill(largest, abs(largest) == math.inf, 0.0)  # inf - inf would be nan
    return add(largest, log(add(exp(sub(input, largest)), exp(sub(other, largest)))))


@checked
@attach("logit")
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(p / (1 - p)), the inverse of sigmoid; with `eps`, of p clamped to eps .. 1 - eps."""
    p = input if input.is_floating_point() else input.to(get_default_dtype())
    p = p if eps is None else p.clamp(eps, 1 - eps)
    return log(div(p, 1 - p))


@reduction
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum of the elements that are not nan."""
    whole = not input.is_floating_point()
    kept = input if whole else masked_fill(input, isnan(input), 0.0)
    return sum(kept, dim, keepdim, dtype=dtype)


@reduction
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of the elements that are not nan; of none, nan.

    Raises:
        RuntimeError: for integers.
    """
    if not input.is_floating_point():
        raise RuntimeError(f"nanmean(): expected input to have floating point, got {input.dtype!r}")
    count = sum((~isnan(input)).to(input.dtype), dim, keepdim)
    mean = div(nansum(input, dim, keepdim), count)
    return mean if dtype is None else mean.to(dtype)


@tensor_method("diff")
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None):
    """x[i + 1] - x[i] along `dim`, n times. `prepend` and `append` are joined to the input first.

    Raises:
        RuntimeError: for a 0-d tensor, and a negative n.
    """
    dim = normalize_dim(dim, input.array.ndim)
    if n < 0 or input.array.ndim == 0:
        raise RuntimeError(f"diff expects a dimension and n >= 0, but got {input.shape}, n = {n}")
    x = cat([part for part in (prepend, input, append) if part is not None], dim) if n else input
    for _ in range(min(n, x.array.shape[dim])):
        after, before = x[key_along(dim, slice(1, None))], x[key_along(dim, slice(-1))]
        x = after ^ before if x.dtype is bool_ else sub(after, before)
    return x


@tensor_method("baddbmm")
@checked
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2), for batches of matrices; with beta=0, `input` is
    not read."""
    product = batch1.bmm(batch2)
    return add_scaled(input.expand(product.array.shape), product, beta, alpha)


baddbmm_ = tensor_method("baddbmm_")(in_place(baddbmm))
