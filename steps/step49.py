"""Step 49: What a person sees

Since step 38 a tensor has printed as nested lists, digits and all. Of ten thousand numbers that is
ten thousand numbers. From now on it prints as PyTorch's does, character for character: all numbers
of a tensor share one form (whole, four digits, or powers of ten where the numbers lie far apart)
and one width, and of a large tensor only the ends of each dimension are shown. Behind the elements
stands what is not obvious: the type if it is not the default, the device if it is not the CPU, and
where it comes from, grad_fn or requires_grad.

Character for character, because people compare what two programs print.

And drawing is back. A graph is made of nodes now, and nodes do not hold what they made (step 32):
so of most results only the shape is known. A box is a call, an ellipse a tensor; names are given by
the caller, {"w": w}, since PyTorch's tensors have none. `_` stands for an argument that no gradient
flows to. graph_text needs nothing, draw needs Graphviz: python steps/step49.py --draw

With this the core is complete. You began with a box around an array and a derivative by hand. Now:

    what it is        Tensor      device, dtype, storage with a version, place in the graph
    what it does      Function    forward on arrays, backward on either; views, several results
    how it goes back  engine      iterative, in order, each node once; hooks, freed graphs
    who may look      modes       recording on or off, and a place to stand
    what proves it    gradcheck   for every operation that is still to come

python -m steps history Function.apply shows how the centre of it grew.

Changed: Tensor prints as PyTorch's. New: set_printoptions, graph_text, to_dot, draw. Modules
finished: core/printing.py, autograd/graph.py.
Try: tensor([1.0, 999.5]) and tensor([1.0, 1000.5]). Where does the form change, and why there?
"""

import json
import math
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np

import tinytorch.autograd.engine  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.engine import node_of
from tinytorch.autograd.node import Function, edge_of
from tinytorch.core.device import cpu
from tinytorch.core.dtype import Defaults, bool_, int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method


class PrintOptions:
    """What set_printoptions sets."""

    precision = 4
    threshold = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None
    profiles = {
        "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
        "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
        "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
    }


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors print. What is not given stays; only sci_mode becomes automatic again.

    Args:
        precision: digits behind the point of a floating point number.
        threshold: a tensor with more elements than this is abridged.
        edgeitems: elements that stay at each end of an abridged dimension.
        linewidth: characters in a line.
        profile: "default", "short" or "full", all of these at once; the others correct it.
        sci_mode: True for 1.0000e+00, False for 1.0000, None for what suits the numbers.
    Raises ValueError for another profile.
    """
    if profile not in (None, *PrintOptions.profiles):
        raise ValueError(f"profile is one of {list(PrintOptions.profiles)}, not {profile!r}")
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in {**PrintOptions.profiles.get(profile, {}), **chosen}.items():
        setattr(PrintOptions, name, value)
    PrintOptions.sci_mode = sci_mode


def whole(value: float) -> str:
    """A float without digits behind the point: `3.`, and `inf` and `nan` as they are."""
    return f"{value:.0f}." if math.isfinite(value) else str(value)


def number_format(values: list) -> tuple[Callable[[Any], str], int]:
    """(how each of `values` is written, the width that all of them get).

    Floats share one style. Whole numbers end in a point, others have `precision` digits; where
    these would hide much (the numbers very large, very small, or far apart) it is powers of 10.
    Zeros, inf and nan have no say in it.
    """
    if not isinstance(values[0], float):
        return str, max(len(str(value)) for value in values)
    normal = [value for value in values if value != 0 and math.isfinite(value)]
    if not normal:
        return whole, 1
    sizes = [abs(value) for value in normal]
    small, large = min(sizes), max(sizes)
    scientific = PrintOptions.sci_mode
    if scientific is None:
        scientific = large / small > 1000.0 or large > 1e8 or small < 1e-4
    if scientific or not all(value.is_integer() for value in normal):
        write = f"{{:.{PrintOptions.precision}{'e' if scientific else 'f'}}}".format
    else:
        write = whole
    return write, max(len(write(value)) for value in normal)


def abridged(array: Any, xp: Any) -> Any:
    """The elements at the ends of each dimension that is too long to be shown."""
    n = PrintOptions.edgeitems
    for dim, size in enumerate(array.shape):
        if size > 2 * n:
            array = xp.take(array, xp.asarray([*range(n), *range(size - n, size)]), axis=dim)
    return array


def layout(
    array: Any, shape: tuple[int, ...], write: Callable[[Any], str], width: int, indent: int
) -> str:
    """The elements in nested brackets. `shape` is that of the tensor: where it is longer than the
    array, the array is abridged, and dots mark the gap."""
    if not shape:
        return write(array.item()).rjust(width)
    dots = [" ..." if len(shape) == 1 else "..."] if len(array) < shape[0] else []
    if len(shape) == 1:
        items = [write(value).rjust(width) for value in array.tolist()]
    else:
        items = [layout(part, shape[1:], write, width, indent + 1) for part in array]
    items[len(items) // 2 : len(items) // 2] = dots
    if len(shape) == 1:
        per_line = int(max(1, (PrintOptions.linewidth - indent) // (width + 2)))
        starts = range(0, len(items), per_line)
        items = [", ".join(items[start : start + per_line]) for start in starts]
    line_ends = "\n" * max(1, len(shape) - 1)
    return "[" + f",{line_ends}{' ' * (indent + 1)}".join(items) + "]"


def format_tensor(tensor: Tensor, name: str) -> str:
    """`name(elements, ...)`, with all that is not obvious: device, size, dtype, history."""
    array, shape, dtype = tensor.array, tensor.shape, tensor.dtype
    indent, notes, body = len(name) + 1, [], "[]"
    if tensor.device is not cpu:
        notes.append(f"device='{tensor.device}'")
    if array.size == 0:
        if len(shape) != 1:
            notes.append(f"size={tuple(shape)}")
        obvious = (Defaults.dtype,)
    else:
        obvious = (Defaults.dtype, int64, bool_)
        if array.size > PrintOptions.threshold:
            array = abridged(array, tensor.device.xp)
        array = tensor.device.backend.to_numpy(array)
        body = layout(array, shape, *number_format(array.ravel().tolist()), indent)
    if dtype not in obvious:
        notes.append(f"dtype={dtype!r}")
    if tensor.grad_fn is not None:
        notes.append(f"grad_fn=<{tensor.grad_fn.name()}>")
    elif tensor.requires_grad:
        notes.append("requires_grad=True")
    text = f"{name}({body}"
    column = len(text) - text.rfind("\n") + 1
    for note in notes:  # on the last line if it has room, else on one of their own
        fits = column + len(note) + 2 <= PrintOptions.linewidth
        text += (", " if fits else ",\n" + " " * indent) + note
        column = (column + 2 if fits else indent) + len(note)
    return text + ")"


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return format_tensor(self, "tensor" if type(self) is Tensor else type(self).__name__)


def graph_functions(y: Tensor) -> list[Function]:
    """The calls behind y, the oldest first; each once, however many ways lead to it."""
    found: set = set()
    waiting = [y.grad_fn]
    while waiting:
        f = waiting.pop()
        if isinstance(f, Function) and f not in found:
            found.add(f)
            waiting.extend(node_of(edge) for edge in f.edges)
    return sorted(found, key=lambda f: -f.order)


def results_of(f: Function) -> list:
    """The outputs of a call as edges of the graph: f itself, then (f, 1), (f, 2), ..."""
    return [(f, number) if number else f for number in range(f.n_outputs)]


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
    return f"shape {list(f.outputs[number][0] if f.outputs else f.output_shape)}"


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

    x = tensor([[1.0, 2.0, 3.0], [-4.0, 5.0, 6.0]])
    print(x)
    # -> tensor([[ 1.,  2.,  3.],
    # ->         [-4.,  5.,  6.]])
    print(x / 3.0)
    # -> tensor([[ 0.3333,  0.6667,  1.0000],
    # ->         [-1.3333,  1.6667,  2.0000]])
    print(tensor([1.0, 100000.0, 0.001]))  # -> tensor([1.0000e+00, 1.0000e+05, 1.0000e-03])
    print(tensor([1, 20, 300]), tensor(True), tensor(2.5))
    # -> tensor([  1,  20, 300]) tensor(True) tensor(2.5000)
    print(tensor(np.array([1.5])), tensor([]))
    # -> tensor([1.5000], dtype=tinytorch.float64) tensor([])
    print(tensor(np.arange(2000.0, dtype=np.float32)))
    # -> tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.9970e+03, 1.9980e+03,
    # ->         1.9990e+03])
    set_printoptions(precision=2, sci_mode=False)
    print(tensor([1.0, 100000.0, 0.001]))  # -> tensor([     1.00, 100000.00,      0.00])
    set_printoptions(profile="default")

    w = tensor(2.0, requires_grad=True)
    b = tensor(1.0, requires_grad=True)
    data = tensor(0.5)
    y = w * data + b
    print(w, y, y.detach(), sep="   ")
    # -> tensor(2., requires_grad=True)   tensor(2., grad_fn=<AddBackward0>)   tensor(2.)
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
