"""Step fuse11: The order of loops: rows and their elements

A kernel with a reduction has two kinds of loops. The outer ones run over rows, which are what the
reduction leaves. The inner ones run over the elements of a row:

    for i0 in range(512):                 outer: a row
        for i1 in range(1000):            inner: its elements; the row's maximum
        for i1 in range(1000):            inner, once more: x - maximum

`kernel.outer` is the number of outer loops, and `full` holds the nodes that have a value for each
element.

    softmax of [512, 1000]        outer 512, inner 1000
    BatchNorm of [16, 8, 28, 28]  outer 8, inner 16, 28, 28: a "row" is what shares one mean

The inner loops follow the order in memory of the last full value that is written, so that its
elements are written one after the other.

The trap is a sum over the first dimension, such as the gradient of a bias. Row by row would mean
one column after the other, and the elements of a column are far apart. So if the last loop belongs
to the result, `columns` is True: a row is then a block of columns, and the last loop stays the
innermost.

`made_by` collects what the program called, for the comments of the generated text.

(PyTorch: the pointwise and reduction ranges of a kernel.)

New: Kernel.__repr__. Changed: Kernel, build_kernel.
Try: build the kernel of the mean alone, without the subtraction. Do its loops change?
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
    kernel.sizes = tuple(axis.size for axis in loops)
    loads = (x for found in kernel.operands.values() for x in found if isinstance(x, Load))
    kernel.inputs = [*dict.fromkeys(x.base for x in loads)]
    return kernel


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

    x = leaf(512, 1000)
    top = new("max", x, shape=(512, 1), axis=(1,), keepdims=True)
    shifted = new("subtract", x, top)
    kernel = kernel_of([x], [shifted])
    print(kernel, "outer:", kernel.outer)  # -> k0: 512 x 1000 (max, subtract) outer: 1
    print(kernel.strides[top], [node.op for node in nodes if node in kernel.full])
    # -> (1, 0) ['subtract']

    x = leaf(16, 8, 28, 28)
    mean = new("mean", x, shape=(8,), axis=(0, 2, 3), keepdims=False)
    row = new("reshape", mean, (1, 8, 1, 1), shape=(1, 8, 1, 1))
    kernel = kernel_of([x], [new("subtract", x, row)])
    print(kernel, "outer:", kernel.outer, kernel.operands[mean][0].strides)
    # -> k0: 8 x 16 x 28 x 28 (mean, subtract) outer: 1 (784, 6272, 28, 1)

    # The sum of each column.
    x = leaf(64, 300)
    total = new("sum", x, shape=(300,), axis=(0,), keepdims=False)
    kernel = kernel_of([x], [total])
    print(kernel, kernel.columns, kernel.outer, kernel.strides[total])
    # -> k0: 64 x 300 (sum) True 0 (0, 1)

    # What the program called, for the comments of the source.
    node = Node("exp", (x,), {}, (3,), f, "softmax", "model.py:12")
    print(Kernel([node]).made_by)  # -> ['softmax, model.py:12']
