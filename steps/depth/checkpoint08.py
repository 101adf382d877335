"""Step checkpoint08: checkpoint_sequential

A checkpoint around each layer, or one around ten? With n layers in s segments, forward keeps the s
inputs of the segments. Backward keeps besides what the n / s layers of one segment save, while it
is in there: s * input + (n / s) * saved by a layer. That is smallest where both parts are equal, at
s = sqrt(n * saved / input). So a network 100 times as deep needs 10 times the memory (Chen et al.,
2016). The price is one more forward pass, about a third of a step's time.

checkpoint_sequential divides a Sequential into segments. The last one is not a checkpoint, because
backward begins with it and would compute it again at once. So one segment means no checkpoint.

The demo measures the curve: bytes with tracemalloc (step profiler07), which counts NumPy's arrays,
as the peak of forward and backward together. The time is printed without a promise.

The trap is to expect the memory of one layer. The gradients of the parameters, the parameters and
the optimizer's state are what they were; checkpoints lower only what the graph keeps.

New: in_turn, checkpoint_sequential. Finished: utils/checkpoint.py.
Try: segments of other lengths, (3, 5, 6) as well. Where is the smallest peak?
"""

import dataclasses
import importlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from tinytorch.autograd.engine import NodeMode
from tinytorch.autograd.modes import enable_grad
from tinytorch.autograd.node import NOTHING, Function
from tinytorch.core.device import cpu
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import modified_since, next_sequence_nr
from tinytorch.nn.modules.activation import GELU, Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.comparison import allclose
from tinytorch.ops.random import Generator, generator_for, manual_seed, randn
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
        if isinstance(self.saved, Dropped):  # of a checkpoint in the checkpoint
            return self.saved.values()
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
        self.modes = [mode for mode in state.modes if not isinstance(mode, NodeMode)]
        self.time = next_sequence_nr()

    def drop(self, outputs: Any) -> None:
        """Take from the nodes behind `outputs` what they have saved."""
        nodes = graph_since(self.time, outputs)
        edges = [edge for node in nodes for edge in node.edges if edge is not None]
        self.inputs = [edge[0] for edge in edges if isinstance(edge[0], Tensor)]
        self.inputs += tensors_in([self.args, self.kwargs])
        nodes = [node for node in nodes if node.saved is not NOTHING]
        self.recorded = [(type(node), *node.outputs) for node in nodes]
        self.dropped = []
        for node in nodes:
            dropped = Dropped()
            dropped.segment, node.saved = self, dropped
            node.saved_arrays = tuple  # (): the engine checks nothing, `values` does
            # Only the node keeps it alive, so that its values go when backward has used them.
            self.dropped.append(weakref.ref(dropped))

    def recompute(self) -> None:
        """Call the function again, and hand out the values that its operations save."""
        check_unmodified(self.inputs, self.time)
        before, time = state.modes, next_sequence_nr()
        state.modes = tuple(mode for mode in before if isinstance(mode, NodeMode))
        try:
            with ExitStack() as inside:
                for context in (fork_rng(enabled=bool(self.random)), enable_grad(), *self.modes):
                    inside.enter_context(context)
                for generator, position in self.random:
                    generator.set_state(position)
                outputs = self.function(*self.args, **self.kwargs)
        finally:
            state.modes = before
        # Only those that save: autocast, for one, casts a parameter once, and not again.
        nodes = [node for node in graph_since(time, outputs) if node.saved is not NOTHING]
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
    is False) and under the same modes. Gradients are the same, of any order; it takes the time of
    a second forward pass. Checkpoints may contain others.

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


def in_turn(functions: Sequence[Callable], x: Any) -> Any:
    for function in functions:
        x = function(x)
    return x


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **options: Any
) -> Any:
    """The functions (or layers of a Sequential) one after the other, in `segments` checkpoints.

    The last segment is not a checkpoint: backward would compute it again at once.
    """
    functions = list(functions)
    size = len(functions) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        part = functions[start : start + size]
        input = checkpoint(in_turn, part, input, use_reentrant=use_reentrant, **options)
    return in_turn(functions[last:], input)


if __name__ == "__main__":
    import time
    import tracemalloc

    from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)

    manual_seed(0)
    # 16 layers, each of which keeps four arrays of the size of its input.
    model = Sequential(*(Sequential(Linear(64, 64), Tanh(), GELU(), Tanh()) for _ in range(16)))
    x = randn(256, 64)
    one = x.numel() * 4

    def step(segments):
        loss = checkpoint_sequential(model, segments, x, use_reentrant=False).sum()
        loss.backward()

    step(1)
    expected = model[0][0].weight.grad.clone()
    peaks = {}
    for segments in (1, 2, 4, 8, 16):
        model.zero_grad()
        start = time.perf_counter()
        step(segments)
        elapsed = time.perf_counter() - start
        same = allclose(model[0][0].weight.grad, expected)

        model.zero_grad()
        tracemalloc.start()
        step(segments)
        peaks[segments] = tracemalloc.get_traced_memory()[1] / one
        tracemalloc.stop()
        bar = "*" * round(peaks[segments])
        print(f"{segments:2} segments {1000 * elapsed:6.1f} ms, same gradient {same} |{bar}")
    # ->  1 segments ... ms, same gradient True |*****...
    # ->  2 segments ... ms, same gradient True |*****...
    # ->  4 segments ... ms, same gradient True |*****...
    # ->  8 segments ... ms, same gradient True |*****...
    # -> 16 segments ... ms, same gradient True |*****...

    print(min(peaks, key=peaks.get) in (4, 8))  # -> True
    print(f"{peaks[1] / min(peaks.values()):.0f} times less")  # -> ...
    print(peaks[1] > 2.5 * min(peaks.values()))  # -> True
