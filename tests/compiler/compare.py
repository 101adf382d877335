"""Compares a function in eager with the graphs that `capture` makes of it."""

import numpy as np

import tinytorch as tt
from tinytorch.compiler.border import partition
from tinytorch.compiler.capture import capture
from tinytorch.compiler.graph import map_nodes, perform
from tinytorch.compiler.simplify import simplify

# Relative tolerances by the size of a number.
TOLERANCE = {2: 1e-2, 4: 2e-5, 8: 1e-10}


def leaves(value, kind=tt.Tensor):
    """What there is of a type in nested tuples, lists and dicts."""
    if isinstance(value, kind):
        return [value]
    value = value.values() if isinstance(value, dict) else value
    if isinstance(value, (tuple, list, type({}.values()))):
        return [x for item in value for x in leaves(item, kind)]
    return []


def close(ours, theirs, what):
    assert ours.dtype == theirs.dtype, what
    assert ours.shape == theirs.shape, what
    if theirs.dtype.kind in "iub":
        return np.testing.assert_array_equal(ours, theirs, err_msg=what)
    tolerance = TOLERANCE[theirs.itemsize]
    ours, theirs = ours.astype("f8"), theirs.astype("f8")
    finite = theirs[np.isfinite(theirs)]
    atol = tolerance * max(1, abs(finite).max(initial=0)) / 10
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=atol, err_msg=what)


def halves(captured, change=simplify):
    """The graphs of forward and backward; the second is None where nothing requires a gradient."""
    count = captured.count + len(captured.written)
    return partition(change(captured.graph), len(captured.sources), count)


def compare(function, *args, uses=(), change=simplify, run=None):
    """Asserts that the graphs of `function` give what eager gives: results, random numbers, what
    is written in place, and the gradients of all tensors that require one.

    Args:
        uses: parameters and buffers.
        change: applied to the graph before it is cut; without it, it is simplified.
        run: (graph, arrays) -> list of arrays; by default Graph.run.
    Returns: what was captured.
    """
    run = run or run_checked
    tensors = [*leaves(args), *uses]
    before = [x.array.copy() for x in tensors]
    captured = capture(function, args, {}, tensors)
    for x, array in zip(tensors, before, strict=True):
        np.testing.assert_array_equal(x.array, array, "a trace changes nothing")
    sources = captured.sources
    tt.manual_seed(7)
    forward, backward = halves(captured, change)
    found = run(forward, [source.array.copy() for source in sources])
    results, found = found[: captured.count], found[captured.count :]
    written = dict(zip(captured.written, found, strict=False))
    saved = found[len(written) :]

    tt.manual_seed(7)
    expected = leaves(function(*args))
    expected = [x for x in dict.fromkeys(expected) if not any(x is s.tensor for s in sources)]
    generator = np.random.default_rng(1)
    grads = [generator.standard_normal(x.array.shape).astype(x.array.dtype) for x in expected]
    pairs = [(x, g) for x, g in zip(expected, grads, strict=True) if x.requires_grad]
    asked = [source.tensor for source in sources if source.requires_grad]
    theirs = [None] * len(asked)
    if pairs and asked:
        roots, grads = zip(*pairs, strict=True)
        with_grads = [tt.tensor(grad) for grad in grads]
        theirs = tt.autograd.grad(roots, asked, with_grads, allow_unused=True)

    for ours, tensor in zip(results, expected, strict=True):
        close(ours, tensor.array, "a result")
    for number, source in enumerate(sources):
        close(written.get(number, source.tensor.array), source.tensor.array, "what is written")
    for x, array in zip(tensors, before, strict=True):
        if number_of(x, sources) in written:
            x.array[...] = array
        else:
            np.testing.assert_array_equal(x.array, array, "written, but not by the graph")
    theirs = {id(x): grad for x, grad in zip(asked, theirs, strict=True) if grad is not None}
    assert [id(sources[n].tensor) for n in captured.wanted] == list(theirs)
    if theirs:
        ours = run(backward, [*saved, *grads])
        for grad, other in zip(ours, theirs.values(), strict=True):
            close(grad, other.array, "a gradient")
    return captured


def run_checked(graph, arrays):
    """Graph.run, which also asserts that each result is what its node says."""
    values = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        args = map_nodes(values.__getitem__, node.args)
        values[node] = value = perform(np, node.op, args, node.kwargs)
        if node.dtype is not None:
            assert isinstance(value, np.ndarray), node.op
            assert (value.shape, value.dtype) == (node.shape, node.dtype), (node.op, node.made_by)
    return [values[node] for node in graph.outputs]


def number_of(tensor, sources):
    return next((n for n, source in enumerate(sources) if source.tensor is tensor), None)
