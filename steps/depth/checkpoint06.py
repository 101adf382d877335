"""Step checkpoint06: Checks that the second run repeats the first

The second run must do what the first one did. Three things can go wrong, and with step checkpoint05
the first two give a wrong gradient without an error:

    an input has changed     x or a weight was written in place after the call: the second run
                             starts from other values
    another path             the function depends on a counter, a clock, a flag: it records other
                             nodes, and what they saved is handed to the wrong ones
    a false alarm            the function itself writes in place, into its own results. The second
                             run does so too, later than forward, and the engine's check of
                             versions (step 66b) takes that for a modification

1. Save the time at which the call began. Before the second run, check that no argument and no leaf
   of the graph was written since.
2. Compare the type of each node, and the shape and type of its results, with those of the first.
3. Turn the engine's check off for these nodes. Each new node checks its values right after the
   second run, with its own time. From then on, `Dropped` checks, with the time of the run's end.

The trap is what these checks do not detect: the same operations with other numbers. For a function
that multiplies by the time of the clock, the gradient is silently wrong, here as in PyTorch.

New: CheckpointError, check_unmodified. Changed: Dropped, Segment.
Try: leave the line with saved_arrays out. Which promise breaks?
"""

import dataclasses
import importlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tinytorch.autograd.backward import grad
from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.autograd.node import NOTHING, Function
from tinytorch.core.device import cpu
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.core.version import modified_since, next_sequence_nr
from tinytorch.ops.random import Generator, generator_for
from tinytorch.random import fork_rng

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul norm reduction sampling shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class CheckpointError(RuntimeError):
    """A function did something else when it was computed again."""


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


def check_unmodified(values: Iterable, time: int) -> None:
    """Raise RuntimeError if one of the tensors or arrays was written in place after `time`."""
    for value in values:
        array = getattr(value, "array", value)
        if hasattr(array, "base") and modified_since(array, time):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: a checkpoint cannot be computed again as it was"
            )


class Dropped:
    """Stands for what a node has saved. The first access computes the checkpoint again."""

    segment: "Segment | None" = None  # what is to be computed
    saved: Any = None  # what it gave, and when
    time = 0

    def values(self) -> Any:
        if self.segment is not None:
            self.segment.recompute()
        check_unmodified(self.saved, self.time)
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
        edges = [edge for node in nodes for edge in node.edges if edge is not None]
        self.inputs = [edge[0] for edge in edges if isinstance(edge[0], Tensor)]
        self.inputs += tensors_in([self.args, self.kwargs])
        self.recorded = [(type(node), *node.outputs) for node in nodes]
        self.dropped = []
        for node in nodes:
            dropped = Dropped()
            if node.saved is not NOTHING:
                dropped.segment, node.saved = self, dropped
                node.saved_arrays = tuple  # (): the engine checks nothing, `values` does
            # Only the node keeps it alive, so that its values go when backward has used them.
            self.dropped.append(weakref.ref(dropped))

    def recompute(self) -> None:
        """Call the function again, and hand out the values that its operations save."""
        check_unmodified(self.inputs, self.time)
        time = next_sequence_nr()
        with fork_rng(enabled=bool(self.random)), enable_grad():
            for generator, position in self.random:
                generator.set_state(position)
            outputs = self.function(*self.args, **self.kwargs)
        nodes = graph_since(time, outputs)
        if [(type(node), *node.outputs) for node in nodes] != self.recorded:
            raise CheckpointError(
                "the function of a checkpoint has recorded other operations, or results of other "
                "shapes or types, when it was computed again"
            )
        time = next_sequence_nr()
        for node, reference in zip(nodes, self.dropped, strict=True):
            node.check_saved()
            dropped = reference()
            if dropped is not None:
                dropped.saved, dropped.time, dropped.segment = node.saved, time, None


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
        RuntimeError: in backward: an argument or parameter was changed in place since the call.
        CheckpointError: in backward: the function does not do the same a second time.
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
    x = tensor([0.5, 2.0], requires_grad=True)
    w = tensor([3.0, 4.0])

    def attempt(y):
        try:
            print(grad(y.sum(), x)[0].tolist())
        except RuntimeError as error:
            print(type(error).__name__, str(error)[:66])

    y = checkpoint(lambda x, w: (x * w).tanh(), x, w, use_reentrant=False)
    w += 1.0
    attempt(y)  # -> RuntimeError one of the variables needed for gradient computation has been modi

    weight = tensor([3.0, 4.0], requires_grad=True)
    y = checkpoint(lambda x: (x * weight).tanh(), x, use_reentrant=False)
    with no_grad():
        weight += 1.0
    attempt(y)  # -> RuntimeError one of the variables needed for gradient computation has been modi

    calls = []

    def another_path(x):
        calls.append(x)
        return x.tanh() if len(calls) == 1 else x.exp()

    attempt(checkpoint(another_path, x, use_reentrant=False))
    # -> CheckpointError the function of a checkpoint has recorded other operations, or res

    # A function that writes into its own results does the same again.
    def in_place(x):
        h = x * 1.0
        h.mul_(2.0)
        return (h * h).sqrt()

    attempt(checkpoint(in_place, x, use_reentrant=False))  # -> [2.0, 2.0]

    # But a function that overwrites its own saved values fails, with or without a checkpoint.
    def spoils(x):
        h = x * 1.0
        y = h * h
        h.mul_(2.0)
        return y

    attempt(spoils(x))
    # -> RuntimeError one of the variables needed for gradient computation has been modi
    attempt(checkpoint(spoils, x, use_reentrant=False))
    # -> RuntimeError one of the variables needed for gradient computation has been modi
