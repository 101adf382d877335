"""Step norm01: Batch normalisation in the package's dress: a function

Step 52a built batch normalisation as a module: mean 0 and spread 1 for each channel of the batch,
then weight and bias. PyTorch has a function beneath its module, and this run builds it first, for a
batch [n, channels]:

    y = (x - mean) / sqrt(var + eps) * weight + bias

The demo trains thirty layers that see nothing without it. It also multiplies all weights by 100: if
a normalisation follows a layer, their scale does not matter. Its bias does not matter either, as it
is subtracted with the mean, so such layers are made without one.

The trap: the variance is divided by n, not by n - 1 as in Tensor.var.

New: batch_norm. PyTorch's function of this name takes more arguments; step norm03 adds them.
Try: multiply the weights of the demo's plain network by 3 before it is trained. What is the loss?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def batch_norm(input: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(input - mean) / sqrt(var + eps) * weight + bias, for each channel of [n, channels]."""
    c = input - input.mean(0, True)
    var = c.square().mean(0, True)
    return c / (var + eps).sqrt() * weight + bias


if __name__ == "__main__":
    import math

    from tinytorch.autograd.modes import no_grad
    from tinytorch.core.tensor import tensor
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.creation import ones, zeros
    from tinytorch.ops.random import manual_seed, randint
    from tinytorch.optim.sgd import SGD

    # A column of 1, 2, 3: its mean is 2, its variance 2/3.
    column = tensor([[1.0], [2.0], [3.0]])
    print(batch_norm(column, ones(1), zeros(1)).flatten().tolist())
    # -> [-1.2247356176376343, 0.0, 1.2247356176376343]

    images, labels = load_digits()
    images = images.flatten(1)

    class Deep:
        """Thirty layers with relu, then one for the ten digits."""

        def __init__(self, normalised):
            manual_seed(0)
            self.layers = [Linear(64, 64) for _ in range(30)]
            self.last, self.normalised = Linear(64, 10), normalised
            self.weight, self.bias = ones(64), zeros(64)

        def forward(self, x, seen=None):
            for layer in self.layers:
                x = layer(x)
                if self.normalised:
                    x = batch_norm(x, self.weight, self.bias)
                if seen is not None:
                    seen.append(x.std(0).mean().item())
                x = x.relu()
            return self.last(x)

    def show(title, model):
        seen = []
        with no_grad():
            model.forward(images[:128], seen)
        print(f"{title:22}", *(f"{seen[i]:9.6f}" for i in (0, 9, 19, 29)))

    plain, normalised = Deep(False), Deep(True)
    print("between the pictures, layer    1        10        20        30")
    show("as it is", plain)  # -> as it is                0.152164  0.000039  0.000000  0.000000
    show(
        "normalised", normalised
    )  # -> normalised              1.003681  1.003883  1.003887  1.003888
    for model in (plain, normalised):
        for layer in model.layers:
            layer.weight.data *= 100
    show("weights times 100", plain)  # -> ...
    show("the same, normalised", normalised)
    # -> the same, normalised    1.003929  1.003929  1.003929  1.003929

    def train(model):
        params = [p for layer in (*model.layers, model.last) for p in layer.parameters()]
        optimizer = SGD(params, lr=0.1)
        manual_seed(1)
        for _ in range(30):
            rows = randint(0, len(images), (64,))
            loss = cross_entropy(model.forward(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.item()

    print(f"log(10) is {math.log(10):.2f}")  # -> log(10) is 2.30
    print(f"loss after 30 steps: {train(Deep(False)):.2f}")  # -> loss after 30 steps: 2.30
    loss = train(Deep(True))
    print(f"the same, normalised: {loss:.2f}, it learns: {loss < 2}")
    # -> the same, normalised: ..., it learns: True
