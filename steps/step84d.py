"""Step 84d: How many checkpoints?

A checkpoint around each layer, or one around ten? With n layers in s segments, forward keeps the s
inputs of the segments. Backward keeps besides what the n / s layers of one segment save, while it
is in there:

    memory = s * input + (n / s) * saved by a layer

Few segments are large; many have many inputs. The sum is smallest where both parts are equal, at s
= sqrt(n * saved / input). So a network 100 times as deep needs 10 times the memory, and not 100
times (Chen et al., 2016). The price is one more forward pass, about a third of a step's time. In
the demo n is 16, and a layer saves 3 arrays of its input's size: sqrt(48) is about 7.

checkpoint_sequential divides a Sequential; layers that are left over go to the last segment. That
one is no checkpoint, since backward begins there, and would compute it again at once. So one
segment means no checkpoint at all.

The demo measures the peak with tracemalloc (step 60c), in units of one layer's input.

The trap is to expect that all memory shrinks. Parameters, their gradients and the optimizer's state
remain.

PyTorch: torch.utils.checkpoint.checkpoint_sequential.

New: checkpoint_sequential.
Try: segments (3, 5, 6, 7) as well. Why do 6 need more than 5? How many layers has the last one?

In depth: checkpoint01 to checkpoint09.
"""

import weakref

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.graph import graph_functions
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.device import cpu
from tinytorch.core.version import next_sequence_nr
from tinytorch.nn.modules.activation import GELU, Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.comparison import allclose
from tinytorch.ops.random import Generator, generator_for, manual_seed, randn
from tinytorch.random import fork_rng


def storage_of(array):
    """The array that owns the memory."""
    return array if array.base is None else storage_of(array.base)


def kept_by_node(y, without=()):
    """{node: bytes of the arrays that it keeps, and no earlier node}, the oldest node first.

    without: tensors whose memory does not count, such as parameters.
    """
    seen = {id(storage_of(tensor.array)) for tensor in without}
    kept = {}
    for node in graph_functions(y):  # all nodes behind y
        kept[node] = 0
        for value in node.saved_arrays():
            if hasattr(value, "nbytes"):  # a formula may keep a number, too
                array = storage_of(value)
                kept[node] += 0 if id(array) in seen else array.nbytes
                seen.add(id(array))
    return kept


def graph_since(time, y):
    """The nodes behind y that were recorded after `time`, the oldest first."""
    return [node for node in graph_functions(y) if node.sequence_nr < time]  # it counts down


class Dropped:
    """Stands for what a node has saved. The first access computes the segment again."""

    def __init__(self, segment):
        self.segment, self.saved = segment, None

    def values(self):
        if self.segment is not None:
            self.segment.recompute()
        return self.saved

    def __iter__(self):  # for a formula that says a, b = ctx.saved
        return iter(self.values())

    def __getitem__(self, number):  # for one that says ctx.saved[0]
        return self.values()[number]

    def __len__(self):  # create_graph=True takes the values one by one
        return len(self.values())


class Segment:
    """A call whose values are dropped, and what is needed to repeat it."""

    def __init__(self, function, args, preserve_rng_state):
        self.function, self.args = function, args
        generator_for(cpu, None)  # make it, if nothing was drawn yet
        default = Generator.default.values() if preserve_rng_state else ()  # one for each device
        self.random = [(generator, generator.get_state()) for generator in default]
        self.time = next_sequence_nr()

    def drop(self, output):
        """Take from the nodes behind `output` what they have saved."""
        self.dropped = []
        for node in graph_since(self.time, output):
            node.saved = dropped = Dropped(self)
            # Before a formula, the engine asks for saved_arrays() and checks that none was written
            # since. That would compute the segment; tuple(), which is (), leaves nothing to check.
            node.saved_arrays = tuple
            self.dropped.append(weakref.ref(dropped))  # only the node keeps it alive

    def recompute(self):
        """Call the function again, and hand out what its operations save."""
        time = next_sequence_nr()
        with fork_rng(), enable_grad():  # backward runs with recording off
            for generator, position in self.random:
                generator.set_state(position)
            output = self.function(*self.args)
        for node, reference in zip(graph_since(time, output), self.dropped, strict=True):
            dropped = reference()
            if dropped is not None:
                dropped.saved, dropped.segment = node.saved, None


def checkpoint(function, *args, use_reentrant=None, preserve_rng_state=True):
    """function(*args), of which only the arguments and the result are kept for backward.

    preserve_rng_state: draw the same random numbers when it is computed again.
    use_reentrant: True in PyTorch means a single node, which is not built here.
    """
    segment = Segment(function, args, preserve_rng_state)
    output = function(*args)
    segment.drop(output)
    return output


def checkpoint_sequential(functions, segments, input, use_reentrant=None):
    """The layers of a Sequential in `segments` checkpoints, the last of which is none."""
    functions = list(functions)
    size = len(functions) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        part = Sequential(*functions[start : start + size])
        input = checkpoint(part, input, use_reentrant=use_reentrant)
    return Sequential(*functions[last:])(input)


if __name__ == "__main__":
    import tracemalloc

    manual_seed(0)
    layers = [Sequential(Linear(64, 64), Tanh(), GELU(), Tanh()) for _ in range(16)]
    model, x = Sequential(*layers), randn(256, 64)

    gradients, peaks = [], {}
    for segments in (1, 2, 4, 8, 16):
        model.zero_grad()
        tracemalloc.start()
        checkpoint_sequential(model, segments, x, use_reentrant=False).sum().backward()
        peaks[segments] = tracemalloc.get_traced_memory()[1] / x.nbytes
        tracemalloc.stop()
        gradients.append(model[0][0].weight.grad)
        print(f"{segments:2} segments {'*' * round(peaks[segments])}")  # here: PyTorch's are unseen
    # ->  1 segments *****...
    # ->  2 segments *****...
    # ->  4 segments *****...
    # ->  8 segments *****...
    # -> 16 segments *****...
    print("the same gradients:", all(allclose(g, gradients[0]) for g in gradients))
    # -> the same gradients: True
    print("less than 0.4:", 2.5 * min(peaks.values()) < peaks[1])  # here: the same
    # -> less than 0.4: True
