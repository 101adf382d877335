"""Step graph01: The graph as text

Step 23a printed graphs, and step 31a laid that aside, because the graph was about to change. Now it
has its final form, and the old functions cannot read it:

    step 23a                            now
    Variable -> its creator             Tensor -> its grad_fn, a node
    creator -> inputs, outputs          node -> edges: (node or leaf, output number)
    every value is there                a node keeps only what its formula needs (step 32d)

So the functions follow edges from node to node, and of most results they know only the shape. A
tensor that you still have can be passed with a name, {"w": w, "loss": loss}: then its value is
printed too.

An edge stands for a value of the graph: (node, 0) for the result of a call, (leaf, 0) for a leaf.
It can be the key of a dict, which gives every value its name once, however often it is used. The
symbol `_` stands for an argument that no gradient flows to.

New: graph_functions, graph_values, graph_text and their helpers, as in step 23a, for the new graph.
Try: print graph_text of (w * x + b) * (w * x + b), then of u * u with u = w * x + b. What is
computed twice?"""

from typing import Any

import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.core.printing  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.conversion  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor


def graph_functions(y: Tensor) -> list[Function]:
    """The calls behind y, the oldest first; each once, however many paths lead to it."""
    found: set = set()
    waiting = [y.grad_fn]
    while waiting:
        f = waiting.pop()
        if isinstance(f, Function) and f not in found:
            found.add(f)
            waiting.extend(edge[0] for edge in f.edges if edge is not None)
    return sorted(found, key=lambda f: -f.sequence_nr)


def results_of(f: Function) -> list:
    """The outputs of a call as edges of the graph: (f, 0), (f, 1), ..."""
    return [(f, number) for number in range(len(f.outputs))]


def graph_values(y: Tensor) -> list:
    """The values of the graph of y as edges, each once: first the leaves, then each result."""
    functions = graph_functions(y)
    edges = [edge for f in functions for edge in f.edges if edge is not None]
    leaves = [edge for edge in edges if isinstance(edge[0], Tensor)]
    results = [edge for f in functions for edge in results_of(f)]
    return list(dict.fromkeys([*leaves, *results])) or [(y, 0)]  # a dict drops repeats


def short(value: Any) -> str:
    """A number to six digits; of a larger tensor, or of a result that is not here, the shape."""
    if isinstance(value, Tensor):
        if value.ndim == 0:
            return str(float(f"{value.item():.6g}"))
        return f"{value.dtype.name} {list(value.shape)}"
    f, number = value
    return f"shape {list(f.outputs[number][0])}"


def value_of(tensor: Tensor) -> tuple:
    """The edge of the graph that stands for `tensor`."""
    return edge_of(tensor) or (tensor, 0)


def names_and_tensors(y: Tensor, names: dict[str, Tensor] | None) -> tuple[dict, dict]:
    """({value of the graph: its name}, {value of the graph: its tensor where we have it})."""
    given = {value_of(tensor): name for name, tensor in (names or {}).items()}
    tensors = {value_of(tensor): tensor for tensor in [y, *(names or {}).values()]}
    tensors |= {v: v[0] for v in graph_values(y) if isinstance(v[0], Tensor)}
    values = graph_values(y)
    return (
        {value: given.get(value, f"v{i}") for i, value in enumerate(values)},
        {value: tensors.get(value, value) for value in values},
    )


def graph_text(y: Tensor, names: dict[str, Tensor] | None = None) -> str:
    """The graph of y as text: one line for each leaf and each call, in the order of computation.

    `names` says what tensors are called: {"w": w}, or dict(module.named_parameters()). `_` stands
    for an argument without gradient. The graph keeps no results: of most only the shape is known.
    """
    called, tensors = names_and_tensors(y, names)
    lines = []
    for (leaf, _), name in called.items():
        if isinstance(leaf, Tensor):
            grad = "" if leaf.grad is None else f"   gradient {short(leaf.grad)}"
            lines.append(f"{name} = {short(leaf)}{grad}")
    for f in graph_functions(y):
        left = ", ".join(called[value] for value in results_of(f))
        arguments = ", ".join("_" if edge is None else called[edge] for edge in f.edges)
        right = ", ".join(short(tensors[value]) for value in results_of(f))
        lines.append(f"{left} = {type(f).__name__}({arguments}) = {right}")
    return "\n".join(lines)


if __name__ == "__main__":
    w = tensor(2.0, requires_grad=True)
    b = tensor(1.0, requires_grad=True)
    x = tensor(0.5)
    y = w * x + b
    loss = y * y
    print(graph_text(loss, {"w": w, "b": b, "y": y, "loss": loss}))
    # -> w = 2.0
    # -> b = 1.0
    # -> v2 = Mul(w, _) = shape []
    # -> y = Add(v2, b) = 2.0
    # -> loss = Mul(y, y) = 4.0

    loss.backward()
    print(graph_text(loss))  # without names, and with gradients at the leaves
    # -> v0 = 2.0   gradient 2.0
    # -> v1 = 1.0   gradient 4.0
    # -> v2 = Mul(v0, _) = shape []
    # -> v3 = Add(v2, v1) = shape []
    # -> v4 = Mul(v3, v3) = 4.0

    matrix = tensor([[1.0, 2.0, 3.0]] * 2, requires_grad=True)
    print(graph_text(matrix * 2.0, {"matrix": matrix}))  # of larger values, type and shape
    # -> matrix = float32 [2, 3]
    # -> v1 = Mul(matrix, _) = float32 [2, 3]
    print(graph_text(x))  # a constant has no graph
    # -> v0 = 0.5
