"""A variational autoencoder draws digits: python examples/vae.py

It learns to describe a digit by two numbers, and to draw one from two numbers. Nearby numbers give
similar digits, so a grid of them is a map of all digits. It is printed as text after some seconds;
--plot FILE draws it (with matplotlib), beside the plane on which the test digits lie.
"""

import argparse
import importlib.util
import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fastest for small products; before NumPy loads

import tinytorch
from tinytorch import nn
from tinytorch.datasets import Digits
from tinytorch.distributions import Normal
from tinytorch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=128, latent=2):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent)
        )
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, pixels)
        )

    def encode(self, x):
        mean, log_std = self.encoder(x).chunk(2, -1)
        return Normal(mean, log_std.exp())

    def loss(self, x):
        """An upper bound of -log p(x), for an image: how badly it is redrawn, plus how far its
        codes are from N(0, 1)."""
        codes = self.encode(x)
        logits = self.decoder(codes.rsample())
        pixels = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        m, s = codes.mean, codes.stddev
        return (pixels + ((m * m + s * s - 1) / 2 - s.log()).sum()) / len(x)


@tinytorch.no_grad()
def drawn(model, n):
    """Digits [n, n, 8, 8]: the first code grows from -2 to 2 to the right, the second upwards."""
    line = tinytorch.linspace(-2, 2, n)
    right, up = line.expand(n, n), line.flip(0).reshape(n, 1).expand(n, n)
    codes = tinytorch.stack([right, up], -1)
    return model.decoder(codes).sigmoid().reshape(n, n, 8, 8)


def as_text(grid):
    lines = []
    for row in grid.tolist():
        for y in range(8):
            line = " ".join("".join(" .:-=+*#%@"[int(9.99 * v)] * 2 for v in d[y]) for d in row)
            lines.append(line.rstrip())
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="A variational autoencoder draws digits.")
    parser.add_argument("--epochs", type=int, default=60, help="passes over the digits (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", metavar="FILE", help="draw the digits and the plane")
    options = parser.parse_args()
    if options.plot and importlib.util.find_spec("matplotlib") is None:
        parser.error("--plot needs matplotlib: pip install matplotlib")

    tinytorch.manual_seed(options.seed)
    images, test = Digits(train=True).data.flatten(1), Digits(train=False)
    model = VAE()
    optimizer = tinytorch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, options.epochs + 1):
        for batch in tinytorch.randperm(len(images)).split(50):
            loss = model.loss(images[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 20 == 0 or epoch == options.epochs:
            with tinytorch.no_grad():
                bound = model.loss(test.data.flatten(1)).item()
            print(f"epoch {epoch:3}  test digits: -log p < {bound:.2f}")
    print(as_text(drawn(model, 8)))

    if options.plot:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        _, (left, right) = plt.subplots(1, 2, figsize=(11, 5))
        grid = F.pad(drawn(model, 16), (2, 2, 2, 2)).permute(0, 2, 1, 3).reshape(192, 192)
        left.imshow(grid.numpy(), cmap="gray_r", extent=(-2.13, 2.13, -2.13, 2.13))
        with tinytorch.no_grad():
            codes = model.encode(test.data.flatten(1)).mean
        points = right.scatter(*codes.numpy().T, c=test.targets.numpy(), cmap="tab10", s=8)
        plt.colorbar(points, ticks=range(10))
        plt.savefig(options.plot)


if __name__ == "__main__":
    main()
