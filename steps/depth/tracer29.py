"""Step tracer29: Layer normalisation, decomposed into sums and products

    y = (x - m) r w + b,   m = mean(x),   r = 1 / sqrt(mean((x - m)^2) + eps)

Eager computes this with matrix products: with ones to get sums, with [s, t] to get x s + t, and in
parts that fit the cache (steps norm01 to norm14, weightnorm01 to weightnorm05, lazy01 to lazy03 and
parametrize01 to parametrize04). Each call of an array library goes over the whole array, so few
calls, and calls of BLAS, are fast. The trace of a layer norm has 124 nodes, forward and backward. A
compiler would have to leave most of them to BLAS, and would gain nothing.

A compiler works better from the formula itself. It makes one loop of it, which reads a row, sums
it, sums its squares, and writes the result, while the row is in the cache. So the table of step
tracer28 gets an entry with sums and products, forward and backward:

    dL/dx = r (e - mean(e) - h mean(e h)),   e = g w,   h = (x - m) r

The same entry serves the normalisation of groups, which differs in the dimensions over which the
means are taken. The formula is also numerically safer: it squares deviations from the mean, so a
large mean does no harm. Eager's version tests for a large mean, which would be a check in each run
(step tracer24).

The trap: backward uses values that forward has saved, such as r. For a second derivative, r would
have to be a function of x, and here it is a constant. The result would be wrong, so a Formula
refuses to be differentiated twice.

(PyTorch: torch._decomp has native_layer_norm in this form.)

`saves` names arguments 0 to 2, and None for m and r: constants (step node02).

New: Formula, like, PlainNormalization.
Try: print the forward graph of a layer norm, with this entry and without.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.compiler.graph import EFFECTS, Graph, without_dead_code
from tinytorch.compiler.tracer import Tracer, Untraceable, traced
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


@in_place_of(normalization.NativeLayerNorm, normalization.NativeGroupNorm)
class PlainNormalization(Formula):
    """y = h w + b with h = (x - m) r;   dL/dx = r (e - mean(e) - h mean(e h)), e = g w.

    The arguments are those of normalization.Normalization.
    """

    saves = 0, 1, 2, None, None

    def forward(
        ctx, x: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
        shape: tuple[int, ...], dims: tuple[int, ...], eps: float, momentum: float | None = None,
    ) -> Any:  # fmt: skip
        ctx.shape, ctx.dims = shape, dims
        ctx.inner = shape[1:] if len(shape) == 2 else (*shape[1:-1], 1)  # of weight and bias
        ctx.count = math.prod(shape[dim] for dim in dims)
        rows = wide(x).reshape(shape)
        m = ctx.mean(rows)
        v = ctx.mean(ctx.xp.square(rows - m))
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
        e = e - ctx.mean(e) - h * ctx.mean(e * h)
        gw, gb = (a if b is None else like(a, b) for a, b in ((gw, weight), (gb, bias)))
        return like(e * r, x), gw, gb

    def mean(ctx, x: Any) -> Any:
        return x.sum(axis=ctx.dims, keepdims=True) / ctx.count


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
    from tinytorch.ops.creation import ones
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
    print("layer norm", compared(lambda x, w, b: F.layer_norm(x, (8,), w, b), x, w, b))
    # -> layer norm 124 nodes, now 40
    print("group norm", compared(lambda x, w, b: F.group_norm(x, 2, w, b), images, w4, b4))
    # -> group norm 133 nodes, now 40
    print("no weight", compared(lambda x: F.layer_norm(x, (8,)), x))
    # -> no weight 106 nodes, now 27

    # What a formula saves is not known as a function of its inputs.
    def penalty(x):
        (slope,) = grad(F.layer_norm(x, (8,)).exp().sum(), x, create_graph=True)
        return (slope * slope).sum()

    try:
        tracing.capture(penalty, (x,), {}, [x])
    except tracing.Break as error:
        print(str(error).partition(": ")[2])
        # -> the gradient of PlainNormalization as a Tensor, ...
