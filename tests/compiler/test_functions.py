"""Small functions in eager and as graphs: values and gradients, in float32, float64 and int64."""

import functools

import numpy as np
import pytest

import tinytorch as tt
from tests.compiler.compare import compare
from tinytorch.nn import functional as F


def written(write):
    """A function that writes into a copy of x, and uses it before and after."""

    def function(x, y):
        z = x * 2
        before = z + 1
        z = write(z, y)
        return before * z

    return function


def doubled(z, y):
    z.mul_(2)
    return z


def row_set(z, y):
    z[1] = y[0]
    return z


def row_added(z, y):
    z[0] += y[1]
    return z


def columns_set(z, y):
    z[:, ::2] = y[:, 1:3]
    return z


def view_written(z, y):
    part = z[1:]
    part.add_(y[1:])
    return z + part.sum()


def view_of_view(z, y):
    z.T[1:3].unsqueeze(0)[0, 1].copy_(y[:, 0])
    return z


def base_written(z, y):
    part = z[0]
    z.add_(y)
    return z * part


def filled(z, y):
    z[:, 1].fill_(3)
    z[2:].zero_()
    return z


def picked_set(z, y):
    z[tt.tensor([2, 0])] = y[:2]
    return z


def masked_set(z, y):
    return z.masked_fill_(y > 0, 1)


def reshaped(z, y):
    z.view(2, 6)[0, 1:4] = 7
    return z


def chunks_written(z, y):
    a, b = z.chunk(2, 1)
    return tt.cat([b, a * 2], 1)


def diagonal_read(z, y):
    return z + z.diagonal()[:, None]


WRITES = (doubled, row_set, row_added, columns_set, view_written, view_of_view, base_written)
WRITES += (filled, picked_set, masked_set, reshaped, chunks_written, diagonal_read)

# Of x and y, both (3, 4), and of any type.
FUNCTIONS = {function.__name__: written(function) for function in WRITES} | {
    "add": lambda x, y: x + y * 2 - 1,
    "broadcast": lambda x, y: x[0] * y + x[:, :1],
    "three sizes of 1": lambda x, y: x[:, None, :] * y[None, :, :1],
    "power": lambda x, y: x**3 + 2,
    "compare": lambda x, y: (x > y) * x + (x == y) * y,
    "where": lambda x, y: tt.where(x > 0, x, y * 2),
    "where and a number": lambda x, y: tt.where(x > y, x, 0),
    "maximum": lambda x, y: tt.maximum(x, y) - tt.minimum(x, y * 2),
    "clamp": lambda x, y: x.clamp(-1, 1) * y,
    "abs": lambda x, y: x.abs() * y.sign(),
    "neg": lambda x, y: -x - -y,
    "sum": lambda x, y: x.sum(0) + y.sum(),
    "sum keepdim": lambda x, y: x * y.sum(1, keepdim=True),
    "prod": lambda x, y: x.prod(1),
    "amax": lambda x, y: x.amax(1, keepdim=True) - x.amin(),
    "max and where": lambda x, y: x.max(1).values,
    "sort": lambda x, y: x.sort(1).values * y,
    "argmax": lambda x, y: x * x.argmax(1, keepdim=True),
    "any": lambda x, y: (x > 1).any(1, keepdim=True) * x,
    "cumsum": lambda x, y: x.cumsum(1) * y,
    "cumprod": lambda x, y: (x * y).cumprod(0),
    "reshape": lambda x, y: x.reshape(4, 3) @ y,
    "transpose": lambda x, y: x.T.reshape(2, 6) * 2,
    "permute": lambda x, y: x.reshape(3, 2, 2).permute(2, 0, 1) * 3,
    "flatten": lambda x, y: x.flatten() * y.flatten(),
    "expand": lambda x, y: x[:1].expand(3, 4) * y,
    "expand and sum": lambda x, y: x[None].expand(5, 3, 4).sum(0) + y,
    "squeeze": lambda x, y: x.unsqueeze(1).squeeze(1) * 2,
    "movedim": lambda x, y: x.reshape(3, 2, 2).movedim(0, -1) * 2,
    "select": lambda x, y: x[1] * y[:, 2:3],
    "slices": lambda x, y: x[1:, ::2] * y[:2, 1:3],
    "a row twice": lambda x, y: x[1] * x[1] + x[1:2],
    "index": lambda x, y: x[tt.tensor([0, 2, 2, 1])] * 2,
    "two indices": lambda x, y: x[tt.tensor([0, 2]), tt.tensor([1, 1])] * 2,
    "index and slice": lambda x, y: x[1:, tt.tensor([3, 0])] * 2,
    "index_select": lambda x, y: x.index_select(1, tt.tensor([3, 0, 0])),
    "index_add": lambda x, y: x.index_add(0, tt.tensor([2, 2]), y[:2]),
    "gather": lambda x, y: x.gather(1, tt.tensor([[0, 0], [3, 1], [2, 2]])),
    "scatter": lambda x, y: x.scatter(1, tt.tensor([[0], [3], [2]]), y[:, :1]),
    "scatter_add": lambda x, y: x.scatter_add(1, tt.tensor([[0], [3], [0]]), y[:, :1]),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 2) * y,
    "cat": lambda x, y: tt.cat([x, y * 2, x[:1]], 0),
    "cat of one twice": lambda x, y: tt.cat([x, x], 1) * 2,
    "stack": lambda x, y: tt.stack([x, y, x * y], 1),
    "stack in front": lambda x, y: tt.stack([x, y]) * 2,
    "split": lambda x, y: x.split([1, 3], 1)[1] * y.split(3, 1)[0],
    "split, one unused": lambda x, y: x.split(2, 1)[0] * 2,
    "chunk": lambda x, y: functools.reduce(lambda a, b: a * b, x.chunk(4, 1)),
    "unbind": lambda x, y: x.unbind(0)[0] + x.unbind(1)[2].sum(),
    "pad": lambda x, y: F.pad(x, (1, 2, 0, 1)) * 2,
    "pad, reflected": lambda x, y: F.pad(x[None], (1, 2), "reflect") * 2,
    "repeat": lambda x, y: x.repeat(2, 1, 2) * 2,
    "repeat_interleave": lambda x, y: x.repeat_interleave(3, 1) * 2,
    "tile": lambda x, y: y.tile(2) * x.repeat(1, 2),
    "flip": lambda x, y: x.flip(0, 1) * y,
    "roll": lambda x, y: x.roll(1, 1) * y,
    "tril": lambda x, y: x.tril() + y.triu(1),
    "diagonal": lambda x, y: x.diagonal() * y.diagonal(1),
    "diag_embed": lambda x, y: tt.diag_embed(x),
    "matmul": lambda x, y: x @ y.T,
    "vectors": lambda x, y: x @ y[0] + x[0] @ y[1],
    "batches": lambda x, y: x.reshape(3, 2, 2) @ y.reshape(3, 2, 2),
    "a batch and a matrix": lambda x, y: x.reshape(3, 2, 2) @ y[0].reshape(2, 2),
    "einsum": lambda x, y: tt.einsum("ij,kj->ik", x, y),
    "unfold": lambda x, y: x.unfold(1, 2, 1) * 2,
    "windows": lambda x, y: x.unfold(1, 2, 2).sum(-1),
    "meshgrid": lambda x, y: tt.meshgrid(x[0], y[:, 0], indexing="ij")[1] * x[0, 0],
    "zeros": lambda x, y: tt.zeros_like(x) + x * tt.ones(4, dtype=x.dtype),
    "arange": lambda x, y: x * tt.arange(4),
    "two results": lambda x, y: (x + 1, (x * y, y - 1)),
    "one twice": lambda x, y: (x * 2,) * 2,
    "cast": lambda x, y: x.double() * y.to(tt.float64),
    "detach": lambda x, y: x.detach() * x,
    "no gradient": lambda x, y: tt.no_grad(lambda: x * 2)() * y,
    "in and out": lambda x, y: (x.T.contiguous().T + 0) * y,
    "one element": lambda x, y: x[0, 0] * y + x[:1, :1],
}
# Of floats.
OF_FLOATS = {
    "exp": lambda x, y: x.exp() * y,
    "log": lambda x, y: (x.abs() + 1).log() / (y.abs() + 1).sqrt(),
    "div": lambda x, y: x / (y * y + 1),
    "div by a number": lambda x, y: x / 3 + y / 4,
    "sigmoid": lambda x, y: x.sigmoid() * y.tanh(),
    "trigonometry": lambda x, y: x.sin() * y.cos() + tt.atan2(x, y),
    "pow": lambda x, y: (x.abs() + 1) ** y + x**-2.0 + 2**x,
    "rsqrt": lambda x, y: (x * x + 1).rsqrt() + (y + 5).reciprocal(),
    "erf": lambda x, y: x.erf() * tt.expm1(y) + (x * x).log1p(),
    "mean": lambda x, y: x.mean() * y.mean(1, keepdim=True),
    "var": lambda x, y: x.var(1, correction=0) + y.std(),
    "norm": lambda x, y: x / x.norm(dim=1, keepdim=True) + y.norm(1),
    "softmax": lambda x, y: (x.softmax(1) * y.log_softmax(0)).sum(1),
    "logsumexp": lambda x, y: x.logsumexp(1) + y.logsumexp((0, 1)),
    "relu": lambda x, y: x.relu() * F.leaky_relu(y, 0.1),
    "activations": lambda x, y: F.silu(x) + F.elu(y) + F.softplus(x) * F.hardswish(y),
    "more activations": lambda x, y: F.selu(x) + F.mish(y) + F.logsigmoid(x) + F.relu6(y),
    "glu": lambda x, y: F.glu(x, 1) + F.glu(y, 1),
    "losses": lambda x, y: F.mse_loss(x, y) + F.l1_loss(x, y) + F.huber_loss(x, y),
    "bce": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "bce with logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    "kl": lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    "cosine": lambda x, y: F.cosine_similarity(x, y),
    "dropout": lambda x, y: F.dropout(x, 0.4) * F.dropout(y, 0.1),
    "noise": lambda x, y: x + tt.randn_like(x) * y + tt.rand(4, dtype=x.dtype),
    "bernoulli": lambda x, y: x * tt.bernoulli(y.detach().sigmoid()),
    "interpolate": lambda x, y: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "nan_to_num": lambda x, y: (x / (y > 0)).nan_to_num(0, 1, -1),
    "lerp": lambda x, y: x.lerp(y, 0.3) + tt.addcmul(x, x, y, value=2),
    "sub with alpha": lambda x, y: tt.sub(x, y, alpha=0.5),
    "floor": lambda x, y: x.floor() + y.round() * x,
    "remainder": lambda x, y: x % 0.7 + x.fmod(0.3) * y,
    "solve": lambda x, y: tt.linalg.solve(x[:3, :3] + 9 * tt.eye(3, dtype=x.dtype), y),
}


def tensors(dtype):
    """(3, 4) numbers, with zeros and equal ones among them."""
    x = [[0.5, -1.5, 2.0, 0.0], [1.0, -2.0, 0.25, 3.0], [-0.75, 1.25, -0.5, 2.0]]
    y = [[1.0, 0.5, -2.0, 0.0], [-1.0, 2.0, 1.5, -0.25], [0.75, -1.25, 3.0, 1.0]]
    made = [tt.tensor(np.array(a)).to(dtype) for a in (x, y)]
    return [a.requires_grad_() if dtype.is_floating_point else a for a in made]


CASES = [(name, dtype) for name in FUNCTIONS for dtype in (tt.float32, tt.float64, tt.int64)]
CASES += [(name, dtype) for name in OF_FLOATS for dtype in (tt.float32, tt.float64)]


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda x: str(x).rpartition(".")[2])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_functions(name, dtype):
    compare({**FUNCTIONS, **OF_FLOATS}[name], *tensors(dtype))
