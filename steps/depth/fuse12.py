"""Step fuse12: Loops that merge

The kernel of BatchNorm has four loops, and the innermost has 28 rounds. Each start of a loop costs
time, and a vector of 16 numbers does not divide 28. But the elements of 28 x 28 lie in memory one
after the other, like a list of 784:

    for i2 in range(28):                    for i2 in range(784):
        for i3 in range(28):                    x[... + i2]
            x[... + i2 * 28 + i3]

Two neighbouring loops merge if, in every array of the kernel, one step of the outer loop is as far
as all steps of the inner one: its stride is the inner stride times the inner size. A chain over
[512, 1000] becomes one loop of 512,000. With a bias it stays two: the bias has the strides (0, 1),
and 0 is not 1 * 1000.

The loops are tried from the innermost on, so that a merged loop can merge again.

The trap: an outer loop must not merge with an inner one, even where the memory would allow it. The
row would lose its end, where the reduction's result is taken. `fixed` holds these borders.

(PyTorch: `simplify_and_reorder` of Inductor, NumPy: the coalescing of its nditer.)

New: merge_loops. Changed: build_kernel.
Try: merge all neighbouring loops, without the condition on strides. Which kernels are wrong then?
"""

import dataclasses

import numpy as np

from tinytorch.compiler.axes import leaves
from tinytorch.compiler.fuse import Fuser
from tinytorch.compiler.graph import Graph, Node
from tinytorch.compiler.group import Group
from tinytorch.compiler.layout import Layout


@dataclasses.dataclass(frozen=True)
class Load:
    """An element that a kernel reads.

    base: the node whose array it is in. offset: of the first element.
    strides: for each loop, how many elements further one more round reads.
    """

    base: Node
    offset: int
    strides: tuple[int, ...]


class Kernel:
    """Operations that run as one nest of loops.

    The outer loops run over the rows. The inner ones run over the elements of a row, once for each
    pass; a reduction ends a pass. Without reductions there is one pass. With `columns`, the last
    loop belongs to the results of the reductions too: a row is a block of columns then.

    Attributes:
        name: of the function in the generated source.
        inputs, outputs: the nodes whose arrays are read, and written.
        nodes: what is computed, in order.
        sizes: of the loops, from the outermost.
        outer: how many of the loops are outer ones.
        columns: whether the last loop is one over blocks of columns.
        operands: of each node: nodes of the kernel, Loads and numbers.
        strides: of each node's result, for each loop.
        full: the nodes with a value for each element; the others have one for each row.
        made_by: what the user's program called, with its lines.
    """

    name: str

    def __init__(self, nodes: list[Node]):
        self.nodes = nodes
        self.inputs: list[Node] = []
        self.outputs: list[Node] = []
        self.sizes: tuple[int, ...] = ()
        self.outer, self.columns = 0, False
        self.operands: dict[Node, list] = {}
        self.strides: dict[Node, tuple[int, ...]] = {}
        self.full: set[Node] = set()
        made = dict.fromkeys(", ".join(x for x in (n.made_by, n.line) if x) for n in nodes)
        self.made_by = [text for text in made if text]

    def __repr__(self) -> str:
        ops = ", ".join(dict.fromkeys(node.op for node in self.nodes))
        return f"{self.name}: {' x '.join(map(str, self.sizes))} ({ops})"


def build_kernel(group: Group, needed: set[Node], number: int) -> Kernel:
    """The kernel of a finished group. needed: the nodes that are used outside of their group."""
    kernel = Kernel(group.nodes)
    kernel.name = f"k{number}"
    kernel.outputs = [node for node in group.nodes if node in needed]
    full, outer = leaves(group.full), leaves(group.full if group.outer is None else group.outer)
    sequences = group.sequences
    wide = [node for node in group.nodes if len(sequences[node]) == len(full)]
    order = next((sequences[n] for n in reversed(wide) if n in needed), full)
    outer = [x for x in order if x in outer]
    inner = [x for x in order if x not in outer]
    kernel.columns = bool(outer and inner) and order[-1] is outer[-1]
    if kernel.columns:
        inner.append(outer.pop())
    loops = [*outer, *inner] if group.outer is not None else order
    kernel.outer = len(outer) if group.outer is not None else 0
    kernel.full = {n for n in group.nodes if len(sequences[n]) == len(full)}
    index = {axis: i for i, axis in enumerate(loops)}

    def strides_of(dims: list) -> tuple[int, ...]:
        """Strides of the loops from (axes of a dimension, its stride)."""
        strides = [0] * len(loops)
        for axes, stride in dims:
            for axis in reversed(axes):
                strides[index[axis]] += stride
                stride *= axis.size
        return tuple(strides)

    for node in group.nodes:
        place = group.places[node]
        kernel.operands[node] = found = []
        for x in group.operands[node]:
            if isinstance(x, Layout):
                shown = place[len(place) - len(x.strides) :]
                x = Load(x.base, x.offset, strides_of([*zip(shown, x.strides, strict=True)]))
            found.append(x)
        kernel.strides[node] = strides_of([(sequences[node], 1)])
    merge_loops(kernel, [axis.size for axis in loops])
    loads = (x for found in kernel.operands.values() for x in found if isinstance(x, Load))
    kernel.inputs = [*dict.fromkeys(x.base for x in loads)]
    return kernel


def merge_loops(kernel: Kernel, sizes: list[int]) -> None:
    """Makes one loop of two where all arrays lie so that it is the same."""
    loads = {x: x.strides for found in kernel.operands.values() for x in found if type(x) is Load}
    strides = {**loads, **kernel.strides}
    fixed = {0, kernel.outer, len(sizes) - 1 if kernel.columns else 0}
    loops = [*range(len(sizes))]
    for i in range(len(sizes) - 1, 0, -1):
        if i not in fixed and all(s[i - 1] == s[i] * sizes[i] for s in strides.values()):
            sizes[i - 1] *= sizes[i]
            for x, s in strides.items():
                strides[x] = (*s[: i - 1], s[i], *s[i + 1 :])
            del sizes[i], loops[i - 1]
    kernel.outer = len([i for i in loops if i < kernel.outer])
    kernel.sizes = tuple(sizes)
    kernel.strides = {node: strides[node] for node in kernel.strides}
    merged = {x: Load(x.base, x.offset, strides[x]) for x in loads}
    for node, found in kernel.operands.items():
        kernel.operands[node] = [merged[x] if type(x) is Load else x for x in found]


if __name__ == "__main__":
    f = np.dtype("float32")
    nodes = []

    def new(op, *args, shape=None, **kwargs):
        nodes.append(Node(op, args, kwargs, args[0].shape if shape is None else shape, f))
        return nodes[-1]

    def leaf(*shape):
        nodes.clear()
        return Node("input", (), {}, shape, f)

    def kernel_of(inputs, outputs):
        fuser = Fuser(Graph(inputs, nodes, outputs))
        fuser.sort()
        (group,) = {group.now() for group in fuser.groups.values()}
        fuser.finish(group)
        return build_kernel(group, set(outputs), 0)

    x = leaf(16, 8, 28, 28)
    mean = new("mean", x, shape=(8,), axis=(0, 2, 3), keepdims=False)
    row = new("reshape", mean, (1, 8, 1, 1), shape=(1, 8, 1, 1))
    kernel = kernel_of([x], [new("subtract", x, row)])
    print(kernel, "outer:", kernel.outer, kernel.operands[mean][0].strides)
    # -> k0: 8 x 16 x 784 (mean, subtract) outer: 1 (784, 6272, 1)

    # A chain: one loop. A bias: two, since its elements come again in each row.
    x, bias = leaf(512, 1000), leaf(1000)
    print(kernel_of([x, bias], [new("exp", x)]))  # -> k0: 512000 (exp)
    print(kernel_of([x, bias], [new("add", nodes[0], bias)]))  # -> k0: 512 x 1000 (exp, add)

    # The sum of each row: two loops, although the elements of all rows lie one after the other.
    x = leaf(512, 1000)
    total = new("sum", x, shape=(512,), axis=(1,), keepdims=False)
    print(kernel_of([x], [total]))  # -> k0: 512 x 1000 (sum)
