"""Step tracer32: Convolutions as operations of the graph

A convolution is whole: a call, and a node for its backward that gives all gradients at once (steps
tracer19 and tracer20). For a compiler that is a wall. The ReLU behind a convolution cannot take the
addition of the bias into its loop. The results of a call may show any memory, so gradients that
leave the program are copied. And C for a convolution (step convcode01) would have nothing to stand
for.

A convolution has two derivatives, and each of the three is linear in both arguments (step conv09).
So the derivatives of each are the two others, and three operations of arrays are enough:

    y  = convolve(x, w)              gx = convolve_input(g, w)      gw = convolve_weight(x, g)

OPERATIONS (step tracer24) gets them with eager's functions as their meaning. The classes Plain...
record them, and call each other in backward. The bias is added afterwards: it is one of the
additions of the loop behind. Its gradient is a sum of g, which the loop that computes g can do.

The trap: a Function that is whole has no formula for tracers, so TraceMode asks first whether there
is one in `formulas` (step tracer28).

(PyTorch's operators are convolution and convolution_backward, which gives three gradients.)

New: bilinear, PlainBilinear, PlainConvolution, PlainInput, PlainWeight.
Try: conv2d(x, w).sum() in place of the example, with w alone requiring a gradient. What is left?
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.compiler.graph import EFFECTS, OPERATIONS, Graph, without_dead_code
from tinytorch.compiler.tracer import Tracer, Untraceable, traced
from tinytorch.core.version import bump_version
from tinytorch.nn.modules.attention import Attention
from tinytorch.nn.modules.linear import Addmm
from tinytorch.nn.modules.pooling import MaxPool, SpreadWindows, Windows, join_dims, window_slices
from tinytorch.nn.modules.rnn_loops import Loop
from tinytorch.nn.modules.sparse import PickRows
from tinytorch.nn.nll import NllLoss
from tinytorch.ops import convolution, normalization
from tinytorch.ops.broadcast import SumTo
from tinytorch.ops.cumulative import Prod
from tinytorch.ops.erf import erf_of
from tinytorch.ops.indexing import AddIndex, Index, IndexPut
from tinytorch.ops.matmul import matmul_arrays
from tinytorch.ops.minmax import PutAlong, TakeAlong
from tinytorch.ops.random import generator_for
from tinytorch.ops.reduction import wide
from tinytorch.ops.slicing import Diagonal
from tinytorch.ops.storage import Unfold, UnfoldToRead

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


@in_place_of(Addmm)
class PlainAddmm(Addmm):
    """Y = X W^T + b. Only for very few rows is (W X^T)^T worth its transposed result: loops that
    read that in the order of Y cannot be vectorised."""

    def forward(ctx, x: Any, weight: Any, bias: Any = None) -> Any:
        n = math.prod(x.shape[:-1])
        if n <= 32 and 2 * n < len(weight):
            return super().forward(x, weight, bias)
        ctx.save_for_backward(x, weight)
        y = matmul_arrays(x.reshape(n, x.shape[-1]), weight.T)
        y = y if bias is None else y + bias
        return y.reshape((*x.shape[:-1], len(weight)))


@in_place_of(NllLoss)
class PlainNllLoss(Formula):
    """l = log(sum of exp(x_i)) - x_t for each row, with the choice of x_t as a comparison of each
    column's number with t, which runs in the same loop.

    The arguments are those of NllLoss.
    """

    saves = 0, 1, None, None, None

    def forward(
        ctx, x: Any, index: Any, counts: Any, reduction: str, shape: tuple, logs: bool
    ) -> Any:
        xp, n, total, share = ctx.xp, len(x), 1, 1.0
        z, m, sums = wide(x), 0, 1
        chosen = index.reshape(-1, 1) == xp.arange(x.shape[1])
        if not logs:
            m = z.max(axis=1, keepdims=True)
            sums = xp.exp(z - m).sum(axis=1, keepdims=True)
        losses = -xp.where(chosen, z - m, 0).sum(axis=1)
        losses = losses if logs else xp.log(sums).reshape(n) + losses
        if reduction == "mean":
            total, share = n if counts is None else wide(counts).sum(), 1 / max(n, 1)
        if counts is not None:  # weights of 0: no 0 * inf, and no 0 / 0
            losses = xp.where(counts == 0, 0, losses * counts)
            share = xp.where(counts == 0, counts, counts / total).astype(x.dtype, copy=False)
            share = share.reshape(-1, 1)
        ctx.save_for_backward(x, index, share, m, sums)
        ctx.logs = logs
        losses = losses.reshape(shape) if reduction == "none" else losses.sum() / total
        return losses.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        x, index, share, m, sums = ctx.saved
        xp, g = ctx.xp, g.reshape(-1, 1) * share
        chosen = index.reshape(-1, 1) == xp.arange(x.shape[1])
        if ctx.logs:
            return xp.where(chosen, -g, 0).astype(x.dtype, copy=False)
        p = xp.exp(wide(x) - m) / sums
        return ((p - chosen) * g).astype(x.dtype, copy=False)


@in_place_of(Attention)
class PlainAttention(Formula):
    """Y = P V, P = softmax(s Q K^T + mask), with two large products and all else between them.

        dL/dV = P^T G,   dL/dP = G V^T,   dL/dS = P (dL/dP - sum of P dL/dP),
        dL/dQ = s dL/dS K,   dL/dK = s dL/dS^T Q,   dL/dmask = dL/dS

    A row in which nothing is allowed is 0. The arguments are those of Attention.
    """

    saves = 0, 1, 2, None, None

    def forward(
        ctx, q: Any, k: Any, v: Any, mask: Any, allowed: Any, causal: bool, p: float, scale: float
    ) -> Any:
        xp, keep, ctx.scale = ctx.xp, 1, scale
        scores = (q * scale) @ k.swapaxes(-1, -2)
        scores = scores if mask is None else scores + mask
        scores = scores if allowed is None else xp.where(allowed > 0, scores, -math.inf)
        top = scores.max(axis=-1, keepdims=True) if scores.size else 0
        some = mask is not None or (allowed is not None and not causal)  # may forbid all keys
        top = xp.where(top == -math.inf, 0, top) if some else top  # -inf - -inf would be nan
        e = xp.exp(scores - top)
        z = e.sum(axis=-1, keepdims=True)
        weights = e / (z + (z == 0) if some else z)
        if p:
            keep = generator_for(ctx.device, None).source.uniform(scores.shape, q.dtype) >= p
            keep = keep * q.dtype.type(1 / (1 - p) if p < 1 else 0)
        ctx.save_for_backward(q, k, v, weights, keep)
        return (weights * keep) @ v

    def backward(ctx, g: Any) -> Any:
        q, k, v, weights, keep = ctx.saved
        gp = (g @ v.swapaxes(-1, -2)) * keep * weights
        gs = gp - weights * gp.sum(axis=-1, keepdims=True)
        gv = (weights * keep).swapaxes(-1, -2) @ g
        return (gs @ k) * ctx.scale, gs.swapaxes(-1, -2) @ (q * ctx.scale), gv, gs


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


@in_place_of(Unfold, UnfoldToRead)
class PlainUnfold(Unfold):
    """Windows by the numbers of their elements: no view of a graph shows one element twice."""

    def forward(ctx, x: Any, dim: int, size: int, step: int) -> Any:
        ctx.call_with = x.shape, dim, size, step
        starts = ctx.xp.arange(0, x.shape[dim] - size + 1, step)
        places = starts.reshape(-1, 1) + ctx.xp.arange(size)
        windows = x.pick((slice(None),) * dim + (places,))
        return ctx.xp.moveaxis(windows, dim + 1, -1)


def cells(shape: tuple[int, ...], windows: Windows) -> tuple[tuple, tuple, list]:
    """Of windows side by side: the shape of an input with windows and their elements as dimensions
    of their own, [..., rows, size, columns, size]; that with sizes of 1; the places in a window.

    Raises:
        Untraceable: the windows overlap, or do not cover the input exactly.
    """
    lead, plane = shape[: -len(windows.sizes)], shape[-len(windows.sizes) :]
    pairs = [(m, n // m) for n, m in zip(plane, windows.sizes, strict=True)]
    spread, kept = (*lead, *sum(pairs, ())), (*lead, *(n for m, _ in pairs for n in (m, 1)))
    parts = join_dims(window_slices(m * k, m, k, k, 0, 1) for m, k in pairs)
    if windows.parts != parts or math.prod(spread) != math.prod(shape):
        raise Untraceable("windows that are not side by side")
    return spread, kept, list(np.ndindex(*(k for _, k in pairs)))


@in_place_of(MaxPool)
class PlainMaxPool(Formula):
    """The maximum of windows that lie side by side, and the number of its place in the window."""

    saves = (None,)

    def forward(ctx, x: Any, windows: Windows, indices: bool) -> Any:
        ctx.cells, ctx.shape = cells(x.shape, windows), x.shape
        spread, _, places = ctx.cells
        if indices or len(places) > 255:
            raise Untraceable("the places of maxima")
        rows = x.reshape(spread)
        parts = [rows[(..., *(i for n in place for i in (slice(None), n)))] for place in places]
        y, choice = parts[0], ctx.xp.zeros(parts[0].shape, np.uint8)
        for number, seen in enumerate(parts[1:], 1):
            # No `where`: a processor that guesses which way to go is often wrong here.
            choice = ctx.xp.maximum(choice, (seen > y).astype(np.uint8) * number)
            y = ctx.xp.maximum(y, seen)
        ctx.save_for_backward(choice)
        return y

    def backward(ctx, g: Any, _: Any = None) -> Any:
        (choice,), (_, kept, places) = ctx.saved, ctx.cells
        sizes = [n for last in places[-1] for n in (1, last + 1)]
        numbers = ctx.xp.arange(len(places), dtype=np.uint8).reshape(sizes)
        chosen = choice.reshape(kept) == numbers
        return (g.reshape(kept) * chosen).reshape(ctx.shape)


def bilinear(op: str, a: Any, b: Any, geo: convolution.Geometry) -> Any:
    """A convolution or one of its derivatives, computed by the array library."""
    bias = () if op == "convolve_weight" else (None,)
    return convolution.in_float32(getattr(convolution, op), a, b, *bias, geo=geo)


class PlainBilinear(convolution.Bilinear):
    """A form of convolution as one operation of the graph. A bias is added afterwards: the loop
    that goes over the result anyway does it."""

    whole = False
    op: str  # the name of a function in ops/convolution.py

    def __init_subclass__(cls) -> None:
        OPERATIONS[cls.op] = functools.partial(bilinear, cls.op)

    def forward(ctx, a: Any, b: Any, bias: Any, geo: convolution.Geometry) -> Any:
        ctx.save(a, b, geo)
        y = traced(ctx.op, (a, b, geo))
        return y if bias is None else y + bias.reshape(-1, *[1] * len(geo.kernel))


@in_place_of(convolution.Convolution)
class PlainConvolution(PlainBilinear):
    op = "convolve"

    def backward(ctx, g: Any) -> Any:
        (x, w), (need_x, need_w, need_bias, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(PlainInput, g, w, None, ctx.geo) if need_x else None,
            ctx.call(PlainWeight, x, g, None, ctx.geo) if need_w else None,
            convolution.sum_channels(g) if need_bias else None,
        )


@in_place_of(convolution.ConvolutionInput)
class PlainInput(PlainBilinear):
    op = "convolve_input"

    def backward(ctx, u: Any) -> Any:
        (g, w), (need_g, need_w, need_bias, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(PlainConvolution, u, w, None, ctx.geo) if need_g else None,
            ctx.call(PlainWeight, u, g, None, ctx.geo) if need_w else None,
            convolution.sum_channels(u) if need_bias else None,
        )


class PlainWeight(PlainBilinear):
    op = "convolve_weight"

    def backward(ctx, v: Any) -> Any:
        (x, g), (need_x, need_g, _, _) = ctx.saved, ctx.needs_input_grad
        return (
            ctx.call(PlainInput, g, v, None, ctx.geo) if need_x else None,
            ctx.call(PlainConvolution, x, v, None, ctx.geo) if need_g else None,
            None,
        )


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
    from tinytorch.core.dtype import float16
    from tinytorch.nn.modules.activation import relu
    from tinytorch.nn.modules.conv import conv2d, conv_transpose2d
    from tinytorch.ops.creation import ones
    from tinytorch.ops.random import manual_seed, rand

    for form in (PlainConvolution, PlainInput, PlainWeight):  # not those of the package
        OPERATIONS[form.op] = functools.partial(bilinear, form.op)

    manual_seed(0)
    x, w, b = (rand(*shape) - 0.5 for shape in ((2, 3, 6, 6), (4, 3, 3, 3), (4,)))
    tensors = [t.requires_grad_() for t in (x, w, b)]

    def lines(graph):
        return [line.partition("  # ")[0] for line in str(graph).splitlines()[1:-1]]

    # Whole, as before: its backward is one node, and the bias is inside.
    tracing.formulas.clear()
    captured = tracing.capture(lambda *t: relu(conv2d(*t)), tensors, {}, tensors)
    print(*(x.op for graph in partition(captured.graph, 3, 1) for x in graph.nodes))
    # -> call part constant maximum not_equal multiply call_backward part part part

    tracing.formulas.update(formulas)
    captured = tracing.capture(lambda *t: relu(conv2d(*t)), tensors, {}, tensors)
    forward, backward = partition(captured.graph, 3, 1)
    print(*lines(forward), sep="\n")
    # -> %3 = convolve(%0, %1, Geometry)  float32[2, 4, 4, 4]
    # -> %4 = reshape(%2, (4, 1, 1))  float32[4, 1, 1]
    # -> %5 = add(%3, %4)  float32[2, 4, 4, 4]
    # -> %6 = constant(array[4, 4, 4])  float32[4, 4, 4]
    # -> %7 = maximum(%5, %6)  float32[2, 4, 4, 4]
    print(*(x.op for x in backward.nodes))
    # -> not_equal multiply convolve_input convolve_weight reshape sum sum

    def same(function, *tensors):
        """Whether the graphs give eager's values and gradients."""
        captured = tracing.capture(function, tensors, {}, tensors)
        forward, backward = partition(captured.graph, len(captured.sources), 1)
        value, *saved = forward.run(np, [s.array for s in captured.sources])
        gradients = backward.run(np, [*saved, np.ones_like(value)])
        result = function(*tensors)
        wanted = [captured.sources[number].tensor for number in captured.wanted]
        expected = grad(result, wanted, ones(result.shape, dtype=result.dtype))
        pairs = zip([value, *gradients], [result, *expected], strict=True)
        return all(np.allclose(a, b.array, atol=1e-2) for a, b in pairs)

    print(same(lambda *t: relu(conv2d(*t)), x, w, b))  # -> True
    print(same(lambda x, w: conv2d(x, w, stride=2, padding=1), x, w))  # -> True
    print(
        same(lambda x, w: conv_transpose2d(x, w, x.sum().reshape(1)), x, rand(3, 1, 2, 2))
    )  # -> True
    half = [t.detach().to(float16).requires_grad_() for t in (x, w)]
    print(same(conv2d, *half))  # -> True

    # The gradient of a gradient inside of the function: the third form gets derivatives as well.
    def penalty(x, w, b):
        gradients = grad(conv2d(x, w, b).exp().sum(), [x, w, b], create_graph=True)
        return sum((g * g).sum() for g in gradients)

    print(same(penalty, x, w, b))  # -> True
