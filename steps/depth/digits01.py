"""Step digits01: A network that reads digits, from finished operations

Everything is there: tensors that differentiate themselves, products, reductions, indexing, random
numbers. This step puts them to work on 1,797 digits, written by hand and scanned at 8 by 8 pixels
each. (Step 40a read them with the sketches of stage 6.) A network of two hidden layers

    h1 = relu(x W1 + b1)      h2 = relu(h1 W2 + b2)      logits = h2 W3 + b3

gives ten numbers for an image, one for each digit. The loss is the cross entropy: the mean of -log
p, where p is the probability that the network gave to the right digit. Then come the four actions
that every training loop repeats: forward, backward, a step against the gradient, clear the
gradient.

Did the network learn, or only memorize? 360 digits are held out, and it never sees them in
training. Only the accuracy on these counts.

The trap: weights that start at 0 would all stay equal (step 39c). They start at random, with the
standard deviation sqrt(2 / inputs): large enough that a signal neither dies out nor explodes on its
way through relu (He et al., 2015). Biases start at zero.

(In PyTorch this loop looks the same. Its nn and optim shorten it; steps module01 to func13 build
them.)

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
    from tinytorch.ops.extremes import argmax
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
