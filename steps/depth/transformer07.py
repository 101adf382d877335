"""Step transformer07: A Transformer learns to reverse digits

The milestone of this topic: the network of step transformer06, with embeddings, positions and a
last layer, learns to write eight random digits backwards. A recurrent network has to keep all eight
in its state. A Transformer looks each one up when it needs it.

    read      7 2 9 9 0 3 1 4
    write     start -> 4 -> 1 -> 3 -> 0 -> 9 -> 9 -> 2 -> 7

In training the decoder gets [start, 4, 1, 3, ...] and has to say [4, 1, 3, 0, ...]: eight
predictions at once, thanks to the causal mask. In use it gets its own words, one after the other:
`write`.

Then look: the weights of the cross attention say where the decoder looked for each digit. The
program does not say that position t needs position 7 - t. The map has a line from the upper right
to the lower left, which the training has found.

To see them, a forward hook (step module22) notes what the attention was given, and the attention is
asked once more, with need_weights.

The same program sorts, if the wanted digits are sorted ones (--sort): there is no line on its map.

New: nothing in the framework.
Try: python steps/depth/transformer07.py --sort. Where does a position look now?
"""

import importlib
import sys
import time

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import tensor
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.sparse import Embedding
from tinytorch.nn.modules.transformer import Transformer
from tinytorch.ops.creation import arange, full
from tinytorch.ops.joining import cat
from tinytorch.ops.random import manual_seed, randint
from tinytorch.optim.adam import Adam

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    def show(weights, rows, columns):
        """Prints a map: the darker the sign, the more the row takes of the column."""
        print(" " * 6, *(f"{name:>5}" for name in columns))
        for name, row in zip(rows, weights.tolist(), strict=True):
            print(f"{name:>6}", *(f"{' .:-=+*#%@'[min(9, int(10 * w))] * 3:>5}" for w in row))

    class Reverser(Module):
        """Digits [N, S], and what is written so far [N, T], give the logits of what comes next."""

        def __init__(self, size=32, longest=9, words=11):
            super().__init__()
            self.words, self.places = Embedding(words, size), Embedding(longest, size)
            self.body = Transformer(
                size, 2, 1, 1, 64, dropout=0.0, batch_first=True, norm_first=True
            )
            self.head = Linear(size, words)

        def embed(self, digits):
            return self.words(digits) + self.places(arange(digits.shape[1]))

        def forward(self, read, written):
            mask = Transformer.generate_square_subsequent_mask(written.shape[1])
            return self.head(self.body(self.embed(read), self.embed(written), tgt_mask=mask))

        def write(self, read):
            """One digit after the other, each time the most probable one."""
            written = full((len(read), 1), START)
            for _ in range(read.shape[1]):
                next_digit = self(read, written)[:, -1].argmax(-1)
                written = cat([written, next_digit.unsqueeze(1)], 1)
            return written[:, 1:]

    START = 10  # the word before the first digit

    def wanted_of(read):
        return read.sort(-1)[0] if "--sort" in sys.argv else read.flip(1)

    manual_seed(0)
    net = Reverser()
    optimizer = Adam(net.parameters(), lr=0.003)
    steps = 300 if "--sort" in sys.argv else 100
    begin = time.perf_counter()
    for step in range(steps):
        read = randint(0, 10, (64, 8))
        wanted = wanted_of(read)
        given = cat([full((64, 1), START), wanted[:, :-1]], 1)
        logits = net(read, given)
        loss = cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"step {step + 1}: loss {loss.item():.3f}")  # -> ...
    print(f"trained in {time.perf_counter() - begin:.1f} s")  # -> ...

    # 200 new sequences, written digit by digit.
    net.eval()
    read = randint(0, 10, (200, 8))
    right = (net.write(read) == wanted_of(read)).all(-1).float().mean().item()
    print(f"without a mistake: {right:.2f} of all")  # -> ...
    print("nearly all are right:", right > 0.9)  # -> nearly all are right: True

    # Where did the decoder look? A hook notes what cross attention is given.
    attention, noted = net.body.decoder.layers[0].multihead_attn, []
    hook = attention.register_forward_pre_hook(lambda module, args: noted.append(args[:3]))
    read = tensor([[7, 2, 9, 9, 0, 3, 1, 4]])
    written = net.write(read)
    hook.remove()
    weights = attention(*noted[-1])[1][0].detach()
    show(weights, written[0].tolist(), read[0].tolist())  # -> ...
    print("looked at:", weights.argmax(-1).tolist())  # -> looked at: [7, 6, 5, 4, 3, 2, 1, 0]
