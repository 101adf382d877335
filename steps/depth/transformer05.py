"""Step transformer05: Cross attention, and TransformerDecoder

A translation needs two networks: one reads the sentence, the other writes. The writer has to look
at what was read, while it writes. So its layers have a third part in the middle, whose queries come
from the writer, and whose keys and values come from the reader:

    x = x + attention(x, x, x)                 what I have written so far (causal)
    x = x + attention(x, memory, memory)       what I need of the source: cross attention
    x = x + feed_forward(x)

`memory` is the encoder's result. It is computed once, and all layers of the decoder read the same.
The two sequences may differ in length: queries [T, N, E], keys [S, N, E], weights [N, T, S]. This
is what attention was invented for.

Two kinds of masks now: those of the target (causal, padding of the written), and those of the
memory (padding of what was read; seldom a causal one).

The trap: it is easy to forget the memory's padding mask. The decoder then reads fillers, and each
sentence depends on the longest of its batch.

New: TransformerDecoderLayer, TransformerDecoder. Changed: TransformerLayer (attentions, attend).
Try: leave memory_key_padding_mask out of the last call of decoder with `other`. What do fillers do?
"""

import copy
import importlib
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.backward import grad as grad_of
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import gelu, relu
from tinytorch.nn.modules.attention import MultiheadAttention
from tinytorch.nn.modules.container import ModuleList
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import LayerNorm
from tinytorch.ops.creation import full, zeros
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.slicing import triu

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class TransformerLayer(Module):
    """Base of the two kinds of layers: attentions by name, then a feed-forward network.

    Each of these parts has a LayerNorm and a Dropout of its own, norm1, dropout1, ..., and what it
    computes is added to its input. With norm_first the part gets the normalised input, so that the
    sum itself runs unchanged through all layers; else the sum is normalised, as in the paper.

    Raises:
        RuntimeError: `activation` is a string other than "relu" and "gelu".
    """

    attentions: tuple[str, ...]

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = relu, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device=None,
        dtype=None,
    ):  # fmt: skip
        super().__init__()
        like = {"bias": bias, "device": device, "dtype": dtype}
        for name in self.attentions:
            attention = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, **like)
            self.register_module(name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, **like)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **like)
        self.norm_first = norm_first
        numbers = range(1, len(self.attentions) + 2)
        for number in numbers:
            self.register_module(f"norm{number}", LayerNorm(d_model, layer_norm_eps, **like))
        for number in numbers:
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

    def attend(self, name: str, x: Tensor, memory: Tensor | None, *masks: Any) -> Tensor:
        """What attention `name` reads in `memory`, or where that is None in x itself."""
        mask, padding_mask, is_causal = masks
        memory = x if memory is None else memory
        attention = getattr(self, name)
        return attention(x, memory, memory, padding_mask, False, mask, is_causal=is_causal)[0]

    def feed_forward(self, x: Tensor) -> Tensor:
        """The same small network for each position."""
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(TransformerLayer):
    """Each position reads all others, then computes for itself (Vaswani et al., 2017).

    Shapes and masks as of MultiheadAttention, dtype and shape of the result as of `src`.
    """

    attentions = ("self_attn",)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        masks = src_mask, src_key_padding_mask, is_causal
        x = self.add(1, src, lambda x: self.attend("self_attn", x, None, *masks))
        return self.add(2, x, self.feed_forward)


class TransformerDecoderLayer(TransformerLayer):
    """As the encoder's layer; between its parts each position also reads `memory`, what an encoder
    made of another sequence."""

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        masks = tgt_mask, tgt_key_padding_mask, tgt_is_causal
        memory_masks = memory_mask, memory_key_padding_mask, memory_is_causal
        x = self.add(1, tgt, lambda x: self.attend("self_attn", x, None, *masks))
        x = self.add(2, x, lambda x: self.attend("multihead_attn", x, memory, *memory_masks))
        return self.add(3, x, self.feed_forward)


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


class TransformerDecoder(TransformerStack):
    """A stack of decoder layers, all of which read the same `memory`."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        tgt_is_causal = is_causal_mask(tgt_mask, tgt_is_causal)
        return self.through(tgt, memory, *masks, tgt_is_causal, memory_is_causal)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    decoder = TransformerDecoder(TransformerDecoderLayer(16, 2, 32, dropout=0.0), 2)
    print([name for name, _ in decoder.layers[0].named_children()][:5])
    # -> ['self_attn', 'multihead_attn', 'linear1', 'dropout', 'linear2']

    # Four positions write; they look at six that were read.
    target, memory = randn(4, 3, 16, requires_grad=True), randn(6, 3, 16, requires_grad=True)
    y = decoder(target, memory, causal_mask(4))
    print(y.shape)  # -> tinytorch.Size([4, 3, 16])

    # The first position depends on itself alone in the target, and on all of the memory.
    of_target, of_memory = grad_of(y[0].sum() + y[0].square().sum(), [target, memory])
    print([i for i in range(4) if of_target[i].abs().max() > 0])  # -> [0]
    print([i for i in range(6) if of_memory[i].abs().max() > 0])  # -> [0, 1, 2, 3, 4, 5]

    # A padding mask of the memory: sentence 0 has four words.
    padding = zeros(3, 6).bool()
    padding[0, 4:] = True
    y = decoder(target, memory, causal_mask(4), memory_key_padding_mask=padding)
    other = memory.detach().clone()
    other[4:, 0] = 50.0
    z = decoder(target, other, causal_mask(4), memory_key_padding_mask=padding)
    print("fillers do not count:", (y == z).all().item())  # -> fillers do not count: True

    # The encoder's layer is the same base with one attention less.
    encoder = TransformerEncoder(TransformerEncoderLayer(16, 2, 32, dropout=0.0), 2, LayerNorm(16))
    print(decoder(target, encoder(memory)).shape)  # -> tinytorch.Size([4, 3, 16])
    print(TransformerDecoder(decoder.layers[0], 1, LayerNorm(16))(target, memory).shape)
    # -> tinytorch.Size([4, 3, 16])
