"""A kernel: the loops of several operations, with what is read and written in each pass."""

import dataclasses
import math

from tinytorch.compiler.axes import leaves
from tinytorch.compiler.costs import COSTS
from tinytorch.compiler.graph import REDUCTIONS, Node
from tinytorch.compiler.group import Group
from tinytorch.compiler.layout import Layout

# A row's values are kept on the stack up to this size; longer rows go to an array.
ROW_BYTES = 64 * 1024
CHEAP = 7  # in additions: a value that costs more is kept, not computed again


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
        passes: of a full node, in which pass it is computed; of another one, before which.
        kept: the full nodes whose values a later pass finds in a buffer of the row.
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
        self.passes: dict[Node, int] = {}
        self.kept: set[Node] = set()
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
    find_passes(kernel)
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


def find_passes(kernel: Kernel) -> None:
    """Finds the pass over a row in which each value is computed, and the values that are kept for
    a later pass rather than computed again."""
    passes, cost = kernel.passes, {}
    for node in kernel.nodes:
        used = [x for x in kernel.operands[node] if isinstance(x, Node)]
        passes[node] = max((passes[x] for x in used), default=0) + (node.op in REDUCTIONS)
        if node in kernel.full:
            cost[node] = COSTS.get(node.op, 1) + sum(cost.get(x, 0) for x in used)
    later: dict[Node, int] = {}  # the last pass that needs a value
    row = math.prod(kernel.sizes[kernel.outer :])
    for node in reversed(kernel.nodes):
        last = max(later.get(node, 0), passes[node]) if node in kernel.full else passes[node] - 1
        if node in kernel.full and last > passes[node]:
            if node in kernel.outputs:
                last = passes[node]
            elif cost[node] > CHEAP:
                last = passes[node]
                if row * node.dtype.itemsize <= ROW_BYTES and not kernel.columns:
                    kernel.kept.add(node)
                else:
                    kernel.outputs.append(node)
        for x in kernel.operands[node]:
            if x in kernel.full:
                later[x] = max(later.get(x, 0), last)
