"""Step transformer01: A layer of the Transformer in the package's dress

Step 58b built a block: attention, then a small network, each added to its input. Here it gets the
arguments of PyTorch's nn.TransformerEncoderLayer: the width in the middle, dropout behind each
part, masks, and batches that come first or second. Positions (step 57d) stay outside: the program
adds them to the rows of its embedding.

What all layers share is in a base class, TransformerLayer: the decoder layer of step transformer03
will have a second attention. `add` adds what a part computes, behind a dropout of its own. The
dropouts have the numbers 1 and 2, as in PyTorch, so that a state fits.

The norms of step 58b are still missing, and the activation is relu, PyTorch's default.

The trap: the feed-forward network holds most of the numbers. With dim_feedforward = 4 E it is 8
E^2, the attention 4 E^2.

New: TransformerLayer, TransformerEncoderLayer.
Try: `return dropout(part(x))` in add. Then "with sums" becomes 0.00, too.
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.backward import grad as grad_of
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import relu
from tinytorch.nn.modules.attention import MultiheadAttention
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.ops.creation import ones
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.slicing import triu

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class TransformerLayer(Module):
    """Base of the layers of a Transformer: attention, then a feed-forward network.

    What each of these parts computes is added to its input.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        batch_first: bool = False,
    ):
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model)
        for number in (1, 2):
            self.register_module(f"dropout{number}", Dropout(dropout))

    def add(self, number: int, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """x with what part `number` computes of it: x + f(x)."""
        dropout = getattr(self, f"dropout{number}")
        return x + dropout(part(x))

    def attend(self, x: Tensor, *masks: Any) -> Tensor:
        """What the positions read in each other."""
        mask, padding_mask, is_causal = masks
        return self.self_attn(x, x, x, padding_mask, False, mask, is_causal=is_causal)[0]

    def feed_forward(self, x: Tensor) -> Tensor:
        """The same small network for each position."""
        return self.linear2(self.dropout(relu(self.linear1(x))))


class TransformerEncoderLayer(TransformerLayer):
    """Each position reads all others, then computes for itself (Vaswani et al., 2017).

    Shapes and masks as of MultiheadAttention, dtype and shape of the result as of `src`.
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        masks = src_mask, src_key_padding_mask, is_causal
        x = self.add(1, src, lambda x: self.attend(x, *masks))
        return self.add(2, x, self.feed_forward)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    layer = TransformerEncoderLayer(16, 2, dim_feedforward=64).eval()
    counts = {n: sum(p.array.size for p in part.parameters()) for n, part in layer.named_children()}
    print({name: count for name, count in counts.items() if count})
    # -> {'self_attn': 1088, 'linear1': 1088, 'linear2': 1040}

    # Attention exchanges, the feed-forward network does not.
    x = randn(5, 1, 16, requires_grad=True)
    for part in (lambda x: layer.attend(x, None, None, False), layer.feed_forward):
        (grad,) = grad_of(part(x)[0].sum(), [x])
        print("the first word depends on words", [i for i in range(5) if grad[i].abs().max() > 0])
    # -> the first word depends on words [0, 1, 2, 3, 4]
    # -> the first word depends on words [0]

    # Twelve layers, with the sums and without: how different are five words in the end?
    def difference(x):
        """The distance of the words from their mean, relative to their size."""
        return ((x - x.mean(0)).norm() / x.norm()).item()

    layers = [TransformerEncoderLayer(16, 2, dim_feedforward=64).eval() for _ in range(12)]
    alone = x.detach()
    summed = x.detach()
    for layer in layers:
        summed = layer(summed)
        alone = layer.feed_forward(layer.attend(alone, None, None, False))
    for name, words in (("before", x.detach()), ("with sums", summed), ("without", alone)):
        print(f"{name:9} {difference(words):.2f}")
    # -> before    0.88
    # -> with sums 0.60
    # -> without   0.00

    # Masks are those of MultiheadAttention; dropout works in training only.
    future = triu(ones(5, 5), 1).bool()
    y = layers[0](x, future)
    (grad,) = grad_of(y[0].sum(), [x])
    print([i for i in range(5) if grad[i].abs().max() > 0])  # -> [0]
    print((layers[0].train()(x) == layers[0](x)).all().item())  # -> False
