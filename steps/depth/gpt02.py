"""Step gpt02: The GPT, from finished modules

Steps 57c to 59a built a GPT of parts of their own: heads, a block, positions, one table for reading
and writing. This is the same network in the package's dress. LayerNorm, GELU, ModuleList and
scaled_dot_product_attention are imported. What differs:

    Config      the sizes are one small object, which is saved with the weights: without it, the
                network that they belong to could not be built again
    Attention   q, k and v are cut out of one product by `view`, as PyTorch programs do it
    position    learned, a row for each place, as in GPT-2; not the sines of step 57d
    head        without a bias, and the same matrix as the embedding

The trap is the first loss. It should be near log(vocabulary), the loss of a guess: a network that
knows nothing should not be sure of anything. PyTorch's Embedding is drawn from N(0, 1). As the
last layer too, it gives logits of size sqrt(d), and the first loss is several times that of a
guess: the demo shows it. So all matrices are drawn with a standard deviation of 1 / sqrt(d) here.

New: Config, Attention, Block, GPT.
Try: leave out the line that shares the matrix. How many parameters are there then?
"""

import gzip
import importlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.init import normal_
from tinytorch.nn.modules.activation import GELU
from tinytorch.nn.modules.attention import scaled_dot_product_attention
from tinytorch.nn.modules.container import ModuleList, Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import LayerNorm
from tinytorch.nn.modules.sparse import Embedding
from tinytorch.ops.creation import arange
from tinytorch.ops.random import manual_seed, randint

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


class GPT(Module):
    """Tokens [n, length] in; for each place, how likely each token is to follow, as logits
    [n, length, vocab_size], out."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.token = Embedding(config.vocab_size, config.d_model)
        self.position = Embedding(config.block_size, config.d_model)
        self.blocks = ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = LayerNorm(config.d_model)
        self.head = Linear(config.d_model, config.vocab_size, bias=False)
        for p in self.parameters():
            if p.dim() == 2:
                normal_(p, std=config.d_model**-0.5)
        self.head.weight = self.token.weight  # the row that stands for a token also recognises it

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


if __name__ == "__main__":
    text = read_lessons()
    tokenizer = Tokenizer(text, 500)
    data = tokenizer.encode(text)
    manual_seed(0)
    model = GPT(Config(len(tokenizer)))
    x, y = sample_batch(data, 4, 32)
    print(tuple(x.shape), model(x).shape == (4, 32, len(tokenizer)))  # -> (4, 32) True
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")  # -> 90,112 parameters

    def loss():
        """How surprised the model is by what follows."""
        return cross_entropy(model(x).flatten(0, 1), y.flatten()).item()

    first, guess = loss(), math.log(len(tokenizer))
    print(f"first loss {first:.2f}, loss of a guess {guess:.2f}")
    # -> first loss 6.88, loss of a guess 6.39
    print("it knows nothing, and is not sure:", first < guess + 1)
    # -> it knows nothing, and is not sure: True
    normal_(model.token.weight)  # as Embedding draws it
    print("with N(0, 1) it begins far too sure:", loss() > 3 * guess)
    # -> with N(0, 1) it begins far too sure: True
