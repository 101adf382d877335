"""Step 84c: The same random numbers a second time

What if there is dropout in the block? The second run of step 84b draws new numbers, drops other
elements, and hands their mask to the formulas. The gradient is that of another network, and no
error says so: the demo counts 517 elements of 1000 that are 0 and have a gradient, or the reverse.

Step 60c has the remedy: keep the state of the random numbers before the first run, set it back for
the second, and restore it afterwards. Else the program would draw the same numbers twice. Beyond
that, each device has a generator of its own here (step 62a), and all their states are kept.
fork_rng restores them, also after an error.

To copy states takes time. A function that draws nothing needs none: preserve_rng_state=False.

The trap is a generator that does not exist yet, since nothing was drawn: it has no state to keep.
generator_for makes it.

Changed: Segment, checkpoint.
Try: leave out fork_rng(). Which line of the demo tells?

In depth: checkpoint01 to checkpoint09.
"""

import weakref

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward, grad  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.graph import graph_functions
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.device import cpu
from tinytorch.core.tensor import tensor
from tinytorch.core.version import next_sequence_nr
from tinytorch.nn.functional import dropout
from tinytorch.ops.random import Generator, generator_for, manual_seed, rand
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
    """function(*args), of which only the arguments and the result are kept for backward."""
    segment = Segment(function, args, preserve_rng_state)
    output = function(*args)
    segment.drop(output)
    return output


if __name__ == "__main__":
    x = tensor([1.0] * 1000, requires_grad=True)

    def layer(h):
        return dropout(h, 0.5) * h

    for preserve in (False, True):
        manual_seed(0)
        y = checkpoint(layer, x, use_reentrant=False, preserve_rng_state=preserve)
        (g,) = grad(y.sum(), x)
        print("wrong:", ((y == 0) != (g == 0)).sum().item())
    # -> wrong: 517
    # -> wrong: 0

    # The program draws before backward and after it, with a checkpoint as without one.
    for call in (layer, lambda h: checkpoint(layer, h, use_reentrant=False)):
        manual_seed(0)
        y = call(x)
        before = rand(1).item()
        y.sum().backward()
        print(f"draws {before:.4f}, then {rand(1).item():.4f}")
    # -> draws 0.5534, then 0.0813
    # -> draws 0.5534, then 0.0813
