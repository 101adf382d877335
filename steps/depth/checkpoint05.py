"""Step checkpoint05: Checkpoints as PyTorch calls them: use_reentrant, and no_grad

A program that was written for PyTorch says checkpoint(block, x, use_reentrant=False). In step
checkpoint04 this keyword goes to the block, which does not know it: the demo begins with such a
block.

use_reentrant is PyTorch's switch between two implementations. The older one (True) is that of step
checkpoint01, which runs backward within backward. PyTorch asks the caller to choose. tinytorch has
the newer one only: True raises an error, and leaving it out gives a warning.

Under no_grad nothing is recorded, so there is nothing to drop, and the function is simply called.
Otherwise each checkpoint of a network in use would save the state of the random numbers (20 us)
for a second run that never comes.

The trap: a keyword of this name never reaches the function, and neither does preserve_rng_state.

Changed: checkpoint.
Try: stacklevel=1, and print caught[0].lineno. Which line does the warning blame then?
"""

import dataclasses
import importlib
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.autograd.node import NOTHING, Function
from tinytorch.core.device import cpu
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import next_sequence_nr
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.random import Generator, generator_for, randn
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
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """function(*args, **kwargs), of which only the arguments and results are kept for backward.

    What its operations have saved is dropped after the call. When backward comes to the first of
    them, the function is called once more, with the same random numbers (unless preserve_rng_state
    is False). Gradients are the same, of any order; it takes the time of a second forward pass.

    Raises:
        NotImplementedError: use_reentrant=True, PyTorch's older form.
    """
    if use_reentrant:
        raise NotImplementedError("checkpoint needs use_reentrant=False; it is recommended anyway")
    if use_reentrant is None:
        warnings.warn(
            "the use_reentrant parameter should be passed explicitly; tinytorch takes False",
            stacklevel=2,
        )
    if not state.grad_enabled:
        return function(*args, **kwargs)
    segment = Segment(function, args, kwargs, preserve_rng_state)
    outputs = function(*args, **kwargs)
    segment.drop(outputs)
    return outputs


if __name__ == "__main__":
    layer, x = Linear(4, 4), randn(3, 4, requires_grad=True)

    def strict(x, **options):
        """A block that does not know any options."""
        print("it gets", options)
        return layer(x).tanh()

    y = checkpoint(strict, x, use_reentrant=False)  # -> it gets {}
    print(y.grad_fn.name())  # -> TanhBackward0

    with no_grad():
        print(checkpoint(layer, x, use_reentrant=False).requires_grad)  # -> False
    try:
        checkpoint(layer, x, use_reentrant=True)
    except NotImplementedError as error:
        print(error)  # -> checkpoint needs use_reentrant=False; it is recommended anyway
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint(layer, x)
    print(caught[0].message)
    # -> the use_reentrant parameter should be passed explicitly; tinytorch takes False
