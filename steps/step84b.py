"""Step 84b: Keep the graph, drop its values

How can a block be computed again, if its input is data? The checkpoint of step 60c is one node. If
no input requires a gradient, it is not recorded, and the parameters of the first block learn
nothing, without an error.

Large are only the arrays that the nodes of a graph have saved (step 84a). So keep the graph, and
drop these:

    forward     run the block, let it record its nodes, take from each what it has saved
    backward    at the first node whose values are missing, run the block again

The second run records the same nodes in the same order, so the n-th new node has the values that
the n-th old one needs. Each old node has a Dropped in the place of its saved values.

The second run must draw the random numbers of the first, too, or a dropout gives the formulas the
mask of another network, and no error says so (step 60c). fork_rng puts back where the program was.

Of n layers in s segments, forward keeps s inputs, and backward what n / s layers save: with s near
sqrt(n) that is least.

The trap is a circle. A Dropped needs its segment, and the segment its Droppeds; a circle is freed
late, by Python's garbage collector. So the segment has weak references to them.

PyTorch: use_reentrant=False asks for this form, and True for the node of step 60c.

New: graph_since, Dropped, Segment, checkpoint.
Try: leave out set_rng_state.

In depth: checkpoint01 to checkpoint09.
"""

import weakref

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward, grad  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.graph import graph_functions
from tinytorch.autograd.modes import enable_grad
from tinytorch.core.version import next_sequence_nr
from tinytorch.nn.modules.activation import Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.dropout import Dropout
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.comparison import equal
from tinytorch.ops.random import manual_seed, rand, randn
from tinytorch.random import fork_rng, get_rng_state, set_rng_state


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

    def __init__(self, function, args):
        self.function, self.args = function, args
        self.random = get_rng_state()
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
            set_rng_state(self.random)
            output = self.function(*self.args)
        for node, reference in zip(graph_since(time, output), self.dropped, strict=True):
            dropped = reference()
            if dropped is not None:
                dropped.saved, dropped.segment = node.saved, None


def checkpoint(function, *args, use_reentrant=None):
    """function(*args), of which only the arguments and the result are kept for backward."""
    segment = Segment(function, args)
    output = function(*args)
    segment.drop(output)
    return output


if __name__ == "__main__":
    manual_seed(0)
    model = Sequential(*(Sequential(Linear(64, 64), Tanh(), Dropout(0.5)) for _ in range(4)))
    x = randn(32, 64)  # data: no gradient

    def run(call):
        manual_seed(1)
        h = x
        for block in model:
            h = call(block, h)
        return h.square().sum()

    ways = (lambda block, h: block(h), lambda block, h: checkpoint(block, h, use_reentrant=False))
    losses = [run(call) for call in ways]
    for loss in losses:
        kept = kept_by_node(loss, model.parameters())  # here: PyTorch's nodes do not show them
        print(f"{len(kept)} nodes keep {sum(kept.values()) // 4:,} numbers")  # here: the same
    # -> 14 nodes keep 26,624 numbers
    # -> 14 nodes keep 2,048 numbers

    parameters = list(model.parameters())
    pairs = zip(*(grad(loss, parameters) for loss in losses), strict=True)
    print("the same gradients, of the first block too:", all(equal(a, b) for a, b in pairs))
    # -> the same gradients, of the first block too: True
    print(f"the program draws {rand(1).item():.4f}")  # -> the program draws 0.4017
