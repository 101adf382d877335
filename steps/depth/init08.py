"""Step init08: An autoencoder, from finished modules

Step 54b built an autoencoder: the target of a network is its input, and all that the second half
knows about an image comes through the 8 numbers in the middle, the code. Here it is made of the
modules, the losses and the initialisation of the runs module to init, and compared with the mean
image, the best guess without a code.

A sigmoid at the end gives pixels between 0 and 1. The code has no sigmoid: its slope is at most
1/4, so the encoder would learn slowly. The demo tries both.

The trap: a code as wide as the image learns to copy. The error becomes small, and the code says
nothing.

Moved: tinytorch/nn/prelu.py. The demo trains.
Try: --draw shows the digits and what the autoencoder makes of them. Or put a PReLU (from
tinytorch.nn.prelu) in place of each ReLU, and compare the errors.
"""

import importlib

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.datasets.digits import load_digits
from tinytorch.nn.activation import ReLU, Sigmoid
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.loss import mse_loss
from tinytorch.ops.joining import cat
from tinytorch.ops.random import manual_seed, randperm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")

if __name__ == "__main__":
    import argparse

    flags = argparse.ArgumentParser()
    flags.add_argument("--draw", action="store_true", help="draw what the autoencoder makes")
    draw = flags.parse_args().draw

    # The autoencoder: 64 -> 32 -> 8 -> 32 -> 64.
    images = load_digits()[0].reshape(-1, 64)
    nothing = (images - images.mean(0)).square().mean().item()

    def autoencoder(*code_end):
        """A trained autoencoder, with `code_end` behind its 8 numbers, and its error."""
        manual_seed(0)
        encoder = Sequential(Linear(64, 32), ReLU(), Linear(32, 8), *code_end)
        decoder = Sequential(Linear(8, 32), ReLU(), Linear(32, 64), Sigmoid())
        model = Sequential(encoder, decoder)
        velocities = [Tensor(*param.shape).zero_() for param in model.parameters()]
        for _ in range(30):
            for batch in randperm(1792).reshape(-1, 64):
                model.zero_grad()
                mse_loss(model(images[batch]), images[batch]).backward()
                with no_grad():
                    for param, velocity in zip(model.parameters(), velocities, strict=True):
                        velocity.mul_(0.9).add_(param.grad)  # momentum: step optimizer10
                        param -= 2.0 * velocity
        return model, mse_loss(model(images), images).item()

    model, loss = autoencoder()
    print(sum(param.numel() for param in model.parameters()), "numbers to learn")
    # -> 4744 numbers to learn
    print(f"error of the mean image {nothing:.4f}, of the autoencoder {loss:.4f}")  # -> ...
    print("a third of it or less:", loss < nothing / 3)  # -> a third of it or less: True
    # A known fault: a sigmoid on the code. Its slope is 1/4 at most, so the encoder learns slowly.
    squeezed = autoencoder(Sigmoid())[1]
    print("with a sigmoid on the code, worse:", squeezed > 1.2 * loss)
    # -> with a sigmoid on the code, worse: True
    if draw:
        plt = importlib.import_module("matplotlib.pyplot")
        shown = cat([images[:10], model(images[:10])])
        figure, places = plt.subplots(2, 10, figsize=(10, 2.4))
        for place, picture in zip(places.flat, shown.tolist(), strict=True):
            rows = [picture[start : start + 8] for start in range(0, 64, 8)]
            place.imshow(rows, cmap="gray_r", vmin=0, vmax=1)
            place.axis("off")
        plt.show()
