"""Step gpt01: Tokens: text becomes numbers

A network takes numbers, and a text is characters. So each character that occurs gets a number:
its place in a sorted list, the vocabulary. `encode` looks the numbers up, `decode` goes back. A
number stands for a *token*; here a token is one character.

What is there to learn? The text needs no labels: the label of each token is the token that follows.
One window of block_size tokens gives block_size questions. Here block_size is 5:

    text      t  h  e  _  b  o       _ is the space
    x         t  h  e  _  b          the first five
    y         h  e  _  b  o          the same window, one token later

After "t" comes "h"; after "th" comes "e"; after "the" a space. This is all that a GPT is trained
on, and the text here is one that you have read: lessons of this course, from its first to those on
shapes. It is frozen in a file of the package: a word that is corrected later changes no number.

How good is an answer? The model gives each token a probability, and the loss is -log of the
probability of the token that really follows: 0 if the model was sure and right. Without any
knowledge all tokens are equally likely, and the loss is log(size of the vocabulary). Counting which
character follows which brings it down to about half. A network has to do better than counting.

New: read_lessons, Tokenizer, sample_batch.
Try: decode the numbers 40 to 60. Then encode a text with an umlaut: what does the KeyError say?
"""

import gzip
import importlib
import math
from pathlib import Path

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.tensor import Tensor, tensor
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


class Tokenizer:
    """A number for each character that occurs in a text."""

    def __init__(self, text: str):
        self.tokens = sorted(set(text))
        self.numbers = {token: i for i, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Tensor:
        return tensor([self.numbers[character] for character in text])

    def decode(self, numbers: Tensor) -> str:
        return "".join(self.tokens[i] for i in numbers.tolist())


def sample_batch(data: Tensor, size: int, block_size: int) -> tuple[Tensor, Tensor]:
    """`size` windows of the text, [size, block_size], and the same windows one token later: what
    follows each token."""
    starts = randint(len(data) - block_size, (size, 1))
    places = starts + arange(block_size)
    return data[places], data[places + 1]


if __name__ == "__main__":
    text = read_lessons()
    print(f"{len(text):,} characters")  # -> 320,458 characters
    tokenizer = Tokenizer(text)
    print(len(tokenizer), "different ones:", tokenizer.decode(arange(1, 30)))
    # -> 93 different ones:  !"#%&'()*+,-./0123456789:;<=

    print(tokenizer.decode(tokenizer.encode("x.grad = None")))  # -> x.grad = None

    manual_seed(0)
    data = tokenizer.encode(text)
    x, y = sample_batch(data, 4, 32)
    print(tuple(x.shape), tuple(y.shape))  # -> (4, 32) (4, 32)
    print(repr(tokenizer.decode(x[0])))  # -> '1, n - 1 is 0, and the variance '
    print(repr(tokenizer.decode(y[0])))  # -> ', n - 1 is 0, and the variance i'
    print("y is x, one token later:", (x[:, 1:] == y[:, :-1]).all().item())
    # -> y is x, one token later: True

    # The two simplest models. The second one is a table: how often does j follow i?
    n, numbers = len(tokenizer), data.numpy()
    guess = math.log(n)
    i, j = numbers[:-1], numbers[1:]
    counts = np.bincount(i * n + j, minlength=n * n).reshape(n, n)
    table = -np.log(counts[i, j] / counts.sum(1)[i]).mean()
    print(f"loss of a guess {guess:.2f}, of a table of pairs {table:.2f}")
    # -> loss of a guess 4.53, of a table of pairs 2.54
    print("a table of pairs helps:", 2 < table < 0.65 * guess)  # -> a table of pairs helps: True
