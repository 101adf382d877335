"""Step gpt03: A block of the GPT

A table of pairs knows one token. It cannot know that a bracket is open, or which class this is. The
encoder layer of the run transformer can look at all tokens; with the mask of the run attention it
only looks back. Here it is once more, written for this one purpose, since it will change:

    x [n, T, d] -> norm -> q, k, v -> attention, looking back -> out -> added to x
                -> norm -> a small network for each token            -> added to x

q, k and v come from one matrix product and not from three. `view` and `permute` sort the result:
a head gets its own part of the d numbers, and the heads stand beside the batch, where a product
of matrices leaves them alone.

The sizes of the network are in one small class, Config. It is saved with the weights: without it,
the network that they belong to could not be built again.

The trap is a look into the future. A network that sees the token that it is asked for learns only
to copy it, and its loss quickly falls to 0. A loss that is too good to be true is a reason to check
the mask. The demo changes a token, and looks which outputs change.

New: Config, Attention, Block.
Try: `is_causal=False`. Which line of the demo notices?
"""

import gzip
import importlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.activation import GELU
from tinytorch.nn.attention import scaled_dot_product_attention
from tinytorch.nn.container import Sequential
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm_layers import LayerNorm
from tinytorch.ops.creation import arange
from tinytorch.ops.random import manual_seed, randint, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def read_lessons() -> str:
    """The texts of the first lessons of this course, as they stood when this one was written."""
    packed = Path("tinytorch", "datasets", "lessons.txt.gz")
    folder = next(f for f in Path(__file__).resolve().parents if (f / packed).exists())
    with gzip.open(folder / packed, "rt", encoding="ascii") as file:
        return file.read()


def split(text: str) -> list[str]:
    """The text in pieces: words with the space before them, line ends with the indent after them,
    single digits, runs of other signs."""
    return re.findall(r"\n *| ?[A-Za-z_]+| ?[^\w\s]+| +|.", text)


class Tokenizer:
    """A number for each character of a text and for its most frequent pieces."""

    def __init__(self, text: str, pieces: int = 0):
        counts = Counter(piece for piece in split(text) if len(piece) > 1)
        self.tokens = sorted(set(text)) + [piece for piece, _ in counts.most_common(pieces)]
        self.numbers = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Tensor:
        found = []
        for piece in split(text):
            # A rare piece is spelled, character by character.
            found.extend([piece] if piece in self.numbers else piece)
        return tensor([self.numbers[token] for token in found])

    def decode(self, numbers: Tensor) -> str:
        return "".join(self.tokens[i] for i in numbers.tolist())


def sample_batch(data: Tensor, size: int, block_size: int) -> tuple[Tensor, Tensor]:
    """`size` windows of the text, [size, block_size], and the same windows one token later: what
    follows each token."""
    starts = randint(len(data) - block_size, (size, 1))
    places = starts + arange(block_size)
    return data[places], data[places + 1]


@dataclass
class Config:
    """What shapes a network. A checkpoint contains it, so that the network can be built again."""

    vocab_size: int
    block_size: int = 32  # how many tokens it sees at once
    num_layers: int = 1
    nhead: int = 4
    d_model: int = 64  # how many numbers stand for a token


class Attention(Module):
    """Each token looks at itself and at the tokens before it."""

    def __init__(self, config: Config):
        super().__init__()
        self.nhead = config.nhead
        self.qkv = Linear(config.d_model, 3 * config.d_model)
        self.out = Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        qkv = self.qkv(x).view(n, length, 3, self.nhead, width // self.nhead)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [n, nhead, length, width / nhead]
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(n, length, width))


class Block(Module):
    """Attention, then a small network for each token. Both are added to what was there."""

    def __init__(self, config: Config):
        super().__init__()
        width = config.d_model
        self.norm1, self.attention = LayerNorm(width), Attention(config)
        self.norm2 = LayerNorm(width)
        self.mlp = Sequential(
            Linear(width, 4 * width), GELU(approximate="tanh"), Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


if __name__ == "__main__":
    manual_seed(0)
    config = Config(vocab_size=593)
    block = Block(config)
    print([f"{name} {list(p.shape)}" for name, p in block.attention.named_parameters()])
    # -> ['qkv.weight [192, 64]', 'qkv.bias [192]', 'out.weight [64, 64]', 'out.bias [64]']

    x = randn(2, 32, config.d_model)
    with no_grad():
        before = block(x)
        print(tuple(before.shape))  # -> (2, 32, 64)
        x[:, 20] = randn(config.d_model)  # another token at place 20: nothing before it changes
        same = (block(x) - before).abs().amax((0, 2)) < 1e-6
    print(same[:20].all().item(), same[20:].any().item())  # -> True False

    # The heads are independent of each other: head 0 sees the first 16 numbers of q, k and v only.
    print(config.d_model // config.nhead, "numbers for each of", config.nhead, "heads")
    # -> 16 numbers for each of 4 heads
