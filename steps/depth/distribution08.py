"""Step distribution08: A network that draws, with finished distributions

Step 54b built a variational autoencoder: the encoder returns a mean and a variance, the decoder
gets a draw, and a penalty pulls the codes towards N(0, 1), so that each random code is the code of
something. Here the encoder returns a Normal, and the draw is rsample (step distribution05).

    loss = -log p(x | code)                              how badly the image is redrawn
           + KL(N(m, s^2) || N(0, 1))                    (m^2 + s^2 - 1) / 2 - log s, each number

The sum is an upper bound of -log p(x), the number of nats (1 nat is 1.44 bits) that it takes to
transmit the image. The draw is `rsample` (step distribution05): code = m + s * noise, through which
the gradient reaches m and s.

The code has two numbers here, so that all digits fit on a map.

The trap is a mean where a sum belongs. Both terms count for a whole image. With the mean over its
64 pixels the penalty is 64 times as heavy, and the loss is smallest for a code that says nothing.

New: VAE.
Try: multiply the KL by 10 in the training, then by 0. What happens to the map of digits?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.datasets.digits import load_digits
from tinytorch.distributions.normal import Normal
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import binary_cross_entropy_with_logits
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import linspace
from tinytorch.ops.joining import stack
from tinytorch.ops.random import manual_seed, randperm
from tinytorch.optim.adam import Adam

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class VAE(Module):
    """An encoder that answers with a distribution over codes, and a decoder from codes to images.

    Images [n, pixels], codes [n, latent].
    """

    def __init__(self, pixels: int = 64, hidden: int = 128, latent: int = 2):
        super().__init__()
        self.encoder = Sequential(Linear(pixels, hidden), ReLU(), Linear(hidden, 2 * latent))
        self.decoder = Sequential(Linear(latent, hidden), ReLU(), Linear(hidden, pixels))

    def encode(self, x: Tensor) -> Normal:
        mean, log_std = self.encoder(x).chunk(2, -1)
        return Normal(mean, log_std.exp())

    def decode(self, code: Tensor) -> Tensor:
        return self.decoder(code).sigmoid()

    def loss(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(reconstruction, KL) for an image, in nats: their sum is an upper bound of -log p(x)."""
        codes = self.encode(x)
        logits = self.decoder(codes.rsample())
        pixels = binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
        # KL(N(m, s) || N(0, 1)) = (m^2 + s^2 - 1) / 2 - log s for each number of a code
        m, s = codes.mean, codes.stddev
        return pixels, ((m * m + s * s - 1) / 2 - s.log()).sum() / len(x)


if __name__ == "__main__":

    def as_text(grid):
        for row in grid.tolist():
            for y in range(8):
                print(" ".join("".join(" .:-=+*#%@"[int(9.99 * v)] * 2 for v in d[y]) for d in row))

    images, labels = load_digits()
    x, test = images[:-360].flatten(1), images[-360:].flatten(1)
    manual_seed(0)
    model = VAE()
    optimizer = Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, 21):
        for batch in randperm(len(x))[:1400].reshape(-1, 50):
            pixels, kl = model.loss(x[batch])
            optimizer.zero_grad()
            (pixels + kl).backward()
            optimizer.step()
        if epoch % 10 == 0:
            with no_grad():
                pixels, kl = model.loss(test)
            print(f"epoch {epoch}: test {pixels.item():.2f} + {kl.item():.2f} nats")  # -> ...

    # What is it worth? The same images, each pixel independent of the others, with its mean.
    mean = x.mean(0).clamp(0.01, 0.99)
    alone = -(test * mean.log() + (1 - test) * (1 - mean).log()).sum(1).mean().item()
    bound = (pixels + kl).item()
    print(f"pixels on their own: {alone:.2f}, the VAE: {bound:.2f}")  # -> ...
    print("worth more than a nat:", bound < alone - 1)  # -> worth more than a nat: True

    # A map: codes from -2 to 2 in both directions. No digit here was ever scanned.
    with no_grad():
        line = linspace(-2, 2, 6)
        codes = stack([line.reshape(6, 1).expand(6, 6), line.expand(6, 6)], -1)
        as_text(model.decode(codes).reshape(6, 6, 8, 8))  # -> ...

        # The codes of all digits together are about N(0, 1), which is where codes are drawn from.
        codes = model.encode(x).rsample()
        print(codes.mean(0).tolist(), codes.std().item())  # -> ...
        print("near N(0, 1):", abs(codes.std().item() - 1) < 0.2)  # -> near N(0, 1): True
