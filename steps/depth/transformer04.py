"""Step transformer04: Catalogue: the options of a layer

Skim this step. A layer passes most of its options on to its parts:

- activation: the nonlinearity of the feed-forward network, "relu", "gelu", or any function of a
  tensor, a module too (which then has a place in the state, if it has parameters).
- layer_norm_eps for the norms, bias for all parts at once, device and dtype for all that is made.

The order of the arguments is PyTorch's, as programs give the first few by position: d_model, nhead,
dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias.

Changed: TransformerLayer.
Try: activation=nn.PReLU() in the demo. What is new in the state?
"""

import copy
import importlib
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import gelu, relu
from tinytorch.nn.modules.attention import MultiheadAttention
from tinytorch.nn.modules.container import ModuleList
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import LayerNorm
from tinytorch.ops.creation import full
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.slicing import triu

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class TransformerLayer(Module):
    """Base of the layers of a Transformer: attention, then a feed-forward network.

    Each of these parts has a LayerNorm and a Dropout of its own, norm1, dropout1, ..., and what it
    computes is added to its input. With norm_first the part gets the normalised input, so that the
    sum itself runs unchanged through all layers; else the sum is normalised, as in the paper.

    Raises:
        RuntimeError: `activation` is a string other than "relu" and "gelu".
    """

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = relu, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device=None,
        dtype=None,
    ):  # fmt: skip
        super().__init__()
        like = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, batch_first=batch_first, **like
        )
        self.linear1 = Linear(d_model, dim_feedforward, **like)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **like)
        self.norm_first = norm_first
        for number in (1, 2):
            self.register_module(f"norm{number}", LayerNorm(d_model, layer_norm_eps, **like))
        for number in (1, 2):
            self.register_module(f"dropout{number}", Dropout(dropout))
        named = {"relu": relu, "gelu": gelu}
        if isinstance(activation, str) and activation not in named:
            raise RuntimeError(f"activation should be relu/gelu, not {activation}")
        self.activation = named[activation] if isinstance(activation, str) else activation

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
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


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
    x = randn(2, 5, 8)
    layer = TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", 1e-3, True, False, False, dtype=float64)
    print(layer.activation is gelu, layer.norm1.eps, layer.linear1.bias, layer.linear2.weight.dtype)
    # -> True 0.001 None tinytorch.float64
    print(layer(x.double()).shape)  # -> tinytorch.Size([2, 5, 8])
    print([name for name in layer.state_dict() if "bias" in name])  # -> []
    for activation in ("relu", Tensor.tanh):
        layer = TransformerEncoderLayer(8, 2, 16, 0.0, activation)
        print(layer(x).shape)  # -> tinytorch.Size([2, 5, 8])
    try:
        TransformerEncoderLayer(8, 2, activation="tanh")
    except RuntimeError as error:
        print(error)  # -> activation should be relu/gelu, not tanh
