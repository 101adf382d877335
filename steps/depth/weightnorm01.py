"""Step weightnorm01: Dropout of whole channels

Dropout (step layers09) makes single numbers fall silent, so that no unit relies on one other. In a
feature map it fails: neighbours show nearly the same, and what is missing at one place is read off
the next one. The demo drops half of a smooth picture, and restores it from the neighbours: most of
it comes back.

So whole channels are dropped (Tompson et al., 2015). It is the same product with a mask of 0 and
1 / (1 - p). Only the shape of the mask differs, and broadcasting does the rest:

    dropout      [n, channels, height, width]
    dropout2d    [n, channels, 1, 1]            one number for each channel of each image

The trap: dropout1d takes [channels, length] as one item without a batch; dropout2d takes what has
three dimensions as [n, channels, length], for historical reasons, and warns.

New: dropout1d, 2d and 3d, and their modules.
Try: dropout2d of images [n, height, width]. What is dropped?
"""

import importlib
import warnings

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.arguments import checked
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, rand

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def check_probability(p: float) -> float:
    """p itself. Raises ValueError where it is not a probability."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return p


def drop_units(input: Tensor, shape: tuple, p: float, training: bool, inplace: bool) -> Tensor:
    """input times a mask of the given shape: 0 with probability p, and else 1 / (1 - p)."""
    if check_probability(p) == 0 or not training:
        return input
    mask = (rand(shape, device=input.device) >= p).to(input.dtype)
    mask = mask if p == 1 else mask.mul_(1 / (1 - p))
    return input.mul_(mask) if inplace else input * mask


@checked
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Each element is 0 with probability p. The others are multiplied by 1 / (1 - p), so that the
    expected value stays the same, and nothing has to be done when the network is used."""
    return drop_units(input, input.array.shape, p, training, inplace)


class Dropout(Module):
    """dropout, in training only: eval() switches it off."""

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        self.p, self.inplace = check_probability(p), inplace

    def forward(self, input: Tensor) -> Tensor:
        return dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


def drop_channels(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    """drop_units with a mask of the shape [n, channels, 1, ...], or [channels, 1, ...].

    Raises:
        RuntimeError: there are no channels.
    """
    shape, leading = input.array.shape, 2 if batched else 1
    if len(shape) < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return drop_units(input, shape[:leading] + (1,) * (len(shape) - leading), p, training, inplace)


def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of [n, channels, length] or [channels, length].

    Raises:
        RuntimeError: for another number of dimensions.
    """
    ndim = input.array.ndim
    if ndim not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input.")
    return drop_channels(input, p, training, inplace, ndim == 3)


def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of [n, channels, height, width]."""
    if input.array.ndim != 4:
        warnings.warn(f"dropout2d expects a 4D input, not {input.array.ndim}D", stacklevel=2)
    return drop_channels(input, p, training, inplace, True)


def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """dropout of whole channels of [n, channels, depth, height, width], or without n."""
    if input.array.ndim not in (4, 5):
        warnings.warn(f"dropout3d expects a 4D or 5D input, not {input.array.ndim}D", stacklevel=2)
    return drop_channels(input, p, training, inplace, input.array.ndim == 5)


class Dropout1d(Dropout):
    """dropout1d, in training only."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """dropout2d, in training only."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(Dropout):
    """dropout3d, in training only."""

    def forward(self, input: Tensor) -> Tensor:
        return dropout3d(input, self.p, self.training, self.inplace)


if __name__ == "__main__":
    from tinytorch.ops.creation import linspace, ones
    from tinytorch.ops.random import manual_seed

    manual_seed(0)
    # Sixteen smooth pictures: waves of 32 x 32.
    place = linspace(0, 6, 32)
    waves = [(place + a).sin().reshape(32, 1) * (place - a).cos() for a in range(16)]
    picture = ones(16, 32, 32)
    for channel, wave in zip(picture, waves, strict=True):
        channel.copy_(wave)

    def restored(kept):
        """Each place from the mean of what is left of its eight neighbours."""
        total = count = 0.0
        for up in (-1, 0, 1):
            for left in (-1, 0, 1):
                if up or left:
                    near = kept.roll((up, left), (1, 2))
                    total, count = total + near, count + (near != 0)
        return total / count.clamp(min=1)

    for title, kept in (
        ("dropout", dropout(picture, 0.5) / 2),
        ("dropout2d", dropout2d(picture.unsqueeze(0), 0.5)[0] / 2),
    ):
        gone = kept == 0
        error = (restored(kept) - picture)[gone].square().mean() / picture[gone].square().mean()
        print(f"{title:9} dropped {gone.float().mean():.2f}; not to be restored: {error:.2f}")
    # -> dropout   dropped 0.50; not to be restored: 0.02
    # -> dropout2d dropped 0.44; not to be restored: 1.00

    x = ones(2, 3, 2, 2)
    print(Dropout2d(0.5)(x).mean((2, 3)).tolist())  # -> [[0.0, 2.0, 2.0], [2.0, 0.0, 2.0]]
    volume = Dropout3d(0.5)(ones(3, 2, 2, 2))
    print(Dropout2d(0.5).eval()(x).equal(x), volume.amax((1, 2, 3)).tolist())
    # -> True [2.0, 2.0, 0.0]
    print(Dropout1d(0.5)(ones(4, 3)).tolist())
    # -> [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]]

    for wrong in (lambda: dropout1d(x), lambda: dropout2d(x[0, 0, 0])):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                wrong()
            except RuntimeError as error:
                print(error)
    # -> dropout1d: Expected 2D or 3D input, but received a 4D input.
    # -> Feature dropout requires at least 2 dimensions in the input
    warnings.simplefilter("error")
    for function in (dropout2d, dropout3d):
        try:
            function(x[0])
            function(x[0, 0])
        except UserWarning as error:
            print(error)
    # -> dropout2d expects a 4D input, not 3D
    # -> dropout3d expects a 4D or 5D input, not 3D
