"""Step 86l: Catalogue: the other normalisations, and what is refused

No new idea. Skim it: the demo shows each piece at work.

- InstanceNorm is the batch_norm of each image alone: [n, channels, ...] as [1, n * channels, ...].
- Sequences and volumes: classes that differ from BatchNorm2d in the dimensions that they take.
- float16 and bfloat16 are computed as float32, and rounded once (step 41e). Their weights may be
  float32. The running averages then are float32 as well.
- A batch [n, channels] has rows of one number, the slowest rows that there are. It is turned round.
- Refusals: shapes and types that do not fit; a mean of a single number, which would make it 0.
- How the layers are shown, and how they forget what they have learned.

Changed: Normalization, batch_norm, group_norm, layer_norm, rms_norm, and the modules. New:
instance_norm, BatchNorm3d, InstanceNorm1d, 2d and 3d, check, check_count.
"""

import importlib
import math
import warnings
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float32
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.core.version import bump_version
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.reduction import Mean, wide

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Normalization(Function):
    """y = h w + b with h = (x - m) r: m is the mean, r = 1 / sqrt(v + eps), v the variance.

        dL/dx = r (e - mean(e) - h mean(e h)), e = g w;   dL/dw = sum of g h;   dL/db = sum of g

    The kinds differ in `dims`, over which means are taken when x has the shape `shape`. The last
    dimension is one of them. w and b belong to it where `shape` is [rows, n], and else to those
    between the first and the last: [batch, channels, n].

    Arrays are computed as rows of n elements. A mean over `dims` is a mean of the rows' sums, and
    all else has the form x s + t, with two numbers for each row (`combine`).
    """

    centered = True
    far = False  # the mean is large beside the deviations

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        shape: tuple[int, ...], dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        ctx.shape, ctx.dims, ctx.eps = shape, dims, eps
        ctx.fixed = momentum is None and running_mean is not None
        rows = ctx.rows(x)
        if ctx.fixed:
            m, v = ctx.per_row(running_mean), ctx.per_row(running_var)
        else:
            rows, m, v = ctx.moments(rows)
        if momentum is not None and len(rows):
            n = math.prod(shape[dim] for dim in dims)
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        s = r * ctx.per_row(weight)
        t = 0 if ctx.far else -m * s
        b = 0 if bias is None else ctx.per_row(bias)
        y = ctx.combine(ctx.columns(rows, weight, bias), (rows, s, 0), (None, t, b))
        return ctx.back(y, x)

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        if isinstance(g, Tensor):
            return ctx.formula(g, x, weight, bias, m, r)
        rows, grads = ctx.rows(x), ctx.rows(g)
        if ctx.far:
            rows, m = rows - m, 0 * m
        w, columns = ctx.per_row(weight), ctx.columns(rows, weight)
        sums = grads @ columns[:1].T  # of g w over each row, where w belongs to its elements
        if len(ctx.shape) == 2:
            products, gw = ctx.products(rows, grads, columns[:1].T, r)
            gw, gb = gw - (m * r)[:, 0] @ grads, ctx.xp.ones_like(r)[:, 0] @ grads
            products = r * (products - m * sums)  # of g w h
        else:
            products = r * (dot_rows(rows, grads) - m * sums)
            gw, gb = (a.reshape(ctx.shape[:-1]).sum(axis=0) for a in (products, sums))
        gx = None
        if ctx.edges[0] is not None:
            terms = [(grads, r * w, 0)]
            if not ctx.fixed:
                slope, mean = ctx.mean(w * products), ctx.centered * ctx.mean(w * sums)
                terms += [(rows, 0, -r * r * slope), (None, 0, r * (r * m * slope - mean))]
            gx = ctx.back(ctx.combine(columns, *terms), x)
        return gx, ctx.back(gw, weight), ctx.back(gb, bias)

    def formula(ctx, g: Tensor, x: Tensor, weight: Any, bias: Any, m: Any, r: Tensor) -> tuple:
        """backward as the formula says it: m and r, too, are differentiated."""
        shape = ctx.shape
        inner = shape[1:] if len(shape) == 2 else (*shape[1:-1], 1)
        c, e = (ctx.turned(a).to(r.dtype).reshape(shape) for a in (x, g))
        if ctx.fixed:
            c, r = c - m.reshape(*shape[:-1], 1), r.reshape(*shape[:-1], 1)
        else:
            c = c - ctx.means(c) if ctx.centered else c
            r = 1 / ctx.xp.sqrt(ctx.means(c * c) + ctx.eps)
        h = c * r
        gw, gb = (ctx.call(SumTo, a, inner) for a in (e * h, e))
        e = e if weight is None else e * weight.to(r.dtype).reshape(inner)
        if not ctx.fixed:
            e = e - ctx.centered * ctx.means(e) - h * ctx.means(e * h)
        return ctx.back(r * e, x), ctx.back(gw, weight), ctx.back(gb, bias)

    def means(ctx, x: Any) -> Any:
        """The means over `dims`, of size 1 there."""
        return ctx.call(Mean, x, ctx.dims, True)

    # The parts of the computation on rows.

    def turned(ctx, x: Any) -> Any:
        """A batch [n, channels] has rows of one element; turned, it has rows of n."""
        return x.T if x.ndim == 2 and len(ctx.shape) == 3 else x

    def rows(ctx, x: Any) -> Any:
        return wide(ctx.turned(x)).reshape(math.prod(ctx.shape[:-1]), ctx.shape[-1])

    def back(ctx, rows: Any, like: Any) -> Any:
        """Rows in the shape and type of `like`, an input; None for one that is absent."""
        if like is None:
            return None
        y = ctx.turned(rows.reshape(ctx.turned(like).shape))
        return y.to(like.dtype) if isinstance(y, Tensor) else y.astype(like.dtype, copy=False)

    def per_row(ctx, value: Any) -> Any:
        """A number for each channel as one for each row; 1 for what belongs to the elements."""
        if value is None or len(ctx.shape) == 2:
            return 1
        value = wide(value).reshape(ctx.shape[1:-1])
        return ctx.xp.broadcast_to(value, ctx.shape[:-1]).reshape(-1, 1)

    def columns(ctx, rows: Any, weight: Any, bias: Any = None) -> Any:
        """weight and bias, one below the other, where they belong to the elements; else ones."""
        columns = ctx.xp.ones((2, rows.shape[1]), rows.dtype)
        for i, value in enumerate((weight, bias)):
            if value is not None and len(ctx.shape) == 2:
                columns[i] = value.reshape(-1)
        return columns

    def mean(ctx, sums: Any) -> Any:
        """The mean over `dims`, for each row, from the sum of each row."""
        sums = sums / math.prod(ctx.shape[dim] for dim in ctx.dims)
        if len(ctx.dims) == 1:
            return sums
        means = sums.reshape(ctx.shape[:-1]).sum(axis=ctx.dims[:-1], keepdims=True)
        return ctx.xp.broadcast_to(means, ctx.shape[:-1]).reshape(-1, 1)

    def moments(ctx, rows: Any) -> tuple:
        """The rows, and their mean and variance. If a mean is large, the difference of two sums
        would leave only rounding errors: it is subtracted from the rows first."""
        if not ctx.centered:
            return rows, 0, ctx.mean(dot_rows(rows, rows))
        m = ctx.mean(rows @ ctx.xp.ones((rows.shape[1], 1), rows.dtype))
        v = ctx.mean(dot_rows(rows, rows)) - m * m
        ctx.far = bool((4 * v < m * m).any())
        if ctx.far:
            rows = rows - m
            v = ctx.mean(dot_rows(rows, rows))
        return rows, m, v

    def track(ctx, running: Any, value: Any, momentum: float) -> None:
        """Moves `running`, in place, towards the value of the batch."""
        if running is not None:
            value = value[: ctx.shape[1], 0] - running
            running += (momentum * value).astype(running.dtype, copy=False)
            bump_version(running)

    def parts(ctx, rows: Any) -> list[slice]:
        """Slices of so many rows as the cache holds."""
        limit = ctx.device.backend.chunk_elements or rows.size
        step = max(1, limit // max(1, rows.shape[1]))
        return [slice(i, i + step) for i in range(0, len(rows), step)]

    def products(ctx, rows: Any, grads: Any, w: Any, r: Any) -> tuple:
        """The sums of g x w over each row, and of g x r over each column."""
        across, down = ctx.xp.empty_like(r), 0
        for part in ctx.parts(rows):
            product = grads[part] * rows[part]
            across[part] = product @ w
            down = down + r[part, 0] @ product
        return across, down

    def combine(ctx, columns: Any, *terms: tuple) -> Any:
        """The sum of a * ([s, t] @ columns) for each (a, s, t): an array of rows (None: 1) and two
        numbers for each row. Over short rows a broadcast takes twice as long as such a product."""
        xp, rows = ctx.xp, terms[0][0]
        y = xp.empty(rows.shape, rows.dtype)
        pairs = xp.empty((len(terms), len(rows), 2), rows.dtype)
        for pair, (_, s, t) in zip(pairs, terms, strict=True):
            pair[:, :1], pair[:, 1:] = s, t
        for part in ctx.parts(rows):
            for i, (a, _, _) in enumerate(terms):
                term = xp.matmul(pairs[i, part], columns, out=None if i else y[part])
                if a is not None:
                    term *= a[part]
                if i:
                    y[part] += term
        return y


def dot_rows(a: Any, b: Any) -> Any:
    """The product of each row of a with that of b, [rows, 1]."""
    return (a[:, None, :] @ b[:, :, None])[:, 0]


class NativeBatchNorm(Normalization):
    """Means over the batch: [n, channels, m] has one mean for each channel."""


class NativeLayerNorm(Normalization):
    """Means over the last dimensions: [rows, n] has one mean for each row."""


class NativeGroupNorm(Normalization):
    """Means over groups of channels: [n, groups, channels of a group, m] has n * groups means."""


class RmsNorm(Normalization):
    """As NativeLayerNorm, with 0 in the place of the mean."""

    centered = False

    def name(ctx) -> str:  # of the last of PyTorch's operations
        return "MulBackward0"


def check(name: str, input: Tensor, shape: tuple, *others: Tensor | None) -> None:
    """Checks that `others` have the shape, and the type of the input, or float32 beside a half.

    Raises:
        RuntimeError: they have not.
        NotImplementedError: for integers.
    """
    for other in others:
        if other is not None and other.array.shape != shape:
            found = f"{list(other.array.shape)} and not {list(shape)}"
            raise RuntimeError(f"Expected weight and the like to be of same shape, but got {found}")
        half = input.dtype.itemsize == 2 and other is not None and other.dtype is float32
        if other is not None and other.dtype is not input.dtype and not half:
            raise RuntimeError(f"{name}: mixed dtype: {input.dtype!r} and {other.dtype!r}")
    if not input.is_floating_point():
        raise NotImplementedError(f"{name} is not implemented for {input.dtype!r}")


def check_count(count: int, shape: tuple[int, ...]) -> None:
    """Raises ValueError for a single value: it would be its own mean, and the result 0."""
    if count == 1:
        size = f"got input size {list(shape)}"
        raise ValueError(f"Expected more than 1 value per channel when training, {size}")


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """(input - mean) / sqrt(var + eps) * weight + bias, for each channel of [n, channels, ...].

    In training, mean and var (divided by the count n) are those of the batch, and the running ones
    are moved towards them (there var is divided by n - 1); otherwise they are the running ones.
    Source: Ioffe and Szegedy, 2015.
    Raises:
        ValueError: in training, there is one value for each channel; eps is negative.
        RuntimeError: sizes or types do not fit; the running statistics are needed and absent.
        NotImplementedError: for integers.
    """
    shape = input.array.shape
    n, channels, length = shape[0], (*shape, 0)[1], math.prod(shape[2:])
    if training:
        check_count(n * length, shape)
    elif running_mean is None or running_var is None:
        raise RuntimeError("running_mean and running_var must be defined in evaluation mode")
    if eps < 0 or training and eps == 0:
        raise ValueError(f"batch_norm eps must be positive, but got {eps}")
    others = weight, bias, running_mean, running_var
    check("batch_norm", input, (channels,), *others)
    sizes = (1, channels, n) if len(shape) == 2 else (n, channels, length)
    return NativeBatchNorm.apply(input, *others, sizes, (0, 2), eps, momentum if training else None)


def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """batch_norm of each item of a batch alone: of [n, channels, ...] as [1, n * channels, ...].

    The running statistics move towards the mean of those of the items.
    Source: Ulyanov et al., 2016.
    Raises:
        ValueError, RuntimeError, NotImplementedError: as batch_norm.
    """
    shape = input.array.shape
    if use_input_stats:
        check_count(math.prod(shape[2:]), shape)
    whole = running_mean, running_var, weight, bias
    parts = [None if t is None else t.repeat(shape[0]) for t in whole]
    items = input.reshape(1, shape[0] * shape[1], *shape[2:])
    y = batch_norm(items, *parts, use_input_stats, momentum, eps)
    for running, part in zip(whole[:2], parts[:2], strict=True):
        if use_input_stats and running is not None:
            running.copy_(part.reshape(shape[0], -1).mean(0))
    return y.reshape(shape)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """As batch_norm, with means over groups of the channels of one item (Wu and He, 2018).

    Raises:
        ValueError: a mean would be of a single element.
        RuntimeError: sizes or types do not fit.
        NotImplementedError: for integers.
    """
    shape = input.array.shape
    if len(shape) < 2 or shape[1] % num_groups:
        raise RuntimeError(
            f"Expected at least 2 dimensions, and the number of channels to be divisible by "
            f"num_groups ({num_groups}), but got input of shape {list(shape)}"
        )
    sizes = (shape[0], num_groups, shape[1] // num_groups, math.prod(shape[2:]))
    check_count(math.prod(sizes) // num_groups, shape)
    check("group_norm", input, shape[1:2], weight, bias)
    return NativeGroupNorm.apply(input, weight, bias, None, None, sizes, (2, 3), eps)


def last_sizes(input: Tensor, normalized_shape: Any) -> tuple[tuple, tuple]:
    """normalized_shape as a tuple, and `input` as rows of so many elements: [rows, n].

    Raises:
        RuntimeError: the last dimensions have other sizes.
    """
    shape, inner = input.array.shape, tuple(normalized_shape)
    if not inner or shape[-len(inner) :] != inner:
        raise RuntimeError(f"Given normalized_shape={list(inner)}, got input of size {list(shape)}")
    return inner, (math.prod(shape[: len(shape) - len(inner)]), math.prod(inner))


def layer_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """As batch_norm, with means over the last dimensions, of the sizes normalized_shape, and a
    weight for each of their elements (Ba et al., 2016).

    Raises:
        RuntimeError: sizes or types do not fit.
        NotImplementedError: for integers.
    """
    inner, sizes = last_sizes(input, normalized_shape)
    check("layer_norm", input, inner, weight, bias)
    return NativeLayerNorm.apply(input, weight, bias, None, None, sizes, (1,), eps)


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """input / sqrt(mean(input^2) + eps) * weight, with means over the last dimensions (Zhang and
    Sennrich, 2019). Without eps, it is the distance from 1 to the next number of the type.

    Raises:
        RuntimeError: sizes do not fit.
        NotImplementedError: for integers.
    """
    inner, sizes = last_sizes(input, normalized_shape)
    check("rms_norm", input, inner, None if weight is None else weight.to(input.dtype))
    eps = finfo(input.dtype).eps if eps is None else eps
    return RmsNorm.apply(input, weight, None, None, None, sizes, (1,), eps)


class NormModule(Module):
    """Base of the layers: weight and bias, or None, and how they are shown."""

    shown = ""  # names of attributes

    def make_affine(self, size: Any, affine: bool, bias: bool, options: dict) -> None:
        """Makes a weight of ones and a bias of zeros, where they are wanted."""
        self.register_parameter("weight", Parameter(ones(size, **options)) if affine else None)
        bias = affine and bias
        self.register_parameter("bias", Parameter(zeros(size, **options)) if bias else None)

    @no_grad()
    def reset_parameters(self) -> None:
        """Makes the weight 1 and the bias 0 again."""
        for param, value in ((self.weight, 1), (self.bias, 0)):
            if param is not None:
                param.fill_(value)

    def extra_repr(self) -> str:
        values = [(name, getattr(self, name)) for name in self.shown.split()]
        values = [(name, v is not None if name == "bias" else v) for name, v in values]
        return ", ".join(f"{v}" if name[0] == "n" else f"{name}={v}" for name, v in values)


class LayerNorm(NormModule):
    """layer_norm, with a weight and a bias of the shape normalized_shape."""

    shown = "normalized_shape eps elementwise_affine bias"

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        single = isinstance(normalized_shape, int)
        self.normalized_shape = (normalized_shape,) if single else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        options = {"device": device, "dtype": dtype}
        self.make_affine(self.normalized_shape, elementwise_affine, bias, options)

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(LayerNorm):
    """rms_norm, with a weight of the shape normalized_shape."""

    shown = "normalized_shape eps elementwise_affine"

    def __init__(
        self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__(normalized_shape, eps, elementwise_affine, False, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm(NormModule):
    """group_norm, with a weight and a bias for each channel.

    Raises:
        ValueError: num_groups does not divide num_channels.
    """

    shown = "num_groups num_channels eps affine bias"

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by {num_groups}")
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self.make_affine(num_channels, affine, bias, {"device": device, "dtype": dtype})

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _BatchNorm(NormModule):
    """batch_norm, with a weight and a bias for each channel, and running statistics as buffers.

    Without track_running_stats, the statistics are those of the batch in evaluation, too. With
    momentum None the running ones are the mean of all that were seen.
    Raises:
        ValueError: for an input with another number of dimensions.
    """

    shown = "num_features eps momentum affine bias track_running_stats"
    dims: tuple[int, ...]  # numbers of dimensions that an input may have

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        options = {"device": device, "dtype": dtype}
        self.make_affine(num_features, affine, bias, options)
        mean, var = zeros(num_features, **options), ones(num_features, **options)
        buffers = {"running_mean": mean, "running_var": var}
        buffers["num_batches_tracked"] = tensor(0, device=device)
        for name, value in buffers.items():
            self.register_buffer(name, value if track_running_stats else None)

    def reset_running_stats(self) -> None:
        """Forgets all batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        super().reset_parameters()

    def check_input(self, input: Tensor) -> None:
        if input.array.ndim not in self.dims:
            expected = " or ".join(f"{n}D" for n in self.dims)
            raise ValueError(f"expected {expected} input (got {input.array.ndim}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self.check_input(input)
        running, momentum = (self.running_mean, self.running_var), self.momentum or 0.0
        if self.training and not self.track_running_stats:
            running = (None, None)
        elif self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / self.num_batches_tracked.item()
        training = self.training or self.running_mean is None
        return batch_norm(input, *running, self.weight, self.bias, training, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batches of channels, [n, c], or of sequences, [n, c, length]."""

    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batches of images: [n, c, height, width]."""

    dims = (4,)


class BatchNorm3d(_BatchNorm):
    """Batches of volumes: [n, c, depth, height, width]."""

    dims = (5,)


class _InstanceNorm(_BatchNorm):
    """instance_norm of a batch, or of one item without the dimension of the batch.

    Raises:
        ValueError: for an input with another number of dimensions, or of channels.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ):  # fmt: skip
        options = {"device": device, "dtype": dtype, "bias": bias}
        super().__init__(num_features, eps, momentum, affine, track_running_stats, **options)

    def forward(self, input: Tensor) -> Tensor:
        self.check_input(input)
        single = input.array.ndim == self.dims[0]
        size = input.array.shape[0 if single else 1]
        if size != self.num_features:
            text = f"the input has {size} channels, and num_features is {self.num_features}"
            if self.affine:
                raise ValueError(text)
            warnings.warn(text, stacklevel=3)
        running, training = (self.running_mean, self.running_var), self.training
        y = instance_norm(
            input.unsqueeze(0) if single else input, *running, self.weight, self.bias,
            training or not self.track_running_stats, self.momentum or 0.0, self.eps,
        )  # fmt: skip
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Sequences: [c, length], or a batch of them."""

    dims = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Images: [c, height, width], or a batch of them."""

    dims = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Volumes: [c, depth, height, width], or a batch of them."""

    dims = (4, 5)


if __name__ == "__main__":
    from tinytorch.ops.random import manual_seed, randn

    manual_seed(0)
    layers = (
        BatchNorm1d(4), BatchNorm3d(4, momentum=None), LayerNorm((2, 3)), RMSNorm(4),
        GroupNorm(2, 4, affine=False),
    )  # fmt: skip
    for layer in layers:
        print(layer)
    # -> BatchNorm1d(4, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    # -> BatchNorm3d(4, eps=1e-05, momentum=None, affine=True, bias=True, track_running_stats=True)
    # -> LayerNorm((2, 3), eps=1e-05, elementwise_affine=True, bias=True)
    # -> RMSNorm((4,), eps=None, elementwise_affine=True)
    # -> GroupNorm(2, 4, eps=1e-05, affine=False, bias=False)

    x = randn(2, 4, 3, 3)
    y = InstanceNorm2d(4)(x)
    print((y - GroupNorm(4, 4)(x)).abs().max().item() < 1e-5)  # -> True
    print((InstanceNorm2d(4)(x[0]) - y[0]).abs().max().item())  # -> 0.0
    tracked = InstanceNorm1d(4, track_running_stats=True)
    tracked(x.flatten(2))
    print((tracked.running_mean - x.mean((0, 2, 3)) / 10).abs().max().item() < 1e-6)  # -> True
    print(tracked.eval()(x.flatten(2)).shape, InstanceNorm3d(4)(randn(4, 2, 2, 2)).shape)
    # -> tinytorch.Size([2, 4, 9]) tinytorch.Size([4, 2, 2, 2])
    tracked.reset_parameters()
    print(tracked.running_mean.tolist(), tracked.num_batches_tracked.item())
    # -> [0.0, 0.0, 0.0, 0.0] 0

    half = x.half().requires_grad_()
    layer = GroupNorm(2, 4)
    y = layer(half)
    y.sum().backward(create_graph=True)
    print(y.dtype, half.grad.dtype, layer.weight.grad.dtype)
    # -> tinytorch.float16 tinytorch.float16 tinytorch.float32
    layer.reset_parameters()

    wide_batch = randn(64, 4).requires_grad_()
    BatchNorm1d(4)(wide_batch).sum().backward(create_graph=True)
    print(wide_batch.grad.shape, BatchNorm1d(4)(randn(0, 4)).shape)
    # -> tinytorch.Size([64, 4]) tinytorch.Size([0, 4])

    def refused(function, *args):
        try:
            function(*args)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")

    refused(BatchNorm1d(4), randn(1, 4))
    refused(InstanceNorm1d(4), randn(4, 1))
    refused(batch_norm, x, None, None)
    refused(batch_norm, x, None, None, None, None, True, 0.1, -1.0)
    refused(LayerNorm(3), x.double())
    refused(layer_norm, x, (3,), randn(4))
    refused(layer_norm, x.long(), (3,))
    refused(InstanceNorm2d(5, affine=True), x)
    # -> ValueError: the input has 4 channels, and num_features is 5
    warnings.simplefilter("error")
    refused(InstanceNorm2d(5), x)
    # -> UserWarning: the input has 4 channels, and num_features is 5
