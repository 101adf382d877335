"""Normalisation: numbers of mean 0 and variance 1, in a batch, a layer or a group of channels."""

import math
import warnings
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import Function
from tinytorch.core.dtype import float32
from tinytorch.core.limits import finfo
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.core.version import bump_version
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.reduction import wide


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
            m, v = ctx.moments(rows)
            # A large mean would leave only rounding errors of differences between sums.
            if ctx.centered and bool((4 * v < m * m).any()):
                rows, ctx.far = rows - m, True
                v = ctx.mean(dot_rows(rows, rows))
        if momentum is not None and len(rows):
            n = math.prod(shape[dim] for dim in dims)
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        m = 0 if ctx.far else m
        s = r * ctx.per_row(weight)
        shift = 0 if bias is None else ctx.per_row(bias)
        y = ctx.combine(ctx.columns(rows, weight, bias), (rows, s, 0), (None, -m * s, shift))
        return ctx.back(y, x)

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        if isinstance(g, Tensor):
            return ctx.slopes(g, x, weight, bias, m, r)
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

    def slopes(ctx, g: Tensor, x: Tensor, weight: Any, bias: Any, m: Any, r: Tensor) -> tuple:
        """backward in Tensor operations: m and r have derivatives, too."""
        shape, dims, dtype = ctx.shape, ctx.dims, r.dtype
        inner = shape[1:] if len(shape) == 2 else (*shape[1:-1], 1)
        h, e = (ctx.turned(a).to(dtype).reshape(shape) for a in (x, g))
        if ctx.fixed:
            m, r = (a.reshape(*shape[:-1], 1) for a in (m, r))
        else:
            m = h.mean(dims, True) if ctx.centered else 0
            r = ((h - m).square().mean(dims, True) + ctx.eps).rsqrt()
        h = (h - m) * r
        gw, gb = (e * h).sum_to_size(inner), e.sum_to_size(inner)
        e = e if weight is None else e * weight.to(dtype).reshape(inner)
        if not ctx.fixed:
            e = e - ctx.centered * e.mean(dims, True) - h * (e * h).mean(dims, True)
        return ctx.back(r * e, x), ctx.back(gw, weight), ctx.back(gb, bias)

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

    def per_channel(ctx, sums: Any) -> Any:
        """The sum over the batch of a number for each row."""
        return sums.reshape(ctx.shape[:-1]).sum(axis=0)

    def columns(ctx, rows: Any, weight: Any, bias: Any = None) -> Any:
        """weight and bias, one below the other, where they belong to the elements; else ones."""
        columns = ctx.xp.ones((2, rows.shape[1]), rows.dtype)
        for i, value in enumerate((weight, bias)):
            if value is not None and len(ctx.shape) == 2:
                columns[i] = value.reshape(-1)
        return columns

    def mean(ctx, sums: Any) -> Any:
        """The mean over `dims` from the sum of each row, for each row."""
        sums = sums / math.prod(ctx.shape[dim] for dim in ctx.dims)
        if len(ctx.dims) == 1:
            return sums
        sums = sums.reshape(*ctx.shape[:-1], 1)
        return ctx.xp.broadcast_to(sums.sum(axis=ctx.dims, keepdims=True), sums.shape).reshape(
            -1, 1
        )

    def moments(ctx, rows: Any) -> tuple:
        """Mean and variance, for each row."""
        if not ctx.centered:
            return 0, ctx.mean(dot_rows(rows, rows))
        m = ctx.mean(rows @ ctx.xp.ones((rows.shape[1], 1), rows.dtype))
        return m, ctx.mean(dot_rows(rows, rows)) - m * m

    def track(ctx, running: Any, value: Any, momentum: float) -> None:
        """Moves `running`, in place, towards the value of the batch."""
        if running is not None:
            value = value[: ctx.shape[1], 0] - running
            running += (momentum * value).astype(running.dtype, copy=False)
            bump_version(running)

    def parts(ctx, rows: Any) -> list[slice]:
        """Slices of so many rows as the cache holds."""
        limit, n = ctx.device.backend.chunk_elements or rows.size, len(rows)
        step = max(1, limit // max(1, rows.shape[1]))
        return [slice(i, i + step) for i in range(0, n, step)]

    def products(ctx, rows: Any, grads: Any, w: Any, r: Any) -> tuple:
        """The sums of g x w over each row, and of g x r over each column."""
        xp = ctx.xp
        across, down = xp.empty_like(r), xp.zeros(rows.shape[1:], rows.dtype)
        for part in ctx.parts(rows):
            product = grads[part] * rows[part]
            across[part] = product @ w
            down += r[part, 0] @ product
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


def check_types(name: str, input: Tensor, *others: Tensor | None) -> None:
    """Refuses what PyTorch refuses.

    Raises:
        NotImplementedError: for integers.
        RuntimeError: the other tensors have another type than the input, and not float32 beside a
            half.
    """
    for other in others:
        half = input.dtype.itemsize == 2 and other is not None and other.dtype is float32
        if other is not None and other.dtype is not input.dtype and not half:
            raise RuntimeError(f"{name}: mixed dtype: {input.dtype!r} and {other.dtype!r}")
    if not input.is_floating_point():
        raise NotImplementedError(f"{name} is not implemented for {input.dtype!r}")


def check_sizes(size: int, **others: Tensor | None) -> None:
    """Raises RuntimeError for a tensor that does not have one element for each channel."""
    for name, other in others.items():
        if other is not None and other.array.shape != (size,):
            found = list(other.array.shape)
            raise RuntimeError(f"{name} should contain {size} elements, but has the shape {found}")


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
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
    if training and n * length == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )
    if eps < 0 or training and eps == 0:
        raise ValueError(f"batch_norm eps must be positive, but got {eps}")
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("running_mean and running_var must be defined in evaluation mode")
    others = {
        "running_mean": running_mean,
        "running_var": running_var,
        "weight": weight,
        "bias": bias,
    }
    check_sizes(channels, **others)
    check_types("batch_norm", input, *others.values())
    sizes = (1, channels, n) if len(shape) == 2 else (n, channels, length)
    return NativeBatchNorm.apply(
        input, weight, bias, running_mean, running_var,
        sizes, (0, 2), eps, momentum if training else None,
    )  # fmt: skip


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """batch_norm of each item of a batch alone: [n, channels, ...] as [1, n * channels, ...].

    The running statistics move towards the mean of those of the items.
    Source: Ulyanov et al., 2016.
    Raises:
        ValueError: with use_input_stats, there is one element for each channel.
        RuntimeError, NotImplementedError: as batch_norm.
    """
    shape = input.array.shape
    if use_input_stats and math.prod(shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size {list(shape)}"
        )
    n = shape[0]
    running = [None if t is None else t.repeat(n) for t in (running_mean, running_var)]
    affine = [None if t is None else t.repeat(n) for t in (weight, bias)]
    items = input.reshape(1, n * shape[1], *shape[2:])
    y = batch_norm(items, *running, *affine, use_input_stats, momentum, eps)
    for whole, parts in zip((running_mean, running_var), running, strict=True):
        if use_input_stats and whole is not None:
            whole.copy_(parts.reshape(n, -1).mean(0))
    return y.reshape(shape)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """As batch_norm, with means over groups of channels of one item (Wu and He, 2018).

    Raises:
        ValueError: a mean would be of a single element.
        RuntimeError: sizes or types do not fit.
        NotImplementedError: for integers.
    """
    shape = input.array.shape
    if len(shape) < 2:
        raise RuntimeError(
            f"Expected at least 2 dimensions for input tensor but received {len(shape)}"
        )
    n, channels, length = *shape[:2], math.prod(shape[2:])
    if channels % num_groups:
        raise RuntimeError(
            f"Expected number of channels in input to be divisible by num_groups, but got input of "
            f"shape {list(shape)} and num_groups={num_groups}"
        )
    if n * channels // num_groups * length == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )
    check_sizes(channels, weight=weight, bias=bias)
    check_types("group_norm", input, weight, bias)
    sizes = (n, num_groups, channels // num_groups, length)
    return NativeGroupNorm.apply(input, weight, bias, None, None, sizes, (2, 3), eps)


def over_last(
    kind: type, input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> Tensor:
    """NativeLayerNorm or RmsNorm over the last dimensions, which have the sizes normalized_shape.

    Raises:
        RuntimeError: sizes or types do not fit.
        NotImplementedError: for integers.
    """
    shape, inner = input.array.shape, tuple(normalized_shape)
    if not inner:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional")
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.array.shape != inner:
            raise RuntimeError(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of shape "
                f"{list(other.array.shape)} and normalized_shape = {list(inner)}"
            )
    if shape[-len(inner) :] != inner:
        raise RuntimeError(
            f"Given normalized_shape={list(inner)}, expected input with shape "
            f"[*, {', '.join(map(str, inner))}], but got input of size {list(shape)}"
        )
    rows = math.prod(shape[: len(shape) - len(inner)])
    return kind.apply(input, weight, bias, None, None, (rows, math.prod(inner)), (1,), eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """As batch_norm, with means over the last dimensions, and a weight for each of their elements
    (Ba et al., 2016).

    Raises:
        RuntimeError: sizes or types do not fit.
        NotImplementedError: for integers.
    """
    check_types("layer_norm", input, weight, bias)
    return over_last(NativeLayerNorm, input, normalized_shape, weight, bias, eps)


def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """input / sqrt(mean(input^2) + eps) * weight over the last dimensions (Zhang and Sennrich,
    2019). eps is that of the element type if it is None.

    Raises:
        RuntimeError: sizes do not fit.
        NotImplementedError: for integers.
    """
    check_types("rms_norm", input)
    eps = finfo(input.dtype).eps if eps is None else eps
    return over_last(RmsNorm, input, normalized_shape, weight, None, eps)


class NormModule(Module):
    """Base of the layers: weight and bias, or None, and how they are shown."""

    shown = ""  # names of attributes

    def make_affine(self, size: Any, affine: bool, bias: bool, device: Any, dtype: Any) -> None:
        """Makes a weight of ones and a bias of zeros, where they are wanted."""
        for name, make, wanted in (("weight", ones, affine), ("bias", zeros, affine and bias)):
            value = make(size, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if value is None else Parameter(value))

    @no_grad()
    def reset_parameters(self) -> None:
        """Makes the weight 1 and the bias 0 again."""
        for param, value in ((self.weight, 1), (self.bias, 0)):
            if param is not None:
                param.fill_(value)

    def extra_repr(self) -> str:
        values = {name: getattr(self, name) for name in self.shown.split()}
        if "bias" in values:
            values["bias"] = values["bias"] is not None
        return ", ".join(
            str(value) if name.startswith("n") else f"{name}={value}"
            for name, value in values.items()
        )


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
        self.make_affine(self.normalized_shape, elementwise_affine, bias, device, dtype)

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
        ValueError: where num_groups does not divide num_channels.
    """

    shown = "num_groups num_channels eps affine bias"

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(
                f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})"
            )
        self.num_groups, self.num_channels = num_groups, num_channels
        self.eps, self.affine = eps, affine
        self.make_affine(num_channels, affine, bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class _BatchNorm(NormModule):
    """batch_norm, with a weight and a bias for each channel, and running statistics as buffers.

    Without track_running_stats, the statistics are those of the batch in evaluation, too. With
    momentum None the running statistics are the mean of all that were seen.
    Raises:
        ValueError: for an input with another number of dimensions.
    """

    shown = "num_features eps momentum affine bias track_running_stats"
    dims: tuple[int, ...]  # numbers of dimensions that an input may have

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.make_affine(num_features, affine, bias, device, dtype)
        options = {"device": device, "dtype": dtype}
        for name, make in (("running_mean", zeros), ("running_var", ones)):
            self.register_buffer(
                name, make(num_features, **options) if track_running_stats else None
            )
        count = tensor(0, device=device) if track_running_stats else None
        self.register_buffer("num_batches_tracked", count)

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
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / self.num_batches_tracked.item()
        if self.training and not self.track_running_stats:
            running = (None, None)
        training = self.training or self.running_mean is None and self.running_var is None
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
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def forward(self, input: Tensor) -> Tensor:
        self.check_input(input)
        single = input.array.ndim == self.dims[0]
        size = input.array.shape[0 if single else 1]
        if size != self.num_features:
            text = f"input's size at dim={0 if single else 1} does not match num_features: {size}"
            if self.affine:
                raise ValueError(text)
            warnings.warn(text, stacklevel=3)
        y = instance_norm(
            input.unsqueeze(0) if single else input,
            self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self.momentum or 0.0, self.eps,
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
