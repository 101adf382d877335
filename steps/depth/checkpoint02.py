"""Step checkpoint02: Checkpoints that keep the graph, in the package's dress

Step 84b built them: the graph stays as it is, and only what its nodes have saved is dropped. A
`Segment` is one call: the function, its arguments, and its Droppeds. graph_since finds the nodes
that were recorded since a point of the global clock.

The trap is a cycle: a Dropped refers to its segment, and the segment to it, so only the garbage
collector could free them. So the segment has weak references. They also tell which nodes still need
their values.

(In PyTorch: use_reentrant=False, which it recommends.)

Changed: checkpoint. New: graph_since, Dropped, Segment. Gone: Checkpoint.
Try: print a line in `block`. Which lines of the demo print it, and how often?
"""

import importlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tinytorch.autograd.backward import grad
from tinytorch.autograd.graph import graph_functions
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import NOTHING, Function
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.core.version import next_sequence_nr
from tinytorch.nn.modules.activation import GELU, Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.comparison import equal
from tinytorch.ops.random import manual_seed, randn

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

    def __init__(self, function: Callable, args: tuple):
        self.function, self.args = function, args
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
        with enable_grad():
            output = self.function(*self.args)
        nodes = graph_since(time, output)
        for node, reference in zip(nodes, self.dropped, strict=True):
            dropped = reference()
            if dropped is not None:
                dropped.saved, dropped.segment = node.saved, None


def checkpoint(function: Callable, *args: Any) -> Tensor:
    """function(*args), of which only the arguments and the result are kept for backward.

    What its operations have saved is dropped after the call. When backward comes to the first of
    them, the function is called once more. Gradients are the same, of any order; it takes the time
    of a second forward pass.
    """
    segment = Segment(function, args)
    output = function(*args)
    segment.drop(output)
    return output


if __name__ == "__main__":
    manual_seed(0)
    model = Sequential(*(Sequential(Linear(64, 64), Tanh(), GELU()) for _ in range(4)))
    x = randn(32, 64, requires_grad=True)

    def run(call):
        h = x
        for block in model:
            h = call(block, h)
        return h

    def kept(y):
        """Bytes of the arrays that the graph of y keeps now; of a Dropped, none."""
        saved = [node.saved for node in graph_functions(y)]
        arrays = [v for values in saved if not isinstance(values, Dropped) for v in values]
        return sum(array.nbytes for array in arrays)

    plain = run(lambda block, h: block(h))
    dropped = run(checkpoint)
    print(len(graph_functions(plain)), len(graph_functions(dropped)))  # -> 12 12
    print(kept(plain) > 100_000, kept(dropped))  # -> True 0

    inputs = [x, *model.parameters()]
    same = zip(grad(plain.sum(), inputs), grad(dropped.sum(), inputs), strict=True)
    print("same gradients:", all(equal(a, b) for a, b in same))  # -> same gradients: True

    # Data as the input: the parameters are in the graph, as they are without a checkpoint.
    y = checkpoint(model[0], x.detach())
    print(y.requires_grad, len(grad(y.sum(), model[0].parameters())))  # -> True 2

    # How often is a block computed?
    calls = []

    def block(a, b):
        calls.append(state.grad_enabled)
        return (a * b).tanh() * a

    a, b = tensor(0.5, requires_grad=True), tensor(2.0, requires_grad=True)
    y = checkpoint(block, a, b)
    print(len(calls))  # -> 1
    print(grad(y, (a, b), retain_graph=True), len(calls))
    # -> (tensor(1.1816), tensor(0.1050)) 2
    grad(y, a)  # what retain_graph keeps is not computed a third time
    print(len(calls))  # -> 2

    # The graph of the gradient leads to a and b as well: a second derivative.
    (first,) = grad(checkpoint(block, a, b), a, create_graph=True)
    (expected,) = grad(block(a, b), a, create_graph=True)
    print(equal(first, expected))  # -> True
    print(equal(*grad(first, b), *grad(expected, b)))  # -> True
