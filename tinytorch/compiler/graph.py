"""A graph of array operations: what a traced function computes, apart from the program that did."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tinytorch.compiler.operations import ACCUMULATORS
from tinytorch.core.device import device_of
from tinytorch.ops.erf import erf_of

# Operations that show the memory of their first argument. Their arguments are plain numbers.
VIEWS = frozenset("reshape transpose broadcast_to view_at".split())
# Reductions, and the element-wise function that each one repeats: np.add.reduce is the sum.
REDUCTIONS = {name: reduction.repeats for name, reduction in ACCUMULATORS.items()}
# Operations with an effect or an identity of their own: never removed twice, merged or moved.
EFFECTS = frozenset("random call call_backward check".split())


class Node:
    """One operation: its name, its arguments, and what its result is like.

    Attributes:
        op: a function of the array library ("add", "exp", "sum", "matmul", ...), or one of
            "erf"            the error function
            "input"          an argument of the graph
            "constant"       args = (array,), which nothing writes into
            "view_at"        args = (a, key): a[key] with numbers, slices, None and ... in the key
            "getitem"        args = (a, key): a[key] with arrays in the key
            "astype"         args = (a, dtype);   "view_as": the same bytes read as this dtype
            "put"            args = (a, value, path): a copy of a in which value stands in the part
                             that the views of path, ((op, args), ...), lead to
            "random"         args = (generator, method, method's arguments): numbers of a stream
            "call"           args = (Function, needs_input_grad, shapes of the results, *arguments):
                             a whole Function as one operation; its value is a Called
            "call_backward"  args = (node of a "call", *gradients): its ctx.backward, a tuple
            "check"          args = (a, expected): CheckFailed where bool(a) is not expected
        "part"           args = (node, number): one of several results
        args, kwargs: nodes, numbers, shapes, ...; nodes may stand inside tuples and slices.
        shape, dtype: of the result; None of what is not an array ("call", "call_backward").
        made_by: the operation of the user's program ("softmax"), for messages and drawings.
        line: where the program called it: "model.py:12".
    """

    count = itertools.count()

    def __init__(
        self,
        op: str,
        args: tuple = (),
        kwargs: dict | None = None,
        shape: tuple | None = None,
        dtype: np.dtype | None = None,
        made_by: str = "",
        line: str = "",
    ):
        self.op, self.args, self.kwargs = op, args, kwargs or {}
        self.shape, self.dtype, self.made_by, self.line = shape, dtype, made_by, line
        self.number, self.used = next(Node.count), None

    def inputs(self) -> list["Node"]:
        """The nodes among the arguments, in order; a node that is used twice is there twice."""
        if self.used is None:
            self.used = list(nodes_in((self.args, self.kwargs)))
        return self.used

    def replaced(self, replace: Callable[["Node"], Any]) -> "Node":
        """The same operation with replace(node) in place of each node among its arguments."""
        args, kwargs = map_nodes(replace, self.args), map_nodes(replace, self.kwargs)
        return Node(self.op, args, kwargs, self.shape, self.dtype, self.made_by, self.line)

    def __repr__(self) -> str:
        return f"%{self.number}"


def nodes_in(value: Any) -> Iterator[Node]:
    """All nodes in nested tuples, lists, dicts and slices."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from nodes_in(item)
    elif isinstance(value, slice):
        yield from nodes_in((value.start, value.stop, value.step))


def like(value: tuple | list, items: Iterable) -> tuple | list:
    """A tuple, named tuple or list of the type of `value`."""
    return tuple.__new__(type(value), items) if isinstance(value, tuple) else list(items)


def map_nodes(function: Callable[[Node], Any], value: Any) -> Any:
    """`value` with function(node) in place of each node."""
    if isinstance(value, Node):
        return function(value)
    if isinstance(value, (tuple, list)):
        return like(value, (map_nodes(function, item) for item in value))
    if isinstance(value, dict):
        return {name: map_nodes(function, item) for name, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_nodes(function, x) for x in (value.start, value.stop, value.step)))
    return value


class Graph:
    """Nodes in an order in which each comes after its arguments; some are inputs, some outputs."""

    def __init__(self, inputs: Sequence[Node], nodes: Sequence[Node], outputs: Sequence[Node]):
        self.inputs, self.nodes, self.outputs = list(inputs), list(nodes), list(outputs)

    def run(self, xp: Any, arrays: Sequence) -> list:
        """The outputs for these input arrays, one operation after the other."""
        values = dict(zip(self.inputs, arrays, strict=True))
        for node in self.nodes:
            args = map_nodes(values.__getitem__, node.args)
            value = perform(xp, node.op, args, node.kwargs)
            # NumPy gives a scalar in place of an array without dimensions.
            values[node] = np.asarray(value) if isinstance(value, np.generic) else value
        return [values[node] for node in self.outputs]

    def users(self) -> dict[Node, list[Node]]:
        """For each node, the nodes that use its result."""
        users: dict[Node, list[Node]] = {node: [] for node in (*self.inputs, *self.nodes)}
        for node in self.nodes:
            for used in dict.fromkeys(node.inputs()):
                users[used].append(node)
        return users

    def __str__(self) -> str:
        """One line for each node: `%3 = multiply(%1, 2.0)  float32[4, 5]  # mul, model.py:12`."""
        names = {node: f"%{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = [f"inputs: {', '.join(f'{names[n]} {kind_of(n)}' for n in self.inputs)}"]
        for node in self.nodes:
            given = [text_of(x, names) for x in node.args]
            given += [f"{name}={text_of(x, names)}" for name, x in node.kwargs.items()]
            where = ", ".join(x for x in (node.made_by, node.line) if x)
            line = f"{names[node]} = {node.op}({', '.join(given)})  {kind_of(node)}"
            lines.append(f"{line}  # {where}" if where else line)
        return "\n".join([*lines, f"return {', '.join(names[node] for node in self.outputs)}"])

    def dot(self) -> str:
        """The graph in Graphviz's language: boxes are operations, ellipses inputs."""
        names = {node: f"n{i}" for i, node in enumerate((*self.inputs, *self.nodes))}
        lines = ["digraph {"]
        lines += [f'  {names[node]} [label="{kind_of(node)}"]' for node in self.inputs]
        for node in self.nodes:
            lines.append(f'  {names[node]} [label="{node.op}\\n{kind_of(node)}", shape=box]')
            lines += [f"  {names[used]} -> {names[node]}" for used in node.inputs()]
        lines += [f"  {names[node]} -> result" for node in self.outputs]
        return "\n".join([*lines, "}"])


def text_of(value: Any, names: dict[Node, str]) -> str:
    """An argument of a node, as it is printed."""
    if isinstance(value, Node):
        return names[value]
    if isinstance(value, tuple):
        return f"({', '.join(text_of(x, names) for x in value)}{',' * (len(value) == 1)})"
    if isinstance(value, slice):
        ends = ("" if x is None else text_of(x, names) for x in (value.start, value.stop))
        return ":".join(ends) + ("" if value.step is None else f":{text_of(value.step, names)}")
    if isinstance(value, np.ndarray):
        return str(value.item()) if value.size == 1 else f"array{list(value.shape)}"
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__
    return getattr(value, "__name__", None) or str(value)


def kind_of(node: Node) -> str:
    """The type and shape of a node's result: "float32[4, 5]"."""
    return f"{node.dtype}{list(node.shape)}" if node.dtype is not None else "(several)"


def without_dead_code(nodes: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """The nodes on which the outputs depend, those that draw random numbers, and the checks."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if node in needed or node.op in ("random", "check"):
            kept.append(node)
            needed.update(node.inputs())
    return kept[::-1]


class CheckFailed(Exception):
    """A value is not as it was when the graph was traced: another shape, or another decision. The
    run has changed nothing yet, so that the program can run without the graph."""


def check(value: Any, expected: bool) -> None:
    if bool(value) is not expected:
        raise CheckFailed(f"a check gave {not expected}")


def part_of(array: Any, path: tuple) -> Any:
    """The part of an array that the views of `path` lead to."""
    for op, args in path:
        array = perform(None, op, (array, *args), {})
    return array


def put(array: Any, value: Any, path: tuple) -> Any:
    """A copy of `array` with `value` in the part that `path` leads to."""
    array, (*views, (_, (key,))) = array[...].copy(), path  # also where it is a scalar of NumPy
    places = places_of(array.shape, views)
    if places is None:
        part_of(array, views)[key] = value
    else:
        places = device_of(array).backend.from_numpy(places, None)
        array.reshape(-1)[places[key]] = value
    return array


def places_of(shape: tuple, views: Sequence) -> np.ndarray | None:
    """Where the elements of a part of an array are, for an array that has its elements in a row.

    None where the part is a view, as it nearly always is. But a reshape that is a view of the array
    in the trace, which lay otherwise, may be a copy of this one.
    """
    like = np.empty(shape, bool)
    part = part_of(like, views)
    if part.size == 0 or np.may_share_memory(part, like):
        return None
    return part_of(np.arange(like.size).reshape(shape), views)


class Called(tuple):
    """The results of a whole Function; `ctx` is the call, for its backward."""

    def __new__(cls, ctx: Any, results: tuple):
        called = tuple.__new__(cls, results)
        called.ctx = ctx
        return called


def call(function: type, needs: tuple, shapes: tuple, *args: Any) -> Called:
    """A whole Function: what it does when it is called in a program.

    Raises:
        CheckFailed: a result has another shape than in the trace.
    """
    ctx = object.__new__(function)
    array = next(x for x in args if hasattr(x, "dtype"))
    ctx.device = device_of(array)
    ctx.xp, ctx.edges = ctx.device.xp, tuple(() if need else None for need in needs)
    results = function.forward(ctx, *args)
    results = results if isinstance(results, tuple) else (results,)
    results = tuple(ctx.xp.asarray(result) for result in results)
    if tuple(result.shape for result in results) != shapes:
        raise CheckFailed(f"{function.__name__}: {[r.shape for r in results]}, not {shapes}")
    return Called(ctx, results)


def call_backward(called: "Called", *grads: Any) -> tuple:
    """The gradients of the arguments of a whole Function, from those of its results."""
    results, xp = called.ctx.backward(*grads), called.ctx.xp
    results = results if isinstance(results, tuple) else (results,)
    return tuple(x if x is None else xp.asarray(x) for x in results)


# Operations that are no functions of the array library. Other modules may enter more.
OPERATIONS: dict[str, Callable] = {
    "check": check,
    "put": put,
    "call": call,
    "call_backward": call_backward,
}


def perform(xp: Any, op: str, args: tuple, kwargs: dict) -> Any:
    """The result of one operation on arrays."""
    first, *others = args
    if op in ("view_at", "getitem"):
        return first[others[0]]
    if op in ("reshape", "transpose", "astype", "copy"):
        return getattr(first, op)(*others)
    if op == "part":
        return first[others[0]]
    if op == "constant":
        return first
    if op == "random":
        return getattr(first.source, others[0])(*others[1:])
    if op == "view_as":
        return first.view(*others)
    special = OPERATIONS | {"erf": lambda x: erf_of(x, xp)}
    result = (special.get(op) or getattr(xp, op))(*args, **kwargs)
    return xp.asarray(result) if isinstance(result, np.generic) else result
