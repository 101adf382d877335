"""Step 33: One formula for arrays and Tensors

A backward formula calls our own operations. So each gradient is a Tensor, and each `g * b` goes
through apply, which looks at every argument only to find that nothing is recorded. Tensors are
needed only for create_graph. In the demo, a pass back through 200 squares makes 600 calls of apply,
two products and a sum for each square, and takes several times as long as on arrays.

Each operation could have two formulas, a fast one on arrays and a differentiable one on Tensors.
But they would say the same: Mul is `g * b, g * a` in both, and Python decides at run time what `*`
does. Only cos and sin are functions, and on arrays they are NumPy's. ctx.xp is the place where a
formula finds functions: the module numpy, or the class Tensor, whose methods are ours. (xp is a
common name for "np or a stand-in".)

    plain backward()    node.backward(g)     g and ctx.saved are arrays, ctx.xp is numpy
    create_graph        node.gradients(g)    the twin: Tensors, with twin.xp = Tensor

A formula may use only what both sides have: np.cos(x) fails where x is a Tensor.

The trap: Add hands one array to both of its inputs. (a + b).backward(v) would leave a.grad, b.grad
and v on the same memory, and a program that halves a.grad in place would halve all three. So a leaf
owns its gradient: accumulate copies what arrives first, and adds what follows into a new array.
With create_graph the copy is grad + 0, a call that is recorded.

Changed: backward_pass, Tensor.backward, the formulas of Sin and Cos; Add, Neg and Sub, which had
nothing to save, get the same names as the others. New: Function.xp; Tensor.sin and Tensor.cos, for
xp to find; accumulate.
Try: write np.cos(x) in Sin.backward. First derivatives are right, the second raises TypeError.
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

    def backward(self, gradient=None, retain_graph=None, create_graph=False):
        """Add to the grad of each leaf behind this tensor the derivative with respect to it.

        gradient is that of some number with respect to this tensor; a single element may leave it
        out, which means 1. With create_graph the gradients are recorded, and can be differentiated.
        retain_graph is there for programs that PyTorch runs too: this graph is kept in any case.
        """
        if not self.requires_grad:
            raise RuntimeError(
                "element 0 of tensors does not require grad and does not have a grad_fn"
            )
        if gradient is None:
            if self.array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            gradient = Tensor(np.ones_like(self.array))
        start = gradient if create_graph else gradient.array
        with set_grad_enabled(create_graph):
            for leaf, grad in backward_pass([edge_of(self)], [start], create_graph).items():
                accumulate(leaf, grad)


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


class Function:
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph.

    forward(ctx, *arrays) computes on arrays. backward(ctx, g) is one formula for plain arrays and,
    where the gradient is to be differentiated again, for Tensors: it uses operators, methods that
    both have, and functions of `ctx.xp`, which is numpy or the class Tensor.
    """

    xp = np
    saved = ()

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

    def forward(ctx, a, b):
        return a + b

    def backward(ctx, g):
        return g, g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

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

    def forward(ctx, a, b):
        return a - b

    def backward(ctx, g):
        return g, -g


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2."""

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


def exp(x):
    return Exp.apply(x)


def add(a, b):
    return Add.apply(a, b)


Tensor.__add__ = add
Tensor.__radd__ = add


def mul(a, b):
    return Mul.apply(a, b)


Tensor.__mul__ = mul
Tensor.__rmul__ = mul


def neg(x):
    return Neg.apply(x)


Tensor.__neg__ = neg


def sub(a, b):
    return Sub.apply(a, b)


Tensor.__sub__ = sub
Tensor.__rsub__ = lambda self, other: sub(other, self)


def div(a, b):
    return Div.apply(a, b)


Tensor.__truediv__ = div
Tensor.__rtruediv__ = lambda self, other: div(other, self)


def pow(x, n):
    return Pow.apply(x, n)


Tensor.__pow__ = pow


def sin(x):
    return Sin.apply(x)


Tensor.sin = sin


def cos(x):
    return Cos.apply(x)


Tensor.cos = cos


def tanh(x):
    return Tanh.apply(x)


def log(x):
    return Log.apply(x)


if __name__ == "__main__":
    import time

    class TalkingSin(Sin):
        """sin x, and says on what its backward runs."""

        def backward(ctx, g):
            print(type(g).__name__, "with functions of", ctx.xp.__name__)
            return super().backward(g)

    x = tensor(0.5, requires_grad=True)
    TalkingSin.apply(x).backward()  # -> ndarray with functions of numpy
    print(x.grad, x.grad.requires_grad)  # -> tensor(0.87758255) False
    x.grad = None
    TalkingSin.apply(x).backward(create_graph=True)  # -> Tensor with functions of Tensor
    print(x.grad, x.grad.requires_grad)  # -> tensor(0.87758255, grad_fn=<Add>) True

    first, x.grad = x.grad, None
    first.backward(create_graph=True)
    print("-sin x:", x.grad)  # -> -sin x: tensor(-0.47942555, grad_fn=<Add>)
    second, x.grad = x.grad, None
    second.backward()
    print("-cos x:", x.grad)  # -> -cos x: tensor(-0.87758255)
    x.backward()  # and a second gradient is added
    print("added:", x.grad)  # -> added: tensor(0.12241745)

    x, y = tensor(3.0, requires_grad=True), tensor(4.0, requires_grad=True)
    (-x - (y + x)).backward()  # formulas of Neg, Sub and Add on arrays
    print(x.grad, y.grad)  # -> tensor(-2.) tensor(-1.)

    # Each leaf owns its gradient.
    a, b = tensor([1.0, 2.0], requires_grad=True), tensor([3.0, 4.0], requires_grad=True)
    v = tensor([1.0, 1.0])
    (a + b).backward(v)
    a.grad.numpy()[...] = 0.5
    print(a.grad, b.grad, v)  # -> tensor([0.5, 0.5]) tensor([1., 1.]) tensor([1., 1.])

    def one_pass(as_tensors):
        """The seconds of a pass through 200 squares of ten numbers each. Nothing is recorded."""
        y = tensor(np.full(10, 0.5), requires_grad=True)
        for _ in range(200):
            y = y * y + 0.25
        v = tensor(np.ones(10)) if as_tensors else np.ones(10)
        start = time.perf_counter()
        with no_grad():
            backward_pass([edge_of(y)], [v], as_tensors)
        return time.perf_counter() - start

    on_tensors = min(one_pass(True) for _ in range(15))
    on_arrays = min(one_pass(False) for _ in range(15))
    print("arrays are faster:", on_arrays < on_tensors)  # -> arrays are faster: True
