"""Step checkpoint04: Checkpoints with keywords and nested results

A block of a Transformer is called with a mask as a keyword, and returns its output together with
the weights of the attention. The checkpoint of step checkpoint03 takes neither: it wants one
tensor, and asks a tuple for its grad_fn.

Keywords are passed on in both runs. To find the nodes, the walk starts from all tensors of the
result, whether it is one, a tuple, a list, a set or a dict of them, or a dataclass, also nested:

    {"out": y, "weights": [a, b], "name": "block 3"}    starts from y, a and b

And the generators of step checkpoint03 are now those of the CPU and of each device among the
arguments.

The trap: a tensor inside an object of another class is not found. Its nodes keep their values: the
gradient is right, and only the memory is not saved.

New: tensors_in. Changed: graph_since, Segment, checkpoint.
Try: take `dict` out of tensors_in. How many tensors does it find in the result?
"""

import dataclasses
import importlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tinytorch.autograd.backward import grad
from tinytorch.autograd.graph import graph_functions
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import NOTHING, Function
from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.core.version import next_sequence_nr
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.comparison import equal
from tinytorch.ops.random import Generator, generator_for, manual_seed, randn
from tinytorch.random import fork_rng

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul norm reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a value: itself, or those in tuples, lists, sets, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, set)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from tensors_in(tuple(vars(value).values()))


def graph_since(time: int, outputs: Any) -> list[Function]:
    """The nodes behind `outputs` that were recorded after `time`, the oldest first."""
    nodes: set = set()
    waiting = [x.grad_fn for x in tensors_in(outputs)]
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

    def __init__(self, function: Callable, args: tuple, kwargs: dict, preserve_rng_state: bool):
        self.function, self.args, self.kwargs = function, args, kwargs
        for device in {cpu, *(x.device for x in tensors_in([args, kwargs]))}:
            generator_for(device, None)  # make it, if nothing was drawn yet
        default = Generator.default.values() if preserve_rng_state else ()
        self.random = [(generator, generator.get_state()) for generator in default]
        self.time = next_sequence_nr()

    def drop(self, outputs: Any) -> None:
        """Take from the nodes behind `outputs` what they have saved."""
        nodes = graph_since(self.time, outputs)
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
            outputs = self.function(*self.args, **self.kwargs)
        nodes = graph_since(time, outputs)
        for node, reference in zip(nodes, self.dropped, strict=True):
            dropped = reference()
            if dropped is not None:
                dropped.saved, dropped.segment = node.saved, None


def checkpoint(
    function: Callable,
    *args: Any,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), of which only the arguments and results are kept for backward.

    What its operations have saved is dropped after the call. When backward comes to the first of
    them, the function is called once more, with the same random numbers (unless preserve_rng_state
    is False). Gradients are the same, of any order; it takes the time of a second forward pass.
    """
    segment = Segment(function, args, kwargs, preserve_rng_state)
    outputs = function(*args, **kwargs)
    segment.drop(outputs)
    return outputs


if __name__ == "__main__":
    manual_seed(0)
    layer = Linear(4, 4)
    x, mask = randn(3, 4, requires_grad=True), tensor([1.0, 0.0, 1.0, 1.0])

    def block(x, *, mask, name="block"):
        hidden = layer(x).tanh()
        return {"out": hidden * mask, "parts": [hidden.exp(), (x * 2.0,)], "name": name}

    def total(result):
        return sum(tensor.sum() for tensor in tensors_in(result))

    result = checkpoint(block, x, mask=mask, name="b3")
    print(result["name"], len(list(tensors_in(result))))  # -> b3 3
    print(sorted({type(f.saved).__name__ for f in graph_functions(total(result["parts"]))}))
    # -> ['Dropped', 'tuple']
    expected = grad(total(block(x, mask=mask)), [x, layer.weight])
    found = grad(total(result), [x, layer.weight])
    print([equal(a, b) for a, b in zip(found, expected, strict=True)])  # -> [True, True]

    @dataclasses.dataclass
    class Pair:
        one: Tensor
        other: Tensor

    print(len(list(tensors_in([Pair(x, mask), {x}]))))  # -> 3

    # A tensor that is not found keeps its values, and its gradient is right.
    class Hidden:
        def __init__(self, x):
            self.value = x.exp()

    hidden = checkpoint(Hidden, x).value
    print(type(hidden.grad_fn.saved).__name__, equal(*grad(hidden.sum(), x), x.exp()))
    # -> tuple True
