"""Which operations become one kernel, and in which order kernels and other operations run."""

import time

import numpy as np
import pytest

from tests.compiler.native import COMPILER, Build, Compiled
from tinytorch.compiler.axes import Axis, leaves, undo, unify
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.graph import EFFECTS, Graph, Node
from tinytorch.compiler.kernel import Kernel

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
RNG = np.random.default_rng(0)


def array(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def in_words(schedule: list) -> list[str]:
    return [unit.op if isinstance(unit, Node) else "kernel" for unit in schedule]


def softmax(b: Build, x: Node) -> Node:
    top = b.reduce("max", x, len(x.shape) - 1, keepdims=True)
    e = b.exp(b.subtract(x, top))
    return b.divide(e, b.reduce("sum", e, len(x.shape) - 1, keepdims=True))


def test_axes_split_where_two_lists_of_them_meet():
    six, four, two, twelve = map(Axis, (6, 4, 2, 12))
    assert unify([six, four], [two, twelve], trail := [])
    assert [axis.size for axis in leaves([six, four])] == [2, 3, 4]
    assert leaves([six, four]) == leaves([two, twelve])
    undo(trail)
    assert leaves([six, four]) == [six, four]
    assert not unify([six, four], [Axis(4), Axis(6)], [])


def test_a_chain_is_one_kernel():
    b = Build(array(30, 40), array(40))
    x, w = b.inputs
    y = b.add(b.exp(b.multiply(x, 2.0)), w)
    (kernel,) = fuse(b.graph(b.tanh(y)))
    assert kernel.sizes == (30, 40) and kernel.inputs == [x, w] and len(kernel.nodes) == 4
    assert kernel.outputs == [b.nodes[-1]]


def test_a_value_that_is_used_outside_too_is_written_once():
    b = Build(array(8, 8))
    e = b.exp(b.inputs[0])
    y = b.add(e, 1.0)
    kernel, product = fuse(b.graph(b.matmul(e, e), y))
    assert kernel.outputs == [e, y] and product.op == "matmul"


def test_no_cycle_through_a_product():
    b = Build(array(8, 8))
    a = b.exp(b.inputs[0])
    y = b.add(b.matmul(a, a), a)
    assert in_words(fuse(b.graph(y))) == ["kernel", "matmul", "kernel"]


def test_two_branches_that_meet_become_one_kernel():
    b = Build(array(8, 8), array(8, 8))
    x, y = b.inputs
    assert in_words(fuse(b.graph(b.add(b.exp(x), b.tanh(y))))) == ["kernel"]


def test_a_value_that_is_made_early_moves_to_where_it_is_used():
    b = Build(array(8, 8), array(8, 8))
    x, noise = b.inputs
    mask = b.greater(noise, 0.5)
    h = b.matmul(b.matmul(x, x), x)
    y = b.multiply(b.tanh(h), mask)
    assert in_words(fuse(b.graph(y))) == ["matmul", "matmul", "kernel"]


@needs_compiler
def test_softmax_is_one_kernel_of_three_passes(tmp_path):
    b = Build(array(5, 7, 33))
    y = softmax(b, b.inputs[0])
    program = b.check(tmp_path, y)
    (kernel,) = program.kernels
    assert kernel.sizes == (35, 33) and kernel.outer == 1
    assert program.source.count("omp simd") == 3
    assert [node.op for node in kernel.kept] == ["exp"]  # costly, so that it is computed once


@needs_compiler
def test_a_row_that_is_too_long_for_the_stack_goes_to_an_array(tmp_path):
    b = Build(array(2, 40_000))
    program = b.check(tmp_path, softmax(b, b.inputs[0]), threads=2)
    (kernel,) = program.kernels
    assert [node.op for node in kernel.outputs] == ["divide", "exp"] and not kernel.kept


@needs_compiler
def test_layer_norm(tmp_path):
    b = Build(array(20, 50), array(50), array(50))
    x, w, bias = b.inputs
    m = b.reduce("mean", x, 1, keepdims=True)
    d = b.subtract(x, m)
    s = b.sqrt(b.add(b.reduce("mean", b.multiply(d, d), 1, keepdims=True), 1e-5))
    y = b.add(b.multiply(b.divide(d, s), w), bias)
    program = b.check(tmp_path, y, m, s)
    assert in_words(program.schedule) == ["kernel"]


@needs_compiler
def test_batch_norm_reduces_around_the_channels(tmp_path):
    b = Build(array(4, 3, 5, 6), array(3))
    x, w = b.inputs
    m = b.reduce("mean", x, 0, 2, 3, keepdims=True)
    d = b.subtract(x, m)
    v = b.reduce("mean", b.square(d), 0, 2, 3)
    scale = b.reshape(b.divide(w, b.sqrt(b.add(v, 1e-5))), (1, 3, 1, 1))
    program = b.check(tmp_path, b.multiply(d, scale), v)
    (kernel,) = program.kernels
    assert kernel.sizes == (3, 4, 30) and kernel.outer == 1 and not kernel.columns


@needs_compiler
@pytest.mark.parametrize("width", [3, 50, 700])
def test_sums_over_the_first_axis_run_over_columns(width, tmp_path):
    b = Build(array(40, width), array(40, width))
    x, g = b.inputs
    t = b.multiply(g, b.subtract(1.0, b.square(x)))
    outputs = [t, b.reduce("sum", t, 0), b.subtract(t, b.reduce("mean", t, 0))]
    program = b.check(tmp_path, *outputs, atol=1e-5)
    assert in_words(program.schedule) == ["kernel"] and program.kernels[0].columns


@needs_compiler
def test_views_are_read_where_they_are(tmp_path):
    b = Build(array(6, 4, 9), array(9, 4, 6), array(5, 24))
    x, y, z = b.inputs
    first, rest = (
        b.view_at(z, (slice(0, 1), ...)),
        b.view_at(z, (slice(1, 2), slice(None, None, -1))),
    )
    total = b.add(b.reshape(x, (24, 9)), b.reshape(b.transpose(y, (2, 1, 0)), (24, 9)))
    row = b.broadcast_to(b.transpose(b.add(first, rest), (1, 0)), (24, 9))
    program = b.check(tmp_path, b.exp(b.multiply(b.add(total, 1.0), row)))
    # A transposed array that is reshaped is a copy; the rest is done by the loop.
    assert sorted(in_words(program.schedule)) == ["kernel", "reshape", "transpose"]


@needs_compiler
def test_a_value_and_its_transpose_are_not_taken_for_each_other(tmp_path):
    b = Build(array(6, 6))
    e = b.exp(b.inputs[0])
    program = b.check(tmp_path, b.add(e, b.transpose(e, (1, 0))))
    assert in_words(program.schedule) == ["kernel", "kernel"]


@needs_compiler
def test_a_reshape_between_two_operations_stays_inside(tmp_path):
    b = Build(array(40, 5))
    h = b.add(b.matmul(b.inputs[0], b.transpose(b.inputs[0], (1, 0))), 1.0)
    y = b.multiply(b.reshape(b.tanh(h), (5, 8, 40)), 2.0)
    z = b.exp(b.transpose(b.reshape(y, (5, 8, 4, 10)), (0, 2, 1, 3)))
    program = b.check(tmp_path, z, softmax(b, z), rtol=1e-5)
    assert in_words(program.schedule) == ["transpose", "matmul", "kernel"]


@needs_compiler
def test_equal_kernels_are_written_once(tmp_path):
    b = Build(array(8, 8))
    x = b.inputs[0]
    for _ in range(3):
        x = b.tanh(b.add(b.matmul(x, x), 1.0))
    program = b.check(tmp_path, x, rtol=1e-4)
    assert program.source.count("void ") == 1 and len(program.kernels) == 3


def test_the_source_names_the_program_and_has_no_warnings(tmp_path):
    b = Build(array(8, 8))
    graph = b.graph(softmax(b, b.inputs[0]))
    if COMPILER is not None:
        program = Compiled(graph, tmp_path)
        assert not program.warnings and "// exp, model.py:1" in program.source


def test_half_types_and_empty_arrays_stay_as_they_are():
    b = Build(np.ones(3, np.float16), np.ones((0, 3), np.float32))
    half, empty = b.inputs
    assert in_words(fuse(b.graph(b.exp(half), b.exp(empty)))) == ["exp", "exp"]


def test_random_draws_keep_their_order():
    draws = [Node("random", (None, "normal"), {}, (3,), np.dtype(np.float32)) for _ in range(3)]
    total = Node("add", (draws[2], draws[0]), {}, (3,), np.dtype(np.float32))
    units = fuse(Graph([], [*draws, total], [total]))
    assert units[:3] == draws and isinstance(units[3], Kernel)
    assert "random" in EFFECTS


def test_time_grows_with_the_number_of_nodes():
    seconds = []
    for count in (1000, 8000):
        x = first = Node("input", (), {}, (10, 10), np.dtype(np.float32))
        nodes = []
        for i in range(count):
            op, args = ("matmul", (x, x)) if i % 10 == 0 else ("add", (x, first))
            x = Node(op, args, {}, (10, 10), np.dtype(np.float32))
            nodes.append(x)
        runs = []
        for _ in range(2):
            start = time.process_time()
            fuse(Graph([first], nodes, [x]))
            runs.append(time.process_time() - start)
        seconds.append(min(runs))
    assert seconds[1] < 24 * seconds[0]


@needs_compiler
def test_a_long_row_is_not_cut_into_windows(tmp_path):
    """The gradient of a pooling has a value for each 2 x 2 window: it gets a kernel of its own."""
    b = Build(array(2, 1, 2), array(4, 3, 8, 1, 8, 1), array(4, 3, 16, 16))
    wide = b.multiply(b.inputs[1], b.inputs[0])
    y = b.multiply(b.reshape(wide, (4, 3, 256)), b.reshape(b.inputs[2], (4, 3, 256)))
    program = b.check(tmp_path, y, b.reduce("sum", y, 0, 2), rtol=1e-4)
    assert [kernel.sizes[-1] for kernel in program.kernels] == [2, 256]
