"""Step 86d: Digits from a small file

Does a network still read when its weights are whole numbers? A layer was off by half a percent in
step 86c, but a network has several layers, and what counts is whole answers. So measure it: the
demo trains a network on the digits of some writers, replaces each Linear by an Int8Linear, and lets
both read 397 digits of others.

quantize walks through the children of a module (step 41c). The weights and scales are buffers, so
state_dict() has all that a file needs: it is a fourth as large. An answer can change only where the
two best classes were nearly equal; here none or very few do.

The trap: weights are not all. What one layer hands to the next is float32 as before.

You can now say of a program where its time and memory go, and how far it is from the machine's
limits, and make it smaller or faster: compute again, halves, bytes. What PyTorch has and you have
not: kernels that multiply halves and bytes faster, on many kinds of hardware; the GPU's own clocks
in its profiles; weights of four bits, and activations of one byte.

New: quantize.
Try: 7 instead of 127, and then 1, which leaves weights of -1, 0 and 1. How many are right?
"""

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.core.dtype import int8
from tinytorch.core.tensor import tensor
from tinytorch.nn.functional import cross_entropy
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.ops.random import manual_seed
from tinytorch.optim.adam import Adam


def quantize_rows(weight):
    """The rows as whole numbers from -127 to 127, and the scale of each."""
    scale = (weight.abs().amax(1, keepdim=True) / 127).clamp(min=1e-12)
    return (weight / scale).round().to(int8), scale


class Int8Linear(Module):
    """A Linear whose weights take one byte each. It does not learn any more."""

    def __init__(self, layer):
        super().__init__()
        weight, scale = quantize_rows(layer.weight.detach())
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", layer.bias.detach())

    def forward(self, x):
        return (x @ self.weight.to(x.dtype).T) * self.scale.T + self.bias


def quantize(module):
    """The module itself, with an Int8Linear in the place of each Linear."""
    for name, child in module.named_children():
        setattr(module, name, Int8Linear(child) if isinstance(child, Linear) else quantize(child))
    return module


if __name__ == "__main__":
    from tinytorch.datasets.digits import load_digits

    images, labels = (tensor(part.numpy()) for part in load_digits())
    known, others = images[:1400].flatten(1), images[1400:].flatten(1)
    manual_seed(0)
    model = Sequential(Linear(64, 128), ReLU(), Linear(128, 10))
    optimizer = Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        optimizer.zero_grad()
        cross_entropy(model(known), labels[:1400]).backward()
        optimizer.step()

    def report(name):
        size = sum(value.nbytes for value in model.state_dict().values())
        answers = model(others).argmax(1)
        right = (answers == labels[1400:]).sum().item()
        print(f"{name:7} {size:6,} bytes, {right} of 397 right")
        return answers

    before = report("float32")  # -> float32 38,440 bytes, ... of 397 right
    quantize(model)
    after = report("int8")  # -> int8    10,576 bytes, ... of 397 right
    print("fewer than 4 answers change:", (before != after).sum().item() < 4)
    # -> fewer than 4 answers change: True
    print("it reads", after[:4].tolist(), "and they are", labels[1400:1404].tolist())
    # -> it reads [2, 8, 2, 2] and they are [2, 8, 2, 2]
