"""Step graph02: The graph drawn

Text shows a graph of five calls well. Of thirty calls, a picture says more. Graphviz draws one from
a description in its own language, dot: a line for each node, a line for each arrow.

    digraph {
      v0 [label="w\\n2.0"]          an ellipse is a value
      f0 [label="Mul", shape=box]   a box is a call
      v0 -> f0                      an arrow: goes into, or comes out of
    }

to_dot writes this text and needs nothing installed. draw passes it to Graphviz, which is a program
(`dot`) and a Python package that calls it; without them draw says what to install. In Jupyter the
result shows itself as a picture.

The core is complete now. You began with a box around an array and a derivative by hand:

    what it is        Tensor      device, dtype, memory with a version, a place in the graph
    what it does      Function    forward on arrays, backward on arrays or Tensors; views
    how it goes back  engine      iterative, in order, each node once; hooks, freed graphs
    what steps in     modes       recording on or off, and a place between call and Function
    what proves it    gradcheck   for every operation that is still to come

python -m steps history Function.apply shows how the center of it grew.

New: to_dot, draw. Finished: autograd/graph.py, and with it the core.
Try: python steps/depth/graph02.py --draw, then open graph02.svg.
"""

import json
import pathlib
import shutil
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


def to_dot(y: Tensor, names: dict[str, Tensor] | None = None) -> str:
    """The graph of y in Graphviz's language: ellipses are tensors, boxes are functions."""
    called, tensors = names_and_tensors(y, names)
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
    """Draw the graph of y. The result shows itself in Jupyter; with `path` it is written there.

    format is "svg", "png", "pdf", ...: that of the path's ending, or "svg", where it is not given.

    Raises:
        RuntimeError: Graphviz or its Python package is not installed.
    """
    try:
        import graphviz
    except ImportError:
        graphviz = None
    if graphviz is None or shutil.which("dot") is None:
        raise RuntimeError(
            "to draw, install Graphviz (the program dot, graphviz.org/download) and its Python "
            "package: pip install graphviz. to_dot() and graph_text() need neither."
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
    x = tensor(0.5)
    print(to_dot(w * x, {"w": w}))
    # -> digraph {
    # ->   v0 [label="w\n2.0"]
    # ->   v1 [label="1.0"]
    # ->   f0 [label="Mul", shape=box]
    # ->   v0 -> f0
    # ->   f0 -> v1
    # -> }

    y = w * x + b
    loss = y * y
    loss.backward()
    names = {"w": w, "b": b, "y": y, "loss": loss}
    print("arrows:", to_dot(loss, names).count("->"))  # -> arrows: 8
    try:
        result = f"drawn: {type(draw(loss, names=names)).__name__}"
    except RuntimeError as error:
        result = str(error)
    print(result)  # -> ...
    if "--draw" in sys.argv:
        draw(loss, "graph02.svg", names=names)
        print("graph02.svg")
