"""Step 99: Programs that others wrote

The package behaves as PyTorch does, so a program that somebody wrote for PyTorch should run here,
with nothing changed but its import. This last step of the stage adds two things that such programs
ask for.

Whole derivatives. backward() goes from one number to all inputs: one row of the Jacobian J, the
table of all dy_i/dx_j. autograd.functional has the rest, and all of it is made of grad:

    v^T J   one backward pass (vjp): what every layer of a network does with what arrives
    J       one row after the other (jacobian): as many passes as there are outputs
    J v     two passes (jvp): v^T J is linear in v, and its derivative in direction u is J u
    H       the Jacobian of the gradient (hessian): n passes for n numbers
    H v     two passes (hvp): the curvature in one direction, and the n x n table is never there

The trap is the size: the Hessian of the network of step 67, with 17,226 numbers, has 297 million
entries. Where a product with a vector is all that you need, never make the matrix.

Old names. In PyTorch's first years types and places stood in one word, FloatTensor, and a tensor
had to be put into a Variable before it could be differentiated. Both are still in many programs.
FloatTensor(2, 3) is a new tensor; but isinstance(x, FloatTensor) asks for a type. An object can
answer to both if it has `__call__` and `__instancecheck__`.

(In PyTorch, torch.func is the younger way to these products; autograd.functional came first.)

New: vjp, jvp, jacobian, hessian, vhp, hvp; FloatTensor and its kin, Tensor.type, Tensor.new,
Variable, __version__. Modules finished: autograd/functional.py, ops/legacy.py, version.py.
Try: a hessian of a function that returns its input. What does the error ask for?
"""

import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.engine import as_sequence, grad
from tinytorch.autograd.modes import enable_grad
from tinytorch.core import dtype as types
from tinytorch.core.device import cpu
from tinytorch.core.tensor import Size, Tensor, tensor, tensor_method
from tinytorch.ops.conversion import to
from tinytorch.ops.creation import empty, eye, ones_like, zeros, zeros_like
from tinytorch.ops.joining import stack
from tinytorch.ops.shape import view_as

# Importing these modules, which import the others, gives Tensor its methods.
for name in "elementwise gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def call_on_leaves(func: Callable, inputs: Any, create_graph: bool) -> tuple[tuple, Any]:
    """(leaves, what func gives for them), recorded. With create_graph, inputs that require a
    gradient stay what they are, so that the result can be differentiated with respect to them.

    TypeError where an input or an output is no tensor."""
    leaves = []
    for x in as_sequence(inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"The inputs must be Tensors, but one is a {type(x).__name__}")
        keep = create_graph and x.requires_grad
        leaves.append(view_as(x, x) if keep else x.detach().requires_grad_())
    with enable_grad():
        outputs = func(*leaves)
    for y in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        if not isinstance(y, Tensor):
            raise TypeError(f"The function must return Tensors, but gave a {type(y).__name__}")
    return tuple(leaves), outputs


def back(ys: tuple, xs: tuple, vectors: tuple, create_graph: bool, strict: bool = False) -> tuple:
    """v^T J: for each of xs the gradient of all ys, at which `vectors` arrive. Where none of them
    depends on x it is zero, or, if `strict`, a RuntimeError."""
    pairs = [(y, v) for y, v in zip(ys, vectors, strict=True) if y.requires_grad]
    found: Any = [None] * len(xs)
    if pairs:
        outputs, arriving = zip(*pairs, strict=True)
        found = grad(outputs, xs, arriving, True, create_graph, allow_unused=True)
    if strict and None in found:
        raise RuntimeError(f"The outputs do not depend on input {found.index(None)}: strict=True")
    return tuple(zeros_like(x) if g is None else g for x, g in zip(xs, found, strict=True))


def vectors_for(tensors: tuple, v: Any, what: str) -> tuple:
    """The vectors of a product; 1 where none is given for a single number. RuntimeError where they
    do not fit."""
    if v is None:
        if len(tensors) > 1 or tensors[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {what} is a single number.")
        return (ones_like(tensors[0]),)
    vectors = as_sequence(v)
    shapes = [[tuple(x.shape) for x in group] for group in (vectors, tensors)]
    if shapes[0] != shapes[1]:
        raise RuntimeError(f"v has the shapes {shapes[0]}, and {what} {shapes[1]}")
    return vectors


def as_given(results: tuple, like: Any) -> Any:
    """One result where there was one tensor, not in a tuple; else all."""
    return results[0] if isinstance(like, Tensor) else tuple(results)


def without_graph(outputs: Any, create_graph: bool) -> Any:
    if create_graph:
        return outputs
    return as_given(tuple(y.detach() for y in as_sequence(outputs)), outputs)


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(outputs, v^T J): one backward pass, for vectors in the shapes of the outputs."""
    xs, outputs = call_on_leaves(func, inputs, create_graph)
    vectors = vectors_for(as_sequence(outputs), v, "the output")
    found = back(as_sequence(outputs), xs, vectors, create_graph, strict)
    return without_graph(outputs, create_graph), as_given(found, inputs)


def jvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(outputs, J v), for vectors in the shapes of the inputs: how the outputs change on the way.

    Two backward passes: u^T J is linear in u, and its derivative in the direction v is J v."""
    xs, outputs = call_on_leaves(func, inputs, create_graph)
    ys = as_sequence(outputs)
    us = tuple(zeros_like(y).requires_grad_() for y in ys)
    found = back(ys, xs, us, True, strict)
    found = back(found, us, vectors_for(xs, v, "the input"), create_graph, strict)
    return without_graph(outputs, create_graph), as_given(found, outputs)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The matrix of all dy_i/dx_j, in the shape [*y.shape, *x.shape]: one backward pass for each
    element of y. For several outputs or inputs a tuple for each, the outputs outside."""
    xs, outputs = call_on_leaves(func, inputs, create_graph)
    rows = []
    for y in as_sequence(outputs):
        n = y.numel()
        units = eye(n, dtype=y.dtype, device=y.device).reshape(n, *y.shape)
        found = [back((y,), xs, (unit,), create_graph, strict) for unit in units.unbind(0)]
        parts = zip(*found, strict=True) if found else [[zeros(0, *x.shape)] for x in xs]
        row = [stack(part).reshape(*y.shape, *x.shape) for part, x in zip(parts, xs, strict=True)]
        rows.append(as_given(tuple(row), inputs))
    return as_given(tuple(rows), outputs)


def slope_of(func: Callable, strict: bool) -> Callable:
    """The gradient of a function with one number as its result, as a function. RuntimeError for
    another result."""

    def slope(*xs: Tensor) -> tuple:
        y = func(*xs)
        if not isinstance(y, Tensor) or y.numel() != 1:
            raise RuntimeError("The function must return one Tensor with a single element")
        return back((y,), xs, (ones_like(y),), True, strict)

    return slope


def hessian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False) -> Any:
    """The matrix of all second derivatives, d2y/dx_i dx_j: the Jacobian of the gradient."""
    found = jacobian(slope_of(func, strict), inputs, create_graph, strict)
    return found[0] if isinstance(inputs, Tensor) else found


def vhp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple:
    """(output, v^T H) at the price of two backward passes: H itself is never there. A Hessian is
    symmetric, so this is H v as well."""
    xs, output = call_on_leaves(func, inputs, create_graph)
    with enable_grad():
        slopes = slope_of(lambda *_: output, strict)(*xs)
    vectors = vectors_for(xs, v, "the input")
    found = back(slopes, xs, vectors, create_graph, strict)
    return without_graph(output, create_graph), as_given(found, inputs)


hvp = vhp


# As programs print it, beside their results. pyproject.toml has the same.
__version__ = "0.1.0"


class TypedTensor:
    """FloatTensor, LongTensor and their kin, which older programs write as if they were classes:
    FloatTensor(2, 3) is a new tensor of that shape on the CPU, LongTensor([1, 2]) one of these
    elements, and isinstance(x, FloatTensor) asks for the type of x."""

    known: dict[types.DType, "TypedTensor"] = {}

    def __init__(self, name: str, dtype: types.DType):
        self.name, self.dtype = name, dtype
        TypedTensor.known[dtype] = self

    def __call__(self, *data: Any, device: Any = "cpu") -> Tensor:
        if len(data) == 1 and not isinstance(data[0], (int, Size)):
            return tensor(data[0], dtype=self.dtype, device=device)
        return empty(*data or (0,), dtype=self.dtype, device=device)

    def __instancecheck__(self, x: Any) -> bool:
        return isinstance(x, Tensor) and x.dtype is self.dtype and x.device is cpu


FloatTensor = TypedTensor("FloatTensor", types.float32)
DoubleTensor = TypedTensor("DoubleTensor", types.float64)
HalfTensor = TypedTensor("HalfTensor", types.float16)
BFloat16Tensor = TypedTensor("BFloat16Tensor", types.bfloat16)
LongTensor = TypedTensor("LongTensor", types.int64)
IntTensor = TypedTensor("IntTensor", types.int32)
ShortTensor = TypedTensor("ShortTensor", types.int16)
CharTensor = TypedTensor("CharTensor", types.int8)
ByteTensor = TypedTensor("ByteTensor", types.uint8)
BoolTensor = TypedTensor("BoolTensor", types.bool_)


@tensor_method("type")
def type_of(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of this tensor's type, "tinytorch.FloatTensor"; or, as `to` does it, the tensor as
    another type: a dtype, FloatTensor, or such a name. ValueError for a name of none."""
    if dtype is None:
        place = "" if self.device is cpu else f"{self.device.type}."
        return f"tinytorch.{place}{TypedTensor.known[self.dtype].name}"
    if isinstance(dtype, str):
        named = {typed.name: typed for typed in TypedTensor.known.values()}
        if dtype.partition(".")[2] not in named:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = named[dtype.partition(".")[2]]
    return to(self, dtype=getattr(dtype, "dtype", dtype), non_blocking=non_blocking)


@tensor_method("new")
def new(self: Tensor, *data: Any) -> Tensor:
    """x.new(2, 3) is a new tensor of that shape, x.new([1, 2]) one of these elements, with the type
    and on the device of x. Prefer new_empty and new_tensor, which say which."""
    return TypedTensor.known[self.dtype](*data, device=self.device)


def variable(data: Tensor, requires_grad: bool = False) -> Tensor:
    """autograd.Variable, of which Tensor took the place: the memory of `data` as a new leaf."""
    return data.detach().requires_grad_(requires_grad)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    def rosenbrock(x):  # step 25 went down this valley
        return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    start = tensor([0.0, 2.0])
    print(hessian(rosenbrock, start).tolist())  # -> [[-798.0, 0.0], [0.0, 200.0]]
    value, product = hvp(rosenbrock, start, tensor([1.0, 1.0]))
    print(value.item(), product.tolist())  # -> 401.0 [-798.0, 200.0]

    # Newton's method in two dimensions, x - H^-1 g, and no derivative by hand.
    x = tensor([0.0, 2.0], dtype=types.float64)
    for _ in range(6):
        g, ((a, b), (c, d)) = vjp(rosenbrock, x)[1], hessian(rosenbrock, x).tolist()
        inverse = tensor([[d, -b], [-c, a]], dtype=types.float64) / (a * d - b * c)
        x = x - inverse @ g
    print(f"after 6 steps: {x[0].item():.6f} {x[1].item():.6f}")
    # -> after 6 steps: 1.000000 1.000000

    # A rotation of the plane keeps lengths and areas: J^T J is the identity.
    def rotated(p):
        angle = p.new([0.5])
        c, s = angle.cos(), angle.sin()
        return stack([c * p[0] - s * p[1], s * p[0] + c * p[1]]).reshape(2)

    p = tensor([3.0, 4.0])
    J = jacobian(rotated, p)
    print(J.shape, (J.T @ J - eye(2)).abs().max().item() < 1e-6)  # -> tinytorch.Size([2, 2]) True
    _, row = vjp(rotated, p, tensor([1.0, 0.0]))
    _, column = jvp(rotated, p, tensor([1.0, 0.0]))
    print((row == J[0]).all().item(), (column == J[:, 0]).all().item())  # -> True True
    try:
        hessian(rotated, p)
    except RuntimeError as reason:
        print(reason)  # -> The function must return one Tensor with a single element

    # As it was written in 2017.
    w = variable(FloatTensor([3.0, 2.0]), requires_grad=True)
    loss = (w * w).sum()
    loss.backward()
    print(w.grad.tolist(), w.type())  # -> [6.0, 4.0] tinytorch.FloatTensor
    labels = w.detach().type(LongTensor)
    print(isinstance(labels, LongTensor), labels.tolist(), w.new(2, 3).shape)
    # -> True [3, 2] tinytorch.Size([2, 3])
