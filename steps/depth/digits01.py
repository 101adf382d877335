"""Step digits01: The digits, and a network from finished operations

Step 40a read 1,797 digits with the sketches of stage 6. `load_digits` is its loader in the
package's dress. The demo trains a network of two hidden layers with the finished operations of the
runs so far, without modules and optimizers: a test of all of them at once.

The trap: which digits are held out decides what is measured. Here 360 are drawn at random, so that
the network has seen digits by the same writers; step 49 holds out writers.

Changed: a new module, datasets/digits.py. New: load_digits. The demo trains.
Try: leave out `p.grad = None`. The gradients of all steps so far pile up: watch the loss.
"""

import gzip
import importlib
from pathlib import Path

import numpy as np

from tinytorch.core import tensor as neighbour
from tinytorch.core.tensor import Tensor, from_numpy

# The other operations are methods of Tensor: importing their modules brings them there.
for name in "arithmetic comparison elementwise indexing matmul reduction shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# The data lie beside the package's modules. Any of them tells where that is.
data_folder = Path(neighbour.__file__).parent.parent / "datasets"


def load_digits() -> tuple[Tensor, Tensor]:
    """All digits: images of shape [1797, 8, 8], float32 from 0 to 1, and labels [1797], int64."""
    with gzip.open(data_folder / "digits.csv.gz", "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 8, 8)
    return from_numpy(images), from_numpy(table[:, 64].copy())


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.autograd.modes import no_grad
    from tinytorch.ops.creation import arange, zeros
    from tinytorch.ops.minmax import argmax
    from tinytorch.ops.random import manual_seed, randn, randperm
    from tinytorch.ops.softmax import log_softmax

    images, labels = load_digits()
    print(images.shape, images.dtype)  # -> tinytorch.Size([1797, 8, 8]) tinytorch.float32
    print("of each digit", [int((labels == digit).sum()) for digit in range(10)])
    # -> of each digit [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    for row in images[3].tolist():
        print("".join(" .:-=+*#%@"[int(pixel * 9)] for pixel in row))  # -> ...
    print("this one is a", labels[3].item())  # -> this one is a 3

    # Held out: 360 digits, chosen at random.
    manual_seed(0)
    order = randperm(len(labels))
    x, t = images.reshape(-1, 64)[order[360:]], labels[order[360:]]
    x_test, t_test = images.reshape(-1, 64)[order[:360]], labels[order[:360]]

    parameters = []
    for n_in, n_out in ((64, 128), (128, 64), (64, 10)):
        parameters.append((randn(n_in, n_out) * (2 / n_in) ** 0.5).requires_grad_())
        parameters.append(zeros(n_out, requires_grad=True))
    print(sum(p.numel() for p in parameters), "numbers to learn")  # -> 17226 numbers to learn

    def network(x):  # [batch, 64] -> [batch, 10]
        w1, b1, w2, b2, w3, b3 = parameters
        return ((x @ w1 + b1).relu() @ w2 + b2).relu() @ w3 + b3

    def cross_entropy(logits, labels):
        return -log_softmax(logits, dim=1)[arange(len(labels)), labels].mean()

    def accuracy(x, labels):
        with no_grad():
            return (argmax(network(x), dim=1) == labels).sum().item() / len(labels)

    print(f"before training: {accuracy(x_test, t_test):.0%} are right")  # -> ...
    for epoch in range(1, 4):
        total = 0.0
        for batch in randperm(len(t))[: len(t) // 32 * 32].reshape(-1, 32):
            loss = cross_entropy(network(x[batch]), t[batch])
            loss.backward()
            with no_grad():
                for p in parameters:
                    p.sub_(p.grad, alpha=0.1)
                    p.grad = None
            total += loss.item()
        right = accuracy(x_test, t_test)
        print(f"epoch {epoch}   loss {total / (len(t) // 32):.2f}   right: {right:.1%}")  # -> ...
    print("at least 85 %:", right >= 0.85)  # -> at least 85 %: True
