"""Step transformer02: The norms of a layer: pre-norm and post-norm

Step 58b puts a LayerNorm before each part. The paper put it behind:

    after ("post", the paper):     x = norm(x + f(x))
    before ("pre", norm_first):    x = x + f(norm(x))

After: what is passed on always has size 1. But the sum is no longer a direct way: each norm on it
changes the gradient. In the demo the first layer gets about half the gradient of the last, and
training needs a learning rate that begins small (step schedule12).

Before: the sum runs through all layers untouched, and so does the gradient. All layers learn from
the start. x still grows, so a last norm is put behind the stack. GPT-2 and its successors do it
this way (Xiong et al., 2020). PyTorch's default is the paper's.

The trap: norm_first has no influence on the names or shapes of the parameters. The state of one
kind can be loaded into the other, and gives wrong results without an error.

Changed: TransformerLayer (norm1, norm2, norm_first).
Try: `return x + dropout(part(x))` in the last line of add. What is passed on grows.
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import relu
from tinytorch.nn.modules.attention import MultiheadAttention
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import LayerNorm
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class TransformerLayer(Module):
    """Base of the layers of a Transformer: attention, then a feed-forward network.

    Each of these parts has a LayerNorm and a Dropout of its own, and what it computes is added to
    its input. With norm_first the part gets the normalised input, so that the sum itself runs
    unchanged through all layers; else the sum is normalised, as in the paper.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        batch_first: bool = False,
        norm_first: bool = False,
    ):
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model)
        self.norm_first = norm_first
        for number in (1, 2):
            self.register_module(f"norm{number}", LayerNorm(d_model))
        for number in (1, 2):
            self.register_module(f"dropout{number}", Dropout(dropout))

    def add(self, number: int, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """x with what part `number` computes of it: x + f(norm(x)), or norm(x + f(x))."""
        norm, dropout = getattr(self, f"norm{number}"), getattr(self, f"dropout{number}")
        if self.norm_first:
            return x + dropout(part(norm(x)))
        return norm(x + dropout(part(x)))

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

    def stack_of(depth, **how):
        manual_seed(0)
        return [TransformerEncoderLayer(32, 4, 128, dropout=0.0, **how) for _ in range(depth)]

    def sizes(layers, x):
        """The standard deviation after each eighth layer."""
        found = []
        for number, layer in enumerate(layers, 1):
            x = layer(x)
            if number % 8 == 0:
                found.append(round(x.std().item(), 1))
        return found

    # Without a norm, as in step transformer01, what is handed on grows. Before: more slowly. After:
    # it is 1.
    x = randn(10, 4, 32)
    y = x
    for layer in stack_of(24):
        y = y + layer.attend(y, None, None, False)
        y = y + layer.feed_forward(y)
    print("none  ", round((y.std() / x.std()).item(), 1))  # -> ...
    print("before", sizes(stack_of(24, norm_first=True), x))  # -> ...
    print("after ", sizes(stack_of(24), x))  # -> after  [1.0, 1.0, 1.0]

    # The gradients of the first and the last layer, for a mean square of random directions.
    def gradients(**how):
        layers, direction = stack_of(24, **how), randn(10, 4, 32)
        y = x
        for layer in layers:
            y = layer(y)
        (LayerNorm(32)(y) * direction).sum().backward()
        return [layer.linear1.weight.grad.norm().item() for layer in layers]

    for name, how in (("before", {"norm_first": True}), ("after ", {})):
        grads = gradients(**how)
        print(f"{name} first layer / last layer: {grads[0] / grads[-1]:.2f}")  # -> ...
    ratios = [g[0] / g[-1] for g in (gradients(norm_first=True), gradients())]
    print("before: the first layer learns as much; after: less", ratios[0] > 1 > ratios[1])
    # -> before: the first layer learns as much; after: less True

    print([name for name, _ in TransformerEncoderLayer(8, 2).named_children()])
    # -> ['self_attn', 'linear1', 'dropout', 'linear2', 'norm1', 'norm2', 'dropout1', 'dropout2']
