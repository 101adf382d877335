"""Step amp11: A training that overflows, skips and recovers

The milestone of this topic: a network learns to read digits (step 40a) three times, from the same
weights: in float32, in mixed precision without a scaler, and with one. The loss is divided by 10
million and the learning rate multiplied by as much, so that this small network has gradients as
small as those of a deep one.

    float32                 for comparison
    mixed, without scaler   runs without an error, and learns nothing: the gradients are 0
    mixed, with scaler      learns as well as float32

The scaler starts with 2**48, far too large. It skips the first steps and halves the scale each
time, until the gradients are finite. After 25 good steps in a row it doubles the scale; when a
gradient overflows, it halves the scale again. The list of scales shows it.

The products of all layers run in float16. The weights, their gradients and the optimizer's state
are float32, so they need as much memory as before. Activations take half the memory, and products
take less time on hardware that multiplies halves. NumPy does not, so here mixed precision is
slower.

New: nothing in the framework.
Try: divide the loss by 10 instead, with a learning rate of 2. Which scale does the scaler find? Is
a scaler needed at all?"""

import importlib
import math

from tinytorch.amp.autocast_mode import autocast
from tinytorch.amp.grad_scaler import GradScaler
from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.dtype import float16
from tinytorch.datasets.digits import load_digits
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.ops.random import manual_seed
from tinytorch.optim.sgd import SGD

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    images, labels = load_digits()
    images = images.flatten(1)
    test_images, test_labels = images[1500:], labels[1500:]

    def train(mixed, scaler):
        """The scales after each step, how often a step was skipped, and the share read rightly."""
        manual_seed(0)
        model = Sequential(Linear(64, 32), ReLU(), Linear(32, 10))
        optimizer, scales, skipped = SGD(model.parameters(), lr=2e6), [], 0
        for number in range(150):
            batch = slice(number % 15 * 100, number % 15 * 100 + 100)
            optimizer.zero_grad()
            with autocast("cpu", float16, enabled=mixed):
                loss = cross_entropy(model(images[batch]), labels[batch]) / 1e7
            before = scaler.get_scale()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            skipped += scales[-1] < before
        right = (model(test_images).argmax(1) == test_labels).float().mean().item()
        zeros = (model[0].weight.grad == 0).float().mean().item()
        print(
            f"read rightly: {right:.2f}   zeros in the gradient: {zeros:.2f}   skipped: {skipped}"
        )
        # -> read rightly: 0.86   zeros in the gradient: 0.32   skipped: 0
        # -> read rightly: 0.10   zeros in the gradient: 1.00   skipped: 0
        # -> read rightly: 0.86   zeros in the gradient: 0.32   skipped: 11
        return scales

    off = GradScaler("cpu", enabled=False)
    train(False, off)
    train(True, off)
    scales = train(True, GradScaler("cpu", 2.0**48, growth_interval=25))

    before = 2.0**48
    for number, scale in enumerate(scales):
        if scale != before:
            what = "skipped" if scale < before else "grown"
            print(f"step {number:3}: 2**{math.log2(scale):.0f}", what)
            # -> step   0: 2**47 skipped
            # -> step   1: 2**46 skipped
            # -> step   2: 2**45 skipped
            # -> step   3: 2**44 skipped
            # -> step   4: 2**43 skipped
            # -> step  29: 2**44 grown
            # -> step  30: 2**43 skipped
            # -> step  33: 2**42 skipped
            # -> step  58: 2**43 grown
            # -> step  60: 2**42 skipped
            # -> step  85: 2**43 grown
            # -> step  88: 2**42 skipped
            # -> step  90: 2**41 skipped
            # -> step 115: 2**42 grown
            # -> step 120: 2**41 skipped
            # -> step 145: 2**42 grown
        before = scale
