"""Step loss10: Cross entropy for users

Step 40b built cross entropy, and step nll02 has its node in the package's dress. cross_entropy is
the function for users, and CrossEntropyLoss its module; options follow one by one.

The trap: cross_entropy expects logits. With a Softmax layer before it, the softmax is applied
twice. The loss goes down, but not near 0: at best the "logits" are 1, 0, 0, and the loss is 0.55.
And the gradients are small. (PyTorch: F.cross_entropy and nn.CrossEntropyLoss, with the same trap.)

New: cross_entropy, CrossEntropyLoss. Moved: the losses of steps loss01 to loss09, to
tinytorch/nn/loss.py.
Try: in step nll05 give NllLoss the logits.softmax(1), and compare the digits after 20 epochs.
"""

import importlib

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.loss import LossModule, check_reduction
from tinytorch.ops.nll import NllLoss

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def cross_entropy(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """-log of the probability that softmax(input) gives to the right class.

    Args:
        input: [n, c]: any numbers, the higher the more probable.
        target: [n]: classes.
    """
    reduction = check_reduction(reduction)
    return NllLoss.apply(input, target, None, reduction, target.array.shape, False)


class CrossEntropyLoss(LossModule, function=cross_entropy):
    """cross_entropy as a module."""


if __name__ == "__main__":
    from tinytorch.ops.nll import one_hot

    importlib.import_module("tinytorch.core.printing")
    # Three rows of logits, and the right classes.
    x = tensor([[2.0, 1.0, 0.0], [0.0, 5.0, 0.0], [1.0, 0.0, 3.0]], requires_grad=True)
    target = tensor([0, 1, 0])

    losses = cross_entropy(x, target, reduction="none")
    print(losses.detach())  # -> tensor([0.4076, 0.0134, 2.1698])
    losses.sum().backward()
    print(x.grad)
    # -> tensor([[-0.3348,  0.2447,  0.0900],
    # ->         [ 0.0066, -0.0133,  0.0066],
    # ->         [-0.8858,  0.0420,  0.8438]])
    said, true = x.detach().softmax(1), one_hot(target, 3)
    print("said minus true:", (x.grad - (said - true)).abs().max().item() < 1e-6)
    # -> said minus true: True

    # Large numbers, in float32.
    large = tensor([[1000.0, 0.0, -1000.0]])
    with np.errstate(over="ignore", invalid="ignore"):
        powers = large.exp()
        print("as written:", -(powers / powers.sum()).log()[0, 0].item())
    # -> as written: nan
    for right in (0, 2):
        print("cross_entropy:", CrossEntropyLoss()(large, tensor([right])).item())
    # -> cross_entropy: 0.0
    # -> cross_entropy: 2000.0

    # The softmax taken twice.
    sure, right = tensor([[20.0, 0.0, 0.0]]), tensor([0])
    for logits in (sure, sure.softmax(1)):
        print(f"sure and right: {cross_entropy(logits, right).item():.4f}")
    # -> sure and right: 0.0000
    # -> sure and right: 0.5514
