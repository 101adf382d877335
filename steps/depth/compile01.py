"""Step compile01: Backends: which program a graph gets

Step program18 has programs with kernels in C, with kernels in CUDA, and with NumPy alone. A program
of the user should not have to choose, and should not break on a computer without a C compiler:
there compile_graph(graph, "c") raises CompilerError, though NumPy could do the work.

`generate` chooses. What it is asked for is called a backend:

    "inductor"     kernels: in CUDA for a GPU, in C for the CPU
    "c", "cuda"    the same, with an error where the tensors are on the other device
    "numpy"        calls of NumPy, without kernels
    "eager"        the graph node by node, without generated code: it helps to find a fault
    a function     it gets the graph and example inputs, and returns what runs it

If the C compiler is missing or fails, the program uses NumPy, and a warning says so.

The trap: the fallback is for what the computer lacks, not for what the caller got wrong. "cuda" for
tensors on the CPU is an error.

PyTorch's words are backend, and inductor for its own default backend.

New: generate.
Try: write a backend that prints the nodes of its graph.
"""

import functools
import importlib
import os
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import capture
from tinytorch.compiler.graph import Graph
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.core.device import Device, cpu
from tinytorch.core.tensor import tensor


def generate(graph: Graph, backend: Any, device: Device) -> Callable[[list], list]:
    """A function from the arrays of a graph's inputs to those of its outputs."""
    if callable(backend):
        return backend(graph, [np.zeros(node.shape, node.dtype) for node in graph.inputs])
    if backend == "eager":
        return functools.partial(graph.run, device.xp)
    graph, kind = simplify(graph), "cuda" if device.type == "cuda" else "c"
    if backend not in ("inductor", "numpy", kind):
        raise RuntimeError(f"the backend {backend!r} cannot compile for tensors on {device}")
    if backend != "numpy":
        try:
            return compile_graph(graph, kind, device.xp)
        except CompilerError as error:
            warnings.warn(f"{error}; the generated code uses NumPy instead", stacklevel=2)
    return compile_graph(graph, "numpy", device.xp)


if __name__ == "__main__":
    for name in "comparison elementwise indexing matmul reduction sampling shape".split():
        importlib.import_module(f"tinytorch.ops.{name}")  # gives Tensor its methods

    x, weight = tensor([[0.0, 1.0], [1.0, 1.0]]), tensor([[1.0, -1.0], [0.5, 2.0]])
    graph = capture(lambda: (x @ weight).tanh(), (), {}, [x, weight]).graph
    arrays, expected = [x.array, weight.array], np.tanh(x.array @ weight.array)

    # Without a C compiler, and without what it compiled before.
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        os.environ.update(CC="/bin/false", TINYTORCH_CACHE=folder)
        try:
            compile_graph(graph, "c", np)
        except CompilerError as error:
            print(type(error).__name__)  # -> CompilerError
        program = generate(graph, "inductor", cpu)
        print("right:", np.allclose(program(arrays)[0], expected), "| warnings:", len(caught))
        # -> right: True | warnings: 1
        del os.environ["CC"], os.environ["TINYTORCH_CACHE"]

    def counting(graph, examples):
        print("a graph of", len(graph.nodes), "nodes for", len(examples), "arrays")
        return lambda arrays: graph.run(np, arrays)

    programs = [generate(graph, each, cpu) for each in (counting, "eager", "numpy", "c")]
    # -> a graph of 2 nodes for 2 arrays
    print([np.allclose(program(arrays)[0], expected) for program in programs])
    # -> [True, True, True, True]
    try:
        generate(graph, "cuda", cpu)
    except RuntimeError as error:
        print(error)  # -> the backend 'cuda' cannot compile for tensors on cpu
