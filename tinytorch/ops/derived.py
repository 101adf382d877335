"""More operations that follow from others: tensordot, cross, logaddexp, nanmean, and so on."""

import math
from typing import Any

from tinytorch.autograd.inplace import in_place
from tinytorch.core.arguments import checked
from tinytorch.core.dtype import bool_, get_default_dtype
from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import add, mul, sub
from tinytorch.ops.broadcast import broadcast_tensors
from tinytorch.ops.comparison import isnan
from tinytorch.ops.creation import zeros
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.elementwise import abs, attach, div, exp, log, maximum
from tinytorch.ops.gather import gather, index_along_dim, masked_fill
from tinytorch.ops.indexing import IndexPut, check_same_dtype, nonzero
from tinytorch.ops.joining import cat
from tinytorch.ops.matmul import add_scaled, matmul
from tinytorch.ops.parts import key_along
from tinytorch.ops.reduction import reduction, sum
from tinytorch.ops.shape import permute, reshape


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
