"""Step 86d: BatchNorm1d, a layer that counts batches

Every call of step 86c had to be told four tensors and whether it was training. A module keeps them:

    weight, bias                 parameters, which the optimizer changes
    running_mean, running_var    buffers (step 71c): saved and moved with the module, not trained
    num_batches_tracked          a buffer, too: how many batches the averages have seen
    training                     what train() and eval() set in every module (step 71c)

The count serves momentum=None: then batch number k moves the averages by 1 / k of the way, which
makes them the plain mean of all batches. That suits a pass over the data at the end of training;
during it, the first batches would weigh as much as the last.

The trap is the best known one of this layer: eval() is forgotten. The network works, and its
answers depend on which rows come together. The demo asks for the same digit among other rows.
The opposite happens too: a few batches of training are not enough for the averages (with momentum
0.1, a tenth of what they began with is left after 22), and eval() is worse than train().

With track_running_stats=False there are no averages, and the batch is used in evaluation as well.

Changed: weight and bias may be None (affine=False). New: NormModule, BatchNorm1d.
Try: leave out model.eval() before `whole` in the demo.
"""

import importlib
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.core.version import bump_version
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.reduction import Mean

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Normalization(Function):
    """y = h w + b with h = (x - m) r: m is the mean, r = 1 / sqrt(v + eps), v the variance.

        dL/dx = r (e - mean(e) - h mean(e h)), e = g w;   dL/dw = sum of g h;   dL/db = sum of g

    Means are taken over `dims`.
    """

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        ctx.dims, ctx.eps = dims, eps
        ctx.fixed = momentum is None and running_mean is not None
        m, v = (running_mean, running_var) if ctx.fixed else ctx.moments(x)
        if momentum is not None:
            n = x.size // m.size
            ctx.track(running_mean, m, momentum)
            ctx.track(running_var, v * (n / max(n - 1, 1)), momentum)
        r = 1 / ctx.xp.sqrt(v + eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        h = (x - m) * r
        h = h if weight is None else h * weight
        return h if bias is None else h + bias

    def moments(ctx, x: Any) -> tuple:
        """Mean and variance."""
        m = ctx.means(x)
        return m, ctx.means(ctx.xp.square(x - m))

    def track(ctx, running: Any, value: Any, momentum: float) -> None:
        """Moves `running`, in place, towards the value of the batch."""
        if running is not None:
            value = value.reshape(-1) - running
            running += momentum * value
            bump_version(running)

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        if not ctx.fixed:
            m, v = ctx.moments(x)  # again: on Tensors, they have a derivative
            r = 1 / ctx.xp.sqrt(v + ctx.eps)
        h = (x - m) * r
        e = g if weight is None else g * weight
        if not ctx.fixed:
            e = e - ctx.means(e) - h * ctx.means(e * h)
        gw = None if weight is None else ctx.call(SumTo, g * h, weight.shape)
        return r * e, gw, None if bias is None else ctx.call(SumTo, g, bias.shape)

    def means(ctx, x: Any) -> Any:
        """The means over `dims`, of size 1 there."""
        return ctx.call(Mean, x, ctx.dims, True)


class NativeBatchNorm(Normalization):
    """Means over the batch: [n, channels] has one mean for each channel."""


def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    weight: Tensor | None = None, bias: Tensor | None = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """(input - mean) / sqrt(var + eps) * weight + bias, for each channel of [n, channels].

    In training, mean and var (divided by the count n) are those of the batch, and the running ones
    are moved towards them (there var is divided by n - 1); otherwise they are the running ones.
    Source: Ioffe and Szegedy, 2015.
    """
    momentum = momentum if training else None
    running = running_mean, running_var
    return NativeBatchNorm.apply(input, weight, bias, *running, (0,), eps, momentum)


class NormModule(Module):
    """Base of the layers: weight and bias, or None."""

    def make_affine(self, size: Any, affine: bool, bias: bool, options: dict) -> None:
        """Makes a weight of ones and a bias of zeros, where they are wanted."""
        self.register_parameter("weight", Parameter(ones(size, **options)) if affine else None)
        bias = affine and bias
        self.register_parameter("bias", Parameter(zeros(size, **options)) if bias else None)


class _BatchNorm(NormModule):
    """batch_norm, with a weight and a bias for each channel, and running statistics as buffers.

    Without track_running_stats, the statistics are those of the batch in evaluation, too. With
    momentum None the running ones are the mean of all that were seen.
    """

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

    def forward(self, input: Tensor) -> Tensor:
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
    """Batches of channels, [n, c]."""


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.activation import ReLU
    from tinytorch.nn.class_loss import cross_entropy
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Linear
    from tinytorch.ops.random import manual_seed, randint, randn
    from tinytorch.optim.sgd import SGD

    manual_seed(0)
    layer = BatchNorm1d(2)
    for name, value in layer.state_dict().items():
        print(f"{name:19} {value.tolist()}")
    # -> weight              [1.0, 1.0]
    # -> bias                [0.0, 0.0]
    # -> running_mean        [0.0, 0.0]
    # -> running_var         [1.0, 1.0]
    # -> num_batches_tracked 0
    batches = [randn(8, 2) + 5 for _ in range(3)]
    average = BatchNorm1d(2, momentum=None)
    for batch in batches:
        layer(batch)
        average(batch)
    mean = sum(batch.mean(0) for batch in batches) / 3
    print("momentum 0.1: ", [round(v, 3) for v in layer.running_mean.tolist()])
    # -> momentum 0.1:  [1.316, 1.369]
    print("momentum None:", [round(v, 3) for v in average.running_mean.tolist()])
    # -> momentum None: [4.86, 5.041]
    print("mean of all:  ", [round(v, 3) for v in mean.tolist()])  # -> mean of all:   [4.86, 5.041]
    print(average.num_batches_tracked)  # -> tensor(3)

    # Without averages, or without weight and bias.
    bare = BatchNorm1d(2, affine=False, track_running_stats=False)
    print(dict(bare.state_dict()), bare.weight, bare.running_mean)  # -> {} None None
    x = batches[0].clone().requires_grad_()
    bare(x).square().sum().backward()
    print((bare.eval()(x) - bare.train()(x)).abs().max().item())  # -> 0.0

    images, labels = load_digits()
    images = images.flatten(1)
    model = Sequential(
        Linear(64, 32, bias=False), BatchNorm1d(32), ReLU(),
        Linear(32, 32, bias=False), BatchNorm1d(32), ReLU(), Linear(32, 10),
    )  # fmt: skip
    optimizer = SGD(model.parameters(), lr=0.1)
    for _ in range(150):
        rows = randint(0, 1437, (64,))
        loss = cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    test, truth = images[1437:], labels[1437:]
    with no_grad():
        among_first, among_last = model(test[:20])[0], model(test[[0, *range(-19, 0)]])[0]
        print("training: answers differ by", f"{(among_first - among_last).abs().max().item():.2f}")
        # -> training: answers differ by 2.26
        model.eval()
        whole, single = model(test), model(test[:1])
        print("eval:     answers differ by", f"{(whole[0] - single[0]).abs().max().item():.5f}")
        # -> eval:     answers differ by 0.00000
        print("right:", f"{(whole.argmax(1) == truth).float().mean().item():.3f}")
        # -> right: 0.936
