"""Step transformer02: Positional encodings

Attention does not know where a word stands (step transformer01). So tell it: add to each word a
vector that stands for its place. The same word is then different at different places, and queries
can ask for places.

Two ways to get such vectors:

- learned: a table with a row for each place, an Embedding (step embedding02), trained like all the
  rest.
- computed: sines and cosines of the place, of many wavelengths (Vaswani et al., 2017):

    p[t, 2i] = sin(t / 10000^(2i / E)),    p[t, 2i + 1] = cos(t / 10000^(2i / E))

A pair (sin, cos) is the hand of a clock. The first hand goes round in 6 places, the next more
slowly, the last in about 35,000 for E = 32, and in less than 63,000 for any E: together they tell
any place, as the hands for seconds, minutes and hours tell any time. And k places further, each
hand has turned by the same angle from wherever it stood. So the dot product of two places depends
on their distance only, and to go on by three places is to multiply by a fixed matrix.

The trap: a learned table ends. For place 1,000 of a table with 512 rows there is nothing, and the
rows at its end have seldom been trained. The sines go on, but a network that never saw such places
does not know what to do with them.

New: nothing in the framework. Positions belong to the program.
Try: 0.01 * sinusoids(5, 8). The answers are a coin's again: the network has to see the positions.
"""

import importlib

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import tensor
from tinytorch.nn.attention import MultiheadAttention
from tinytorch.nn.class_loss import cross_entropy
from tinytorch.nn.embedding import Embedding
from tinytorch.nn.linear import Linear
from tinytorch.ops.creation import arange, eye
from tinytorch.ops.joining import stack
from tinytorch.ops.random import manual_seed, rand
from tinytorch.optim.adam import Adam

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise gather indexing matmul sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    def sinusoids(length, size):
        """[length, size]: sines and cosines of the place, with wavelengths from 6 to 63,000."""
        place = arange(length).unsqueeze(1).float()
        speed = 10000.0 ** -(arange(0, size, 2).float() / size)
        angle = place * speed
        return stack([angle.sin(), angle.cos()], -1).flatten(1)

    table = sinusoids(50, 32)
    print([f"{x:.2f}" for x in table[0, :4].tolist()], [f"{x:.2f}" for x in table[7, :4].tolist()])
    # -> ['0.00', '1.00', '0.00', '1.00'] ['0.66', '0.75', '-0.71', '-0.70']

    # The product of two places depends on their distance only, and is largest for 0.
    for start in (0, 20, 40):
        print([round((table[start] @ table[start + far]).item(), 1) for far in (0, 1, 2, 5)])
    # -> [16.0, 15.3, 13.7, 11.8]
    # -> [16.0, 15.3, 13.7, 11.8]
    # -> [16.0, 15.3, 13.7, 11.8]

    def train(kind, seed=0):
        """Which comes first, a or b? As in step transformer01, with positions of one kind."""
        manual_seed(seed)
        codes, layer = eye(5), MultiheadAttention(8, 2)
        read, answer = Linear(5, 8), Linear(8, 2)
        places = Embedding(5, 8)
        params = [
            *layer.parameters(),
            *read.parameters(),
            *answer.parameters(),
            *places.parameters(),
        ]
        optimizer = Adam(params, lr=0.02)
        for _ in range(150):
            orders = rand(64, 5).argsort(-1)
            x = read(codes[orders.T])
            if kind != "none":
                where = places(arange(5)) if kind == "learned" else sinusoids(5, 8)
                x = x + where.unsqueeze(1)
            y = answer((x + layer(x, x, x, need_weights=False)[0]).tanh().mean(0))
            found = orders.argsort(-1)
            b_first = (found[:, 1] < found[:, 0]).long()
            loss = cross_entropy(y, b_first)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return (y.argmax(-1) == b_first).float().mean().item()

    right = {kind: train(kind) for kind in ("none", "learned", "computed")}
    for kind, share in right.items():
        print(f"{kind:8} right: {share:.2f}")  # -> ...
    print("with positions nearly all are right:", min(right["learned"], right["computed"]) > 0.9)
    # -> with positions nearly all are right: True

    # A table ends; a formula does not.
    try:
        Embedding(5, 8)(tensor([5]))
    except IndexError as error:
        print(error)  # -> embedding(): an index is out of bounds for a dimension of size 5
    print(sinusoids(1000, 8).shape)  # -> tinytorch.Size([1000, 8])
