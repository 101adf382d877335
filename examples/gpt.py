"""A GPT that learns to write: python examples/gpt.py

It reads the texts of this course (or --data FILE, any text; --data FOLDER, the Python files in it),
trains a small GPT on one core, and shows what it writes while it learns: words after half a minute.
A longer run on more of each text:

    python examples/gpt.py --layers 4 --width 128 --block-size 96 --steps 3000

Ctrl-C saves the run into --checkpoint and says how to go on, bit for bit. With --write N it only
writes. PyTorch's `torch.load` reads the file, too. Steps attention01 to gpt04 build and explain
each part.
"""

import argparse
import contextlib
import gzip
import math
import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # fastest for small products; before NumPy loads

import tinytorch
from tinytorch import nn
from tinytorch.nn import functional as F

TEXT = Path(tinytorch.__file__).parent / "datasets" / "lessons.txt.gz"


class Tokenizer:
    """A number for each character of a text and for its most frequent pieces."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.numbers = {token: i for i, token in enumerate(tokens)}

    @staticmethod
    def split(text):
        return re.findall(r"\n *| ?[A-Za-z_]+| ?[^\w\s]+| +|.", text)

    @classmethod
    def of(cls, text, pieces):
        counts = Counter(piece for piece in cls.split(text) if len(piece) > 1)
        return cls(sorted(set(text)) + [piece for piece, _ in counts.most_common(pieces)])

    def encode(self, text):
        found = []
        for piece in self.split(text):
            found.extend([piece] if piece in self.numbers else piece)
        return tinytorch.tensor([self.numbers[token] for token in found])

    def decode(self, numbers):
        return "".join(self.tokens[i] for i in numbers.tolist())


@dataclass
class Config:
    vocab_size: int
    block_size: int  # how many tokens it sees at once
    num_layers: int
    nhead: int
    d_model: int  # how many numbers stand for a token
    dropout: float


class Cache:
    """Keys and values of the tokens so far, [n, nhead, length, width / nhead], of one Attention."""

    def __init__(self):
        self.k = self.v = None

    def __len__(self):
        return 0 if self.k is None else self.k.shape[2]

    def append(self, k, v):
        if self.k is not None:
            k, v = tinytorch.cat([self.k, k], 2), tinytorch.cat([self.v, v], 2)
        self.k, self.v = k, v
        return k, v


class Attention(nn.Module):
    """Each token looks at itself and at the tokens before it."""

    def __init__(self, config):
        super().__init__()
        self.nhead, self.dropout = config.nhead, config.dropout
        self.qkv = nn.Linear(config.d_model, 3 * config.d_model)
        self.out = nn.Linear(config.d_model, config.d_model)

    def forward(self, x, cache=None):
        n, length, width = x.shape
        qkv = self.qkv(x).view(n, length, 3, self.nhead, width // self.nhead)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [n, nhead, length, width / nhead]
        if cache is not None:
            k, v = cache.append(k, v)
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(n, length, width))


class Block(nn.Module):
    """Attention, then a small network for each token. Both are added to what was there."""

    def __init__(self, config):
        super().__init__()
        width = config.d_model
        self.norm1, self.attention = nn.LayerNorm(width), Attention(config)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x, cache=None):
        x = x + self.dropout(self.attention(self.norm1(x), cache))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Tokens [n, length] -> logits [n, length, vocab_size] of the token that follows each."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocab_size, config.d_model)
        self.position = nn.Embedding(config.block_size, config.d_model)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.d_model)
        self.head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:  # GPT-2: what is added to the stream is smaller, the more layers add
                depth = (
                    2 * config.num_layers if name.endswith(("out.weight", "mlp.2.weight")) else 1
                )
                nn.init.normal_(p, std=0.02 / math.sqrt(depth))
        self.head.weight = self.token.weight

    def forward(self, tokens, caches=None):
        start = len(caches[0]) if caches else 0
        x = self.token(tokens) + self.position.weight[start : start + tokens.shape[1]]
        for block, cache in zip(self.blocks, caches or [None] * len(self.blocks), strict=True):
            x = block(x, cache)
        return self.head(self.norm(x))


def sample_batch(data, size, block_size):
    """Windows [size, block_size], and the same windows one token later."""
    starts = tinytorch.randint(len(data) - block_size, (size, 1))
    places = (starts + tinytorch.arange(block_size)).to(data.device)
    return data[places], data[places + 1]


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


@tinytorch.no_grad()
def evaluate(model, data, options, batches=20):
    """The loss on text that the model does not train on: always the same windows."""
    model.eval()
    state = tinytorch.get_rng_state()
    tinytorch.manual_seed(0)
    losses = [
        loss_of(model, *sample_batch(data, options.batch_size, options.block_size)).item()
        for _ in range(batches)
    ]
    tinytorch.set_rng_state(state)
    model.train()
    return sum(losses) / batches


@tinytorch.no_grad()
def generate(model, tokens, count, temperature, top_k):
    """`tokens` [n, length] and `count` tokens more, drawn one at a time."""
    model.eval()
    caches, size = None, model.config.block_size
    for _ in range(count):
        if caches is None or len(caches[0]) == size:
            # All positions are in use: go on from half of the tokens, at the first positions.
            fits = size if caches is None else size // 2
            caches, new = [Cache() for _ in model.blocks], tokens[:, -fits:]
        logits = model(new, caches)[:, -1] / temperature
        if top_k:
            least = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < least, -math.inf)
        new = tinytorch.multinomial(logits.softmax(-1), 1)
        tokens = tinytorch.cat([tokens, new], 1)
    model.train()
    return tokens


def make_optimizer(model, lr):
    """AdamW. Matrices decay; biases and the scales of the norms do not."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return tinytorch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


def rate_at(step, options):
    """A warm-up, then half a cosine down to a tenth."""
    if step < options.warmup:
        return options.lr * (step + 1) / options.warmup
    done = (step - options.warmup) / max(options.steps - options.warmup, 1)
    return options.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def arguments():
    parser = argparse.ArgumentParser(
        description="Trains a small GPT on text, and lets it write.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--data", type=Path, default=TEXT, help="a text, or a folder of Python files")
    add("--pieces", type=int, default=2000, help="how many frequent pieces are tokens")
    add("--block-size", type=int, default=64, help="how many tokens it sees at once")
    add("--layers", type=int, default=2, help="how many blocks")
    add("--heads", type=int, default=4, help="how many heads each attention has")
    add("--width", type=int, default=96, help="how many numbers stand for a token")
    add("--dropout", type=float, default=0.0, help="share of the numbers that are dropped")
    add("--batch-size", type=int, default=12, help="how many texts a step takes")
    add("--steps", type=int, default=500, help="how many steps it trains")
    add("--lr", type=float, default=3e-3, help="the highest rate of AdamW")
    add("--warmup", type=int, default=50, help="steps until the rate is reached")
    add("--seed", type=int, default=0, help="of all random numbers")
    add("--device", default="cpu", help="cpu, or cuda")
    add("--compile", action="store_true", help="train with compile(model)")
    add("--amp", action="store_true", help="compute in bfloat16 where it is exact enough")
    add("--every", type=int, default=50, help="report (and save) after these steps")
    add("--sample", type=int, default=3, help="reports from one sample to the next; 0: none")
    add("--checkpoint", type=Path, default=Path("gpt.pt"), help="the file that the run is kept in")
    add("--resume", action="store_true", help="go on from the checkpoint")
    add("--stop-after", type=int, metavar="STEP", help="stop there; --resume goes on")
    add("--write", type=int, metavar="N", help="only write N tokens, with the checkpoint's network")
    add("--start", default="Step 99: ", help="how the text begins")
    add("--temperature", type=float, default=0.7, help="below 1: likely tokens more often")
    add("--top-k", type=int, default=30, help="draw from this many tokens only; 0: from all")
    options = parser.parse_args()
    counts = "block_size layers heads width batch_size steps every temperature lr".split()
    for name in counts:
        if getattr(options, name) <= 0:
            flag = "--" + name.replace("_", "-")
            parser.error(f"{flag} has to be positive, and is {getattr(options, name)}")
    if options.width % options.heads:
        parser.error(
            f"--width {options.width} cannot be divided among --heads {options.heads}; "
            f"try --width {options.width // options.heads * options.heads or options.heads}"
        )
    if (options.resume or options.write) and not options.checkpoint.is_file():
        parser.error(f"there is no file {options.checkpoint} to go on from")
    if not options.checkpoint.parent.is_dir():
        parser.error(f"there is no folder {options.checkpoint.parent}")
    if not options.data.exists():
        parser.error(f"there is no file {options.data}")
    return options


def read_text(path):
    """(text to train on, text to test with): the last tenth is kept for the test."""
    if path.is_dir():
        files = sorted(path.rglob("*.py"))
        text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    else:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
            text = file.read()
    cut = len(text) * 9 // 10
    return text[:cut], text[cut:]


def show(model, tokenizer, options, count):
    """Print what the model writes; the random numbers of the training stay as they were."""
    state = tinytorch.get_rng_state()
    tinytorch.manual_seed(options.seed)
    start = "".join(c for c in options.start if c in tokenizer.numbers) or tokenizer.tokens[0]
    tokens = tokenizer.encode(start).reshape(1, -1).to(options.device)
    print(tokenizer.decode(generate(model, tokens, count, options.temperature, options.top_k)[0]))
    tinytorch.set_rng_state(state)


class Interrupt:
    """Ctrl-C ends the training after the step that is at work; a second one ends the program."""

    def __init__(self):
        self.asked = False
        self.before = signal.signal(signal.SIGINT, self.ask)

    def ask(self, *_):
        self.asked = True
        signal.signal(signal.SIGINT, self.before)


def duration(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def main():
    options = arguments()
    tinytorch.manual_seed(options.seed)
    names = "block_size batch_size steps lr warmup seed amp".split()
    settings = {name: getattr(options, name) for name in names}
    settings["data"] = options.data.name
    text, test_text = read_text(options.data)
    checkpoint = None
    if options.resume or options.write:
        checkpoint = tinytorch.load(options.checkpoint, map_location=options.device)
        tokenizer, config = Tokenizer(checkpoint["tokens"]), Config(**checkpoint["config"])
    else:
        tokenizer = Tokenizer.of(text + test_text, options.pieces)
        config = Config(
            len(tokenizer.tokens),
            options.block_size,
            options.layers,
            options.heads,
            options.width,
            options.dropout,
        )
    model = GPT(config).to(options.device)
    if checkpoint:
        model.load_state_dict(checkpoint["model"])
    if options.write:
        return show(model, tokenizer, options, options.write)

    data, test = (tokenizer.encode(part).to(options.device) for part in (text, test_text))
    if min(len(data), len(test)) <= config.block_size:
        sys.exit(f"{options.data} is too short: {len(test)} tokens are left to test with")
    per_character = len(test) / len(test_text)
    optimizer, begun = make_optimizer(model, options.lr), 0
    if checkpoint:
        for name, value in settings.items():
            if value != checkpoint["settings"][name]:
                flag = "--" + name.replace("_", "-")
                sys.exit(f"the run began with {flag} {checkpoint['settings'][name]}, not {value}")
        optimizer.load_state_dict(checkpoint["optimizer"])
        tinytorch.set_rng_state(checkpoint["random"].cpu())
        begun = checkpoint["step"]
        print(f"goes on after step {begun} of {options.checkpoint}")
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(text):,} characters, {len(data):,} tokens, {count:,} parameters", flush=True)
    trained = tinytorch.compile(model) if options.compile else model
    kind = tinytorch.device(options.device).type

    def save(step):
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "random": tinytorch.get_rng_state(),
            "config": asdict(config),
            "tokens": tokenizer.tokens,
            "settings": settings,
            "step": step,
        }
        tinytorch.save(state, options.checkpoint)

    interrupt, start = Interrupt(), time.perf_counter()
    since, total, counted = start, 0.0, 0
    end = min(options.stop_after or options.steps, options.steps)
    for step in range(begun + 1, end + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step - 1, options)
        x, y = sample_batch(data, options.batch_size, options.block_size)
        half = tinytorch.autocast(kind, tinytorch.bfloat16) if options.amp else None
        with half or contextlib.nullcontext():
            loss = loss_of(trained, x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total, counted = total + loss.item(), counted + 1
        if interrupt.asked:
            save(step)
            sys.exit(f"\nstopped; the same command with --resume goes on after step {step}")
        if step == begun + 1 or step % options.every == 0 or step == end:
            now = time.perf_counter()
            speed = options.batch_size * options.block_size * counted / (now - since)
            left = duration((now - start) / (step - begun) * (end - step))
            print(
                f"step {step:5}  loss {total / counted:.3f}  "
                f"test {evaluate(model, test, options):.3f}  {speed:,.0f} tokens/s  {left} left",
                flush=True,
            )
            if step % options.every == 0 or step == end:
                save(step)
            if options.sample and step % (options.every * options.sample) == 0 and step < end:
                show(model, tokenizer, options, 60)
                print()
            since, total, counted = time.perf_counter(), 0.0, 0
    loss = evaluate(model, test, options) * per_character
    print(f"test loss per character {loss:.3f}; kept in {options.checkpoint}\n")
    show(model, tokenizer, options, 300)
    print(f"\nMore of it: python examples/gpt.py --checkpoint {options.checkpoint} --write 500")


if __name__ == "__main__":
    main()
