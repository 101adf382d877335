"""Step tracer30: Batch and RMS normalisation: the same formula, changed

Batch normalisation (steps norm01 to norm14, weightnorm01 to weightnorm05, lazy01 to lazy03 and
parametrize01 to parametrize04) is the formula of step tracer29 with three additions. Its means are
taken over the batch and the positions, so weight and bias belong to dimension 1. In training it
updates running averages, and in use it takes them in place of the batch's own:

    training    m, v of the batch;  running += momentum * (value - running)
    in use      m, v = running_mean, running_var: constants, so dL/dx = r e, without the two means

The update is a write into a tensor of the program. In a trace it becomes an output of the graph
(step tracer16), so nothing more is needed for it here.

RMS normalisation leaves the mean out: m = 0. That is a subclass with `centered = False`.

The trap: the running variance is the unbiased one, v * n / (n - 1), and the one in the formula is
not. For a batch of one number n - 1 is 0; max(n - 1, 1) avoids the division.

(PyTorch: torch._decomp has native_batch_norm and rms_norm in this form.)

New: PlainRmsNorm. Changed: PlainNormalization.
Try: trace BatchNorm in training. Where do the running averages come in?
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.compiler.graph import EFFECTS, Graph, without_dead_code
from tinytorch.compiler.tracer import Tracer, Untraceable, traced
from tinytorch.core.version import bump_version
from tinytorch.nn.modules.pooling import SpreadWindows
from tinytorch.nn.modules.rnn_loops import Loop
from tinytorch.nn.modules.sparse import PickRows
from tinytorch.ops import normalization
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.cumulative import Prod
from tinytorch.ops.erf import erf_of
from tinytorch.ops.indexing import AddIndex, Index, IndexPut
from tinytorch.ops.minmax import PutAlong, TakeAlong
from tinytorch.ops.reduction import wide
from tinytorch.ops.slicing import Diagonal

# What a trace calls in place of a Function.
formulas: dict[type[Function], type[Function]] = {}

# Functions that a trace takes as one node: their backward adds at indices, or reads values.
WHOLE = frozenset(
    (AddIndex, Index, IndexPut, Loop, PickRows, Prod, PutAlong, SpreadWindows, TakeAlong)
)


def in_place_of(*functions: type[Function]) -> Callable[[type[Function]], type[Function]]:
    """Enters a formula into the table for these Functions."""

    def enter(formula: type[Function]) -> type[Function]:
        formulas.update(dict.fromkeys(functions, formula))
        return formula

    return enter


@erf_of.register(Tracer)
def erf_of_tracer(x: Tracer, xp: Any) -> Tracer:
    """One operation: the compiler's own loops have the function of the C library."""
    return traced("erf", (x,))


class Formula(Function):
    """A Function whose backward cannot be differentiated again, so it may save any value."""

    def gradients(ctx, grads: list) -> Any:
        raise Untraceable(f"the gradient of {type(ctx).__name__} as a Tensor")


def like(y: Any, x: Any) -> Any:
    """y in the shape and type of x."""
    return y.reshape(x.shape).astype(x.dtype, copy=False)


@in_place_of(
    normalization.NativeBatchNorm, normalization.NativeLayerNorm, normalization.NativeGroupNorm
)
class PlainNormalization(Formula):
    """y = h w + b with h = (x - m) r;   dL/dx = r (e - mean(e) - h mean(e h)), e = g w.

    The arguments are those of normalization.Normalization.
    """

    saves = 0, 1, 2, None, None
    centered = True

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        shape: tuple[int, ...], dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        if len(shape) == 3 and x.ndim == 2:
            shape = (*x.shape, 1)  # of a batch, too, the channels are dimension 1
        ctx.shape, ctx.dims = shape, dims
        ctx.inner = shape[1:] if len(shape) == 2 else (*shape[1:-1], 1)  # of weight and bias
        ctx.count = math.prod(shape[dim] for dim in dims)
        ctx.fixed = momentum is None and running_mean is not None
        rows, m = wide(x).reshape(shape), 0
        if ctx.fixed:
            m, v = (wide(a).reshape(ctx.inner) for a in (running_mean, running_var))
        else:
            m = ctx.mean(rows) if ctx.centered else 0
            v = ctx.mean(ctx.xp.square(rows - m))
        if momentum is not None and ctx.count:
            unbiased = v * (ctx.count / max(ctx.count - 1, 1))
            for running, value in ((running_mean, m), (running_var, unbiased)):
                if running is not None:
                    running += like(momentum * (value.reshape(-1) - running), running)
                    bump_version(running)
        r = 1 / ctx.xp.sqrt(v + eps)
        ctx.save_for_backward(x, weight, bias, m, r)
        y = (rows - m) * r
        y = y if weight is None else y * wide(weight).reshape(ctx.inner)
        return like(y if bias is None else y + wide(bias).reshape(ctx.inner), x)

    def backward(ctx, g: Any) -> Any:
        x, weight, bias, m, r = ctx.saved
        h, g = (wide(x).reshape(ctx.shape) - m) * r, wide(g).reshape(ctx.shape)
        e = g if weight is None else g * wide(weight).reshape(ctx.inner)
        gw, gb = (ctx.call(SumTo, a, ctx.inner) for a in (g * h, g))
        if not ctx.fixed:
            e = e - (ctx.mean(e) if ctx.centered else 0) - h * ctx.mean(e * h)
        gw, gb = (a if b is None else like(a, b) for a, b in ((gw, weight), (gb, bias)))
        return like(e * r, x), gw, gb

    def mean(ctx, x: Any) -> Any:
        return x.sum(axis=ctx.dims, keepdims=True) / ctx.count


@in_place_of(normalization.RmsNorm)
class PlainRmsNorm(PlainNormalization):
    """As PlainNormalization, with 0 in the place of the mean."""

    centered = False


@in_place_of(Diagonal)
class PlainDiagonal(Diagonal):
    """A diagonal by the numbers of its rows and columns: no view of a graph steps along both."""

    def forward(ctx, x: Any, offset: int, dim1: int, dim2: int) -> Any:
        ctx.shape, ctx.place = x.shape, (offset, dim1, dim2)
        x = ctx.xp.moveaxis(x, (dim1, dim2), (-2, -1))
        first, second = max(-offset, 0), max(offset, 0)
        places = ctx.xp.arange(max(0, min(x.shape[-2] - first, x.shape[-1] - second)))
        ctx.key = (..., first + places, second + places)
        return x.pick(ctx.key)

    def backward(ctx, g: Any) -> Any:
        gx = ctx.xp.zeros(ctx.shape, g.dtype)
        ctx.xp.moveaxis(gx, ctx.place[1:], (-2, -1))[ctx.key] = g
        return gx


def partition(graph: Graph, given: int, count: int) -> tuple[Graph, Graph | None]:
    """One graph as two. The forward has the first `given` inputs, and gives the first `count`
    outputs and then what the backward needs. From that and the other inputs, the gradients of
    outputs, the backward computes the other outputs. It is None where there are no gradients.
    Constants are made again instead of being kept.
    """
    outputs, gradients = graph.outputs[:count], graph.outputs[count:]
    inputs, grads = graph.inputs[:given], graph.inputs[given:]
    if not grads:
        return graph, None
    behind = set(grads)  # what is known only when the backward begins
    for node in graph.nodes:
        if node.op == "call_backward" or not behind.isdisjoint(node.inputs()):
            behind.add(node)
    effects = [node for node in graph.nodes if node.op in EFFECTS and node not in behind]
    in_forward = set(without_dead_code(graph.nodes, [*outputs, *effects]))
    nodes = [node for node in graph.nodes if node not in in_forward or node.op == "constant"]
    nodes = without_dead_code(nodes, gradients)
    made = {*nodes, *grads}
    kept = dict.fromkeys(x for node in nodes for x in node.inputs() if x not in made)
    kept |= dict.fromkeys(x for x in gradients if x not in made)
    forward = [node for node in graph.nodes if node in in_forward]
    return Graph(inputs, forward, [*outputs, *kept]), Graph([*kept, *grads], nodes, gradients)


if __name__ == "__main__":
    from tinytorch.autograd.backward import grad
    from tinytorch.compiler import capture as tracing
    from tinytorch.nn import functional as F
    from tinytorch.ops.creation import ones, zeros
    from tinytorch.ops.random import manual_seed, rand

    def halves(captured):
        count = captured.count + len(captured.written)
        return partition(captured.graph, len(captured.sources), count)

    def counts(function, *tensors):
        captured = tracing.capture(function, tensors, {}, tensors)
        return sum(len(graph.nodes) for graph in halves(captured))

    def compared(function, *tensors):
        """How many nodes there are with eager's formulas, and with those above, which give the
        same values, writes and gradients."""
        sizes = []
        for table in ({}, formulas):
            tracing.formulas.clear()
            tracing.formulas.update(table)
            sizes.append(counts(function, *tensors))
        manual_seed(0)
        captured = tracing.capture(function, tensors, {}, tensors)
        arrays = [source.array.copy() for source in captured.sources]
        forward, backward = halves(captured)
        value, *others = forward.run(np, arrays)
        written, saved = others[: len(captured.written)], others[len(captured.written) :]
        gradients = backward.run(np, [*saved, np.ones_like(value)])
        manual_seed(0)
        result = function(*tensors)
        wanted = [captured.sources[number].tensor for number in captured.wanted]
        expected = [x.array for x in grad(result, wanted, ones(result.shape))]
        expected += [captured.sources[number].tensor.array for number in captured.written]
        assert np.allclose(value, result.array, atol=1e-5)
        for ours, theirs in zip([*gradients, *written], expected, strict=True):
            assert np.allclose(ours, theirs, atol=1e-4)
        return f"{sizes[0]} nodes, now {sizes[1]}"

    manual_seed(1)
    x, images = rand(6, 8, requires_grad=True), rand(2, 4, 6, 6, requires_grad=True)
    w, b, w4, b4 = (rand(n, requires_grad=True) for n in (8, 8, 4, 4))
    mean, var = zeros(4), ones(4)
    print("RMS norm", compared(lambda x, w: F.rms_norm(x, (8,), w), x, w))
    # -> RMS norm 107 nodes, now 31
    print(
        "batch norm", compared(lambda *args: F.batch_norm(*args, True), images, mean, var, w4, b4)
    )
    # -> batch norm 142 nodes, now 51
    print("in use", compared(lambda *args: F.batch_norm(*args, False), images, mean, var, w4, b4))
    # -> in use 76 nodes, now 28
    print("of a batch", compared(lambda x: F.batch_norm(x, None, None, training=True), x))
    # -> of a batch 133 nodes, now 27
