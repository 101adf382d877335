"""Step gpt01: The text of a GPT: whole words as tokens

Step 59c made tokens by merging pairs of pieces. The run begins with something simpler and faster,
which suits a text about code: `split` cuts it into words, indents and signs, and the most frequent
pieces get a number of their own. Rare pieces are spelled character by character, so every text over
these characters can be encoded. A rare word costs more than with pairs: "Unheard" is seven tokens.

sample_batch draws windows of the text as TextWindows of step 55b does, all with one index: starts
[size, 1] and places [block_size] are broadcast.

The text: lessons of this course, from its first to those on shapes. It is frozen in a file of the
package, so that a word that is corrected later changes no number.

The trap: a loss per token cannot be compared between two vocabularies. There are fewer tokens, and
each is harder. The demo prints the loss per character too, for the table of pairs.

New: read_lessons, split, Tokenizer, sample_batch.
Try: 5,000 pieces. The table gets better and better. Why does that not make it a good model?
"""

import gzip
import importlib
import re
from collections import Counter
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


if __name__ == "__main__":
    text = read_lessons()
    print(split("    x.grad = None\n    return 42"))
    # -> ['    ', 'x', '.', 'grad', ' =', ' None', '\n    ', 'return', ' ', '4', '2']

    print(f"{len(text):,} characters")  # -> 320,458 characters
    per_character = []
    for pieces in (0, 100, 500):
        tokenizer = Tokenizer(text, pieces)
        data = tokenizer.encode(text)
        n, numbers = len(tokenizer), data.numpy()
        i, j = numbers[:-1], numbers[1:]
        counts = np.bincount(i * n + j, minlength=n * n).reshape(n, n)
        table = -np.log(counts[i, j] / counts.sum(1)[i]).mean()
        per_character.append(table * len(data) / len(text))
        print(
            f"{pieces} pieces: {len(text) / len(data):.1f} characters in a token, table of pairs "
            f"{table:.2f} a token, {per_character[-1]:.2f} a character"
        )
    # -> 0 pieces: 1.0 characters in a token, table of pairs 2.54 a token, 2.54 a character
    # -> 100 pieces: 1.4 characters in a token, table of pairs 2.86 a token, 2.08 a character
    # -> 500 pieces: 2.0 characters in a token, table of pairs 3.12 a token, 1.56 a character
    print("pieces help:", per_character[2] < 0.7 * per_character[0])  # -> pieces help: True

    print(tokenizer.decode(tokenizer.encode("the gradient of Unheard")))
    # -> the gradient of Unheard
    print([len(tokenizer.encode(word)) for word in (" gradient", " tensor", "Unheard")])
    # -> [1, 1, 7]

    manual_seed(0)
    x, y = sample_batch(data, 4, 32)
    print(repr(tokenizer.decode(x[0])))
    # -> ' in this module. all(x > 0 for x in xs), with a\ngenera'
