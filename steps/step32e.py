"""Step 32e: Saved values by role: input, output or constant

The derivative of e^x is e^x, which forward has just computed. Step 32d computes it a second time,
because there are two ways to save an output, and both are wrong:

- the Tensor: it refers to the node, the node to it. Such a cycle is not freed at once (step 17a).
- its array: a formula on Tensors takes a bare array for a constant, and d(e^x)/dx has no history.
  Differentiating it once more gives an error or, in a longer formula, a wrong number.

The second way keeps the right value. What is missing is where it came from. "It is the output" says
enough, and says it without a reference. So when a call is recorded, each saved array is compared
with the inputs and the output, and its role is kept as one number:

    i       it is input i            its gradient goes to ctx.edges[i]
    ~0      it is the output         its gradient goes to (ctx, 0), the node itself
    None    neither: a constant      nowhere

    y = exp(x)      saved: y's array          saves: [~0]
    z = x * 3.0     saved: x's array, 3.0     saves: [0, 1]     3.0 is input 1, and edges[1] is None
    z = x * x       saved: x's array, twice   saves: [0, 0]     edges[0] and edges[1] both lead to x

(Python's ~ turns 0 into -1, a number that no input has, and -1 into 0 again.) For backward,
saved_tensor wraps each saved array in a new Tensor with its edge, by this table. These Tensors are
put into a copy of the node, the twin, which is dropped after its backward. Stored on the node, they
would refer to the node, and it to them: the cycle again. (PyTorch: SavedVariable.)

The trap is to look for the role later, in backward. By then an input may have been freed, or may
hold another array. During the call all of them are alive, and `is` is reliable.

Changed: apply, backward_pass; Exp and Tanh save their output. New: gradients, saved_tensor, and
roles_of instead of as_tensors.
Try: write `roles.append(role)` at the end of roles_of. "by role" and "tanh" then end in 2.0000, the
result of a copy.
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
        with set_grad_enabled(create_graph):
            for leaf, grad in backward_pass([edge_of(self)], [gradient]).items():
                leaf.grad = grad if leaf.grad is None else leaf.grad + grad


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
    """One call of an operation: `ctx` in forward, and the node that it leaves in the graph."""

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
        """Compute a gradient for each input from that of the output: one Tensor, or a tuple."""
        raise NotImplementedError

    def gradients(ctx, g):
        """What backward returns on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
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


def backward_pass(edges, grads):
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
        grads = node.gradients(arrived.pop(node))
        if not isinstance(grads, tuple):
            grads = (grads,)
        edges = node.edges


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
    """y = x0 + x1, dy/dx0 = 1, dy/dx1 = 1"""

    def forward(self, x0, x1):
        return x0 + x1

    def backward(self, gy):
        return gy, gy


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    def backward(ctx, g):
        a, b = ctx.saved
        return g * b, g * a


class Neg(Function):
    """y = -x, dy/dx = -1"""

    def forward(self, x):
        return -x

    def backward(self, gy):
        return -gy


class Sub(Function):
    """y = x0 - x1, dy/dx0 = 1, dy/dx1 = -1"""

    def forward(self, x0, x1):
        return x0 - x1

    def backward(self, gy):
        return gy, -gy


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
        return g * cos(x)


class Cos(Function):
    """y = cos x;   dy/dx = -sin x."""

    def forward(ctx, x):
        ctx.save_for_backward(x)
        return np.cos(x)

    def backward(ctx, g):
        (x,) = ctx.saved
        return -g * sin(x)


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


def cos(x):
    return Cos.apply(x)


def tanh(x):
    return Tanh.apply(x)


def log(x):
    return Log.apply(x)


if __name__ == "__main__":
    import gc
    import weakref

    gc.disable()  # what is freed without the collector?
    for keeps in (True, False):
        y = exp(tensor(0.5, requires_grad=True))
        array = weakref.ref(y.array)
        if keeps:
            y.grad_fn.tensor = y  # the first wrong way: a cycle
        del y
        print(f"the node keeps its tensor: {keeps}, freed at once: {array() is None}")
        # -> the node keeps its tensor: True, freed at once: False
        # -> the node keeps its tensor: False, freed at once: True
    gc.enable()

    class ExpThatCopies(Exp):
        """The second wrong way: what is saved is neither input nor output, so it is a constant."""

        def forward(ctx, x):
            y = np.exp(x)
            ctx.save_for_backward(y.copy())
            return y

    def derivatives(operation):
        """First and second derivative of f(x) + x^2 at 0.5, where f is e^x or tanh."""
        x = tensor(0.5, requires_grad=True)
        (operation.apply(x) + x**2).backward(create_graph=True)
        first, x.grad = x.grad, None
        first.backward()
        return f"{first.item():.4f} {x.grad.item():.4f}"

    print("right:", f"{np.exp(0.5) + 1:.4f} {np.exp(0.5) + 2:.4f}")  # -> right: 2.6487 3.6487
    print("a copy:", derivatives(ExpThatCopies))  # -> a copy: 2.6487 2.0000
    print("by role:", derivatives(Exp))  # -> by role: 2.6487 3.6487
    print("tanh:", derivatives(Tanh))  # -> tanh: 1.7864 1.2731

    x = tensor(0.5, requires_grad=True)
    print("Mul:", (x * x).grad_fn.saves)  # -> Mul: [0, 0]
    print("Exp:", exp(x).grad_fn.saves)  # -> Exp: [-1]
    print("a number:", (x * 3.0).grad_fn.saves)  # -> a number: [0, 1]
    (x * 3.0).backward(create_graph=True)
    print(x.grad, x.grad.requires_grad)  # -> tensor(3.) False
