"""Programs give what the graph gives, run after run, and keep to their own memory."""

import ctypes
import gc
import re
import subprocess
import threading
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

import tinytorch as tt
from tests.compiler.compare import compare as compare_with_eager
from tests.kernels import emulator
from tinytorch import nn
from tinytorch.compiler import program as module
from tinytorch.compiler.build import CompilerError, find_compiler
from tinytorch.compiler.graph import CheckFailed, Graph, Node, perform
from tinytorch.compiler.program import compile_graph
from tinytorch.compiler.simplify import simplify
from tinytorch.core.device import Device

BACKENDS = ["numpy", "c"]
try:
    find_compiler()
except CompilerError:
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
    for seed in range(block * 40, block * 40 + (40 if backend == "numpy" else 12)):
        builder, graph = random_graph(seed)
        arrays = builder.arrays()
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_threads_share_nothing(backend):
    builder, graph = random_graph(3, steps=60)
    rng = np.random.default_rng(0)
    inputs = [
        [rng.uniform(-1, 1, x.shape).astype(x.dtype) for x in builder.arrays()] for _ in range(4)
    ]
    want = [graph.run(np, arrays) for arrays in inputs]
    program, problems = compile_graph(graph, backend), []

    def work(number):
        try:
            for _ in range(50):
                compare(want[number], program(inputs[number]))
        except AssertionError as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert len(program.idle) <= 4


class Again:
    """A Function that runs the program that it is in, once."""

    program, depth = None, 0

    def forward(ctx, a):
        if Again.depth == 0 and Again.program is not None:
            Again.depth = 1
            (Again.inner,) = Again.program([a + 1])
            Again.depth = 0
        return a * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_program_that_runs_inside_itself(backend):
    builder, Again.program = Builder(), None
    x = builder.input(np.arange(5.0))
    y = builder.add("multiply", builder.add("add", x, 1.0), 3.0)  # it stands in a buffer
    called = builder.add("call", Again, (False,), ((5,),), builder.add("negative", x))
    graph = builder.graph(builder.add("add", builder.add("part", called, 0), y))
    Again.program = compile_graph(graph, backend)
    (result,) = Again.program(builder.arrays())
    np.testing.assert_array_equal(result, np.arange(5.0) + 3)
    np.testing.assert_array_equal(Again.inner, (1 - np.arange(5.0)) + 3)


def chain_graph(size, length):
    builder = Builder()
    x = builder.input(np.linspace(0, 1, size, dtype=np.float32).reshape(-1, 64))
    y = x
    for _ in range(length):
        y = builder.add("matmul", builder.add("tanh", y), builder.constant(np.eye(64, dtype="f")))
    return builder, builder.graph(builder.add("sum", y, axis=(0, 1)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_is_used_again(backend):
    """A chain of 40 steps needs two buffers rather than 80, and one for what a product packs; a run
    that was warm takes no more."""
    builder, graph = chain_graph(64 * 1024, 40)
    program = compile_graph(graph, backend)
    one = 4 * 64 * 1024
    assert program.bytes <= 2 * one + 4 * 64 * 64 + 4096
    assert program.bytes_of_all >= 80 * one
    arrays = builder.arrays()

    def peak(function):
        function()
        tracemalloc.start()
        result = function()
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result, found

    (want,), without = peak(lambda: graph.run(np, arrays))
    (got,), again = peak(lambda: program(arrays))
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert without > 80 * one  # Graph.run keeps all values
    assert again < 8192


@pytest.mark.parametrize("backend", BACKENDS)
def test_writes_in_place(backend):
    """Of puts into zeros only the first copies; one into a value that is read later copies, too."""
    builder = Builder()
    x = builder.input(np.arange(6.0).reshape(2, 3))
    y = builder.constant(np.zeros((4, 3)))
    for row in range(4):
        y = builder.add("put", y, float(row), (("getitem", ((row,),)),))
    old = builder.add("multiply", x, 2.0)
    new = builder.add("put", old, x, (("getitem", ((slice(0, 2),),)),))
    # A reshape of a transposed array is no view.
    flat = (("transpose", ((1, 0),)), ("reshape", ((6,),)), ("getitem", ((slice(1, 3),),)))
    late = builder.add("put", builder.add("multiply", x, 1.0), 9.0, flat)
    graph = builder.graph(y, old, new, late)
    program = compile_graph(graph, backend)
    assert program.python_source.count("copyto") == 2
    want = [np.repeat(np.arange(4.0), 3).reshape(4, 3), builder.values[x] * 2, builder.values[x]]
    want += [np.array([[0.0, 9, 2], [9, 4, 5]])]
    for _ in range(2):
        got = program(builder.arrays())
        compare(want, got)
        spoil(got)
    compare(want, graph.run(np, builder.arrays()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_that_may_be_shared(backend):
    builder = Builder()
    x, w = builder.input(np.ones(3)), builder.input(np.ones(3))
    y = builder.add("add", x, w)
    graph = builder.graph(y, y, w, builder.add("view_at", w, (slice(0, 2), ...)))
    arrays = builder.arrays()
    first, second, third, fourth = compile_graph(graph, backend, shared=(1, 2, 3))(arrays)
    assert second is first and third is arrays[1] and np.may_share_memory(fourth, arrays[1])
    first, second, third, fourth = compile_graph(graph, backend)(arrays)
    assert not np.may_share_memory(first, second) and not np.may_share_memory(third, arrays[1])
    assert not np.may_share_memory(fourth, arrays[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_check_that_fails(backend):
    builder = Builder()
    x = builder.input(np.ones(3))
    builder.add("check", builder.add("any", builder.add("less", x, 0.0), axis=(0,)), False)
    graph = builder.graph(builder.add("add", x, 1.0))
    program = compile_graph(graph, backend)
    np.testing.assert_array_equal(program([np.ones(3)])[0], 2)
    with pytest.raises(CheckFailed, match="a check gave True: check.*# Check, here.py:1"):
        program([-np.ones(3)])
    np.testing.assert_array_equal(program([np.ones(3)])[0], 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_names_the_operation(backend):
    builder = Builder()
    x, index = builder.input(np.ones(3)), builder.input(np.array([1, 2]))
    graph = builder.graph(builder.add("multiply", builder.add("take", x, index, 0), 2.0))
    program = compile_graph(graph, backend)
    with pytest.raises(IndexError) as info:
        program([np.ones(3), np.array([1, 9])])
    assert "take(x0, x1, 0)  # Take, here.py:1" in info.value.__notes__[0]
    np.testing.assert_array_equal(program(builder.arrays())[0], 2)


@pytest.mark.skipif("c" not in BACKENDS, reason="needs a C compiler")
def test_a_failing_compiler_names_the_operation(monkeypatch):
    builder = Builder()
    x = builder.input(np.ones(3))
    graph = builder.graph(builder.add("tanh", builder.add("add", x, 1.0)))
    text = module.c_source
    monkeypatch.setattr(module, "c_source", lambda kernels: text(kernels) + "\noops\n")
    with pytest.raises(CompilerError, match="Tanh, here.py:1"):
        compile_graph(graph, "c")


def test_kinds_of_values():
    """Half types, bool, integers, empty arrays, arrays without dimensions, matrices of ints."""
    builder = Builder()
    h = builder.input(np.linspace(-1, 1, 6).astype(np.float16).reshape(2, 3))
    i = builder.input(np.arange(6).reshape(2, 3))
    empty = builder.input(np.zeros((0, 3), np.float32))
    zero = builder.input(np.array(2.0, np.float32))
    t = builder.add("transpose", i, (1, 0))
    outputs = [
        builder.add("add", h, 1),
        builder.add("sum", h, axis=(0,), keepdims=True),
        builder.add("mean", h, axis=(0, 1), keepdims=False),
        builder.add("matmul", i, t),
        builder.add("sum", builder.add("greater", i, 2), axis=(1,)),
        builder.add("max", builder.add("greater", i, 2), axis=(1,)),
        builder.add("floor_divide", i, 2),
        builder.add("divide", i, 2),
        builder.add("multiply", empty, zero),
        builder.add("sum", empty, axis=(0,)),
        builder.add("multiply", zero, zero),
        builder.add("multiply", zero, np.float64(0.1)),
        builder.add("maximum", zero, float("-inf")),
        builder.add("reshape", zero, (1, 1)),
        builder.add("view_as", i, np.dtype("uint64")),
        builder.add("erf", h),
        zero,
    ]
    graph = builder.graph(*outputs)
    want = graph.run(np, builder.arrays())
    for backend in BACKENDS:
        program = compile_graph(graph, backend)
        for _ in range(2):
            compare(want, program(builder.arrays()))


def networks():
    tt.manual_seed(0)
    convolution = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Dropout(0.3), nn.Linear(36, 5)),
    )
    return {
        "mlp": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)), tt.randn(4, 6)),
        "cnn": (convolution, tt.randn(3, 1, 8, 8)),
        "transformer": (
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True),
            tt.randn(2, 5, 8),
        ),
        "gru": (nn.GRU(4, 6), tt.randn(5, 2, 4)),
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", networks())
def test_networks(backend, name):
    net, x = networks()[name]
    uses = [*net.parameters(), *net.buffers()]
    x.requires_grad_()

    def run(graph, arrays):
        return compile_graph(simplify(graph), backend)(arrays)

    compare_with_eager(net, x, uses=uses, run=run)


@pytest.mark.parametrize("backend", BACKENDS)
def test_memory_goes_with_the_program(backend):
    builder, graph = chain_graph(64 * 1024, 3)
    program, arrays = compile_graph(graph, backend), builder.arrays()
    gc.disable()
    tracemalloc.start()
    try:
        program(arrays)
        assert tracemalloc.get_traced_memory()[0] > program.bytes
        program.idle.clear()
        assert tracemalloc.get_traced_memory()[0] < 8192
    finally:
        tracemalloc.stop()
        gc.enable()


def test_another_array_library(strict_device):
    """The array library of a device whose arrays mix with no others, as those of a GPU."""
    backend = Device(strict_device).backend
    xp, send = backend.xp, lambda array: backend.from_numpy(array, None)
    for seed in range(40):
        builder, graph = random_graph(seed)
        for node in graph.nodes:
            if node.op == "constant":
                node.args = (send(node.args[0]),)
        arrays = [send(array) for array in builder.arrays()]
        want = graph.run(xp, arrays)
        program = compile_graph(graph, "numpy", xp)
        for _ in range(2):
            got = program(arrays)
            compare([to_numpy(x) for x in want], [to_numpy(x) for x in got])


def to_numpy(x):
    return x._array if hasattr(x, "_array") else tuple(to_numpy(y) for y in x)


def test_steps_that_end_run_soon():
    """Of a chain of gradients, those of the weights are computed beside it, and need no memory."""
    builder = Builder()
    g = builder.input(np.ones((8, 8)))
    x, w = builder.input(np.ones((8, 8))), builder.input(np.eye(8))
    chain = [g]
    for _ in range(20):
        chain.append(builder.add("tanh", builder.add("matmul", chain[-1], w)))
    ends = [builder.add("matmul", builder.add("transpose", a, (1, 0)), x) for a in chain[1:]]
    graph = builder.graph(*ends)
    program = compile_graph(graph, "numpy")
    assert program.bytes <= 4 * 8 * 8 * 8
    compare(graph.run(np, builder.arrays()), program(builder.arrays()))


@pytest.mark.skipif("c" not in BACKENDS, reason="needs a C compiler")
def test_the_number_of_threads_is_asked_in_each_run(monkeypatch):
    pytest.importorskip("threadpoolctl")
    builder = Builder()
    x = builder.input(np.linspace(-1, 1, 300_000).reshape(300, 1000))
    y = builder.add("tanh", builder.add("multiply", x, 2.0))
    shifted = builder.add("subtract", y, builder.add("max", y, axis=(1,), keepdims=True))
    graph = builder.graph(y, builder.add("sum", shifted, axis=(1,)))
    asked = []
    counter = module.thread_counter()
    monkeypatch.setattr(
        module, "thread_counter", lambda: lambda: asked.append(counter()) or asked[-1]
    )
    program = compile_graph(graph)
    before = tt.get_num_threads()
    try:
        for number in (1, 2, 1):
            tt.set_num_threads(number)
            compare(graph.run(np, builder.arrays()), program(builder.arrays()))
    finally:
        tt.set_num_threads(before)
    assert asked == [1, 2, 1]
    assert "omp parallel for" in program.c_source


class OnAGPU:
    """NumPy, and NVIDIA's compiler and GPU played by the CPU: what Program asks of CuPy."""

    def __init__(self, folder):
        self.folder, self.launches = folder, []

    def __getattr__(self, name):
        return getattr(np, name)

    def RawModule(self, code):  # noqa: N802 (CuPy's name)
        program, names = emulator.PRELUDE + code, re.findall(r"__global__ void (\w+)\(", code)
        for name in names:
            parameters = re.search(rf"void {name}\(([^)]*)\)", code)[1]
            arguments = ", ".join(x.split()[-1].lstrip("*") for x in parameters.split(","))
            filled = {"parameters": parameters, "arguments": arguments, "name": name}
            program += (emulator.LAUNCHER % filled).replace(" launch(", f" launch_{name}(")
        path = self.folder / "kernels.cc"
        path.write_text(program)
        command = [emulator.COMPILER, "-std=c++20", "-O0", "-shared", "-fPIC", "-pthread"]
        done = subprocess.run([*command, path, "-o", path.with_suffix(".so")], capture_output=True)
        if done.returncode:
            raise RuntimeError("NVRTC_ERROR")
        library = ctypes.CDLL(str(path.with_suffix(".so")))

        def get_function(name):
            def start(grid, block, arrays):
                self.launches.append((name, grid, block))
                sizes = [ctypes.c_uint(n) for n in (*grid, 1, *block, 1)]
                library[f"launch_{name}"](*sizes, *(ctypes.c_void_p(x.ctypes.data) for x in arrays))

            return start

        return SimpleNamespace(get_function=get_function)


@pytest.mark.skipif(emulator.COMPILER is None, reason="needs a C++ compiler")
def test_on_a_gpu(tmp_path, monkeypatch):
    builder = Builder()
    x = builder.input(np.linspace(-1, 1, 600, dtype=np.float32).reshape(6, 100))
    w = builder.input(np.linspace(-0.01, 0.01, 10000, dtype=np.float32).reshape(100, 100))
    y = builder.add("matmul", builder.add("tanh", builder.add("multiply", x, 2.0)), w)
    y = builder.add("subtract", y, builder.add("max", y, axis=(1,), keepdims=True))
    y = builder.add("put", y, 1.0, (("getitem", ((0,),)),))
    graph = builder.graph(y, builder.add("sum", builder.add("exp", y), axis=(1,)))
    gpu = OnAGPU(tmp_path)
    program = compile_graph(graph, "cuda", gpu)
    for arrays in (builder.arrays(), [array.copy(order="F") for array in builder.arrays()]):
        compare(graph.run(np, builder.arrays()), program(arrays))
    assert "__global__" in program.c_source and "threadIdx" in program.source
    assert ("k0", (3,), (256,)) in gpu.launches  # 600 elements
    monkeypatch.setattr(module, "cuda_source", lambda kernels: "oops")
    with pytest.raises(CompilerError, match="the CUDA compiler failed: NVRTC_ERROR"):
        compile_graph(graph, "cuda", gpu)
