"""Step optimizer01: Optimizer and SGD in the package's dress

Step 45a built them: the base class holds the parameters, zero_grad clears, step calls update, and a
subclass is a rule. Here step runs under no_grad and passes only parameters that have a gradient; a
base class without a rule says so.

Along a direction of curvature c, the distance from the minimum becomes

    (1 - lr * c) times itself         so lr must stay below 2 / c for the steepest direction

The trap: `model.parameters()` is a generator. After one loop it is empty, so we make a list of it.

Changed: Optimizer, SGD. New: Optimizer.update.
Try: self.params = params. Which promise of the demo breaks, and why only this one?
"""

import importlib
from collections.abc import Iterable

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class Optimizer:
    """Base of all optimizers: it holds the parameters, a subclass says how they move."""

    def __init__(self, params: Iterable):
        self.params = list(params)  # model.parameters() can be walked only once

    def zero_grad(self) -> None:
        """Forgets the gradients."""
        for param in self.params:
            param._grad = None

    def step(self) -> None:
        """Moves the parameters once, along the gradients that they have now."""
        with no_grad():
            self.update([param for param in self.params if param._grad is not None])

    def update(self, params: list[Tensor]) -> None:
        """Moves these parameters. Subclasses write it, or a `step` of their own."""
        raise NotImplementedError(f"{type(self).__name__} has no update")


class SGD(Optimizer):
    """p = p - lr * gradient."""

    def __init__(self, params: Iterable, lr: float = 1e-3):
        super().__init__(params)
        self.lr = lr

    def update(self, params: list[Tensor]) -> None:
        for param in params:
            param -= self.lr * param.grad


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import mse_loss
    from tinytorch.ops.random import manual_seed, rand, randn

    # The two mistakes. The line y = 3 x + 2 through a hundred noisy points is to be found.
    manual_seed(0)
    x = rand(100, 1)
    y = 3 * x + 2 + 0.1 * randn(100, 1)
    model = Linear(1, 1)
    mse_loss(model(x), y).backward()
    try:
        for p in model.parameters():
            p -= 0.5 * p.grad
    except RuntimeError as error:
        print(str(error).split(" that")[0])  # -> a leaf Variable

    def descend(clear):
        """The loss after fifty steps."""
        model = Linear(1, 1)
        for _ in range(50):
            loss = mse_loss(model(x), y)
            loss.backward()
            with no_grad():
                for p in model.parameters():
                    p -= 0.5 * p.grad
                    if clear:
                        p.grad = None
        return loss.item()

    print(f"cleared {descend(True):.2f}, not cleared {descend(False):.2f}")  # -> ...
    print("not cleared is worse:", descend(False) > 20 * descend(True))
    # -> not cleared is worse: True

    # One step by hand: the point (2, 8), and the line y = w x + b with w = 1 and b = 0.
    w, b = tensor(1.0, requires_grad=True), tensor(0.0, requires_grad=True)
    ((w * 2.0 + b - 8.0) ** 2).backward()
    print("gradients", w.grad.item(), b.grad.item())  # -> gradients -24.0 -12.0
    print(f"by hand w = {1.0 - 0.125 * -24.0}, b = {0.0 - 0.125 * -12.0}")
    # -> by hand w = 4.0, b = 1.5
    SGD([w, b], lr=0.125).step()
    print("by step w =", w.item(), "and b =", b.item())  # -> by step w = 4.0 and b = 1.5

    # The line, with an optimizer.
    optimizer = SGD(model.parameters(), lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    slope, offset = model.weight.item(), model.bias.item()
    print("found 3 and 2:", abs(slope - 3) < 0.1, abs(offset - 2) < 0.1)
    # -> found 3 and 2: True True

    # A frozen layer gets no gradient, and a step leaves it as it is.
    frozen, trained = Linear(2, 2).requires_grad_(False), Linear(2, 1)
    optimizer = SGD([*frozen.parameters(), *trained.parameters()], lr=0.1)
    before = [p.detach().clone() for p in (frozen.weight, trained.weight)]
    trained(frozen(randn(8, 2))).square().mean().backward()
    optimizer.step()
    pairs = zip((frozen.weight, trained.weight), before, strict=True)
    print("moved:", [bool((p != q).any()) for p, q in pairs])  # -> moved: [False, True]

    # The rate and the curvature: x^2 has curvature 2, so one step multiplies x by 1 - 2 lr.
    for lr in (0.1, 0.5, 0.9, 1.1):
        p = tensor([1.0], requires_grad=True)
        optimizer = SGD([p], lr)
        for _ in range(10):
            optimizer.zero_grad()
            (p**2).sum().backward()
            optimizer.step()
        print(f"lr {lr}: ten steps leave {p.item():.4f}, expected {(1 - 2 * lr) ** 10:.4f}")
    # -> lr 0.1: ten steps leave 0.1074, expected 0.1074
    # -> lr 0.5: ten steps leave 0.0000, expected 0.0000
    # -> lr 0.9: ten steps leave 0.1074, expected 0.1074
    # -> lr 1.1: ten steps leave 6.1917, expected 6.1917

    try:
        p.grad = tensor([1.0])
        Optimizer([p]).step()
    except NotImplementedError as error:
        print(error)  # -> Optimizer has no update
