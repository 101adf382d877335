"""Traces a function: runs it once on tracers, and keeps the graphs of its forward and backward."""

import dataclasses
import functools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.engine import backward_pass
from tinytorch.autograd.modes import FunctionMode
from tinytorch.autograd.node import Function, new
from tinytorch.compiler.formulas import formulas
from tinytorch.compiler.graph import EFFECTS, Graph, Node
from tinytorch.compiler.tracer import (
    Tracer,
    Untraceable,
    as_node,
    as_value,
    line_of_the_program,
    record,
    tracing,
)
from tinytorch.core.device import Device, cpu, default
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.ops.random import generator_for

tracing_device = Device("traced")
# One trace at a time: tensors that several threads use hold tracers meanwhile.
tracing_lock = threading.RLock()
# Functions whose results have shapes that depend on values.
OF_UNKNOWN_SHAPE = frozenset("Nonzero MaskedSelect Unique Bincount RepeatInterleave".split())


class Break(Exception):
    """The function cannot be one graph; the text says why, and where in the program."""


class WholeCall(Function):
    """A Function that the graph holds as one node. A subclass says which one."""

    function: type[Function]

    def forward(ctx, *args: Any) -> Any:
        trace, ctx.inner = tracing.trace, new(ctx.function)
        ctx.inner.device, ctx.inner.xp, ctx.inner.edges = trace.device, trace.xp, ctx.edges
        results = ctx.function.forward(ctx.inner, *as_value(args))
        several = isinstance(results, tuple)
        values = tuple(trace.xp.asarray(x) for x in (results if several else (results,)))
        needs = ctx.inner.needs_input_grad
        shapes = tuple(value.shape for value in values)
        ctx.node = record("call", (ctx.function, needs, shapes, *as_node(args)), {}, None)
        ctx.materialize_grads = ctx.inner.materialize_grads
        parts = tuple(Tracer(v, record("part", (ctx.node, i), {}, v)) for i, v in enumerate(values))
        return parts if several else parts[0]

    def backward(ctx, *grads: Any) -> tuple:
        results = ctx.inner.backward(*as_value(grads))
        results = results if isinstance(results, tuple) else (results,)
        node = record("call_backward", (ctx.node, *as_node(grads)), {}, None)
        values = [value if value is None else tracing.trace.xp.asarray(value) for value in results]
        return tuple(
            None if value is None else Tracer(value, record("part", (node, number), {}, value))
            for number, value in enumerate(values)
        )

    def name(ctx) -> str:
        return ctx.inner.name()


@functools.cache
def whole(function: type[Function]) -> type[WholeCall]:
    """The WholeCall of a Function."""
    like = {name: getattr(function, name) for name in ("differentiable", "elementwise")}
    return type(function.__name__, (WholeCall,), {"function": function, **like})


class TraceMode(FunctionMode):
    """Sees each call of a Function: makes its tensors tracers, and where the Function's formula
    does what a tracer cannot, makes it one node."""

    def __init__(self, trace: "Trace"):
        self.trace = trace

    def call(self, function: type, args: tuple) -> Any:
        trace = self.trace
        for x in args:
            if isinstance(x, Tensor):
                trace.lift(x)
        trace.line, tracing.made_by = line_of_the_program(), function.__name__
        trace.calls += 1
        if function.__name__ in OF_UNKNOWN_SHAPE:
            raise Break(f"{function.__name__}: the shape of its result depends on values")
        function = formulas.get(function, function)
        if function.whole:
            return whole(function).apply(*args)
        mark = len(trace.nodes)
        try:
            return function.apply(*args)
        except Untraceable as error:
            if function.view or function.takes_tensors:
                raise Break(f"{function.__name__}: {error}") from error
            del trace.nodes[mark:]
            return whole(function).apply(*args)


@dataclasses.dataclass
class Source:
    """A tensor of the program that a trace has replaced by tracers, and what it was before."""

    tensor: Tensor
    node: Node
    array: Any
    tracer: Tracer
    edge: Any
    view: Any
    grad: Any
    requires_grad: bool


class Trace:
    """One run of a function on tracers.

    Attributes:
        nodes: what was recorded, in order.
        sources: the tensors that were used and not made inside; each is an input of the graph.
        calls: how many Functions the program called.
    """

    def __init__(self, device: Device):
        self.device, self.xp = device, device.xp
        self.nodes: list[Node] = []
        self.tracers: list = []
        self.sources: dict[int, Source] = {}
        self.generator = generator_for(device, None)
        self.line, self.calls = "", 0

    def lift(self, tensor: Tensor) -> None:
        """Makes a tensor of the program one on tracers, until the end of the trace."""
        array = tensor.array
        if isinstance(array, Tracer):
            if array.trace is not self:
                raise Break("a tensor of another trace")
            return
        if tensor.device is not self.device:
            raise Break(f"a tensor on {tensor.device} in a function on {self.device}")
        requires_grad = tensor.requires_grad
        node = Node("input", (), {}, array.shape, array.dtype)
        tracer = Tracer(array.copy(), node)
        self.sources[id(tensor)] = Source(
            tensor, node, array, tracer, tensor._edge, tensor._view, tensor._grad, requires_grad
        )
        tensor.array, tensor.device, tensor._edge, tensor._view = tracer, tracing_device, None, None

    def restore(self) -> None:
        """Gives the program's tensors back what they were, and real arrays to those that were made
        inside and that the program has kept."""
        for source in self.sources.values():
            tensor = source.tensor
            tensor.array, tensor.device = source.array, self.device
            tensor._edge, tensor._view, tensor._grad = source.edge, source.view, source.grad
            tensor._requires_grad = source.requires_grad

    def __enter__(self) -> "Trace":
        tracing.trace = self
        default.devices.append(tracing_device)
        default.stand_ins[self.device] = tracing_device
        return self

    def __exit__(self, *exception: Any) -> None:
        del default.stand_ins[self.device]
        default.devices.pop()
        tracing.trace, tracing.made_by = None, ""
        self.restore()


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in nested tuples, lists, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, set)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(tuple(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from tensors_in(tuple(vars(value).values()))


PLAIN = (int, float, str, bytes, type(None), type, np.dtype, Device)


def rebuilt(value: Any, function: Callable[[Tensor], Any]) -> Any:
    """`value` with function(tensor) in place of each tensor, in new lists, tuples and dicts.

    Raises:
        Break: something in it is none of these, and no number or text.
    """
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(item, function) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)([rebuilt(item, function) for item in value])
    if isinstance(value, dict):
        copy = dict((name, rebuilt(item, function)) for name, item in value.items())
        return copy if type(value) is dict else type(value)(copy)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {name: rebuilt(item, function) for name, item in vars(value).items()}
        made = object.__new__(type(value))
        made.__dict__.update(parts)
        return made
    if isinstance(value, PLAIN) or type(value).__module__.startswith("tinytorch.core"):
        return value
    raise Break(f"the function returns a {type(value).__name__}")


@dataclasses.dataclass
class Output:
    """What stands in the result of a traced function for a tensor.

    number: of the graph's output. requires_grad: whether a gradient may come back for it.
    """

    number: int
    requires_grad: bool


@dataclasses.dataclass
class Captured:
    """What a trace has found.

    Attributes:
        sources: the tensors of the program that the graph reads, in the order of its inputs.
        result: what the function returned; Output in place of each tensor that it made, and the
            tensor itself where it returned one that it was given.
        graph: the forward. Its outputs are those of the result, then what was written into
            sources, then what the backward needs of it.
        written: the numbers of the sources whose elements were changed in place.
        backward: from (saved values, gradients of the outputs that require one) to the gradients
            of `wanted`; None where nothing requires a gradient.
        wanted: the numbers of the sources that get a gradient, in order of backward's outputs.
        unused: those of `wanted` whose gradient is None.
        calls: how many Functions the program called.
    """

    sources: list[Source]
    result: Any
    graph: Graph
    written: list[int]
    backward: Graph | None
    wanted: list[int]
    calls: int


def without_dead_code(nodes: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """The nodes on which the outputs depend, those that draw random numbers, and the checks."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if node in needed or node.op in ("random", "check"):
            kept.append(node)
            needed.update(node.inputs())
    return kept[::-1]


def stream_states(trace: Trace) -> tuple:
    """What random numbers outside of the graph depend on."""
    return random.getstate(), str(np.random.get_state())  # noqa: NPY002 (what programs still use)


def capture(function: Callable, args: tuple, kwargs: dict, tensors: Sequence[Tensor]) -> Captured:
    """Runs function(*args, **kwargs) on tracers. Nothing of the program is changed by it.

    Args:
        tensors: what the function uses, as far as it is known: its arguments, parameters, buffers.

    Raises:
        Break: the function cannot be one graph.
    """
    device = next((x.device for x in tensors), cpu)
    trace = Trace(device)
    before, source_state = stream_states(trace), trace.generator.get_state()
    try:
        with trace, TraceMode(trace):
            for tensor in tensors:
                trace.lift(tensor)
            try:
                result = function(*args, **kwargs)
            except Untraceable as error:
                raise Break(f"{line_of_error(error)}: {error}") from error
            return finish(trace, result, state.grad_enabled)
    finally:
        trace.generator.set_state(source_state)
        if stream_states(trace) != before:
            raise Break("the function draws random numbers from outside of the package")


def line_of_error(error: BaseException) -> str:
    """The line of the program, not of the package, where an error came up: "model.py:12"."""
    found, step = "", error.__traceback__
    while step is not None:
        if step.tb_frame.f_globals.get("__name__", "").partition(".")[0] != "tinytorch":
            found = f"{step.tb_frame.f_code.co_filename.rpartition('/')[2]}:{step.tb_lineno}"
        step = step.tb_next
    return found


def finish(trace: Trace, result: Any, grad_enabled: bool) -> Captured:
    """Everything that is known of a function that has run on tracers, its backward included."""
    sources = list(trace.sources.values())
    for source in sources:
        tensor = source.tensor
        if tensor.array is not source.tracer or tensor._grad is not source.grad:
            raise Break("a tensor's data or gradient is replaced inside the function")
        if tensor._requires_grad != source.requires_grad or tensor._edge is not None:
            raise Break("a tensor that was made outside gets a history, or gives it up")
    written = [number for number, source in enumerate(sources) if source.tracer.version]
    for number in written:
        shared = [s for s in sources if np.may_share_memory(s.array, sources[number].array)]
        if len(shared) > 1:
            raise Break("memory that several tensors share is changed in place")
    outputs: list[Tensor] = []

    def output(tensor: Tensor) -> Any:
        if id(tensor) in trace.sources:
            return tensor
        if not isinstance(tensor.array, Tracer):
            return tensor
        if tensor._view is not None and id(tensor._view.base) in trace.sources:
            raise Break("the function returns a view of a tensor that was made outside")
        if type(tensor) is not Tensor:
            raise Break(f"the function returns a {type(tensor).__name__}")
        known = [number for number, other in enumerate(outputs) if other is tensor]
        if not known:
            outputs.append(tensor)
        return Output(known[0] if known else len(outputs) - 1, tensor.requires_grad)

    result = rebuilt(result, output)
    results = [tensor.array.node for tensor in outputs]
    writes = [sources[number].tracer.node for number in written]
    forward = list(trace.nodes)
    wanted = [n for n, source in enumerate(sources) if source.requires_grad]
    roots = [tensor for tensor in outputs if tensor.requires_grad]
    backward = None
    if wanted and roots and grad_enabled:
        grad_nodes, grads = trace_backward(trace, roots, [sources[n].tensor for n in wanted])
        pairs = [(n, grad) for n, grad in zip(wanted, grads, strict=True) if grad is not None]
        wanted = [n for n, _ in pairs]
        backward = Graph(grad_nodes, trace.nodes[len(forward) :], [grad for _, grad in pairs])
    else:
        wanted = []
    inputs = [source.node for source in sources]
    graph = Graph(inputs, forward, [*results, *writes])
    if backward is not None:
        graph, backward = divided(graph, backward)
    graph.nodes = without_dead_code(graph.nodes, graph.outputs)
    return Captured(sources, result, graph, written, backward, wanted, trace.calls)


def trace_backward(trace: Trace, roots: list[Tensor], targets: list[Tensor]) -> tuple:
    """Runs the backward pass on tracers: its formulas are written down as those of forward were.

    Returns the nodes for the gradients of the roots, and that of each target's gradient or None.
    """
    tracing.made_by, trace.line = "backward", ""
    nodes, grads = [], []
    for root in roots:
        ones = trace.xp.ones(root.array.shape, root.array.dtype)
        nodes.append(Node("input", (), {}, ones.shape, ones.dtype))
        grads.append(Tracer(ones, nodes[-1]))
    edges = [(target, 0) for target in targets]
    recording, modes = state.grad_enabled, state.modes
    state.grad_enabled, state.modes = False, ()
    try:
        found = backward_pass([x._edge or (x, 0) for x in roots], grads, True, False, set(edges))
    except Untraceable as error:
        raise Break(f"the backward pass: {error}") from error
    finally:
        state.grad_enabled, state.modes = recording, modes
    gradients = [found.get(edge) for edge in edges]
    return nodes, [None if grad is None else as_node(grad) for grad in gradients]


def divided(graph: Graph, backward: Graph) -> tuple[Graph, Graph]:
    """Both graphs with what only the backward needs in the backward; what it takes from the forward
    becomes an output of the one and an input of the other.

    Constants, and views of what is there already, are made again instead of being kept.
    """
    in_forward = set(without_dead_code(graph.nodes, graph.outputs))
    in_forward |= {node for node in graph.nodes if node.op in EFFECTS}
    in_forward = set(without_dead_code(graph.nodes, [*graph.outputs, *in_forward]))
    nodes = [node for node in graph.nodes if node not in in_forward or node.op == "constant"]
    nodes = without_dead_code([*nodes, *backward.nodes], backward.outputs)
    nodes = [node for node in nodes if node.op not in ("random", "check") or node not in in_forward]
    made = {*nodes, *backward.inputs}
    saved = dict.fromkeys(x for node in nodes for x in node.inputs() if x not in made)
    saved |= dict.fromkeys(x for x in backward.outputs if x not in made)
    kept = [node for node in graph.nodes if node in in_forward]
    forward = Graph(graph.inputs, kept, [*graph.outputs, *saved])
    return forward, Graph([*saved, *backward.inputs], nodes, backward.outputs)
