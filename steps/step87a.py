"""Step 87a: A program as a list of operations

    y = np.tanh(2 * x).sum(axis=1)

When Python multiplies, it does not know that a tanh comes next; by the time of the sum, it has
written two large arrays and read them again. To change this, a program must have the line as data,
before it runs.

This stage builds a compiler, and its first piece is a list. A Node is one operation: the name of
a function of the array library, its arguments, and the shape and type of its result. An argument
is another Node, or a plain value such as 2. A Graph is a list of nodes; some are inputs, which are
computed by nothing, and some are outputs.

Making a graph computes nothing. `run` computes, for arrays that come later, as often as one likes.

This is not the graph that backward() follows (step 32a). That one leads from a result back to its
inputs, and holds arrays. This one is in the order of computing, and holds none.

The trap is the order: a node must come after its arguments, or `run` finds no value for them.

PyTorch: torch.fx.Node and torch.fx.Graph.

New: Node, Graph, kind_of.
Try: give Graph the nodes in the order [doubled, total, bent]: `run` raises KeyError.
"""

import numpy as np


class Node:
    """One operation: what is called, with which arguments, and what its result is like.

    args: nodes, numbers, shapes. A node without arguments stands for an input.
    """

    def __init__(self, op, args=(), kwargs=None, shape=None, dtype=None):
        self.op, self.args, self.kwargs = op, args, kwargs or {}
        self.shape, self.dtype = shape, dtype

    def inputs(self):
        """The nodes among the arguments."""
        return [x for x in self.args if isinstance(x, Node)]


class Graph:
    """Nodes in an order in which each comes after its arguments; some are inputs, some outputs."""

    def __init__(self, inputs, nodes, outputs):
        self.inputs, self.nodes, self.outputs = inputs, nodes, outputs

    def run(self, xp, arrays):
        """The outputs for these input arrays, one operation after the other."""
        values = dict(zip(self.inputs, arrays, strict=True))
        for node in self.nodes:
            args = [values[x] if isinstance(x, Node) else x for x in node.args]
            values[node] = getattr(xp, node.op)(*args, **node.kwargs)
        return [values[node] for node in self.outputs]

    def __str__(self):
        """One line for each node: `%2 = multiply(%0, %1)  float32[4, 5]`."""
        names = {node: f"%{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = ["inputs: " + ", ".join(f"{names[x]} {kind_of(x)}" for x in self.inputs)]
        for node in self.nodes:
            given = [names[x] if isinstance(x, Node) else str(x) for x in node.args]
            given += [f"{name}={value}" for name, value in node.kwargs.items()]
            lines.append(f"{names[node]} = {node.op}({', '.join(given)})  {kind_of(node)}")
        return "\n".join([*lines, "return " + ", ".join(names[x] for x in self.outputs)])


def kind_of(node):
    """The type and shape of a node's result: "float32[4, 5]"."""
    return f"{node.dtype}{[*node.shape]}"


if __name__ == "__main__":
    x = Node("input", shape=(2, 3), dtype="float32")
    doubled = Node("multiply", (x, 2), {}, (2, 3), "float32")
    bent = Node("tanh", (doubled,), {}, (2, 3), "float32")
    total = Node("sum", (bent,), {"axis": 1}, (2,), "float32")
    graph = Graph([x], [doubled, bent, total], [total])
    print(graph)
    # -> inputs: %0 float32[2, 3]
    # -> %1 = multiply(%0, 2)  float32[2, 3]
    # -> %2 = tanh(%1)  float32[2, 3]
    # -> %3 = sum(%2, axis=1)  float32[2]
    # -> return %3
    print([node.op for node in total.inputs()])  # -> ['tanh']

    values = np.array([[0, 1, 2], [3, 4, 5]], np.float32)
    print(graph.run(np, [values]))  # -> [array([1.963357 , 2.9999876], dtype=float32)]
    print(np.tanh(2 * values).sum(axis=1))  # -> [1.963357  2.9999876]
