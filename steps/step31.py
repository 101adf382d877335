"""Step 31: Tensor

The engine of step 30 is complete, but it is not yet something to train a network with. Each number
takes 8 bytes where 4 would do. Every call is recorded, although most arrays (images, labels,
constants) need no gradient. And code written for it runs nowhere else. From here on the class has
PyTorch's name and PyTorch's behaviour, and signatures have type hints, as in the package:

- Tensor, made by tensor(...). Numbers become float32, in half the memory. Seven digits are enough
  for a gradient to walk downhill.
- requires_grad. Gradients flow to a tensor only if it asks for them. A result asks if one of its
  inputs does; if none does, the call is not recorded. A layer is frozen when its tensors stop
  asking.
- `creator` is now `grad_fn`. A tensor without one is a leaf: the user made it. Only leaves keep a
  gradient. To clear it, write x.grad = None.
- `x.data` is now `x.array`, since PyTorch's x.data is a tensor. x.shape is a Size, a tuple that
  prints as PyTorch's does. x.detach() is a new tensor on the same memory, without history. x.item()
  and x.tolist() give Python numbers.
- backward() starts with 1, which is right only for a single number. For an output with several
  elements you say what arrives at each of them: y.backward(v) gives v times the Jacobian, the table
  of all dy_i/dx_j. To start with ones would differentiate the sum, which nobody asked for. So
  backward() without v is an error there.
- bool() of a tensor with several elements is an error, too. `if a < b` would have no answer.

The trap is detach, because it does not copy. If you change the elements of the detached tensor, you
change the other one as well, and the graph does not notice. From step 43 on it does.

The engine is about to be rebuilt, and with it every rule (what forward and backward of a Function
say). Three are enough to see how: Exp, Add and Mul. The rest is put aside and comes back: minus and
division in step 38, retain_grad in 45, numerical derivatives in 47, names and drawing in 49, the
other operations in stage 9.

Changed: Variable is Tensor, creator is grad_fn, data is array; Function.__call__ records only what
is asked for; __array_priority__ follows step 21's __array_ufunc__ (operators are ours, functions
NumPy's). New: tensor, wrap, Size, requires_grad, is_leaf, detach, item, tolist. Gone: the rest.
Try: take the `if not x.requires_grad: continue` out of Tensor.backward. Which line goes wrong?
"""

import contextlib
import heapq
import itertools
import weakref
from typing import Any

import numpy as np


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

        Tensors that a function made give their gradient up again. With create_graph the gradients
        are recorded like any computation, graph and all.
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
        self.grad = gradient if self.grad is None else self.grad + gradient
        if self.grad_fn is None:
            return
        waiting = [(-self.grad_fn.order, self.grad_fn)]  # a heap: the youngest function comes first
        seen = {self.grad_fn}
        while waiting:
            _, f = heapq.heappop(waiting)
            outputs = [output() for output in f.outputs]  # None: nobody holds that output any more
            gys = [
                wrap(np.zeros(*blank)) if y is None or y.grad is None else y.grad
                for y, blank in zip(outputs, f.blanks, strict=True)
            ]
            with set_grad_enabled(create_graph):
                gxs = f.backward(*gys)
                if not isinstance(gxs, tuple):
                    gxs = (gxs,)
                for x, gx in zip(f.inputs, gxs, strict=True):
                    if not x.requires_grad:
                        continue
                    # Not +=: gx may have other owners.
                    x.grad = gx if x.grad is None else x.grad + gx
                    if x.grad_fn is not None and x.grad_fn not in seen:
                        seen.add(x.grad_fn)
                        heapq.heappush(waiting, (-x.grad_fn.order, x.grad_fn))
            for y in outputs:
                if y is not None:
                    y.grad = None


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


class Function:
    """A step of a computation: arrays in, arrays out. An object is one node: make one per call."""

    sequence_numbers = itertools.count()  # shared by all functions: each call takes the next one

    def __call__(self, *inputs):
        inputs = [as_tensor(x) for x in inputs]
        ys = self.forward(*[x.array for x in inputs])
        if not isinstance(ys, tuple):
            ys = (ys,)
        outputs = [wrap(np.asarray(y)) for y in ys]
        if GradMode.enabled and any(x.requires_grad for x in inputs):
            self.order = next(Function.sequence_numbers)
            self.inputs = inputs
            self.outputs = [weakref.ref(output) for output in outputs]  # strong would be a cycle
            self.blanks = [(output.array.shape, output.array.dtype) for output in outputs]
            for output in outputs:
                output._requires_grad, output._grad_fn = True, self
        return outputs[0] if len(outputs) == 1 else outputs

    def forward(self, *xs):
        """Arrays to one array, or to a tuple of arrays."""
        raise NotImplementedError

    def backward(self, *gys):
        """A gradient for each output to a gradient for each input: one Tensor, or a tuple."""
        raise NotImplementedError


class Exp(Function):
    """y = e^x, dy/dx = e^x"""

    def forward(self, x):
        return np.exp(x)

    def backward(self, gy):
        return exp(self.inputs[0]) * gy


class Add(Function):
    """y = x0 + x1, dy/dx0 = 1, dy/dx1 = 1"""

    def forward(self, x0, x1):
        return x0 + x1

    def backward(self, gy):
        return gy, gy


class Mul(Function):
    """y = x0 x1, dy/dx0 = x1, dy/dx1 = x0"""

    def forward(self, x0, x1):
        return x0 * x1

    def backward(self, gy):
        x0, x1 = self.inputs
        return gy * x1, gy * x0


def exp(x):
    return Exp()(x)


def add(x0, x1):
    return Add()(x0, x1)


Tensor.__add__ = add
Tensor.__radd__ = add


def mul(x0, x1):
    return Mul()(x0, x1)


Tensor.__mul__ = mul
Tensor.__rmul__ = mul


if __name__ == "__main__":
    x = tensor([1.0, 2.0])
    print(x.dtype, x.array.nbytes, "bytes")  # -> float32 8 bytes
    print("step 30 took", np.array([1.0, 2.0]).nbytes)  # -> step 30 took 16
    print(x.shape, x.size(-1), x.shape.numel())  # -> tinytorch.Size([2]) 2 2

    w, b, data = tensor(2.0, requires_grad=True), tensor(1.0, requires_grad=True), tensor(0.5)
    y = w * data + b
    print(y.requires_grad, type(y.grad_fn).__name__)  # -> True Add
    print("leaves:", w.is_leaf, data.is_leaf, y.is_leaf)  # -> leaves: True True False
    y.backward()
    print(w.grad, b.grad, data.grad, y.grad)  # -> tensor(0.5) tensor(1.0) None None
    print("nobody asked:", (data * data).grad_fn)  # -> nobody asked: None

    w.requires_grad_(False)  # a frozen layer
    w.grad = b.grad = None
    (w * data + b).backward()
    print("frozen:", w.grad, b.grad)  # -> frozen: None tensor(1.0)

    d = y.detach()
    print("detached:", d, d.requires_grad)  # -> detached: tensor(2.0) False
    print("the same memory:", np.shares_memory(d.array, y.array))  # -> the same memory: True

    def error(action):
        """The message of the error that an action raises."""
        try:
            action()
        except (RuntimeError, TypeError) as reason:
            return f"{type(reason).__name__}: {reason}"

    v = tensor([1.0, 2.0, 3.0], requires_grad=True)
    print(error((v * v).backward).partition(",")[0])
    # -> RuntimeError: grad can be implicitly created only for scalar outputs
    (v * v).backward(tensor([1.0, 10.0, 100.0]))
    print("v times the Jacobian:", v.grad)  # -> v times the Jacobian: tensor([  2.  40. 600.])
    print(error(data.backward))
    # -> RuntimeError: this tensor does not require grad and does not have a grad_fn
    print(error(lambda: bool(v)))
    # -> RuntimeError: Boolean value of Tensor with more than one value is ambiguous

    s = exp(v * 2) * v
    s.backward(tensor([1.0, 1.0, 1.0]), create_graph=True)
    g, v.grad = v.grad, None
    g.backward(tensor([1.0, 1.0, 1.0]))
    print("second derivative:", v.grad.tolist())
    # -> second derivative: [59.11, 655.18, 6454.86]
    print("by hand:          ", (4 * (v.array + 1) * np.exp(2 * v.array)).tolist())
    # -> by hand:           [59.11, 655.18, 6454.86]
