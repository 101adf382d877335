"""Step 32: The call, the context and the node are one object

Step 31 is still wasteful. A function holds all its inputs, whether backward needs their numbers or
not. Its backward computes a gradient for each input, even if nobody wants it. And on their way
gradients sit in the .grad of intermediate results.

So the call is taken apart once more, into PyTorch's form. Mul.apply(a, b) makes one object, ctx
(its methods say ctx instead of self, as in PyTorch; `new` makes it without calling __init__, which
would cost time in each call). This object has three roles, one after the other:

- the context: forward(ctx, a, b) puts into ctx.saved what backward will need, and nothing else;
- the node: ctx becomes the grad_fn of the result;
- a stop of the backward pass: backward(ctx, g) reads ctx.saved.

A node knows its inputs by ctx.edges: for each argument the node that made it, or the leaf itself,
or None where no gradient is wanted. An edge leads to a node, not to the tensor that the node made,
so results are not kept alive: the graph of x + x + ... + x holds none of its sums, since Add needs
no numbers. And the edges tell a rule what it may leave out: if the second factor is a constant, Mul
neither keeps the first one nor computes a gradient for the second. (PyTorch:
ctx.needs_input_grad.) Arguments that are no tensors, such as a shape, will stand behind those that
are, and a rule returns nothing for them. So there may be fewer gradients than edges, and the zip of
step 13 is no longer strict. (Step 46 counts again, for rules that users write.)

Gradients travel in a dictionary, node -> gradient. A pass leaves nothing behind in the graph, so a
second pass adds exactly what the first one did. Step 17 got 324 there, where 216 is right.

Exp saves its own result y. Tensor y -> node -> y would be the cycle of step 17 again. So forward
saves the array, which knows no node, and saved_tensor wraps it when backward runs (in a copy of
ctx: the node itself never holds a Tensor). It recognises the array by its id, and gives it the
history of the tensor that it was. Without this, the second derivative would take y for a constant.

Functions with several results are put aside until step 40.

Changed: Function, all rules, Tensor.backward; Function.__call__ is Function.apply. New: edge_of,
backward_pass. Gone: outputs, blanks, orders.
Try: save `y.copy()` instead of y in Exp.forward, and see which derivative breaks.
"""

import contextlib
import copy
import itertools
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

# Numbers the calls 0, -1, -2, ... An output is always younger than its inputs, so this is a
# topological order, and a heap gives the youngest first.
next_order = itertools.count(0, -1).__next__


class Size(tuple):
    """The shape of a tensor: a tuple that prints as PyTorch's and knows its number of elements."""

    def __repr__(self) -> str:
        return f"tinytorch.Size([{', '.join(map(str, self))}])"

    def numel(self) -> int:
        return int(np.prod(self, dtype=np.int64))


class Tensor:
    """An n-dimensional array that can be differentiated.

    Attributes:
        array: the NumPy array with the elements; the graph does not see changes of it.
        requires_grad: whether gradients flow to this tensor.
        grad: what backward() has accumulated here, or None.
        grad_fn: the Function call that made this tensor, or None for a leaf.
    """

    # What most tensors never change is written once, here, and not into each of them.
    array: Any
    _requires_grad = False
    _grad_fn = None
    _grad = None
    order = None  # in the graph a leaf is an end: a recorded call has a number
    __array_priority__ = 1000  # numpy_array + tensor is our business, not NumPy's

    @property
    def shape(self) -> Size:
        return Size(self.array.shape)

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or the length of dimension `dim`."""
        return self.shape if dim is None else self.array.shape[dim]

    def numel(self) -> int:
        return int(self.array.size)

    def __repr__(self) -> str:
        indent = " " * len("tensor(")  # the rows of a matrix stand below each other
        return "tensor(" + str(self.array).replace("\n", "\n" + indent) + ")"

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if self._grad_fn is not None:
            if not value:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to "
                    "use a computed variable in a subgraph that doesn't require differentiation "
                    "use var_no_grad = var.detach()."
                )
            return
        self._requires_grad = bool(value)

    def requires_grad_(self, requires_grad: bool = True) -> "Tensor":
        """Sets requires_grad in place and returns the tensor."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self):
        return self._grad_fn

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def grad(self) -> "Tensor | None":
        return self._grad

    @grad.setter
    def grad(self, grad: "Tensor | None") -> None:
        self._grad = grad

    def detach(self) -> "Tensor":
        """The same memory as a tensor of its own, outside the graph."""
        return wrap(self.array.view())

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-d tensor."""
        return self.array.tolist()

    def item(self) -> int | float | bool:
        """The only element as a Python number. RuntimeError where there are more, or none."""
        if self.array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self.array.size} elements cannot be converted to Scalar"
            )
        return self.array.item()

    def __bool__(self) -> bool:
        if self.array.size != 1:
            many = "no values" if self.array.size == 0 else "more than one value"
            raise RuntimeError(f"Boolean value of Tensor with {many} is ambiguous")
        return bool(self.array.item())

    def __float__(self) -> float:
        return float(self.array.item())  # ValueError where there are more, or none

    def __int__(self) -> int:
        return int(self.array.item())

    def __len__(self) -> int:
        if self.array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self.array.shape[0]

    def backward(self, gradient: "Tensor | None" = None, create_graph: bool = False) -> None:
        """Adds to the grad of each leaf behind this tensor the derivative with respect to it.

        With create_graph the gradients are recorded like any computation, graph and all.
        """
        if not self.requires_grad:
            raise RuntimeError("this tensor does not require grad and does not have a grad_fn")
        if gradient is None:
            if self.array.size != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs, this one has the "
                    f"shape {list(self.shape)}"
                )
            gradient = wrap(np.ones_like(self.array))
        with set_grad_enabled(create_graph):
            for leaf, grad in backward_pass([self], [gradient]).items():
                leaf.grad = grad if leaf.grad is None else leaf.grad + grad


def wrap(array: Any) -> Tensor:
    """A tensor around an array, without history. No copy, no check."""
    out = object.__new__(Tensor)
    out.array = array
    return out


def host_array(data: Any) -> np.ndarray:
    """A new array: an array keeps its element type, numbers and lists become float32."""
    return np.array(data, dtype=data.dtype if isinstance(data, np.ndarray) else np.float32)


def tensor(data: Any, *, requires_grad: bool = False) -> Tensor:
    """A new leaf tensor with a copy of `data`: a number, nested lists, or an array."""
    out = wrap(host_array(data))
    if requires_grad:
        out.requires_grad = True
    return out


def as_tensor(data: Any) -> Tensor:
    """data itself if it is a Tensor, else a new one around it: a constant of the formula."""
    return data if isinstance(data, Tensor) else tensor(data)


class GradMode:
    """Whether calls are recorded: the one switch, and the class is the box that holds it."""

    enabled = True


@contextlib.contextmanager
def set_grad_enabled(flag):
    """Inside this block calls are recorded if flag is true, and not recorded if it is false."""
    before = GradMode.enabled
    GradMode.enabled = flag
    try:
        yield
    finally:
        GradMode.enabled = before


def no_grad():
    """Inside this block no call is recorded: outputs have no grad_fn."""
    return set_grad_enabled(False)


new = object.__new__


NOTHING = ()  # what a call has saved that saved nothing


class Function:
    """One call of an operation. The same object is `ctx` in forward, grad_fn of the result, and
    the node that a backward pass visits.

    A subclass writes two short methods:

        forward(ctx, *arrays)    arrays (and other parameters) in, array out
        backward(ctx, grad)      gradient of the output in, gradient of each tensor input out
    """

    # Of one call; most calls keep these.
    order: int
    edges: list  # for each argument: a Function, a leaf Tensor, or None
    output_id: int  # id of the result's array, to know it again among the saved ones
    saved: Any = NOTHING

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward on the arrays of `args`, and records the call if a gradient is wanted."""
        ctx = new(cls)
        ctx.edges = edges = []
        arrays, wanted = [], False
        for x in args:
            edge = None
            if isinstance(x, Tensor):
                if x._requires_grad:
                    wanted = True
                    edge = x._grad_fn
                    if edge is None:
                        edge = x
                x = x.array
            arrays.append(x)
            edges.append(edge)

        result = cls.forward(ctx, *arrays)
        record = wanted and GradMode.enabled
        if record:
            ctx.order = next_order()
        out = new(Tensor)
        out.array = result if result.__class__ is np.ndarray else ctx.as_array(result)
        if record:
            out._requires_grad = True
            out._grad_fn = ctx
            ctx.output_id = id(out.array)
        return out

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = np.asarray(result)
        if ctx.saved is not NOTHING:
            ctx.saved = tuple(array if value is result else value for value in ctx.saved)
        return array

    def save_for_backward(ctx, *values: Any) -> None:
        """Keeps arrays (or numbers, or None) for backward, where they are `ctx.saved`."""
        ctx.saved = values

    @property
    def needs_input_grad(ctx) -> tuple[bool, ...]:
        """For each argument, whether a gradient has to be computed for it."""
        return tuple(edge is not None for edge in ctx.edges)

    def forward(ctx, *args: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no forward")

    def backward(ctx, *grads: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no backward")

    def gradients(ctx, grads: list) -> Any:
        """What backward returns, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.saved = tuple(ctx.saved_tensor(value) for value in ctx.saved)
        return twin.backward(*grads)

    def saved_tensor(ctx, value: Any) -> Any:
        """A saved array as the tensor that it was: wrapped anew, so that no cycle keeps the graph.

        Which one it was, its id tells: all inputs were alive when forward saved it.
        """
        if not hasattr(value, "dtype"):
            return value
        history = ctx if ctx.output_id == id(value) else None
        for edge in ctx.edges:
            if isinstance(edge, Tensor):
                if edge.array is value:
                    return edge
            elif edge is not None:
                if id(value) == edge.output_id:
                    history = edge
        out = wrap(value)
        if history is not None:
            out._requires_grad = True
            out._grad_fn = history
        return out


def edge_of(tensor: Tensor) -> Any:
    """Where a gradient of `tensor` goes: a node, the leaf, or None."""
    if not tensor.requires_grad:
        return None
    if tensor._grad_fn is None:
        return tensor
    return tensor._grad_fn


def backward_pass(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor],
) -> dict:
    """Carries the gradients `grads` of `roots` to the leaves.

    A heap gives the youngest node that has a gradient. Whoever used its result is younger still,
    so by then all parts of its gradient have arrived.

    Returns {leaf: gradient}.
    """
    arrived: dict = {}  # node or leaf -> its gradient
    heap: list = []
    edges = [edge_of(root) for root in roots]
    while True:
        for edge, grad in zip(edges, grads):  # noqa: B905 (a keyword takes longer than the rest)
            if edge is None or grad is None:
                continue
            if edge not in arrived:
                if edge.order is not None:  # a leaf has none
                    heappush(heap, (edge.order, edge))
                arrived[edge] = grad
            else:
                # The first part may belong to somebody else too: Add gives both inputs one array.
                arrived[edge] = arrived[edge] + grad
        if not heap:
            break
        node = heappop(heap)[1]
        grad = arrived.pop(node)
        grads = node.gradients([grad])
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
    return arrived


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = np.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        (y,) = ctx.saved
        return g * y


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    def forward(ctx, a: Any, b: Any) -> Any:
        return a + b

    def backward(ctx, g: Any) -> Any:
        return g, g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed: then its factor is not kept
        ctx.saved = (None if edge_b is None else a, None if edge_a is None else b)
        return a * b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        return None if b is None else g * b, None if a is None else g * a


def exp(x):
    return Exp.apply(x)


def add(x0, x1):
    return Add.apply(x0, x1)


Tensor.__add__ = add
Tensor.__radd__ = add


def mul(x0, x1):
    return Mul.apply(x0, x1)


Tensor.__mul__ = mul
Tensor.__rmul__ = mul


if __name__ == "__main__":
    x = tensor(3.0, requires_grad=True)
    y = x * x * 2.0
    print(type(y.grad_fn).__name__, y.grad_fn.saved)  # -> Mul (None, 2.0)
    node = y.grad_fn.edges[0]
    print(type(node).__name__, [edge is x for edge in node.edges])  # -> Mul [True, True]
    print("wanted:", y.grad_fn.needs_input_grad)  # -> wanted: (True, False)

    class Loud(Mul):
        """A product that tells which gradients it computes."""

        def backward(ctx, g):
            a, b = super().backward(g)
            print("for the first:", a is not None, "  for the second:", b is not None)
            return a, b

    Loud.apply(x, tensor(5.0)).backward()  # -> for the first: True   for the second: False
    print(x.grad)  # -> tensor(5.0)

    x.grad = None
    a = x * x
    y = a * a  # x^4, with derivative 4 x^3 = 108
    y.backward()
    y.backward()
    print("twice, so 216:", x.grad)  # -> twice, so 216: tensor(216.0)

    import gc
    import tracemalloc

    def megabytes_left(rule):
        """What a chain of 100 calls on 0.4 MB holds, and what is left behind when it is dropped."""
        big = tensor(np.ones(100_000, np.float32), requires_grad=True)
        gc.disable()
        tracemalloc.start()
        y = big
        for _ in range(100):
            y = rule(y)
        held, _ = tracemalloc.get_traced_memory()
        del y
        left, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        gc.enable()
        return round(held / 1e6), round(left / 1e6)

    print("sums are not held: ", megabytes_left(lambda y: y + y))
    # -> sums are not held:  (0, 0)
    print("exp keeps its own, in no circle:", megabytes_left(lambda y: exp(y * 0.0)))
    # -> exp keeps its own, in no circle: (40, 0)

    x = tensor(1.0, requires_grad=True)
    exp(x * 2.0).backward(create_graph=True)
    g, x.grad = x.grad, None
    g.backward()
    print("4 e^2 =", x.grad.item(), "=", 4 * np.exp(2.0))  # -> 4 e^2 = 29.556 = 29.556
