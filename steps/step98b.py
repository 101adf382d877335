"""Step 98b: A GPT, trained by several processes

Does all of this hold for the GPT of step 58d? The program below is that of one process, with four
changes: init_process_group, DistributedDataParallel, DistributedSampler, and the size of the batch
divided by the number of ranks. Start it with one, two or four processes:

    mpiexec -n 2 python steps/step98b.py

They are real processes then. Without mpiexec, two simulated ranks train.
In both cases one rank alone trains the same network for comparison. The losses agree to the last
digit shown, and they still do after 1,600 steps (step98b.py 1600), when it writes words.

The trap is in what one prints. Each rank has the loss of its own share; the loss of the batch is
the mean, one all_reduce more. And only rank 0 prints.

What you have now: a small PyTorch that you have built idea by idea, from a box with a derivative to
processes that train a GPT together. What PyTorch has that you have not: fast kernels for every
operation on many processors, some thousand operations more, FSDP, a compiler for almost any Python,
and the people who use it every day and report what is wrong.

New: nothing. It is the end of the road.
Try: write DataLoader(data, 16 // size, shuffle=True), without the sampler. What do the lines say?
"""

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import tensor
from tinytorch.distributed.collectives import all_reduce
from tinytorch.distributed.group import get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.nn.init import normal_
from tinytorch.nn.modules.activation import GELU
from tinytorch.nn.modules.attention import scaled_dot_product_attention
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import LayerNorm
from tinytorch.nn.modules.sparse import Embedding
from tinytorch.nn.parallel.distributed import DistributedDataParallel
from tinytorch.ops.joining import cat
from tinytorch.ops.random import manual_seed
from tinytorch.ops.sampling import multinomial
from tinytorch.optim.adam import AdamW
from tinytorch.utils.data.dataloader import DataLoader
from tinytorch.utils.data.dataset import Dataset
from tinytorch.utils.data.distributed import DistributedSampler


class Letters:
    """A number for each letter that occurs in a text."""

    def __init__(self, text):
        self.letters = sorted(set(text))
        self.numbers = {letter: number for number, letter in enumerate(self.letters)}

    def __len__(self):
        return len(self.letters)

    def encode(self, text):
        return tensor([self.numbers[letter] for letter in text])

    def decode(self, numbers):
        return "".join([self.letters[number] for number in numbers.tolist()])


class TextWindows(Dataset):
    """Item i: `size` numbers of a text from place i on, and the same one place further."""

    def __init__(self, numbers, size):
        self.numbers, self.size = numbers, size

    def __len__(self):
        return len(self.numbers) - self.size

    def __getitem__(self, index):
        part = self.numbers[index : index + self.size + 1]
        return part[:-1], part[1:]


def text_loss(net, x, t):
    """Cross entropy of what net says behind each letter of x [n, t]."""
    y = net(x)
    return cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1))


def generate(net, start, length, context, temperature=1.0):
    """The tokens start [t], and `length` more, each drawn from what net says comes next: from
    softmax(scores / temperature)."""
    net.eval()
    with no_grad():
        for _ in range(length):
            scores = net(start[-context:].reshape(1, -1))[0, -1] / temperature
            start = cat([start, multinomial(scores.softmax(0), 1)])
    net.train()
    return start


class SelfAttention(Module):
    """Causal attention of a text to itself in several heads side by side: [n, t, size] -> same."""

    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.inward = Linear(size, 3 * size)
        self.outward = Linear(size, size)

    def forward(self, x):
        n, t, size = x.shape
        parts = self.inward(x).reshape(n, t, 3, self.heads, size // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)  # each [n, heads, t, size / heads]
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outward(y.transpose(1, 2).reshape(n, t, size))


def sinusoids(n, size):
    """Positions 0 to n - 1 as rows of `size` numbers: sines and cosines from fast to slow."""
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, size, 2) / size)
    return tensor(np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32))


class Block(Module):
    """A block of a Transformer: x + attention(norm(x)), then x + network(norm(x))."""

    def __init__(self, size, heads, p=0.0):
        super().__init__()
        self.norm1 = LayerNorm(size)
        self.attention = SelfAttention(size, heads)
        self.norm2 = LayerNorm(size)
        self.network = Sequential(Linear(size, 4 * size), GELU("tanh"), Linear(4 * size, size))
        self.dropout = Dropout(p)

    def forward(self, x):
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.network(self.norm2(x)))


class GPT(Module):
    """Tokens [n, t] -> scores [n, t, tokens] of the next one."""

    def __init__(self, tokens, context, size, heads, layers, p=0.0):
        super().__init__()
        self.embedding = Embedding(tokens, size)
        normal_(self.embedding.weight, 0, 0.2)
        self.register_buffer("positions", sinusoids(context, size))
        self.blocks = Sequential(*[Block(size, heads, p) for _ in range(layers)])
        self.norm = LayerNorm(size)
        self.head = Linear(size, tokens, bias=False)

    def forward(self, x):
        x = self.embedding(x) + self.positions[: x.shape[1]]
        return self.head(self.norm(self.blocks(x)))


if __name__ == "__main__":
    import gzip
    import os
    import pathlib
    import sys

    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    packed = pathlib.Path(__file__).parent / "../tinytorch/datasets/lessons.txt.gz"
    text = gzip.decompress(packed.read_bytes()).decode()
    letters, context = Letters(text), 32
    data = TextWindows(letters.encode(text), context)

    def train():
        """The mean loss of the ranks after each quarter, and what the GPT writes then."""
        init_process_group("mpi")
        size = get_world_size()
        manual_seed(0)
        net = DistributedDataParallel(GPT(len(letters), context, 64, 4, 1))
        optimizer, losses = AdamW(net.parameters(), lr=0.006), []
        loader = DataLoader(data, 16 // size, sampler=DistributedSampler(data))
        for step, (x, t) in zip(range(1, steps + 1), loader, strict=False):
            loss = text_loss(net, x, t)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % (steps // 4) == 0:
                mean = loss.detach()
                all_reduce(mean)
                losses.append(f"{mean.item() / size:.4f}")
        manual_seed(1)
        written = generate(net.module, letters.encode("The "), 150, context, temperature=0.5)
        return size, losses, letters.decode(written).replace("\n", " ")

    real = "PMI_RANK" in os.environ or "OMPI_COMM_WORLD_RANK" in os.environ  # mpiexec started it
    together = train() if real else simulate(2, train)[0]
    (alone,) = simulate(1, train)
    if not real or get_rank() == 0:
        for size, losses, _ in (alone, together):
            print(size, "ranks:" if size > 1 else "rank: ", *losses)
        # -> 1 rank:  3.2594 2.8916 2.6925 2.5095
        # -> 2 ranks: 3.2594 2.8916 2.6925 2.5095
        print(together[2])  # -> ...
