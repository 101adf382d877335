"""The Transformer: layers of attention and feed-forward networks, each added to its input."""

import copy
import math
from collections.abc import Callable
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.init import xavier_uniform_
from tinytorch.nn.modules.activation import gelu, relu
from tinytorch.nn.modules.attention import MultiheadAttention
from tinytorch.nn.modules.container import ModuleList
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import LayerNorm
from tinytorch.ops.creation import full
from tinytorch.ops.slicing import triu


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


class Transformer(Module):
    """An encoder reads `src`, a decoder writes after `tgt` while it looks at what was read.

    The embeddings, the positions and the last layer, from d_model to words, are the caller's. The
    sizes of src and tgt are [S, N, d_model] and [T, N, d_model], or the batch first.
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6,
        num_decoder_layers: int = 6, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = relu, custom_encoder: Any = None,
        custom_decoder: Any = None, layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        like = {"bias": bias, "device": device, "dtype": dtype}
        options = dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first
        kinds = (
            (custom_encoder, TransformerEncoder, TransformerEncoderLayer, num_encoder_layers),
            (custom_decoder, TransformerDecoder, TransformerDecoderLayer, num_decoder_layers),
        )
        made = []
        for custom, stack, kind, number in kinds:
            if custom is None:
                layer = kind(d_model, nhead, *options, **like)
                custom = stack(layer, number, LayerNorm(d_model, layer_norm_eps, **like))
            made.append(custom)
        self.encoder, self.decoder = made
        for param in self.parameters():
            if param.array.ndim > 1:
                xavier_uniform_(param)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    generate_square_subsequent_mask = staticmethod(causal_mask)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """What the decoder says, in the shape of `tgt`.

        Raises:
            RuntimeError: the numbers of sequences differ, or a size of features is not d_model.
        """
        batch = 0 if self.batch_first else 1
        if src.array.ndim == 3 and src.array.shape[batch] != tgt.array.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.array.shape[-1] != self.d_model or tgt.array.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
