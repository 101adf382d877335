"""Step 36a: Broadcasting, backwards

Add a row of 3 numbers to a table of 2 x 3, and NumPy uses the row for each line of the table: it
broadcasts. The rule: write the shapes one below the other, aligned at the right. In each column the
sizes must be equal, or one of them 1 or missing; there the array is repeated.

    x   2 x 3
    b       3      ->  2 x 3

Our backward does not know this. Add hands on its g, which has the shape of the result, and so the
row b gets a gradient of shape 2 x 3. There is no error, not even when the update b - rate * b.grad
then turns b into a table. Step 14 gives the right gradient. The row is used twice, once for each
line, so both gradients count, and they are added:

    y = repeat(x)   ->   dL/dx = the sum of dL/dy over the places where x was repeated

sum_to sums over the dimensions that a shape lacks in front, and those where it has 1: from 2 x 3 to
3 over dimension 0, to 2 x 1 over dimension 1. The formulas stay as they are. A class that
broadcasts is marked with `elementwise = True`: its recorded calls note the shapes of their inputs,
and the backward pass sums each gradient back to them (sum_back). The other classes need no notes,
since their gradients have the right shape already. PyTorch does the same.

The trap is shape (2, 1) with shape (2,): the result is 2 x 2, which is hardly ever meant.

(sum_to works on arrays only. With create_graph it gets a Tensor, and fails until the next step.)

Changed: Function, backward_pass, Add, Sub, Mul, Div. New: sum_to, Function.sum_back.
Try: take `elementwise = True` out of Mul. "a single number" then gets a table, and the demo stops
where `slope` has become an array of five.
"""

import contextlib
import copy
import heapq
import itertools

import numpy as np


def as_array(x):
    """x as an ndarray. Accepts an ndarray or a number, and raises TypeError for anything else."""
    if isinstance(x, np.ndarray):
        return x
    if isinstance(x, (int, float, np.number)):
        return np.array(x)
    raise TypeError(f"a Tensor holds an ndarray or a number, not {type(x).__name__}")


class GradMode:
    """Whether calls are recorded. A class attribute, so that everything shares one switch."""

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


class Tensor:
    """An array that can be differentiated.

    array: the NumPy array with the elements. grad: what backward() has added up here, or None.
    requires_grad: whether gradients flow to this tensor. grad_fn: the call that made it, or None.
    """

    # Make NumPy's operators defer to ours, so that `array + tensor` calls __radd__.
    __array_ufunc__ = None

    # An edge of the graph may end at a leaf, which stands there for a node.
    sequence_nr = None

    def __init__(self, data, requires_grad=False):
        # An array object of its own, on the same memory: roles_of tells saved values apart by it.
        self.array = as_array(data).view()
        self.grad = None
        self._requires_grad = False
        self._edge = None  # where a gradient of this tensor goes; None for a leaf
        if requires_grad:
            self.requires_grad = True

    @property
    def requires_grad(self):
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, flag):
        if self._edge is not None:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables; use detach()"
            )
        if flag and self.array.dtype.kind != "f":
            raise RuntimeError(
                f"only Tensors of floating point dtype can require gradients, this one is "
                f"{self.array.dtype}"
            )
        self._requires_grad = flag

    @property
    def grad_fn(self):
        return None if self._edge is None else self._edge[0]

    @property
    def is_leaf(self):
        return self._edge is None

    def detach(self):
        """The same elements, outside of the graph. The memory is shared."""
        return Tensor(self.array)

    @property
    def shape(self):
        return self.array.shape

    @property
    def ndim(self):
        return self.array.ndim

    @property
    def dtype(self):
        return self.array.dtype

    def numel(self):
        """The number of elements."""
        return self.array.size

    def size(self, dim=None):
        """The shape, or the length of one dimension."""
        return self.array.shape if dim is None else self.array.shape[dim]

    def __len__(self):
        return len(self.array)

    def item(self):
        """The only element, as a Python number."""
        return self.array.item()

    def tolist(self):
        """The elements as nested lists of Python numbers."""
        return self.array.tolist()

    def numpy(self):
        """The array itself, unless the tensor requires gradients: detach() it first."""
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad: detach() it first")
        return self.array

    def __float__(self):
        return float(self.array.item())

    def __repr__(self):
        indent = " " * len("tensor(")  # aligns the rows of a matrix
        text = np.array2string(self.array, separator=", ", prefix=indent)
        if self._edge is not None:
            return f"tensor({text}, grad_fn=<{type(self.grad_fn).__name__}>)"
        return f"tensor({text}{', requires_grad=True' if self._requires_grad else ''})"


def tensor_method(*names):
    """Attach a function to Tensor as a method, under each of these names."""

    def attach(function):
        for name in names:
            if name in Tensor.__dict__:
                raise RuntimeError(f"Tensor has a method '{name}' already")
            setattr(Tensor, name, function)
        return function

    return attach


def tensor(data, dtype=None, requires_grad=False):
    """A Tensor with a copy of data: a number, nested lists, or an array, which keeps its type."""
    array = np.array(data, dtype)
    if dtype is None and array.dtype == np.float64 and not hasattr(data, "dtype"):
        array = array.astype(np.float32)  # Python's floats, as in PyTorch
    return Tensor(array, requires_grad)


def edge_of(tensor):
    """Where a gradient of `tensor` goes: (node or leaf, output number), or None."""
    return (tensor._edge or (tensor, 0)) if tensor.requires_grad else None


# Numbers the calls. It counts down, so that a min-heap yields the newest call first.
next_sequence_nr = itertools.count(0, -1).__next__


def sum_to(array, shape):
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
    # The dimensions that `shape` lacks in front, and those that have size 1 in it.
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1))
    return array.sum(axis=axes).reshape(shape)


class Function:
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph.

    forward(ctx, *arrays) computes on arrays. backward(ctx, g) is one formula for plain arrays and,
    where the gradient is to be differentiated again, for Tensors: it uses operators, methods that
    both have, and functions of `ctx.xp`, which is numpy or the class Tensor.
    """

    elementwise = False  # inputs are broadcast against each other; their gradients are summed back

    xp = np
    saved = ()
    input_shapes = None  # of an elementwise call: the shape of each input, None for a number

    @classmethod
    def apply(cls, *args):
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        ctx = cls()
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        arrays = [x.array if isinstance(x, Tensor) else x for x in args]
        result = ctx.forward(*arrays)
        out = Tensor(result)
        if GradMode.enabled and any(edge is not None for edge in ctx.edges):
            ctx.sequence_nr = next_sequence_nr()
            ctx.saves = ctx.roles_of(arrays, result)
            if cls.elementwise:
                ctx.input_shapes = [getattr(x, "shape", None) for x in arrays]
            out._requires_grad, out._edge = True, (ctx, 0)
        return out

    def save_for_backward(ctx, *values):
        """Keep arrays for backward, where they are `ctx.saved`."""
        ctx.saved = values

    def roles_of(ctx, inputs, output):
        """For each saved value: i if it is input i, ~0 if it is the output, None for a constant.

        All of them are alive now, so that `is` tells them apart.
        """
        roles = []
        for value in ctx.saved:
            role = next((i for i, x in enumerate(inputs) if x is value), None)
            roles.append(~0 if role is None and value is output else role)
        return roles

    def sum_back(ctx, grads):
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=True):
            if shape is not None and grad.shape != shape:
                grad = sum_to(grad, shape)
            sums.append(grad)
        return sums

    def forward(ctx, *arrays):
        """Compute an array from the arrays, and keep what backward needs."""
        raise NotImplementedError

    def backward(ctx, g):
        """Compute a gradient for each input from that of the output: one, or a tuple."""
        raise NotImplementedError

    def gradients(ctx, g):
        """What backward returns on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))
        return twin.backward(g)

    def saved_tensor(ctx, number):
        """Saved value `number` as the tensor that it was. It is wrapped anew: had the call saved
        its output tensor, the two would keep each other alive."""
        value, role = ctx.saved[number], ctx.saves[number]
        if not hasattr(value, "dtype"):
            return value
        out = Tensor(value)
        edge = None if role is None else ctx.edges[role] if role >= 0 else (ctx, ~role)
        if edge is not None:
            out._requires_grad, out._edge = True, edge
        return out


def backward_pass(edges, grads, as_tensors):
    """Carry gradients from the edges of the outputs to the leaves: {leaf: gradient}.

    The heap yields the newest node that has a gradient. All calls that used its result are newer
    still, so by then every part of its gradient has arrived.
    """
    arrived = {}  # node or leaf -> its gradient
    heap = []
    while True:
        # Not strict: an argument that is a number, such as the exponent of x ** n, has no gradient.
        for edge, grad in zip(edges, grads, strict=False):
            if edge is None:
                continue
            node, _ = edge
            if node not in arrived:
                arrived[node] = grad
                if node.sequence_nr is not None:  # a leaf has none
                    heapq.heappush(heap, (node.sequence_nr, node))
            else:
                # Not in place: Add, for one, hands the same array to both of its inputs.
                arrived[node] = arrived[node] + grad
        if not heap:
            return arrived
        _, node = heapq.heappop(heap)
        grad = arrived.pop(node)
        grads = node.gradients(grad) if as_tensors else node.backward(grad)
        if not isinstance(grads, tuple):
            grads = (grads,)
        if node.input_shapes is not None:
            grads = node.sum_back(grads)
        edges = node.edges


def accumulate(leaf, grad):
    """Add an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf.grad = grad + (0 if leaf.grad is None else leaf.grad)  # + 0: a copy, recorded
    elif leaf.grad is None:
        leaf.grad = Tensor(np.array(grad))  # a copy: Add hands the same array to both inputs
    else:
        # Not in place: a graph may have saved the array of leaf.grad.
        leaf.grad = Tensor(leaf.grad.array + grad)


@tensor_method("backward")
def tensor_backward(self, gradient=None, retain_graph=None, create_graph=False):
    """Add to the grad of each leaf behind this tensor the derivative with respect to it.

    gradient is that of some number with respect to this tensor; a single element may leave it out,
    which means 1. With create_graph the gradients are recorded, and can be differentiated.
    retain_graph is there for programs that PyTorch runs too: this graph is kept in any case.
    """
    if not self.requires_grad:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if gradient is None:
        if self.array.size != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        gradient = Tensor(np.ones_like(self.array))
    start = gradient if create_graph else gradient.array
    with set_grad_enabled(create_graph):
        for leaf, grad in backward_pass([edge_of(self)], [start], create_graph).items():
            accumulate(leaf, grad)


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x):
        y = np.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved
        return g * y


class Add(Function):
    """c = a + b;   dc/da = 1,   dc/db = 1."""

    elementwise = True

    def forward(ctx, a, b):
        return a + b

    def backward(ctx, g):
        return g, g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    elementwise = True

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    def backward(ctx, g):
        a, b = ctx.saved
        return g * b, g * a


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x):
        return -x

    def backward(ctx, g):
        return -g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a, b):
        return a - b

    def backward(ctx, g):
        return g, -g


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2."""

    elementwise = True

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a / b

    def backward(ctx, g):
        a, b = ctx.saved
        return g / b, -g * a / (b * b)


class Pow(Function):
    """y = x^n with a number n;   dy/dx = n x^(n-1)."""

    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x**n

    def backward(ctx, g):
        (x,) = ctx.saved
        if ctx.n == 0:
            return 0 * g  # x^0 is 1 everywhere; at x = 0 the formula would divide by zero
        return ctx.n * x ** (ctx.n - 1) * g


class Sin(Function):
    """y = sin x;   dy/dx = cos x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.sin(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g * ctx.xp.cos(x)


class Cos(Function):
    """y = cos x;   dy/dx = -sin x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.cos(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return -g * ctx.xp.sin(x)


class Tanh(Function):
    """y = tanh x;   dy/dx = 1 - y^2."""

    def forward(ctx, x):
        y = np.tanh(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g):
        (y,) = ctx.saved
        return g * (1 - y * y)


class Log(Function):
    """y = log x (base e);   dy/dx = 1 / x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.log(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return g / x


@tensor_method("exp")
def exp(x):
    return Exp.apply(x)


@tensor_method("__add__", "__radd__")
def add(a, b):
    return Add.apply(a, b)


@tensor_method("__mul__", "__rmul__")
def mul(a, b):
    return Mul.apply(a, b)


@tensor_method("__neg__")
def neg(x):
    return Neg.apply(x)


@tensor_method("__sub__")
def sub(a, b):
    return Sub.apply(a, b)


@tensor_method("__rsub__")
def rsub(self, other):
    return sub(other, self)


@tensor_method("__truediv__")
def div(a, b):
    return Div.apply(a, b)


@tensor_method("__rtruediv__")
def rdiv(self, other):
    return div(other, self)


@tensor_method("__pow__")
def pow(x, n):
    return Pow.apply(x, n)


@tensor_method("sin")
def sin(x):
    return Sin.apply(x)


@tensor_method("cos")
def cos(x):
    return Cos.apply(x)


@tensor_method("tanh")
def tanh(x):
    return Tanh.apply(x)


@tensor_method("log")
def log(x):
    return Log.apply(x)


class Sum(Function):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: each element gets the gradient of the sum."""

    def forward(ctx, x, dim, keepdim):
        ctx.shape = x.shape
        ctx.lost = None if keepdim else dim  # what backward has to put back
        return x.sum(axis=dim, keepdims=keepdim)

    def backward(ctx, g):
        if ctx.lost is not None:
            g = ctx.xp.expand_dims(g, ctx.lost)
        return ctx.xp.broadcast_to(g, ctx.shape)


@tensor_method("sum")
def sum(x, dim=None, keepdim=False):
    """The sum along dim (an int or several), or of all elements. keepdim keeps dim as size 1."""
    return Sum.apply(x, dim, keepdim)


@tensor_method("mean")
def mean(x, dim=None, keepdim=False):
    """The mean along dim (an int or several), or of all elements."""
    total = sum(x, dim, keepdim)
    return total / (x.numel() // total.numel())


if __name__ == "__main__":
    x = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], requires_grad=True)
    b = tensor([10.0, 20.0, 30.0], requires_grad=True)
    print((x + b).tolist())  # -> [[11.0, 22.0, 33.0], [14.0, 25.0, 36.0]]

    class OldAdd(Add):
        """Addition as step 35c had it."""

        elementwise = False

    OldAdd.apply(x, b).sum().backward()
    print("before:", b.grad.shape)  # -> before: (2, 3)
    b.grad = None
    (x + b).sum().backward()
    print("now:", b.grad)  # -> now: tensor([2., 2., 2.])

    scale = tensor(2.0, requires_grad=True)
    (x * scale).sum().backward()
    print("a single number:", scale.grad, x.sum().item())  # -> a single number: tensor(21.) 21.0
    column = tensor([[1.0], [2.0]], requires_grad=True)
    (column * tensor(np.ones((4, 2, 3)))).sum().backward()
    print("a column, in four tables:", column.grad.tolist())
    # -> a column, in four tables: [[12.0], [12.0]]

    # The line of step 25, for all points at once: slope and height are used once for each point.
    t = tensor([0.0, 1.0, 2.0, 3.0, 4.0])
    points = 2 * t + 1
    slope, height = tensor(0.0, requires_grad=True), tensor(0.0, requires_grad=True)
    for _ in range(300):
        slope.grad = height.grad = None
        ((slope * t + height - points) ** 2).mean().backward()
        for p in (slope, height):
            p.array = p.array - 0.1 * p.grad.array
    print(f"slope {slope.item():.3f}, height {height.item():.3f}")  # -> slope 2.000, height 1.000

    print("hardly meant:", (column + tensor([1.0, 2.0])).shape)  # -> hardly meant: (2, 2)
    try:
        (x + b).backward(tensor(np.ones((2, 3))), create_graph=True)
    except TypeError as error:
        print("a Tensor in sum_to:", error)
        # -> a Tensor in sum_to: sum() got an unexpected keyword argument 'axis'
