"""Step norm13: BatchNorm1d in the package's dress: a count of batches

Step 52b built the layer: weight and bias are parameters, the averages are buffers. Here it gets a
third buffer, num_batches_tracked, and options.

The count serves momentum=None: then batch number k moves the averages by 1 / k of the way, which
makes them the plain mean of all batches. That suits a pass over the data at the end of training;
during it, the first batches would weigh as much as the last.

The trap is the best known one of this layer: eval() is forgotten. The opposite happens, too: after
a few batches of training the averages still show what they began with (a tenth of it after 22
batches, with momentum 0.1), and eval() is worse than train().

With track_running_stats=False there are no averages, and the batch is used in evaluation as well.

New: NormModule, BatchNorm1d. Moved: the functions, to tinytorch/ops/normalization.py.
Try: leave out model.eval() in the demo.
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import ones, zeros
from tinytorch.ops.normalization import batch_norm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
    """Batches of channels, [n, c], or of sequences, [n, c, length]."""


if __name__ == "__main__":
    from tinytorch.autograd.modes import no_grad
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
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
    print("batches:", average.num_batches_tracked.item())  # -> batches: 3

    # Without averages, without weight and bias.
    bare = BatchNorm1d(2, affine=False, track_running_stats=False)
    print(dict(bare.state_dict()), bare.weight, bare.running_mean)  # -> {} None None
    trained, used = bare(batches[0]), bare.eval()(batches[0])
    print((trained - used).abs().max().item())  # -> 0.0

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
        first, last = model(test[:20])[0], model(test[[0, *range(-19, 0)]])[0]
        print(f"training: answers differ by {(first - last).abs().max():.2f}")
        # -> ...
        model.eval()
        whole, single = model(test), model(test[:1])
        print(f"eval:     answers differ by {(whole[0] - single[0]).abs().max():.4f}")
        # -> eval:     answers differ by 0.0000
        print(f"right: {(whole.argmax(1) == truth).float().mean():.2f}")  # -> ...
