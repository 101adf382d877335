"""Step transformer03: TransformerEncoder: a stack of layers

An encoder is N such layers, one after the other, and a norm behind the last. All get the same
masks. Three details matter.

The layer is given once, and copied N times. A copy has the numbers of the original: all N layers
begin alike (that is how PyTorch does it). They do not stay alike, because their inputs and
gradients differ. Programs that want different starts draw them anew.

A causal mask is usually given as a matrix of 0 and -inf. Attention would treat it like any other
mask, and could not leave out blocks (step attention07). So the stack tests once whether it is the
causal one, and passes on the hint. That is cheaper than N attentions with the general mask.

    causal_mask(3):     0  -inf  -inf
                        0     0  -inf
                        0     0     0

The trap: a list in place of a ModuleList. Its layers would compute, but not be found by an
optimizer.

New: causal_mask, is_causal_mask, TransformerStack, TransformerEncoder.
Try: ModuleList(layer for _ in range(num_layers)), without copies. How many parameters has the
encoder?
"""

import copy
import importlib
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import relu
from tinytorch.nn.modules.attention import MultiheadAttention
from tinytorch.nn.modules.container import ModuleList
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import LayerNorm
from tinytorch.ops.creation import full, ones
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.slicing import triu

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


def causal_mask(size: int, device=None, dtype=None) -> Tensor:
    """[size, size]: 0 where a position may look, at itself and what is before it; else -inf."""
    return triu(full((size, size), -math.inf, device=device, dtype=dtype), 1)


def is_causal_mask(mask: Tensor | None, is_causal: bool | None) -> bool:
    """`is_causal`, or if that is None whether `mask` is the causal one, which is faster."""
    if is_causal is not None or mask is None or mask.array.ndim != 2:
        return bool(is_causal)
    n, m = mask.array.shape
    expected = causal_mask(n, mask.device)
    if not mask.is_floating_point():
        expected = expected != 0  # of booleans: True where a position may not look
    return n == m and bool((mask == expected).array.all())


class TransformerStack(Module):
    """Base of encoder and decoder: copies of a layer, one after the other, then `norm`."""

    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def through(self, x: Tensor, *args: Any) -> Tensor:
        """x, after all layers, which get `args` too."""
        for layer in self.layers:
            x = layer(x, *args)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(TransformerStack):
    """A stack of encoder layers. The last two options, for nested tensors, have no effect."""

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None,
        enable_nested_tensor: bool = True, mask_check: bool = True,
    ):  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        return self.through(src, mask, src_key_padding_mask, is_causal_mask(mask, is_causal))


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    layer = TransformerEncoderLayer(16, 2, 32, dropout=0.0, norm_first=True)
    encoder = TransformerEncoder(layer, 3, LayerNorm(16))
    count = sum(param.array.size for param in encoder.parameters())
    one = sum(param.array.size for param in layer.parameters())
    print(count == 3 * one + 32)  # -> True
    first, second = encoder.layers[0].linear1.weight, encoder.layers[1].linear1.weight
    print("equal:", (first == second).all().item(), "the same:", first is second)
    # -> equal: True the same: False

    # The result is normalised: mean 0, variance 1.
    x = randn(7, 2, 16, requires_grad=True)
    y = encoder(x)
    print(
        y.shape, f"{abs(y.mean().item()):.2f} {y.var().item():.2f}"
    )  # -> tinytorch.Size([7, 2, 16]) 0.00 1.00
    (y * randn(7, 2, 16)).sum().backward()
    print((first.grad == second.grad).all().item())  # -> False

    # The causal mask is recognised, of floats or booleans; another mask is not.
    print(causal_mask(3).tolist())  # -> [[0.0, -inf, -inf], [0.0, 0.0, -inf], [0.0, 0.0, 0.0]]
    mask, other = causal_mask(7), triu(ones(7, 7), 2).bool()
    print([is_causal_mask(each, None) for each in (mask, mask != 0, other, mask[:5], None)])
    # -> [True, True, False, False, False]
    print(is_causal_mask(mask, False), is_causal_mask(None, True))  # -> False True

    # With the hint and without, the same. Without a norm at the end, the stack's own result.
    y, z = encoder(x, mask), encoder(x, mask, is_causal=False)
    print((y - z).abs().max().item() < 1e-5)  # -> True
    print(TransformerEncoder(layer, 1)(x).shape)  # -> tinytorch.Size([7, 2, 16])
