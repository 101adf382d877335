"""Step transformer01: Attention does not see the order of words

"Dog bites man" and "man bites dog" have the same words. A recurrent network reads them one after
the other, so it sees the difference. Attention does not: a weight depends on a query and a key, not
on where they stand. Put the words in another order, and the same results come out in the other
order. The result is a set.

    attention(P X) = P attention(X)        for every permutation P

So no question about the order can be learned. The demo asks which of two letters comes first. After
300 steps of training the answers are no better than tossing a coin: both orders get the same
output, and all that the network can say is "one half".

A causal mask breaks the symmetry a little: the first word sees one word, the second two. Some
networks rely on that. But "the word before me" remains hard to express.

New: nothing in the framework. The measurement is the lesson; the next step repairs it.
Try: give the layer a causal mask, and let the last word answer. How much better is it?
"""

import importlib
import math

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.nn.attention import MultiheadAttention
from tinytorch.nn.class_loss import cross_entropy
from tinytorch.nn.linear import Linear
from tinytorch.ops.creation import eye
from tinytorch.ops.random import manual_seed, rand, randn
from tinytorch.optim.adam import Adam

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise gather indexing matmul sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    layer = MultiheadAttention(8, 2).eval()
    words = randn(5, 1, 8)
    order = [3, 1, 4, 0, 2]
    y, shuffled = layer(words, words, words)[0], layer(*[words[order]] * 3)[0]
    print("the same, in the other order:", (y[order] - shuffled).abs().max().item() < 1e-6)
    # -> the same, in the other order: True

    # Which comes first, a or b? Five letters, of which two are a and b.
    codes, table = eye(5), MultiheadAttention(8, 2)
    read, answer = Linear(5, 8), Linear(8, 2)
    params = [*table.parameters(), *read.parameters(), *answer.parameters()]
    optimizer = Adam(params, lr=0.01)

    def batch(count=64):
        """[5, count, 5] letters in random order, and whether b stands before a."""
        orders = rand(count, 5).argsort(-1)
        places = orders.argsort(-1)
        return codes[orders.T], (places[:, 1] < places[:, 0]).long()

    def logits(letters):
        x = read(letters)
        return answer((x + table(x, x, x, need_weights=False)[0]).tanh().mean(0))

    for _ in range(300):
        letters, b_first = batch()
        loss = cross_entropy(logits(letters), b_first)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    letters, b_first = batch(2000)
    print(
        f"loss {loss.item():.2f}, a coin's is {math.log(2):.2f}"
    )  # -> loss 0.69, a coin's is 0.69
    right = (logits(letters).argmax(-1) == b_first).float().mean().item()
    print(f"right: {right:.1f}")  # -> right: 0.5
    one, other = (
        logits(codes[[0, 1, 2, 3, 4]].unsqueeze(1)),
        logits(codes[[1, 0, 2, 3, 4]].unsqueeze(1)),
    )
    print("a before b and b before a differ by", round((one - other).abs().max().item(), 5))
    # -> a before b and b before a differ by 0.0
