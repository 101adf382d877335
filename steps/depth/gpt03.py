"""Step gpt03: Training and writing, in the package's dress

The loop of step 58d and the sampling of steps 56e and 59b, once more, for the network of step
gpt02. New are three habits of programs for PyTorch:

- **Groups.** Matrices decay; biases and the scales of the norms do not, as those belong near 0 and
  1 (step 76a told how groups work).
- **A rate that is written, not scheduled.** rate_at computes it for each step: a warm-up, then half
  a cosine down to a tenth. Writing group["lr"] is all that a schedule does.
- **top_k for a batch.** `topk` of the package takes rows, and so does masked_fill.

The entropy, -sum p log p, says how undecided a distribution is, and its exponential is a number of
equally likely choices. The demo prints it for several temperatures.

The trap: temperature and top_k are settings of the sampling, not of the model. They make the text
look better and say nothing about what was learned; models are compared by their loss, on lessons
that they have not read.

New: loss_of, generate, make_optimizer, rate_at, train.
Try: temperature=0.01, and top_k=1. Why do both write the same? What does temperature=0 do?
"""

import gzip
import importlib
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
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
from tinytorch.nn.utils.clip_grad import clip_grad_norm_
from tinytorch.ops.creation import arange
from tinytorch.ops.joining import cat
from tinytorch.ops.random import manual_seed, randint
from tinytorch.ops.sampling import multinomial
from tinytorch.optim.adam import AdamW

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
def generate(
    model: GPT, tokens: Tensor, count: int, temperature: float = 1.0, top_k: int | None = None
) -> Tensor:
    """`tokens` [n, length] and `count` tokens more, drawn one at a time. A temperature below 1
    prefers likely tokens even more; with `top_k` the others are never drawn."""
    for _ in range(count):
        logits = model(tokens[:, -model.config.block_size :])[:, -1]  # only the last place counts
        logits = logits / temperature
        if top_k is not None:
            least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < least, -math.inf)
        drawn = multinomial(logits.softmax(-1), 1)
        tokens = cat([tokens, drawn], 1)
    return tokens


def make_optimizer(model: Module, lr: float) -> AdamW:
    """AdamW. Matrices decay; biases and the scales of the norms do not."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return AdamW(groups, lr=lr, betas=(0.9, 0.95))


def rate_at(step: int, steps: int, lr: float, warmup: int = 20) -> float:
    """The learning rate: rises for `warmup` steps, then half a cosine down to a tenth."""
    if step < warmup:
        return lr * (step + 1) / warmup
    done = (step - warmup) / max(steps - warmup, 1)
    return lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def train(model: GPT, data: Tensor, steps: int, size: int = 8, lr: float = 1e-2) -> list[float]:
    """Train on random windows of `data`. Returns the loss of each step."""
    optimizer, losses = make_optimizer(model, lr), []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps, lr)
        loss = loss_of(model, *sample_batch(data, size, model.config.block_size))
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    lessons = read_lessons()
    text, unseen = lessons[:270_000], lessons[270_000:]
    tokenizer = Tokenizer(text, 500)
    data = tokenizer.encode(text)
    manual_seed(0)
    model = GPT(Config(len(tokenizer)))
    print([len(group["params"]) for group in make_optimizer(model, 1.0).param_groups])  # -> [6, 10]
    print([round(rate_at(step, 120, 1.0), 2) for step in (0, 9, 19, 20, 70, 119)])
    # -> [0.05, 0.5, 1.0, 1.0, 0.55, 0.1]
    losses = train(model, data, 280)
    print([round(loss, 2) for loss in losses[::56]])  # -> [6.99, 4.42, 4.57, 3.98, 3.86]
    with no_grad():
        unseen = tokenizer.encode(unseen)
        seen, loss = (loss_of(model, *sample_batch(d, 400, 32)).item() for d in (data, unseen))
    print(f"loss on the lessons it read {seen:.1f}, on unseen ones {loss:.1f}")
    # -> loss on the lessons it read 3.8, on unseen ones 3.6

    start = tokenizer.encode("The trap:").reshape(1, -1)
    logits = model(start)[0, -1].detach()
    choices = []
    for temperature in (2.0, 1.0, 0.5, 0.1):
        p = (logits / temperature).softmax(0)
        choices.append(math.exp(-(p * (p + 1e-30).log()).sum().item()))
        print(f"temperature {temperature}: like {choices[-1]:.1f} equal choices")  # -> ...
    print("the lower, the fewer:", choices == sorted(choices, reverse=True))
    # -> the lower, the fewer: True

    for temperature, top_k in ((1.5, None), (1.0, None), (0.7, 10), (0.01, None)):
        print(f"--- temperature {temperature}, top_k {top_k}")  # -> ...
        print(tokenizer.decode(generate(model, start, 120, temperature, top_k)[0]))  # -> ...

    manual_seed(1)
    one = generate(model, start, 40, top_k=1)
    print("top_k=1 always takes the most likely:", (one == generate(model, start, 40, 0.001)).all())
    # -> top_k=1 always takes the most likely: tensor(True)
    long = generate(model, tokenizer.encode("x" * 100).reshape(1, -1), 3)
    print("longer than its positions:", tuple(long.shape))
    # -> longer than its positions: (1, 103)
