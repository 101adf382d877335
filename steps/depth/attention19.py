"""Step attention19: Rotary positions: a query and a key are turned by their places

Step 57d adds a row of sines to each letter, so that attention can ask for places. Two things are
wrong with it. The score of a query and a key depends on where both stand, not only on how far apart
they are: the demo moves a query and a key by 40 places, and their score changes. And a network that
has read texts of 16 letters knows nothing of place 60, whose row it has never seen.

What should count is the distance. Take two features of a query at place m as a point in the plane,
and turn it by the angle m w. Turn the two of a key at place n by n w. A dot product depends on the
angle between the two, and both were turned: what is left is (m - n) w.

    (a, b)  ->  (a cos mw - b sin mw,  a sin mw + b cos mw)
    q turned by m  .  k turned by n   =   q turned by m - n  .  k

With d features these are d / 2 pairs, each with its own w, from 1 down towards 1 / 10000, as in
step 57d. Feature i makes a pair with feature i + d / 2. Lengths stay, and there is nothing to
learn. These are rotary positions (RoPE; Su et al., 2021), and many language models of today use
them.

The demo asks for the letter three places before. Both kinds learn it from texts of 16 letters. In
texts of 64, the network with rotary positions is right for 99 %, the other one for 48 %.

The trap: only queries and keys are turned. The values carry what is read, whatever its place. And
it is done in each layer anew, not once at the beginning.

torch.nn has no function for it, and programs bring their own. Some pair features 2i and 2i + 1:
weights that were learned in one way are of no use in the other.

New: rotary.
Try: turn the queries of Before only, `q = rotary(q)`. How many letters are right now, and why?
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.attention import scaled_dot_product_attention
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.sparse import Embedding
from tinytorch.ops.creation import arange
from tinytorch.ops.joining import cat
from tinytorch.ops.random import manual_seed, randint, randn
from tinytorch.optim.adam import AdamW

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def rotary(x: Tensor, first: int = 0, base: float = 10000.0) -> Tensor:
    """x [..., t, d] with each pair of features turned by its place, from `first` on."""
    places = arange(first, first + x.shape[-2], dtype=x.dtype).unsqueeze(-1)
    half = x.shape[-1] // 2
    angle = places * base ** (-arange(half, dtype=x.dtype) / half)
    a, b, sin, cos = x[..., :half], x[..., half:], angle.sin(), angle.cos()
    return cat([a * cos - b * sin, a * sin + b * cos], -1)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)

    def sinusoids(first, length, size):
        """The rows of step 57d for the places from `first` on."""
        places = arange(first, first + length).unsqueeze(-1)
        angle = places * 10000.0 ** (-arange(0, size, 2) / size)
        return cat([angle.sin(), angle.cos()], -1)

    # One query and one key, three places apart, at place 5 and at place 45.
    q, k = randn(1, 32), randn(1, 32)
    added = [(q + sinusoids(m, 1, 32)) @ (k + sinusoids(m - 3, 1, 32)).mT for m in (5, 45)]
    print("added: ", [round(score.item(), 2) for score in added])  # -> added:  [9.51, 14.1]
    turned = [rotary(q, m) @ rotary(k, m - 3).mT for m in (5, 45)]
    print("turned:", [round(score.item(), 2) for score in turned])  # -> turned: [6.44, 6.44]
    print("length:", round((rotary(q, 45).norm() / q.norm()).item(), 5))  # -> length: 1.0

    class Before(Module):
        """Which letter stood three places before? One layer of attention."""

        def __init__(self, turn):
            super().__init__()
            self.turn = turn
            self.letters, self.head = Embedding(8, 32), Linear(32, 8)
            self.query, self.key, self.value = (Linear(32, 32) for _ in range(3))

        def forward(self, x):
            x = self.letters(x)
            if not self.turn:
                x = x + sinusoids(0, x.shape[1], 32)
            q, k, v = self.query(x), self.key(x), self.value(x)
            if self.turn:
                q, k = rotary(q), rotary(k)
            return self.head(scaled_dot_product_attention(q, k, v, is_causal=True))

    for turn in (False, True):
        manual_seed(0)
        net = Before(turn)
        optimizer = AdamW(net.parameters(), lr=0.01)
        for _ in range(400):
            x = randint(0, 8, (32, 16))
            loss = cross_entropy(net(x)[:, 3:].flatten(0, 1), x[:, :-3].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        right = []
        for length in (16, 32, 64):
            x = randint(0, 8, (64, length))
            right.append((net(x)[:, 3:].argmax(-1) == x[:, :-3]).float().mean().item())
        print("turned:" if turn else "added: ", " ".join(f"{share:.0%}" for share in right))
        # -> added:  100% ...
        # -> turned: 100% ...
