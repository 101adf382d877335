"""Step gpt05: Autoregressive sampling: a text, token by token

The model says how likely each token is to follow. So a text is made in a loop: ask, draw one token
by these probabilities, append it, ask again. This is called autoregressive: each answer becomes
part of the next question.

    tokens [n, T] -> model -> the last place [n, vocabulary] -> softmax -> draw -> tokens [n, T + 1]

The answers at all other places are thrown away: that is wasteful, and step gpt08 repairs it. And
there are only block_size positions, so the model is given the last block_size tokens at most. It
does not see what is further back.

Why draw, and not take the most likely token? The most likely continuation is often a loop: spaces
follow spaces for ever. The demo shows both.

A model that has learned nothing writes noise, of course. Keep it in mind for the next step.

New: generate.
Try: leave out the slice of the last block_size tokens. After how many tokens does it fail?
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
from tinytorch.nn.class_loss import cross_entropy
from tinytorch.nn.container import ModuleList, Sequential
from tinytorch.nn.embedding import Embedding
from tinytorch.nn.init import normal_
from tinytorch.nn.linear import Linear
from tinytorch.nn.module import Module
from tinytorch.nn.norm_layers import LayerNorm
from tinytorch.ops.creation import arange
from tinytorch.ops.joining import cat
from tinytorch.ops.multinomial import multinomial
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


def loss_of(model: Module, x: Tensor, y: Tensor) -> Tensor:
    """How surprised the model is by what follows: the mean of -log p(next token)."""
    return cross_entropy(model(x).flatten(0, 1), y.flatten())


@no_grad()
def generate(model: GPT, tokens: Tensor, count: int) -> Tensor:
    """`tokens` [n, length] and `count` tokens more, drawn one at a time."""
    for _ in range(count):
        logits = model(tokens[:, -model.config.block_size :])[:, -1]  # only the last place counts
        drawn = multinomial(logits.softmax(-1), 1)
        tokens = cat([tokens, drawn], 1)
    return tokens


if __name__ == "__main__":
    tokenizer = Tokenizer(read_lessons(), 500)
    manual_seed(0)
    model = GPT(Config(len(tokenizer)))

    start = tokenizer.encode("The trap").reshape(1, -1)
    drawn = generate(model, start, 60)
    print(tuple(drawn.shape))  # -> (1, 62)
    print(repr(tokenizer.decode(drawn[0])[:52]))
    # -> 'The trap history countsNF would If If takes large Te'

    # Always the most likely token: soon it goes in a circle.
    tokens = start
    with no_grad():
        for _ in range(28):
            best = model(tokens).argmax(-1)[:, -1:]
            tokens = cat([tokens, best], 1)
    text = tokenizer.decode(tokens[0])
    print(repr(text[:52]))  # -> 'The trap Add columnA under under under"             '
    fewer = len(tokens[0].unique()) < 0.7 * len(drawn[0, :32].unique())
    print("always the most likely token: fewer different ones", fewer)
    # -> always the most likely token: fewer different ones True

    long = generate(model, tokenizer.encode("x" * 100).reshape(1, -1), 3)
    print("longer than its positions:", tuple(long.shape))
    # -> longer than its positions: (1, 103)
