"""Step ddp01: Averaged gradients, with process groups

Step 95a averaged the gradients of two ranks, and they equal one with the whole batch. Here
average_gradients uses the process groups of the run group. The demo trains a network in one process
and in two and in four, with the batch divided: the losses and the weights agree to rounding.

The trap: the mean of means is the mean only if the shares are equally large. With shares of 3 and 1
samples, the single one counts three times as much as each of the others.

Changed: average_gradients.
Try: forget the division. Adam hardly notices: why? Then take SGD instead.
"""

import importlib
from collections.abc import Iterable

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.distributed.collectives import all_reduce
from tinytorch.distributed.group import get_world_size

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def average_gradients(params: Iterable[Tensor]) -> None:
    """Makes each gradient the mean of the gradients of all processes."""
    for param in params:
        all_reduce(param.grad)
        param.grad.mul_(1 / get_world_size())


if __name__ == "__main__":
    from tinytorch.datasets.digits import load_digits
    from tinytorch.distributed.group import get_rank, init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.ops.random import manual_seed
    from tinytorch.optim.adam import Adam

    images, labels = load_digits()
    images = images.flatten(1)

    def network():
        manual_seed(0)
        return Sequential(Linear(64, 32), ReLU(), Linear(32, 10))

    def train(averaged):
        """Ten steps with batches of 64, of which this process takes its share."""
        init_process_group("mpi")
        rank, size = get_rank(), get_world_size()
        model = network()
        optimizer = Adam(model.parameters(), lr=0.01)
        for step in range(10):
            share = slice(64 * step + 64 // size * rank, 64 * step + 64 // size * (rank + 1))
            loss = cross_entropy(model(images[share]), labels[share])
            optimizer.zero_grad()
            loss.backward()
            if averaged:
                average_gradients(model.parameters())
            optimizer.step()
        all_reduce(loss)
        return model[0].weight, loss.item() / size

    def difference(a, b):
        return (a - b).abs().max().item()

    one, loss = simulate(1, train, False)[0]
    print(f"one process: loss {loss:.4f}")  # -> one process: loss 1.9522
    (a, _), (b, _) = simulate(2, train, False)
    print(f"two that do not talk: they differ by {difference(a, b):.2f}")
    # -> two that do not talk: they differ by 0.14
    for size in (2, 4):
        results = simulate(size, train, True)
        weights, losses = zip(*results, strict=True)
        same = max(difference(w, weights[0]) for w in weights) == 0
        right = difference(weights[0], one) < 1e-5
        print(f"{size} processes: loss {losses[0]:.4f}, all equal: {same}, equal to one: {right}")
    # -> 2 processes: loss 1.9522, all equal: True, equal to one: True
    # -> 4 processes: loss 1.9522, all equal: True, equal to one: True

    def gradient(shares):
        """Of the first four digits, in shares of these sizes."""
        init_process_group("mpi")
        start, size = sum(shares[: get_rank()]), shares[get_rank()]
        model = network()
        cross_entropy(model(images[start : start + size]), labels[start : start + size]).backward()
        average_gradients(model.parameters())
        return model[0].weight.grad

    whole = simulate(1, gradient, [4])[0]
    for shares in ([2, 2], [3, 1]):
        error = difference(simulate(2, gradient, shares)[0], whole)
        print(f"shares {shares}: the gradient is wrong by {error:.3f}")
    # -> shares [2, 2]: the gradient is wrong by 0.000
    # -> shares [3, 1]: the gradient is wrong by 0.049
