"""Step 78d: A network that restores images

Seven of ten pixels of each image are erased. A person who has seen many digits can still say what
was there. Can a network of 74,000 weights? It needs no labels: each image is its own answer.

All the parts are from this stage, in their finished form:

    the layers in a list, each added to what it got            75a
    each pass erases other pixels, in batches at random        77a
    a file that cannot run code, and that PyTorch reads        78a, 78b
    a new network takes the state over, name by name           75c

The network gets the pixels that are left, and where they are: a 0 may be white or erased. It learns
from 1,400 images; the five that it restores are by other writers.

The trap: a picture looks sure, but shows what is likely there, and not what was there.

What you have now: modules, optimizers, loaders and files as PyTorch has them, except for their
options. What PyTorch has and you have not: modules that are compiled, split over machines or made
smaller for a phone (quantisation); and loaders that decode images and sound.

New: erase, Restorer, picture.
Try: erase nine of ten pixels. What does the network draw where it knows least?
"""

import pathlib
import tempfile

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import tensor
from tinytorch.nn.modules.container import ModuleList
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import binary_cross_entropy_with_logits
from tinytorch.nn.modules.module import Module
from tinytorch.ops.joining import cat
from tinytorch.ops.random import manual_seed, rand
from tinytorch.optim.adam import AdamW
from tinytorch.serialization.files import load, save
from tinytorch.utils.data.dataloader import DataLoader
from tinytorch.utils.data.dataset import TensorDataset


def erase(images):
    """Images [n, 64] with 70 % of the pixels erased, and beside them which are left: [n, 128]."""
    left = (rand(*images.shape) >= 0.7).to(images.dtype)
    return cat([images * left, left], 1)


class Restorer(Module):
    """From what erase gives to the logits of all pixels."""

    def __init__(self, size=128, depth=3):
        super().__init__()
        self.first, self.last = Linear(128, size), Linear(size, 64)
        self.layers = ModuleList([Linear(size, size) for _ in range(depth)])

    def forward(self, x):
        y = self.first(x).relu()
        for layer in self.layers:
            y = y + layer(y).relu()
        return self.last(y)


def picture(images):
    """Images [n, 64] side by side, as lines of text."""
    shades = [[" .:-=+*#%@"[int(9 * pixel)] for pixel in image] for image in images.tolist()]
    for row in range(0, 64, 8):
        yield "   ".join("".join(2 * shade for shade in image[row : row + 8]) for image in shades)


if __name__ == "__main__":
    packed = pathlib.Path(__file__).parent / "../tinytorch/datasets/digits.csv.gz"
    images = tensor(np.loadtxt(packed, delimiter=",", dtype=np.float32)[:, :64] / 16)

    manual_seed(0)
    net = Restorer()
    optimizer = AdamW(net.parameters(), lr=0.003)
    loader = DataLoader(TensorDataset(images[:1400]), 64, shuffle=True)
    for epoch in range(1, 61):
        for (image,) in loader:
            loss = binary_cross_entropy_with_logits(net(erase(image)), image)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch in (1, 60):
            print(f"epoch {epoch:2}: loss {loss.item():.2f}")
            # -> epoch  1: loss 0.43
            # -> epoch 60: loss 0.30

    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "restorer.pt"
        save(net.state_dict(), file)
        net = Restorer()
        net.load_state_dict(load(file))

    image = images[1401:1406]
    x = erase(image)
    with no_grad():
        restored = net(x).sigmoid()
    for title, rows in (("left", x[:, :64]), ("restored", restored), ("the original", image)):
        print(f"{title}:")  # -> ...
        for line in picture(rows):
            print(line)  # -> ...
