"""Compiles generated C with the system's compiler, and runs a schedule with it."""

import ctypes
import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tinytorch.compiler.c_code import FLAGS, LIBRARIES, c_source
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.graph import Graph, Node, map_nodes, perform
from tinytorch.compiler.kernel import Kernel

COMPILER = shutil.which("gcc")


def run_schedule(schedule: list, values: dict, launch: Callable) -> None:
    """Adds the value of each unit to `values`; launch(kernel, pointers to its arrays) runs one."""
    for unit in schedule:
        if not isinstance(unit, Kernel):
            args = map_nodes(values.__getitem__, unit.args)
            values[unit] = perform(np, unit.op, args, unit.kwargs)
            continue
        for node in unit.outputs:
            values[node] = np.empty(node.shape, node.dtype)
        nodes = [*unit.inputs, *unit.outputs]
        given = [np.asarray(values[node], order="C") for node in nodes]
        for node, array in zip(nodes, given, strict=True):
            assert array.shape == node.shape and array.dtype == node.dtype, unit
        launch(unit, [ctypes.c_void_p(array.ctypes.data) for array in given])


class Compiled:
    """A graph whose kernels are C; a call takes and gives arrays, like Graph.run."""

    def __init__(self, graph: Graph, folder: Path, threads: int = 1):
        self.graph, self.threads = graph, threads
        self.schedule = fuse(graph)
        self.kernels = [unit for unit in self.schedule if isinstance(unit, Kernel)]
        self.source = c_source(self.kernels)
        name = hashlib.sha1(self.source.encode()).hexdigest()[:12]
        path, library = Path(folder) / f"{name}.c", Path(folder) / f"{name}.so"
        path.write_text(self.source)
        command = [COMPILER, *FLAGS, "-Wall", "-Wno-unused-function", "-shared", "-fPIC", path]
        done = subprocess.run([*command, "-o", library, *LIBRARIES], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + self.source
        self.warnings = done.stderr
        self.library = ctypes.CDLL(str(library))

    def __call__(self, *arrays: np.ndarray) -> list:
        values = dict(zip(self.graph.inputs, arrays, strict=True))
        threads = ctypes.c_int(self.threads)
        run_schedule(
            self.schedule,
            values,
            lambda kernel, pointers: self.library[kernel.name](*pointers, threads),
        )
        return [values[node] for node in self.graph.outputs]


class Build:
    """Writes a graph by hand: `b.add(x, 2.0)` is a node, with its value in `b.values`."""

    def __init__(self, *arrays: np.ndarray):
        self.values = {}
        self.inputs = [self.node("input", array) for array in map(np.asarray, arrays)]
        self.arrays, self.nodes = [self.values[node] for node in self.inputs], []

    def node(self, op: str, value, args: tuple = (), kwargs: dict | None = None) -> Node:
        value = np.asarray(value)
        node = Node(op, args, kwargs or {}, value.shape, value.dtype, op, "model.py:1")
        self.values[node] = value
        return node

    def op(self, op: str, *args, **kwargs) -> Node:
        with np.errstate(all="ignore"):
            value = perform(np, op, map_nodes(self.values.__getitem__, args), kwargs)
        self.nodes.append(self.node(op, value, args, kwargs))
        return self.nodes[-1]

    def __getattr__(self, op: str):
        return lambda *args, **kwargs: self.op(op, *args, **kwargs)

    def reduce(self, op: str, x: Node, *axis: int, keepdims: bool = False, **kwargs) -> Node:
        return self.op(op, x, axis=axis, keepdims=keepdims, **kwargs)

    def graph(self, *outputs: Node) -> Graph:
        return Graph(self.inputs, self.nodes, outputs)

    def check(self, folder, *outputs: Node, threads: int = 1, **tolerance) -> Compiled:
        """Compiles the graph and compares what it gives with what NumPy gave."""
        program = Compiled(self.graph(*outputs), folder, threads)
        for node, got in zip(outputs, program(*self.arrays), strict=True):
            want = self.values[node]
            assert got.dtype == want.dtype and got.shape == want.shape
            near = {"rtol": 2e-6, "atol": 1e-6} | tolerance
            if want.dtype == np.float64:
                near = {"rtol": 1e-12, "atol": 1e-12} | tolerance
            np.testing.assert_allclose(got, want, **near, err_msg=f"{node.op}\n{program.source}")
        return program
