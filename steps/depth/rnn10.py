"""Step rnn10: A letter-level LSTM, from finished modules

Step 56e taught an LSTM to write. Here the same is a program of finished layers, and its texts are
names: those of functions and classes that occur in lessons of this course, frozen in a file of the
package. Names end, so the sign "." stands for the start and for the end.

    input    .  c  h  e  c  k
    target   c  h  e  c  k  .

Names differ in length, so they are packed (steps rnn07 and rnn09).

The trap: the targets have to be in the order of the packed inputs. Each letter and the one that
follows are packed together, as two columns, and so they cannot come apart. Padded targets would be
compared with the wrong letters, or with padding.

Changed: nothing in the framework. New: a network of what is there.
Try: --steps=3000 for better names, or a temperature of 0.3 and of 2.
"""

import importlib

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


if __name__ == "__main__":
    import argparse
    import gzip
    import math
    import pathlib
    import re

    from tinytorch.autograd.modes import no_grad
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.loss import cross_entropy
    from tinytorch.nn.modules.module import Module
    from tinytorch.nn.modules.rnn import LSTM
    from tinytorch.nn.modules.sparse import Embedding
    from tinytorch.nn.utils.clip_grad import clip_grad_norm_
    from tinytorch.nn.utils.rnn import PackedSequence, pack_sequence
    from tinytorch.ops.joining import stack
    from tinytorch.ops.random import manual_seed, randint
    from tinytorch.ops.sampling import multinomial
    from tinytorch.optim.adam import Adam

    for module in "autograd.backward core.printing".split():
        importlib.import_module(f"tinytorch.{module}")

    flags = argparse.ArgumentParser()
    flags.add_argument("--steps", type=int, default=200, help="steps of training")
    options = flags.parse_args()

    packed = pathlib.Path("tinytorch", "datasets", "lessons.txt.gz")
    folder = next(f for f in pathlib.Path(__file__).resolve().parents if (f / packed).exists())
    with gzip.open(folder / packed, "rt", encoding="ascii") as file:
        text = file.read()
    # With an underscore or a second capital letter inside, or in front of a bracket.
    name = r"\b[a-z]+(?:_[a-z]+)+\b|\b[A-Z][a-z]+[A-Z][A-Za-z]+\b|\b[A-Za-z]{4,16}(?=\()"
    names = sorted({name.lower() for name in re.findall(name, text) if 4 <= len(name) <= 17})
    letters = ".", *sorted({letter for name in names for letter in name})
    print(f"{len(names)} names, for example {', '.join(names[50:400:100])}")
    # -> 397 names, for example broadcast_to, hooks_of, operation, take_along
    # Of each name the letters, and beside each the one that follows: [length, 2].
    encoded = []
    for name in names:
        numbers = tensor([letters.index(letter) for letter in f".{name}."])
        encoded.append(stack([numbers[:-1], numbers[1:]], 1))

    class Writer(Module):
        """Scores of the next letter: table, LSTM, linear layer."""

        def __init__(self, letters, width=32, hidden=64):
            super().__init__()
            self.table, self.lstm = Embedding(letters, width), LSTM(width, hidden)
            self.head = Linear(hidden, letters)

        def forward(self, words, state=None):
            """The scores of packed or of plain letters, and the state behind them."""
            if isinstance(words, PackedSequence):
                output, state = self.lstm(PackedSequence(self.table(words.data), *words[1:]), state)
                return self.head(output.data), state
            output, state = self.lstm(self.table(words), state)
            return self.head(output), state

    @no_grad()
    def write(model, temperature=0.7):
        """One name, drawn letter by letter."""
        letter, state, name = tensor([0]), None, ""
        while len(name) < 30:
            scores, state = model(letter, state)
            letter = multinomial((scores[0] / temperature).softmax(0), 1)
            if letter.item() == 0:
                break
            name += letters[letter.item()]
        return name

    manual_seed(0)
    model = Writer(len(letters))
    print("before:", [write(model)[:12] for _ in range(3)])  # -> ...
    optimizer, losses = Adam(model.parameters(), lr=0.008), []
    for step in range(options.steps):
        chosen = [encoded[i] for i in randint(0, len(encoded), (64,)).tolist()]
        packed = pack_sequence(chosen, enforce_sorted=False)
        inputs, targets = PackedSequence(packed.data[:, 0], *packed[1:]), packed.data[:, 1]
        loss = cross_entropy(model(inputs)[0], targets)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 49:
            print(f"step {step + 1}: loss {sum(losses[-50:]) / 50:.2f}")  # -> ...
    # -> ...
    # -> ...
    # -> ...
    print(f"a guess costs log {len(letters)} = {math.log(len(letters)):.2f}")  # -> ...
    print("learned:", sum(losses[-20:]) / 20 < 0.65 * math.log(len(letters)))  # -> learned: True

    written = [write(model) for _ in range(30)]
    new = [name for name in dict.fromkeys(written) if len(name) > 3 and name not in names]
    print(f"{len(new)} of 30 are new: {', '.join(new[:10])}")  # -> ...
    print("at least ten:", len(new) >= 10)  # -> at least ten: True
