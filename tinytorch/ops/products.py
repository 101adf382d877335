"""Products and pairs of all elements or rows: kron, cross, cdist, cartesian_prod."""

from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.ops.arithmetic import mul, sub
from tinytorch.ops.broadcast import broadcast_shapes
from tinytorch.ops.creation import meshgrid
from tinytorch.ops.dims import normalize_dim
from tinytorch.ops.joining import stack
from tinytorch.ops.matmul import check_operands
from tinytorch.ops.norm import norm
from tinytorch.ops.parts import roll
from tinytorch.ops.shape import reshape, unsqueeze


@tensor_method("kron")
def kron(input: Tensor, other: Tensor) -> Tensor:
    """`other` times each element of `input`, block by block: [n, m] and [p, q] give [n p, m q]."""
    ndim = max(input.array.ndim, other.array.ndim)
    a, b = ((1,) * (ndim - x.array.ndim) + x.array.shape for x in (input, other))
    left = reshape(input, tuple(size for n in a for size in (n, 1)))
    right = reshape(other, tuple(size for n in b for size in (1, n)))
    return reshape(mul(left, right), tuple(n * m for n, m in zip(a, b, strict=True)))


@tensor_method("cross")
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The vector product along a dimension of size 3, by default the first one of that size.

    RuntimeError where there is none, or where the numbers of dimensions or the types differ.
    """
    check_operands("cross", input, other)
    shape, ndim = broadcast_shapes(input.array.shape, other.array.shape), input.array.ndim
    dim = shape.index(3) if dim is None and 3 in shape else -1 if dim is None else dim
    dim = normalize_dim(dim, ndim)
    if ndim != other.array.ndim or (input.array.shape[dim], other.array.shape[dim]) != (3, 3):
        shapes = f"{list(input.array.shape)} and {list(other.array.shape)}"
        raise RuntimeError(f"cross: as many dimensions, and a size of 3, expected, not {shapes}")
    one, two = (mul(roll(input, i, dim), roll(other, 3 - i, dim)) for i in (2, 1))
    return sub(one, two)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The distances of order p between the rows of x1 [..., n, d] and x2 [..., m, d]: [..., n, m].

    RuntimeError for integers, for vectors, where d differs, and for a negative p.
    """
    check_operands("cdist", x1, x2)
    a, b = x1.array.shape, x2.array.shape
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-1] or p < 0 or not x1.is_floating_point():
        raise RuntimeError(
            f"cdist: expected two batches of rows of floats, of one length, and p >= 0, but got "
            f"{list(a)} and {list(b)} of {x1.dtype!r}, and p = {p}"
        )
    return norm(sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), p, -1)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of one element from each of some vectors, one in each row."""
    if any(x.array.ndim != 1 for x in tensors):
        raise RuntimeError("cartesian_prod: Expect 1D vectors")
    return stack([x.reshape(-1) for x in meshgrid(*tensors)], 1) if len(tensors) > 1 else tensors[0]
