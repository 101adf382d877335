"""The way from a captured function to its programs: all passes of the compiler, in their order.

capture     runs the function on tracers: one graph of forward and backward     capture.py
simplify    rewrites it: x * 1 is x, and what is computed twice is done once    simplify.py
partition   cuts it in two: what the forward keeps, what the backward repeats   border.py
then, for each of the two graphs, compile_graph in program.py:
fuse        operations over the same elements become one loop                   fuse.py
in_c        a convolution becomes a function in C, a product where asked for    program.py
soon        puts the steps in order                                             program.py
Program     plans the memory, writes Python and C or CUDA, and builds it        program.py
"""

import functools
import warnings
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from tinytorch.compiler.border import partition
from tinytorch.compiler.build import CompilerError
from tinytorch.compiler.capture import Captured
from tinytorch.compiler.graph import Graph, Node
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.core.device import Device, silence_numpy


def example_of(node: Node) -> np.ndarray | None:
    """Zeros like an input of a graph; None for one that is no array, such as a kept Function."""
    return None if node.dtype is None else np.zeros(node.shape, node.dtype)


def generate(
    graph: Graph | None,
    backend: Any,
    device: Device,
    shared: Collection[int] = (),
    autotune: bool = False,
) -> Callable[[list], list] | None:
    """A function from the arrays of a graph's inputs to those of its outputs; None for no graph.

    Args:
        shared: the numbers of outputs that may show the memory of others, as nothing writes there.
        autotune: generate products of matrices, too, which takes longer.
    """
    silence_numpy()  # the caller's thread may be a new one
    if graph is None:
        return None
    if callable(backend):
        return backend(graph, [example_of(node) for node in graph.inputs])
    if backend == "eager":
        return functools.partial(graph.run, device.xp)
    kind = "cuda" if device.type == "cuda" else "c"
    if backend not in ("inductor", "numpy", kind):
        raise RuntimeError(f"the backend {backend!r} cannot compile for tensors on {device}")
    if backend != "numpy":
        try:
            return compile_graph(graph, kind, device.xp, shared, autotune)
        except CompilerError as error:
            warnings.warn(f"{error}; the generated code uses NumPy instead", stacklevel=2)
    return compile_graph(graph, "numpy", device.xp, shared)


def programs_of(
    captured: Captured, backend: Any, device: Device, autotune: bool
) -> tuple[tuple, list]:
    """The graphs of forward and backward, and the programs for them: all passes, in their order."""
    count = captured.count + len(captured.written)
    graph = simplify(captured.graph)
    graphs = partition(graph, len(captured.sources), count)
    kept = range(count, len(graphs[0].outputs))
    with ThreadPoolExecutor(2) as pool:  # most of the time is the C compiler's
        backends, devices = (backend,) * 2, (device,) * 2
        programs = pool.map(generate, graphs, backends, devices, (kept, ()), (autotune,) * 2)
        return graphs, list(programs)
