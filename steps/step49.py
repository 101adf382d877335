"""Step 49: The graph, drawn

Step 23 drew graphs, and step 31 put the drawing aside, for the graph was about to change. Now it
has its final form. What is there to draw?

    step 23                             now
    Variable -> its creator             Tensor -> its grad_fn, a node
    creator -> inputs, outputs          node -> edges: nodes before it, or leaves
    every value is there                nodes do not hold what they made (step 32)

So the drawing goes from node to node, and of most results it knows only the shape. If you still
have a tensor, pass it with a name, {"w": w, "loss": loss}, and its value is shown as well. A box is
a call, an ellipse a tensor. `_` stands for an argument that no gradient flows to.

graph_text needs nothing installed, draw needs Graphviz: python steps/step49.py --draw

With this the core is complete. You began with a box around an array and a derivative by hand. Now:

    what it is        Tensor      device, dtype, memory with a version, place in the graph
    what it does      Function    forward on arrays, backward on either; views, several results
    how it goes back  engine      iterative, in order, each node once; hooks, freed graphs
    who may look      modes       recording on or off, and a place to stand
    what proves it    gradcheck   for every operation that is still to come

python -m steps history Function.apply shows how the heart of it grew.

New: graph_text, to_dot, draw, as in step 23, for the new graph. Module finished: autograd/graph.py.
Try: print graph_text of (w * data + b) * (w * data + b), and then of u * u with u = w * data + b.
What is computed twice?
"""

import json
import pathlib
import shutil
from typing import Any

import tinytorch.core.printing  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.engine import node_of
from tinytorch.autograd.node import Function, edge_of
from tinytorch.core.tensor import Tensor, tensor


def graph_functions(y: Tensor) -> list[Function]:
    """The calls behind y, the oldest first; each once, however many paths lead to it."""
    found: set = set()
    waiting = [y.grad_fn]
    while waiting:
        f = waiting.pop()
        if isinstance(f, Function) and f not in found:
            found.add(f)
            waiting.extend(node_of(edge) for edge in f.edges)
    return sorted(found, key=lambda f: -f.order)


def results_of(f: Function) -> list:
    """The outputs of a call as edges of the graph: f itself, or (f, 0), (f, 1), ..."""
    return [(f, number) for number in range(len(f.outputs))] if f.several else [f]


def graph_values(y: Tensor) -> list:
    """The values of the graph of y as edges, each once: first the leaves, then each result."""
    functions = graph_functions(y)
    leaves = [edge for f in functions for edge in f.edges if isinstance(edge, Tensor)]
    results = [edge for f in functions for edge in results_of(f)]
    return list(dict.fromkeys([*leaves, *results])) or [y]  # a dict drops repeats, keeps the order


def short(value: Any) -> str:
    """A number to six digits; of a larger tensor, or of a result that is not here, the shape."""
    if isinstance(value, Tensor):
        if value.ndim == 0:
            return str(float(f"{value.item():.6g}"))
        return f"{value.dtype.name} {list(value.shape)}"
    f, number = value if isinstance(value, tuple) else (value, 0)
    return f"shape {list(f.outputs[number][0])}"


def value_of(tensor: Tensor) -> Any:
    """The edge of the graph that stands for `tensor`; a leaf stands for itself."""
    return tensor if tensor.grad_fn is None else edge_of(tensor)


def look_up(y: Tensor, names: dict[str, Tensor] | None) -> tuple[dict, dict]:
    """({value of the graph: its name}, {value of the graph: its tensor where we have it})."""
    given = {value_of(tensor): name for name, tensor in (names or {}).items()}
    tensors = {value_of(tensor): tensor for tensor in [y, *(names or {}).values()]}
    values = graph_values(y)
    return (
        {value: given.get(value, f"v{i}") for i, value in enumerate(values)},
        {value: tensors.get(value, value) for value in values},
    )


def graph_text(y: Tensor, names: dict[str, Tensor] | None = None) -> str:
    """The graph of y as text: a line for each leaf and each call, in the order of computation.

    `names` says what tensors are called: {"w": w}, or dict(module.named_parameters()). `_` stands
    for an argument without gradient. The graph keeps no results: of most only the shape is known.
    """
    called, tensors = look_up(y, names)
    lines = []
    for value, name in called.items():
        if not isinstance(value, Tensor):
            continue
        grad = "" if value.grad is None else f"   gradient {short(value.grad)}"
        lines.append(f"{name} = {short(value)}{grad}")
    for f in graph_functions(y):
        left = ", ".join(called[value] for value in results_of(f))
        arguments = ", ".join("_" if edge is None else called[edge] for edge in f.edges)
        right = ", ".join(short(tensors[value]) for value in results_of(f))
        lines.append(f"{left} = {type(f).__name__}({arguments}) = {right}")
    return "\n".join(lines)


def to_dot(y: Tensor, names: dict[str, Tensor] | None = None) -> str:
    """The graph of y in Graphviz's language: ellipses are tensors, boxes are functions."""
    called, tensors = look_up(y, names)
    ids = {value: f"v{i}" for i, value in enumerate(called)}
    lines = ["digraph {"]
    for value, name in called.items():
        label = short(tensors[value])
        if name != ids[value]:
            label = f"{name}\n{label}"
        lines.append(f"  {ids[value]} [label={json.dumps(label, ensure_ascii=False)}]")
    for i, f in enumerate(graph_functions(y)):
        lines.append(f'  f{i} [label="{type(f).__name__}", shape=box]')
        lines.extend(f"  {ids[edge]} -> f{i}" for edge in f.edges if edge is not None)
        lines.extend(f"  f{i} -> {ids[value]}" for value in results_of(f))
    return "\n".join([*lines, "}"])


def draw(
    y: Tensor,
    path: str | pathlib.Path | None = None,
    format: str | None = None,
    names: dict[str, Tensor] | None = None,
) -> Any:
    """Draws the graph of y. The result shows itself in Jupyter; with `path` it is written there.

    format is "svg", "png", "pdf", ...: that of the path's ending, or "svg", where it is not given.
    Raises RuntimeError where Graphviz or its Python package is not installed.
    """
    try:
        import graphviz
    except ImportError:
        graphviz = None
    if graphviz is None or shutil.which("dot") is None:
        raise RuntimeError(
            "to draw, install Graphviz (the program dot, graphviz.org/download) and its Python "
            "package: pip install 'tinytorch[graph]'. to_dot() and graph_text() need neither."
        )
    ending = "" if path is None else pathlib.Path(path).suffix.removeprefix(".")
    picture = graphviz.Source(to_dot(y, names), format=format or ending or "svg")
    if path is not None:
        pathlib.Path(path).write_bytes(picture.pipe())
    return picture


if __name__ == "__main__":
    import sys

    w = tensor(2.0, requires_grad=True)
    b = tensor(1.0, requires_grad=True)
    data = tensor(0.5)
    y = w * data + b
    loss = y * y
    loss.backward()
    print(graph_text(loss, {"w": w, "b": b, "y": y, "loss": loss}))
    # -> w = 2.0   gradient 2.0
    # -> b = 1.0   gradient 4.0
    # -> v2 = Mul(w, _) = shape []
    # -> y = Add(v2, b) = 2.0
    # -> loss = Mul(y, y) = 4.0
    print(to_dot(w * data, {"w": w}))
    # -> digraph {
    # ->   v0 [label="w\n2.0"]
    # ->   v1 [label="1.0"]
    # ->   f0 [label="Mul", shape=box]
    # ->   v0 -> f0
    # ->   f0 -> v1
    # -> }
    if "--draw" in sys.argv:
        draw(loss, "step49.svg", names={"w": w, "b": b, "y": y, "loss": loss})
        print("step49.svg")
