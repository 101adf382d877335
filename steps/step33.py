"""Step 33: One formula, two kinds of numbers

Since step 27 backward has worked on tensors, so that a gradient can be differentiated. Most
gradients never are. And tensors are expensive: each product in a backward pass made a ctx, a list
of edges and a Tensor, and all three were thrown away at once.

Look at a rule: `return g * y`. It does not say what g is. If g and y are plain arrays, this is
NumPy's product, and nothing else happens. If they are Tensors, it is ours, and it is recorded. The
formula is written once, and the engine decides what to feed it: arrays, or with create_graph
Tensors. So a formula may use only what both have:

    operators                  g * y, g + h
    methods that both have     g.sum(...), g.reshape(...), once Tensor has them
    functions of ctx.xp        ctx.xp.exp(x): ctx.xp is the module numpy when the formula runs on
                               arrays, and the class Tensor when it runs on Tensors
    ctx.call(Function, g)      another of our own operations, recorded only if g is a Tensor

For ctx.xp to work, exp must be a method of Tensor. The class is not edited for that. Each operation
attaches its own methods where it is defined, with @tensor_method("exp"). The decorator refuses to
overwrite a method, or one operation could take another's name unnoticed.

With plain arrays, ownership is a question again. Add hands the same g to both its inputs, so nobody
may write into it. But a sum that the engine made belongs to the engine: the set `ours` remembers
those sums, and only they grow by +=. And x.grad always owns its memory, so the first gradient is
copied. Otherwise a + b would give a and b one array, and adding to one would add to both.

(PyTorch separates the two differently: its formulas are C++ on tensors, with recording off.)

Changed: backward_pass, Function.gradients; Tensor.backward is tensor_backward. New: ctx.xp,
ctx.call, tensor_method, accumulate.
Try: let accumulate keep `grad` itself instead of np.array(grad), and run the demo.
"""

import contextlib
import copy
import itertools
from collections.abc import Callable, Sequence
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


def wrap(array: Any) -> Tensor:
    """A tensor around an array, without history. No copy, no check."""
    out = object.__new__(Tensor)
    out.array = array
    return out


def tensor_method(*names: str) -> Callable:
    """Attaches a function to Tensor as a method: `@tensor_method("add", "__add__")`.

    The package never defines a method twice: RuntimeError. Only a program that you run yourself
    (a step, a notebook) may put its own version in the place of the package's.
    """

    def attach(function: Callable) -> Callable:
        for name in names:
            written = getattr(function, "fget", function)  # a property hides its function
            if name in Tensor.__dict__ and written.__module__ != "__main__":
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, function)
        return function

    return attach


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

    backward runs on plain arrays, which is fast, or on Tensors when the gradient itself is to be
    differentiated. So its formula uses only what both have: operators, methods with the same
    meaning, functions of `ctx.xp` (numpy, or the class Tensor), and `ctx.call(Function, g)`.
    """

    # Of one call; most calls keep these.
    xp: Any
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

        ctx.xp = np
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

    def call(ctx, function: type["Function"], x: Any, *parameters: Any) -> Any:
        """Another operation inside backward: recorded for a Tensor, only computed for an array."""
        if isinstance(x, Tensor):
            return function.apply(x, *parameters)
        inner = new(function)
        inner.xp = ctx.xp
        inner.edges = [None] * (1 + len(parameters))
        return function.forward(inner, x, *parameters)

    def forward(ctx, *args: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no forward")

    def backward(ctx, *grads: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no backward")

    def gradients(ctx, grads: list) -> Any:
        """What backward returns, on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
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
    create_graph: bool,
) -> dict:
    """Carries the gradients `grads` of `roots` to the leaves.

    A heap gives the youngest node that has a gradient. Whoever used its result is younger still,
    so by then all parts of its gradient have arrived.

    On their way gradients are plain arrays. They are Tensors if they are to be differentiated
    (create_graph).

    Returns {leaf: gradient}.
    """
    as_tensors = create_graph
    arrived: dict = {}  # node or leaf -> its gradient
    ours: set = set()  # those whose gradient is a sum that was made here: it may be added to
    heap: list = []
    edges = [edge_of(root) for root in roots]
    grads = list(grads) if as_tensors else [grad.array for grad in grads]
    while True:
        for edge, grad in zip(edges, grads):  # noqa: B905 (a keyword takes longer than the rest)
            if edge is None or grad is None:
                continue
            if edge not in arrived:
                if edge.order is not None:  # a leaf has none
                    heappush(heap, (edge.order, edge))
                arrived[edge] = grad
            elif edge in ours:
                arrived[edge] += grad
            else:
                # The first part may belong to somebody else too: Add gives both inputs one array.
                arrived[edge] = arrived[edge] + grad
                if not as_tensors:
                    ours.add(edge)
        if not heap:
            break
        node = heappop(heap)[1]
        grad = arrived.pop(node)
        if as_tensors:
            grads = node.gradients([grad])
        else:
            grads = node.backward(grad)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
    return arrived


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Adds an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf._grad = grad if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is not None:
        leaf._grad.array += grad
    else:
        grad = np.array(grad)
        leaf._grad = wrap(grad)


@tensor_method("backward")
def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    create_graph: bool = False,
) -> None:
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
        for leaf, grad in backward_pass([self], [gradient], create_graph).items():
            accumulate(leaf, grad)


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = ctx.xp.exp(x)
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


@tensor_method("exp")
def exp(input: Tensor) -> Tensor:
    """e to the power of input."""
    return Exp.apply(input)


@tensor_method("add", "__add__", "__radd__")
def add(input: Tensor, other: Any) -> Tensor:
    """input + other."""
    return Add.apply(input, other)


@tensor_method("mul", "multiply", "__mul__", "__rmul__")
def mul(input: Tensor, other: Any) -> Tensor:
    """input * other."""
    return Mul.apply(input, other)


if __name__ == "__main__":
    import time

    def same(a, b):
        return np.allclose(a, b, rtol=1e-5)

    x = tensor([0.5, 1.0, 1.5], requires_grad=True)
    ones = tensor([1.0, 1.0, 1.0])

    class Tell(Exp):
        """exp, and says on what its backward runs."""

        def backward(ctx, g):
            print(type(g).__name__, "with", getattr(ctx.xp, "__name__", ctx.xp))
            return super().backward(g)

    Tell.apply(x).backward(ones)  # -> ndarray with numpy
    plain, x.grad = x.grad, None
    Tell.apply(x).backward(ones, create_graph=True)  # -> Tensor with Tensor
    print("the same numbers:", same(plain.array, x.grad.array))  # -> the same numbers: True
    print("recorded:", plain.requires_grad, x.grad.requires_grad)  # -> recorded: False True

    class Square(Function):
        """y = x^2, and a gradient that calls another operation."""

        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        def backward(ctx, g):
            (x,) = ctx.saved
            return ctx.call(Mul, g, x + x)

    x.grad = None
    Square.apply(x).backward(ones)
    print("ctx.call:", x.grad)  # -> ctx.call: tensor([1. 2. 3.])

    def seconds(create_graph):
        best = 1.0
        for _ in range(20):
            y = tensor(np.full(10, 0.5, np.float32), requires_grad=True)
            for _ in range(200):
                y = y * y + 0.25
            start = time.perf_counter()
            y.backward(tensor(np.ones(10, np.float32)), create_graph)
            best = min(best, time.perf_counter() - start)
        return best

    ratio = seconds(True) / seconds(False)
    print(f"Tensors take {ratio:.1f} times as long as arrays")  # -> ...
    print("more than twice as long:", ratio > 2)  # -> more than twice as long: True

    a, b = tensor([1.0, 1.0], requires_grad=True), tensor([1.0, 1.0], requires_grad=True)
    (a + b).backward(tensor([1.0, 1.0]))
    print("one array?", np.shares_memory(a.grad.array, b.grad.array))  # -> one array? False
    a.grad = None
    (a + a + a).backward(tensor([1.0, 1.0]))
    print("used three times:", a.grad, "  b keeps its own:", b.grad)
    # -> used three times: tensor([3. 3.])   b keeps its own: tensor([1. 1.])

    try:
        tensor_method("exp")(print)
    except RuntimeError as reason:
        print(reason)  # -> Tensor has a method 'exp' already
