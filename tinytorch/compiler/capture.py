"""Traces a function: runs it once on tracers, and keeps the graphs of its forward and backward."""

import dataclasses
import functools
import gc
import linecache
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.amp.autocast_mode import settings
from tinytorch.autograd.engine import backward_pass
from tinytorch.autograd.modes import FunctionMode
from tinytorch.autograd.node import Function, new
from tinytorch.compiler.formulas import WHOLE, formulas
from tinytorch.compiler.graph import Graph, Node, without_dead_code
from tinytorch.compiler.tracer import (
    Tracer,
    Untraceable,
    as_node,
    as_value,
    line_of_the_program,
    record,
    tracing,
    tracing_device,
)
from tinytorch.core.device import Device, cpu, default
from tinytorch.core.state import open_modes, state
from tinytorch.core.tensor import Tensor
from tinytorch.ops.random import Generator, generator_for
from tinytorch.utils._nested import tensors_in

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
        known = function in formulas
        if not known and (function.whole or WHOLE.intersection(function.__mro__)):
            return whole(function).apply(*args)
        mark = len(trace.nodes)
        try:
            return formulas.get(function, function).apply(*args)
        except Untraceable as error:
            if function.view or function.takes_tensors:
                raise Break(f"{function.__name__}: {error}") from error
            del trace.nodes[mark:]
            return whole(function).apply(*args)


# What the package itself notes in a tensor.
OWN = frozenset(
    "array device _requires_grad _edge _view _grad _hooks _after_hooks retains_grad".split()
)


def attributes_of(tensor: Tensor) -> dict[str, Any]:
    """The attributes that the program has given to a tensor."""
    return {name: item for name, item in vars(tensor).items() if name not in OWN}


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
    attributes: dict  # the program's own


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
        self.modes, self.casts = state.modes, dict(settings.casts)

    def lift(self, tensor: Tensor) -> None:
        """Makes a tensor of the program one on tracers, until the end of the trace."""
        array = tensor.array
        if isinstance(array, Tracer):
            if array.trace is not self:
                raise Break("a tensor of another trace")
            return
        if tensor.device is not self.device:  # for one element the program would bring it here
            raise Break(f"a tensor on {tensor.device} in a function on {self.device}")
        requires_grad = tensor.requires_grad
        node = Node("input", (), {}, array.shape, array.dtype)
        tracer = Tracer(array.copy(), node)
        self.sources[id(tensor)] = Source(
            *(tensor, node, array, tracer, tensor._edge, tensor._view, tensor._grad),
            requires_grad,
            attributes_of(tensor),
        )
        tensor.array, tensor.device, tensor._edge, tensor._view = tracer, tracing_device, None, None

    def restore(self) -> None:
        """Gives the program's tensors back what they were."""
        for source in self.sources.values():
            tensor = source.tensor
            tensor.array, tensor.device = source.array, self.device
            tensor._edge, tensor._view, tensor._grad = source.edge, source.view, source.grad
            tensor._requires_grad = source.requires_grad
            for name in attributes_of(tensor).keys() - source.attributes.keys():
                delattr(tensor, name)
            vars(tensor).update(source.attributes)

    def __enter__(self) -> "Trace":
        tracing.trace = self
        mode = TraceMode(self)
        state.modes = (mode, *self.modes)  # outermost: it sees what others, such as autocast, call
        open_modes.append(mode)
        settings.casts.clear()
        tracing_device.type, tracing_device.index = self.device.type, self.device.index
        default.devices.append(tracing_device)
        default.stand_ins[self.device] = tracing_device
        generator_for(tracing_device, None)
        return self

    def __exit__(self, *exception: Any) -> None:
        del default.stand_ins[self.device]
        Generator.default.pop(tracing_device, None)  # manual_seed seeds those that are there
        default.devices.pop()
        open_modes.remove(state.modes[0])
        state.modes = self.modes
        settings.casts.clear()
        settings.casts.update(self.casts)
        tracing.trace, tracing.made_by = None, ""
        self.restore()


PLAIN = (int, float, str, bytes, type(None), type, np.dtype, Device)


@dataclasses.dataclass(frozen=True)
class Output:
    """In the result of a traced function: the graph's output of this number."""

    number: int


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """In the result of a traced function: a view of the graph's output of this number. `calls` are
    the (Function, parameters) that lead to it."""

    number: int
    calls: list
    requires_grad: bool


@dataclasses.dataclass(frozen=True)
class Given:
    """In the result of a traced function: the source of this number itself."""

    number: int


def rebuilt(value: Any, function: Callable[[Any], Any]) -> Any:
    """`value` with function(x) in place of each tensor, Output, Shown and Given, in new lists,
    tuples and dicts.

    Raises:
        Break: something in it is none of these, and no number or text.
    """
    if isinstance(value, (Tensor, Output, Shown, Given)):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(item, function) for item in value))
    if isinstance(value, (tuple, list)) and type(value).__module__ != "tinytorch.core.tensor":
        return type(value)([rebuilt(item, function) for item in value])
    if isinstance(value, dict):
        copy = {name: rebuilt(item, function) for name, item in value.items()}
        return copy if type(value) is dict else type(value)(copy)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = object.__new__(type(value))
        made.__dict__.update({n: rebuilt(item, function) for n, item in vars(value).items()})
        return made
    if isinstance(value, PLAIN) or type(value).__module__.startswith("tinytorch.core"):
        return value
    raise Break(f"the function returns a {type(value).__name__}")


@dataclasses.dataclass
class Captured:
    """What a trace has found.

    Attributes:
        sources: the tensors of the program that the graph reads, in the order of its inputs.
        result: what the function returned; Output in place of each tensor that it made, and Given
            where it returned one that it was given.
        graph: forward and backward. Its inputs are the sources, and then the gradients of the
            outputs `roots`. Its outputs are the tensors of the result (`count` of them), what was
            written into sources, and the gradients of `wanted`.
        written: the numbers of the sources whose elements were changed in place.
        roots: the numbers of the outputs that require a gradient.
        wanted: the numbers of the sources that get a gradient.
        calls: how many Functions the program called.
    """

    sources: list[Source]
    result: Any
    graph: Graph
    count: int
    written: list[int]
    roots: list[int]
    wanted: list[int]
    calls: int


def capture(function: Callable, args: tuple, kwargs: dict, tensors: Sequence[Tensor]) -> Captured:
    """Runs function(*args, **kwargs) on tracers. Nothing of the program is changed by it.

    Args:
        tensors: what the function uses, as far as it is known: its arguments, parameters, buffers.

    Raises:
        Break: the function cannot be one graph.
    """
    with tracing_lock:
        trace = Trace(next((x.device for x in tensors), cpu))
        stream = trace.generator.get_state()
        try:
            with trace:
                for tensor in tensors:
                    if tensor.device is trace.device:
                        trace.lift(tensor)
                try:
                    captured = finish(trace, function(*args, **kwargs), state.grad_enabled)
                except (Break, Untraceable) as error:
                    raise Break(at_line(str(error), error, function)) from error
        finally:
            trace.generator.set_state(stream)
            kept = release(trace)
    if kept:
        raise Break("the program keeps a tensor that was made inside the function")
    return captured


def release(trace: Trace) -> int:
    """Gives real arrays to tensors that were made in the trace and that something still refers to.
    Returns how many there are."""
    known = {id(source.tracer) for source in trace.sources.values()}
    if any((tracer := ref()) is not None and id(tracer) not in known for ref in trace.tracers):
        gc.collect()  # what is in a cycle is not kept by the program
    alive = [tracer for ref in trace.tracers if (tracer := ref()) is not None]
    alive = [tracer for tracer in alive if id(tracer) not in known]
    count = 0
    for holder in gc.get_referrers(*alive) if alive else ():
        holder = holder if isinstance(holder, dict) else getattr(holder, "__dict__", {})
        tracer = holder.get("array")
        if isinstance(tracer, Tracer) and "_edge" in holder:
            holder.update(array=tracer.value, device=trace.device, _edge=None, _view=None)
            count += 1
    return count


def place_of(function: Any) -> str:
    """Where a function of the program begins: "model.py:3: "; "" for one of the package or of C."""
    function = getattr(function, "forward", function)
    code = getattr(function, "__code__", None)
    if code is None or function.__module__.partition(".")[0] == "tinytorch":
        return ""
    return f"{code.co_filename.rpartition('/')[2]}:{code.co_firstlineno}: "


def at_line(text: str, error: BaseException, function: Callable) -> str:
    """`text` with the line of the program, not of the package, where an error came up:
    "model.py:12: ..., in `y = x.item()`". Else with the line where `function` begins."""
    place, quoted, step = place_of(function), "", error.__traceback__
    while step is not None:
        name = step.tb_frame.f_code.co_filename
        if step.tb_frame.f_globals.get("__name__", "").partition(".")[0] != "tinytorch":
            place = f"{name.rpartition('/')[2]}:{step.tb_lineno}: "
            quoted = linecache.getline(name, step.tb_lineno).strip()
        step = step.tb_next
    told = f"{place}{text}, in `{quoted}`" if quoted else place + text
    return text if re.match(r"\S+:\d+: ", text) else told  # it may have its line already


def check_sources(sources: Sequence[Source]) -> list[int]:
    """The numbers of the sources that were written in place.

    Raises:
        Break: something else was done to a source, or written memory has two tensors.
    """
    for source in sources:
        tensor = source.tensor
        if tensor.array is not source.tracer or tensor._grad is not source.grad:
            raise Break("a tensor's data or gradient is replaced inside the function")
        if tensor._requires_grad != source.requires_grad or tensor._edge is not None:
            raise Break("a tensor that was made outside gets a history, or gives it up")
        now, before = attributes_of(tensor), source.attributes
        if now.keys() != before.keys() or any(now[name] is not before[name] for name in now):
            raise Break("an attribute of a tensor is set inside the function")
    written = [number for number, source in enumerate(sources) if source.tracer.version]
    for number in written:
        shared = [s for s in sources if np.may_share_memory(s.array, sources[number].array)]
        if len(shared) > 1:
            raise Break("memory that several tensors share is changed in place")
    return written


def owner_of(tensor: Tensor, made: Sequence[Tensor]) -> Tensor:
    """The tensor that has to be the graph's output for a result: where others of the results that
    were `made` show the same memory, too, their common base; else the result itself.

    Raises:
        Break: these have no common base.
    """
    root = tensor.array if tensor.array.root is None else tensor.array.root
    group = [x for x in made if x.array is root or x.array.root is root]
    bases = [x if x._view is None else x._view.base for x in group]
    if any(base is not bases[0] for base in bases):
        raise Break("the function returns tensors that share memory, and are not views of one")
    return bases[0] if len(group) > 1 else tensor


def finish(trace: Trace, result: Any, grad_enabled: bool) -> Captured:
    """Everything that is known of a function that has run on tracers, its backward included."""
    sources = list(trace.sources.values())
    written, outputs, places, views = check_sources(sources), [], list(trace.sources), {}
    made = [x for x in dict.fromkeys(tensors_in(result)) if id(x) not in trace.sources]
    made = [x for x in made if isinstance(x.array, Tracer)]
    originals = {formula: function for function, formula in formulas.items()}

    def output(tensor: Tensor) -> Any:
        if id(tensor) in trace.sources:
            return Given(places.index(id(tensor)))
        if not isinstance(tensor.array, Tracer):
            return tensor
        root = tensor.array if tensor.array.root is None else tensor.array.root
        if any(root is source.tracer for source in sources):
            raise Break("the function returns a view of a tensor that was made outside")
        if type(tensor) is not Tensor or attributes_of(tensor):
            raise Break(f"the function returns a new {type(tensor).__name__}, or attributes of it")
        owner = owner_of(tensor, made)
        known = [number for number, other in enumerate(outputs) if other is owner]
        if not known:
            outputs.append(owner)
        number = known[0] if known else len(outputs) - 1
        if owner is tensor:
            return Output(number)
        calls = [(originals.get(call, call), parameters) for call, parameters in tensor._view.calls]
        return views.setdefault(tensor, Shown(number, calls, tensor.requires_grad))

    result = rebuilt(result, output)
    results = [tensor.array.node for tensor in outputs]
    writes = [sources[number].tracer.node for number in written]
    roots = [n for n, tensor in enumerate(outputs) if tensor.requires_grad and grad_enabled]
    wanted = [n for n, source in enumerate(sources) if source.requires_grad and roots]
    inputs, outs = [source.node for source in sources], [*results, *writes]
    if wanted:
        targets = [sources[n].tensor for n in wanted]
        grad_nodes, grads = trace_backward(trace, [outputs[n] for n in roots], targets)
        pairs = [(n, grad) for n, grad in zip(wanted, grads, strict=True) if grad is not None]
        wanted = [n for n, _ in pairs]
        inputs, outs = [*inputs, *grad_nodes], [*outs, *(grad for _, grad in pairs)]
    graph = Graph(inputs, without_dead_code(trace.nodes, outs), outs)
    return Captured(sources, result, graph, len(outputs), written, roots, wanted, trace.calls)


def trace_backward(trace: Trace, roots: list[Tensor], targets: list[Tensor]) -> tuple:
    """Runs the backward pass on tracers: its formulas are written down as those of forward were.

    Returns the nodes for the gradients of the roots, and that of each target's gradient or None.
    """
    tracing.made_by, trace.line = "backward", ""
    nodes, grads, first = [], [], len(trace.nodes)
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
    if any(node.op == "check" for node in trace.nodes[first:]):  # too late to run in eager instead
        raise Break("the backward pass takes another way for other values")
    gradients = [found.get(edge) for edge in edges]
    return nodes, [None if grad is None else as_node(grad) for grad in gradients]
