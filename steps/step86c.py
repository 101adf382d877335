"""Step 86c: Weights of one byte, and a scale for each row

A layer that gets one example waits for its weights (step 86b). Can a weight be one byte? An int8
holds the whole numbers from -128 to 127. Weights lie between -1 and 1: rounded, all would be 0.
What is missing is a unit:

    scale = largest |w| / 127        q = round(w / scale), an int8        w is nearly q * scale

The error is at most half of a scale. With one scale for the whole matrix, a single large weight
makes it large for all: the smallest row of the demo is off by 0.8 of its largest weight. With a
scale for each row, which costs four bytes, all are off by 0.004.

The scale of a row of the weight belongs to a column of the result, and can be multiplied there:

    y = (x @ q.T) * scale.T + bias

It is done after training, for the gradient of round() is 0. NumPy needs a float32 copy first, and
gains no time; a kernel of a GPU converts each number after it was read.

The trap is a row of zeros. Its scale would be 0, and 0 / 0 is nan; so a scale is at least 1e-12.

PyTorch: the package torchao.

New: quantize_rows, Int8Linear.
Try: write 7 instead of 127, as for weights of four bits. How large is the error of the layer?
"""

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.core.dtype import int8
from tinytorch.core.tensor import tensor
from tinytorch.nn.functional import linear  # noqa: F401 (gives Tensor its methods)
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.ops.random import manual_seed, randn


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


if __name__ == "__main__":
    manual_seed(0)
    layer = Linear(256, 4)
    w = layer.weight.detach()
    w *= tensor([[10.0], [1.0], [0.1], [0.05]])  # rows of different size

    def print_errors(q, scale):
        error = (q * scale - w).abs().amax(1) / w.abs().amax(1)
        print("largest error of each row", [round(e, 3) for e in error.tolist()])

    scale = w.abs().max() / 127
    print_errors((w / scale).round(), scale)
    # -> largest error of each row [0.004, 0.039, 0.391, 0.785]
    q, scale = quantize_rows(w)
    print_errors(q, scale)
    # -> largest error of each row [0.004, 0.004, 0.004, 0.004]
    print("bytes:", w.nbytes, "and", q.nbytes + scale.nbytes)  # -> bytes: 4096 and 1040

    x = randn(100, 256)
    exact, found = layer(x), Int8Linear(layer)(x)
    error = ((found - exact).square().mean() / exact.square().mean()).sqrt().item()
    print(f"error of the layer: {100 * error:.1f} %")  # -> error of the layer: 0.4 %
