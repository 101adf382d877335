"""Step gpt04: The KV cache: keys and values are kept

To write one token, `generate` sends all tokens so far through the network and throws away all
answers but the last. For the next token it does the same again: to write T tokens costs 1 + 2 + ...
+ T passes of a token, T^2 / 2.

Most of this is computed twice. A token looks back only, so what comes after it does not change its
keys and values, in any layer. Keep them. Then a new token goes through the network alone, asks with
its query, and finds the keys and values of all others in the *cache*:

    without   all T tokens -> q, k, v of all -> T x T scores, of which the last row is used
    with      one token -> its q; its k and v go to the others -> 1 x T scores

The answers are the same, and one token costs one pass. What it costs is memory: two arrays per
layer.

The trap is the end of the window. Position block_size - 1 is the last one, and a token cannot move
to another position: its keys were computed with the old one. So a full cache is thrown away, and
the last half of the tokens begins anew at position 0.

(Where a language model is served, the size of this cache limits how many people can be answered at
once. Grouped-query attention, step attention10, makes it smaller.)

Changed: Attention.forward, Block.forward, GPT.forward, generate. New: Cache.
Try: leave out `start` in GPT.forward. The text goes on, but the answers are no longer the same.
"""

import gzip
import importlib
import math
import re
import time
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


class Cache:
    """Keys and values of the tokens so far, [n, nhead, length, width / nhead], of one Attention."""

    def __init__(self):
        self.k = self.v = None

    def __len__(self) -> int:
        return 0 if self.k is None else self.k.shape[2]

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values, the new ones behind the old ones."""
        if self.k is not None:
            k, v = cat([self.k, k], 2), cat([self.v, v], 2)
        self.k, self.v = k, v
        return k, v


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

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        n, length, width = x.shape
        qkv = self.qkv(x).view(n, length, 3, self.nhead, width // self.nhead)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [n, nhead, length, width / nhead]
        if cache is not None:
            k, v = cache.append(k, v)
        # A single token may look at all that the cache holds: nothing comes after it. Several
        # tokens at once come only while the cache is empty.
        y = scaled_dot_product_attention(q, k, v, is_causal=length > 1)
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

    def forward(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), cache)
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

    def forward(self, tokens: Tensor, caches: list[Cache] | None = None) -> Tensor:
        start = len(caches[0]) if caches else 0
        x = self.token(tokens) + self.position.weight[start : start + tokens.shape[1]]
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
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
    caches, size = None, model.config.block_size
    for _ in range(count):
        if caches is None or len(caches[0]) == size:
            # All positions are in use: go on from half of the tokens, at the first positions.
            fits = size if caches is None else size // 2
            caches, new = [Cache() for _ in model.blocks], tokens[:, -fits:]
        logits = model(new, caches)[:, -1]  # only the last place counts
        logits = logits / temperature
        if top_k is not None:
            least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < least, -math.inf)
        new = multinomial(logits.softmax(-1), 1)
        tokens = cat([tokens, new], 1)
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
    text = read_lessons()
    tokenizer = Tokenizer(text, 500)
    manual_seed(0)
    config = Config(len(tokenizer), block_size=256, num_layers=2)
    model = GPT(config)

    # The same answers: 20 tokens at once, or 12 and then one after the other.
    x = randint(len(tokenizer), (1, 20))
    with no_grad():
        at_once = model(x)
        caches = [Cache() for _ in model.blocks]
        parts = [model(x[:, :12], caches)] + [model(x[:, i : i + 1], caches) for i in range(12, 20)]
    difference = (cat(parts, 1) - at_once).abs().max().item()
    print("the same to rounding:", difference < 1e-5)  # -> the same to rounding: True
    print(tuple(caches[0].k.shape), len(caches[0]))  # -> (1, 4, 20, 16) 20

    def without_cache(tokens, count):
        with no_grad():
            for _ in range(count):
                new = model(tokens)[:, -1].argmax(-1, keepdim=True)
                tokens = cat([tokens, new], 1)
        return tokens

    # The longer the text, the slower without the cache, and not with it.
    start = x[:, :1]
    for count in (50, 200):
        times = []
        for write in (without_cache, lambda tokens, count: generate(model, tokens, count, top_k=1)):
            began = time.perf_counter()
            write(start, count)
            times.append(time.perf_counter() - began)
        rates = [f"{count / seconds:,.0f}" for seconds in times]
        print(
            f"{count} tokens: {rates[0]} per second without the cache, {rates[1]} with it"
        )  # -> ...
    print("faster with the cache:", times[1] < times[0])  # -> faster with the cache: True

    # Beyond the last position: the cache is filled anew.
    print(tuple(generate(model, x, 240).shape))  # -> (1, 260)

    model = GPT(Config(len(tokenizer)))
    train(model, tokenizer.encode(text), 180)
    title = tokenizer.encode("The trap:").reshape(1, -1)
    print(tokenizer.decode(generate(model, title, 100)[0]))  # -> ...
