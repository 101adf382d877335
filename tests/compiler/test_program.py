"""Programs give what the graph gives, run after run, and keep to their own memory."""

import importlib.util

import numpy as np
import pytest

from tinytorch.compiler.build import CompilerError, find_compiler
from tinytorch.compiler.graph import Graph, Node, perform
from tinytorch.compiler.program import compile_graph

BACKENDS = ["numpy", "c"]
try:
    find_compiler()
except CompilerError:
    BACKENDS = ["numpy"]
if importlib.util.find_spec("tinytorch.compiler.fuse") is None:
    BACKENDS = ["numpy"]


class Split:
    """A whole Function as the graph sees it: its first result shows the memory of its argument."""

    def forward(ctx, a, factor):
        ctx.saved = a
        return a[:1], a * factor

    def backward(ctx, g, h):
        return g + ctx.saved[:1] * h[:1], h


class Builder:
    """Writes a graph node by node, with the arrays of one run, as a trace does."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.inputs, self.nodes, self.values = [], [], {}

    def input(self, array):
        node = Node("input", (), {}, array.shape, array.dtype)
        self.inputs.append(node)
        self.values[node] = array
        return node

    def add(self, op, *args, **kwargs):
        def value(x):
            if isinstance(x, Node):
                return self.values[x]
            return tuple(map(value, x)) if isinstance(x, tuple) else x

        result = perform(np, op, value(args), kwargs)
        if op not in ("call", "call_backward", "check"):
            result = np.asarray(result)
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        node = Node(op, args, kwargs, shape, dtype, op.title(), "here.py:1")
        self.nodes.append(node)
        self.values[node] = result
        return node

    def constant(self, array):
        return self.add("constant", np.asarray(array))

    def graph(self, *outputs):
        return Graph(self.inputs, self.nodes, outputs)

    def arrays(self):
        return [self.values[node] for node in self.inputs]

    def pick(self, kinds="f", ndim=None):
        """Some value, rather a late one; made of an input where there is none of its kind."""
        found = [
            node
            for node in (*self.inputs, *self.nodes)
            if node.dtype is not None
            and node.dtype.kind in kinds
            and (ndim is None or len(node.shape) == ndim)
        ]
        if not found:
            shape = tuple(self.rng.integers(1, 5, 2 if ndim is None else ndim))
            return self.constant(self.rng.uniform(0.5, 1, shape).astype(np.float32))
        return found[-1 - min(int(self.rng.exponential(4)), len(found) - 1)]

    def step(self):
        """Adds an operation at random."""
        rng = self.rng
        kind = rng.choice(
            "unary binary number compare where reduce reshape transpose expand slice index take "
            "matmul batch join astype copy put part call".split()
        )
        a = self.pick()
        if kind == "unary":
            return self.add(str(rng.choice(["tanh", "negative", "abs", "sin", "exp2"])), a)
        if kind in ("binary", "compare"):
            others = [n for n in self.values if n.dtype == a.dtype and fits(n.shape, a.shape)]
            b = others[rng.integers(len(others))]
            ops = ["add", "subtract", "multiply", "maximum"] if kind == "binary" else ["less"]
            return self.add(str(rng.choice(ops)), a, b)
        if kind == "number":
            return self.add("multiply", a, float(rng.uniform(-1, 1)))
        if kind == "where":
            return self.add("where", self.add("greater", a, 0.25), a, 0.5)
        if kind == "reduce":
            axes = tuple(d for d in range(len(a.shape)) if rng.random() < 0.5)
            op = str(rng.choice(["sum", "max", "mean"]))
            return self.add(op, a, axis=axes, keepdims=bool(rng.random() < 0.5))
        if kind == "reshape":
            return self.add("reshape", a, (a.shape[::-1], (-1,), (1, *a.shape))[rng.integers(3)])
        if kind == "transpose":
            return self.add("transpose", a, tuple(map(int, rng.permutation(len(a.shape)))))
        if kind == "expand":
            return self.add("broadcast_to", a, (int(rng.integers(1, 4)), *a.shape))
        if kind == "slice":
            return self.add("view_at", a, self.key(a))
        if kind in ("index", "take") and a.shape:
            size = a.shape[0]
            index = self.constant(rng.integers(0, size, rng.integers(1, 4)))
            return (
                self.add("take", a, index, 0) if kind == "take" else self.add("getitem", a, index)
            )
        if kind == "matmul":
            a = self.pick(ndim=2)
            b = self.add("transpose", a, (1, 0))
            return self.add("multiply", self.add("matmul", *((a, b), (b, a))[rng.integers(2)]), 0.1)
        if kind == "batch":
            a = self.pick(ndim=3)
            b = self.add("transpose", a, (0, 2, 1))
            return self.add("multiply", self.add("matmul", a, b), 0.1)
        if kind == "join" and a.shape:
            return self.add(str(rng.choice(["concatenate", "stack"])), (a, a, a), 0)
        if kind == "astype":
            other = np.float64 if a.dtype == np.float32 else np.float32
            return self.add("astype", a, np.dtype(other))
        if kind == "put":
            path = (("getitem", (self.key(a),)),)
            shape = self.values[a][path[0][1][0]].shape
            value = self.constant(rng.uniform(0.5, 1, shape)) if rng.random() < 0.5 else 0.5
            if rng.random() < 0.3:
                path = (("reshape", (self.values[a].size,)), ("getitem", (slice(0, 2),)))
                path, value = ((path[0][0], ((path[0][1][0],),)), path[1]), 0.25
            return self.add("put", a, value, path)
        if kind in ("call", "part") and a.shape and a.shape[0]:
            shapes = ((1, *a.shape[1:]), a.shape)
            called = self.add("call", Split, (True, False), shapes, a, 0.5)
            parts = [self.add("part", called, number) for number in range(2)]
            back = self.add("call_backward", called, *parts)
            return self.add("part", back, int(rng.integers(2)))
        return self.add("copy", a)

    def key(self, a):
        rng, key = self.rng, []
        for size in a.shape:
            choice = rng.integers(5)
            if choice == 0 and size:
                key.append(int(rng.integers(size)))
            elif choice == 1:
                key.append(None)
                key.append(slice(None))
            elif choice == 2:
                key.append(slice(None, None, 2))
            elif choice == 3:
                key.append(slice(int(rng.integers(size)), None))
            else:
                key.append(slice(None))
        return (*key, ...)


def fits(shape, like):
    try:
        return np.broadcast_shapes(shape, like) == tuple(like)
    except (ValueError, TypeError):
        return False


def random_graph(seed, steps=25):
    builder = Builder(seed)
    rng = builder.rng
    for _ in range(3):
        shape = tuple(map(int, rng.integers(1, 6, rng.integers(0, 4))))
        builder.input(rng.uniform(-1, 1, shape).astype(rng.choice(["f4", "f8"])))
    while len(builder.nodes) < steps:
        builder.step()
    found = [node for node in (*builder.inputs, *builder.nodes) if node.op != "check"]
    chosen = rng.choice(len(found), 6)
    return builder, builder.graph(*(found[i] for i in chosen))


def compare(want, got):
    for a, b in zip(want, got, strict=True):
        if isinstance(a, tuple):
            compare(a, b)
        else:
            assert isinstance(b, np.ndarray) and b.shape == a.shape and b.dtype == a.dtype
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-5)


def spoil(arrays):
    """Writes nonsense into all arrays that can be written into."""
    for array in arrays:
        if isinstance(array, np.ndarray) and array.flags.writeable:
            array[...] = 7 if array.dtype != bool else ~array


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", range(10))
def test_random_graphs(backend, block):
    for seed in range(block * 30, block * 30 + 30):
        builder, graph = random_graph(seed)
        arrays, program = builder.arrays(), None
        want = graph.run(np, arrays)
        before = [array.copy() for array in arrays]
        program = compile_graph(graph, backend)
        for turn in range(3):
            given = [array if turn < 2 else array.copy(order="F") for array in arrays]
            got = program(given)
            compare(want, got)
            # What goes out is the caller's: nothing that is done to it is seen in a later run.
            own = [x for x in got if isinstance(x, np.ndarray)]
            for number, x in enumerate(own):
                assert not any(np.may_share_memory(x, y) for y in (*given, *own[:number])), seed
            spoil(own)
            for array, old in zip(arrays, before, strict=True):
                np.testing.assert_array_equal(array, old)
