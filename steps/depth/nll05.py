"""Step nll05: Parameter in the package's dress

Step 41a built Parameter, a tensor that is to be learned. In the package, Parameter(data) shares the
memory of `data` and is a leaf, whatever the history of `data`. It requires a gradient, and prints
its class. A copy of it is a Parameter again, without the gradient. No code uses the class yet; step
module01 does.

The trap: `w = w - 0.1 * w.grad` would make a tensor that is not a Parameter, nor a leaf. Weights
are changed in place, with sub_, and without a record (no_grad).

PyTorch: torch.nn.Parameter.

Changed: a new module, nn/parameter.py. New: Parameter. The demo trains.
Try: Parameter(zeros(n_in, n_out)) for all weights. What does the network learn from there?
"""

import importlib

from tinytorch.core.printing import format_tensor
from tinytorch.core.tensor import Tensor, tensor, wrap

# The other operations are methods of Tensor: importing their modules brings them there.
for name in "arithmetic comparison elementwise indexing matmul reduction shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Parameter(Tensor):
    """A tensor that a Module registers when it becomes one of its attributes.

    `Parameter(data)` shares the memory of the tensor `data`, as a leaf that requires a gradient.
    Raises:
        RuntimeError: for integer data, unless requires_grad=False.
        TypeError: requires_grad is not a bool.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> "Parameter":
        data = tensor([]) if data is None else data
        self = wrap(data.array.view(), data.device, cls)
        return self.requires_grad_(requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        pass  # __new__ has done everything: Tensor's own __init__ would make another array

    def __repr__(self) -> str:
        return "Parameter containing:\n" + format_tensor(self, "tensor")

    def __deepcopy__(self, memo: dict) -> "Parameter":  # without the gradient, as in PyTorch
        return memo.setdefault(id(self), type(self)(self.data.clone(), self.requires_grad))


if __name__ == "__main__":
    import argparse
    import copy
    import time

    from tinytorch.autograd.backward import backward  # noqa: F401  (backward)
    from tinytorch.autograd.modes import no_grad
    from tinytorch.core import memory  # noqa: F401  (keeps freed memory)
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.nll import NllLoss
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.minmax import argmax
    from tinytorch.ops.random import manual_seed, randn, randperm

    flags = argparse.ArgumentParser()
    flags.add_argument("--epochs", type=int, default=20, help="how often to see each digit")
    epochs = flags.parse_args().epochs

    w = Parameter(tensor([1.0, 2.0]) * 2)
    print(w)
    # -> Parameter containing:
    # -> tensor([2., 4.], requires_grad=True)
    print(w.is_leaf, isinstance(w, Tensor), isinstance(w * 2, Parameter), Parameter().shape)
    # -> True True False tinytorch.Size([0])
    w.sum().backward()
    twin = copy.deepcopy(w)
    print(type(twin).__name__, twin.tolist(), twin.grad, copy.deepcopy([w, w])[1].tolist())
    # -> Parameter [2.0, 4.0] None [2.0, 4.0]
    try:
        Parameter(tensor([1, 2]))
    except RuntimeError as error:
        print(error)  # -> only Tensors of floating point dtype can require gradients...

    # Held out: 360 digits, chosen at random.
    manual_seed(0)
    images, labels = load_digits()
    order = randperm(len(labels))
    x, t = images.reshape(-1, 64)[order[360:]], labels[order[360:]]
    x_test, t_test = images.reshape(-1, 64)[order[:360]], labels[order[:360]]

    parameters = []
    for n_in, n_out in ((64, 128), (128, 64), (64, 10)):
        parameters.append(Parameter(randn(n_in, n_out) * (2 / n_in) ** 0.5))
        parameters.append(Parameter(zeros(n_out)))
    print(sum(p.numel() for p in parameters), "numbers to learn")  # -> 17226 numbers to learn

    def network(x):  # [batch, 64] -> [batch, 10]
        w1, b1, w2, b2, w3, b3 = parameters
        return ((x @ w1 + b1).relu() @ w2 + b2).relu() @ w3 + b3

    def cross_entropy(logits, labels):
        return NllLoss.apply(logits, labels, None, "mean", (), False)

    def accuracy(x, labels):
        with no_grad():
            return (argmax(network(x), dim=1) == labels).sum().item() / len(labels)

    before = accuracy(x_test, t_test)
    print("no better than guessing:", before < 0.2)  # -> no better than guessing: True
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in randperm(len(t))[: len(t) // 32 * 32].reshape(-1, 32):
            loss = cross_entropy(network(x[batch]), t[batch])
            loss.backward()
            with no_grad():
                for p in parameters:
                    p.sub_(p.grad, alpha=0.1)
                    p.grad = None
            total += loss.item()
        if epoch in (1, 2, 5) or epoch % 10 == 0:
            mean, right = total / (len(t) // 32), accuracy(x_test, t_test)
            print(f"epoch {epoch:2}   loss {mean:.4f}   held-out digits right: {right:.1%}")
            # -> ...
    print(f"{time.perf_counter() - start:.1f} seconds")  # -> ...
    reached = accuracy(x_test, t_test)
    print("at least 95 % of the held-out digits:", reached >= 0.95)
    # -> at least 95 % of the held-out digits: True
    assert reached >= 0.95, f"only {reached:.1%} of the held-out digits are right"
