"""Step checkpoint03: Checkpoints and random numbers, in the package's dress

As in step 84b, the second run has to draw the numbers of the first one, and the program's own
stream has to go on as if nothing had happened. Here the states of all devices are kept, each has a
generator, and fork_rng restores them.

Saving the state takes 20 us for each checkpoint, since it is 2.5 KB long. For a block that draws
nothing, preserve_rng_state=False avoids it.

The trap: only the default generators are restored, one for each device, as in PyTorch. A generator
that the block made itself is not.

Changed: Segment, checkpoint.
Try: leave fork_rng out, and look at the last promise.
"""

import importlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tinytorch.autograd.backward import grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import NOTHING, Function
from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import next_sequence_nr
from tinytorch.ops.random import Generator, generator_for, manual_seed, rand, randn
from tinytorch.random import fork_rng

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul norm reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def graph_since(time: int, output: Tensor) -> list[Function]:
    """The nodes behind `output` that were recorded after `time`, the oldest first."""
    nodes: set = set()
    waiting = [output.grad_fn]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Function) and node.sequence_nr < time and node not in nodes:
            nodes.add(node)
            waiting.extend(edge[0] for edge in node.edges if edge is not None)
    return sorted(nodes, key=lambda node: -node.sequence_nr)


class Dropped:
    """Stands for what a node has saved. The first access computes the checkpoint again."""

    segment: "Segment | None" = None  # what is to be computed
    saved: Any = None  # what it gave

    def values(self) -> Any:
        if self.segment is not None:
            self.segment.recompute()
        return self.saved

    def __iter__(self) -> Iterator:
        return iter(self.values())

    def __getitem__(self, number: Any) -> Any:
        return self.values()[number]

    def __len__(self) -> int:
        return len(self.values())


class Segment:
    """A call whose values are dropped, and all that is needed to repeat it."""

    def __init__(self, function: Callable, args: tuple, preserve_rng_state: bool):
        self.function, self.args = function, args
        generator_for(cpu, None)  # make it, if nothing was drawn yet
        default = Generator.default.values() if preserve_rng_state else ()
        self.random = [(generator, generator.get_state()) for generator in default]
        self.time = next_sequence_nr()

    def drop(self, output: Tensor) -> None:
        """Take from the nodes behind `output` what they have saved."""
        nodes = graph_since(self.time, output)
        self.dropped = []
        for node in nodes:
            dropped = Dropped()
            if node.saved is not NOTHING:
                dropped.segment, node.saved = self, dropped
            # Only the node keeps it alive, so that its values go when backward has used them.
            self.dropped.append(weakref.ref(dropped))

    def recompute(self) -> None:
        """Call the function again, and hand out the values that its operations save."""
        time = next_sequence_nr()
        with fork_rng(enabled=bool(self.random)), enable_grad():
            for generator, position in self.random:
                generator.set_state(position)
            output = self.function(*self.args)
        nodes = graph_since(time, output)
        for node, reference in zip(nodes, self.dropped, strict=True):
            dropped = reference()
            if dropped is not None:
                dropped.saved, dropped.segment = node.saved, None


def checkpoint(function: Callable, *args: Any, preserve_rng_state: bool = True) -> Tensor:
    """function(*args), of which only the arguments and the result are kept for backward.

    What its operations have saved is dropped after the call. When backward comes to the first of
    them, the function is called once more, with the same random numbers (unless preserve_rng_state
    is False). Gradients are the same, of any order; it takes the time of a second forward pass.
    """
    segment = Segment(function, args, preserve_rng_state)
    output = function(*args)
    segment.drop(output)
    return output


if __name__ == "__main__":
    x = randn(1000, requires_grad=True)

    def layer(h):
        """Dropout: half of the elements become 0."""
        return h * (rand(1000) < 0.5).float()

    def wrong(preserve):
        """How many elements have y = 0 and a gradient, or neither."""
        y = checkpoint(lambda h: layer(h) * h, x, preserve_rng_state=preserve)
        (g,) = grad(y.sum(), x)
        return int(((y == 0) != (g == 0)).sum())

    manual_seed(0)
    print("wrong:", wrong(preserve=False) > 400)  # -> wrong: True
    print("wrong:", wrong(preserve=True))  # -> wrong: 0

    # The second run has not changed the random numbers of the program.
    manual_seed(1)
    y = checkpoint(layer, x)
    first = rand(1).item()
    y.sum().backward()
    print(first == rand(1).item())  # -> False
