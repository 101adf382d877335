"""Step 40: Several results, and saved values that stay what they were

Two things are still missing from a call.

Several results (put aside in step 32). forward returns a tuple, and each result becomes a tensor
that knows its number: an edge to it is (node, number). backward needs one gradient per result, so
add_part collects them until all have arrived. A result that nobody used has none; as in step 17,
backward gets zeros for it, of the shape and type noted at the call. Results of integer type (the
positions of a maximum, say) get no gradient.

Saved values. A rule that saved an array needs it as it was. A write in between would make the
gradient wrong without any sign; the demo shows the number. Calls and writes have numbers from one
row (step 36), so backward compares the number of the call with that of the last write of all. If
the write came first, all is well, and the check was one comparison. If not, check_saved asks for
each array whether it was written since. Who wants to write and keep the graph writes into a copy:
x.clone(). (x.cpu() and x.cuda() copy to another device.)

Most nodes have one result. They are `plain`, and the loop calls their backward directly. The others
go through general_step, and so does every node under create_graph. Two attributes are for later: a
node with on_tensors always gets its gradients as Tensors (step 46), and hooks is for step 45.

Changed: Function, edge_of, backward_pass. New: several_outputs, check_saved, general_step,
add_part, clone, cpu, cuda.
Try: delete `if Writes.last < order` and the line below it, and run the demo.
"""

import copy
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from tinytorch.autograd.modes import (
    call_through_modes,
    inference_seen,
    open_modes,
    set_grad_enabled,
    thread,
)
from tinytorch.core.device import Device, as_device, cpu
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import Writes, count_write, next_order, version_of, written_since

new = object.__new__
NOTHING = ()  # what a call has saved that saved nothing


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Adds up an array over the dimensions along which `shape` was broadcast to its shape."""
    gap = array.ndim - len(shape)
    axes = (*range(gap), *(gap + i for i, n in enumerate(shape) if n == 1 != array.shape[gap + i]))
    if axes and array.dtype.itemsize == 2:  # halves are added up as float32, and rounded once
        return array.sum(axis=axes, dtype="float32").astype(array.dtype).reshape(shape)
    return array.sum(axis=axes).reshape(shape) if axes else array.reshape(shape)


class Function:
    """One call of an operation. The same object is `ctx` in forward, grad_fn of the result, and
    the node that a backward pass visits.

    A subclass writes two short methods:

        forward(ctx, *arrays)    arrays (and other parameters) in, array out, or a tuple of them
        backward(ctx, *grads)    gradient of each output in, gradient of each tensor input out

    backward runs on plain arrays, which is fast, or on Tensors when the gradient itself is to be
    differentiated. So its formula uses only what both have: operators, methods with the same
    meaning, functions of `ctx.xp` (numpy, cupy, or the class Tensor), and `ctx.call(Function, g)`.
    """

    # Declared by subclasses.
    differentiable = True
    elementwise = False  # inputs are broadcast against each other; their gradients are summed back
    on_tensors = False  # backward takes Tensors, always (user-defined functions)
    plain = True  # one result, no hooks, nothing broadcast, not on_tensors: so are nearly all

    # Of one call; most calls keep these.
    xp: Any = cpu.xp
    device: Device = cpu
    order: int
    edges: list  # for each argument: a Function, (Function, output number), a leaf Tensor, or None
    outputs: Sequence  # (shape, dtype, id) of each result: the id tells it among the saved arrays
    several = False  # the results came as a tuple; an edge to one of them says which it is
    saved: Any = NOTHING
    input_shapes: list | None = None  # where an input was broadcast
    fill_missing = True  # backward gets zeros for an output that nobody used
    hooks: dict | None = None  # output number -> hooks on its gradient

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward on the arrays of `args`, and records the call if a gradient is wanted."""
        if open_modes and thread.modes:
            return call_through_modes(cls, args)
        ctx = new(cls)
        ctx.edges = edges = []
        enabled = thread.grad_enabled  # asked now: it silences NumPy where a thread is new
        arrays, device, wanted = [], None, False
        for x in args:
            edge = None
            if isinstance(x, Tensor):
                if x.device is not device:
                    if device is not None:
                        return cls.apply(*on_one_device(args))
                    device = x.device
                if x._requires_grad:
                    wanted = True
                    edge = x._grad_fn
                    if edge is None:
                        edge = x
                    elif x._output_nr is not None:
                        edge = (edge, x._output_nr)
                x = x.array
            arrays.append(x)
            edges.append(edge)

        ctx.device, ctx.xp = device, device.xp
        try:
            result = cls.forward(ctx, *arrays)
        except (ValueError, TypeError) as error:
            raise cls.explain(error, arrays) from error
        record = wanted and enabled and cls.differentiable
        if record:
            ctx.order = next_order()
        if result.__class__ is tuple:
            return ctx.several_outputs(result, record)

        device = ctx.device  # a transfer has changed it
        array = result if result.__class__ is device.array_type else ctx.as_array(result)
        out = wrap(array, device)
        if record:
            out._requires_grad, out._grad_fn = True, ctx
            ctx.outputs = ((array.shape, array.dtype, id(array)),)
            if cls.elementwise:
                ctx.note_shapes(arrays, array.shape)
        if inference_seen:
            check_inference(out, args, record)
        return out

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = ctx.xp.asarray(result)
        if ctx.saved is not NOTHING:
            ctx.saved = tuple(array if value is result else value for value in ctx.saved)
        return array

    def several_outputs(ctx, results: tuple, record: bool) -> tuple:
        """The tensors of a call with several results. Those of integer type get no gradient."""
        outs, ctx.outputs, ctx.several, ctx.plain = [], [], True, False
        for number, result in enumerate(results):
            out = wrap(ctx.as_array(result), ctx.device)
            if record and out.dtype.is_floating_point:
                out._requires_grad, out._grad_fn, out._output_nr = True, ctx, number
            if inference_seen:
                check_inference(out, (), False)
            outs.append(out)
            ctx.outputs.append((out.array.shape, out.array.dtype, id(out.array)))
        return tuple(outs)

    def note_shapes(ctx, arrays: Sequence, shape: tuple[int, ...]) -> None:
        """Remembers the shapes of the inputs if one that needs a gradient was broadcast."""
        for edge, x in zip(ctx.edges, arrays):  # noqa: B905 (strict= would take longer)
            if edge is not None and x.shape != shape:
                ctx.input_shapes, ctx.plain = [getattr(x, "shape", None) for x in arrays], False

    def sum_back(ctx, grads: tuple) -> list:
        """The gradients of inputs that were broadcast, added up where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=False):
            if grad is not None and shape is not None and grad.shape != shape:
                as_tensor = isinstance(grad, Tensor)
                grad = grad.sum_to_size(shape) if as_tensor else sum_to(grad, shape)
            sums.append(grad)
        return sums

    @classmethod
    def explain(cls, error: Exception, arrays: list) -> Exception:
        """NumPy's ValueError or TypeError as PyTorch's RuntimeError, with the shapes in it; a
        NotImplementedError, which is one too, where NumPy has no function for these types."""
        shapes = [tuple(array.shape) for array in arrays if hasattr(array, "shape")]
        if cls.elementwise and len(shapes) > 1:
            a, b = shapes[:2]
            for i in range(1, min(len(a), len(b)) + 1):
                if a[-i] != b[-i] and 1 not in (a[-i], b[-i]):
                    dim = max(len(a), len(b)) - i
                    return RuntimeError(
                        f"The size of tensor a ({a[-i]}) must match the size of tensor b "
                        f"({b[-i]}) at non-singleton dimension {dim} (shapes {list(a)} and "
                        f"{list(b)})"
                    )
        name, listed = cls.__name__.lower(), " and ".join(str(list(shape)) for shape in shapes)
        if any(word in str(error) for word in ("ufunc", "numpy boolean", "Wrong type")):
            dtypes = " and ".join(str(array.dtype) for array in arrays if hasattr(array, "dtype"))
            kind = RuntimeError if "boolean" in str(error) else NotImplementedError
            return kind(f"{name}() is not implemented for {dtypes}")
        return RuntimeError(f"{name}: {error} (shapes {listed})")

    # For forward and backward of a subclass.

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
        inner.xp, inner.device = ctx.xp, ctx.device
        inner.edges = [None] * (1 + len(parameters))
        return function.forward(inner, x, *parameters)

    def forward(ctx, *args: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no forward")

    def backward(ctx, *grads: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no backward")

    # For the engine.

    def gradients(ctx, grads: list) -> Any:
        """What backward returns, on Tensors, with what was saved as Tensors of the graph."""
        if ctx.on_tensors:
            return ctx.backward(*grads)
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(value) for value in ctx.saved)
        return twin.backward(*grads)

    def saved_tensor(ctx, value: Any) -> Any:
        """A saved array as the tensor that it was: wrapped anew, so that no cycle keeps the graph.

        Which one it was, its id tells: all inputs were alive when forward saved it. The result of
        an in-place call is the same array as its input: then it was the result.
        """
        if not hasattr(value, "dtype"):
            return value
        history = None
        for edge in ctx.edges:
            if isinstance(edge, Tensor):
                if edge.array is value:
                    return edge
            elif edge is not None:
                node, number = edge if edge.__class__ is tuple else (edge, None)
                if id(value) == node.outputs[number or 0][2]:
                    history = (node, number)
        for number, (_, _, known) in enumerate(ctx.outputs):
            if id(value) == known:
                history = (ctx, number if ctx.several else None)
        out = wrap(ctx.device.xp.asarray(value), ctx.device)
        if history is not None:
            out._requires_grad = True
            out._grad_fn, out._output_nr = history
        return out

    def saved_arrays(ctx) -> Any:
        return ctx.saved

    def check_saved(ctx) -> None:
        """RuntimeError where a saved array was written in place since."""
        for value in ctx.saved_arrays():
            if hasattr(value, "base") and written_since(value, ctx.order):
                raise RuntimeError(
                    f"one of the variables needed for gradient computation has been modified by "
                    f"an inplace operation: [{value.dtype} {list(value.shape)}], saved by "
                    f"{ctx.name()}, was written after that. It is at version {version_of(value)}."
                )

    # For people who look at the graph.

    def name(ctx) -> str:
        """PyTorch's name of the node: MulBackward0."""
        return f"{type(ctx).__name__}Backward0"

    @property
    def next_functions(ctx) -> tuple:
        """((node, output number), ...) for each input; leaves appear as AccumulateGrad."""
        following = []
        for edge in ctx.edges:
            if isinstance(edge, Tensor):
                following.append((AccumulateGrad(edge), 0))
            else:
                following.append(edge if edge.__class__ is tuple else (edge, 0))
        return tuple(following)

    def __repr__(ctx) -> str:
        return f"<{ctx.name()} object at {id(ctx):#x}>"


class AccumulateGrad:
    """How a leaf appears among next_functions: `variable` is the leaf."""

    next_functions = ()

    def __init__(self, variable: Tensor):
        self.variable = variable

    def name(self) -> str:
        return "tinytorch::autograd::AccumulateGrad"

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {id(self):#x}>"


def check_inference(out: Tensor, args: tuple, record: bool) -> None:
    """Marks what is made in inference mode; a view is what its base is. RuntimeError where such a
    tensor enters a graph."""
    out._inference = thread.inference if out._base is None else out._base._inference
    if record and any(isinstance(x, Tensor) and x._inference for x in args):
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. To work around you can make a clone "
            "to get a normal tensor and use it in autograd."
        )


def on_one_device(args: tuple) -> list:
    """Brings 0-d CPU tensors to the device of the others; RuntimeError for any other mix."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    others = {x.device for x in tensors if x.device is not cpu or x.array.ndim}
    if len(others) > 1:
        found = ", ".join(sorted(map(str, others)))
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, "
            f"{found}!"
        )
    target = others.pop() if others else cpu
    return [x.to(target) if isinstance(x, Tensor) and x.device is not target else x for x in args]


def edge_of(tensor: Tensor) -> Any:
    """Where a gradient of `tensor` goes: a node, (node, output number), the leaf, or None."""
    if not tensor.requires_grad:
        return None
    if tensor._grad_fn is None:
        return tensor
    number = tensor._output_nr
    return tensor._grad_fn if number is None else (tensor._grad_fn, number)


def backward_pass(
    roots: Sequence[Tensor],
    grads: Sequence[Tensor],
    create_graph: bool,
) -> dict:
    """Carries the gradients `grads` of `roots` to the leaves.

    A heap gives the youngest node that has a gradient. Whoever used its result is younger still,
    so by then all parts of its gradient have arrived.

    On their way gradients are plain arrays. They are Tensors if they are to be differentiated
    (create_graph), or if a mode on this thread wants to see each operation.

    Returns {leaf: gradient}.
    """
    as_tensors = create_graph or bool(thread.modes)
    arrived: dict = {}  # node or leaf -> its gradient (of a node with several outputs: a list)
    ours: set = set()  # those whose gradient is a sum that was made here: it may be added to
    heap: list = []
    edges = [edge_of(root) for root in roots]
    grads = list(grads) if as_tensors else [grad.array for grad in grads]
    while True:
        for edge, grad in zip(edges, grads):  # noqa: B905 (a keyword takes longer than the rest)
            if edge is None or grad is None:
                continue
            if edge.__class__ is tuple:
                add_part(arrived, heap, edge, grad)
            elif edge not in arrived:
                arrived[edge] = grad
                order = edge.order
                if order is not None:  # a leaf has none
                    heappush(heap, (order, edge))
            elif edge in ours:
                arrived[edge] += grad
            else:
                # The first part may belong to somebody else too: Add gives both inputs one array.
                arrived[edge] = arrived[edge] + grad
                if not as_tensors:
                    ours.add(edge)
        if not heap:
            break
        order, node = heappop(heap)
        grad = arrived.pop(node)
        if Writes.last < order:
            node.check_saved()
        if node.plain and not as_tensors:
            grads = node.backward(grad)
        else:
            grads = general_step(node, grad, as_tensors)
        if grads.__class__ is not tuple:
            grads = (grads,)
        edges = node.edges
    return arrived


def add_part(arrived: dict, heap: list, edge: tuple, grad: Any) -> None:
    """Adds the gradient of one result of a call that has several."""
    node, number = edge
    if node not in arrived:
        arrived[node] = [None] * len(node.outputs)
        heappush(heap, (node.order, node))
    earlier = arrived[node][number]
    arrived[node][number] = grad if earlier is None else earlier + grad


def general_step(node: Function, grad: Any, as_tensors: bool) -> tuple:
    """One node's backward where it is not a plain array formula of a single gradient."""
    grads = list(grad) if node.several else [grad]
    xp, device = node.device.xp, node.device
    if node.several and node.fill_missing:
        for number, like in enumerate(node.outputs):
            if grads[number] is None and like is not None:
                zeros = xp.zeros(like[0], like[1])
                grads[number] = wrap(zeros, device) if as_tensors else zeros
    if as_tensors:
        results = node.gradients(grads)
    elif node.on_tensors:
        results = node.gradients(
            [None if g is None else wrap(xp.asarray(g), device) for g in grads]
        )
    else:
        results = node.backward(*grads)
    if results.__class__ is not tuple:
        results = (results,)
    if node.input_shapes is not None:
        results = node.sum_back(results)
    if node.on_tensors and not as_tensors:
        results = [None if result is None else result.array for result in results]
    return tuple(results)


def accumulate(leaf: Tensor, grad: Any) -> None:
    """Adds an arrived gradient to leaf.grad, which always owns its array."""
    if isinstance(grad, Tensor):
        leaf._grad = grad if leaf._grad is None else leaf._grad + grad
    elif leaf._grad is not None:
        leaf._grad.array += grad
    else:
        grad = leaf.device.xp.array(grad)
        leaf._grad = wrap(grad, leaf.device)


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
        gradient = wrap(self.device.xp.ones_like(self.array), self.device)
    with set_grad_enabled(create_graph):
        for leaf, grad in backward_pass([self], [gradient], create_graph).items():
            accumulate(leaf, grad)


class Expand(Function):
    """y = x repeated to `shape`, without a copy (stride 0). Backward sums what was repeated."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape, new = x.shape, len(shape) - x.ndim
        if x.__class__ is not np.ndarray:
            return ctx.xp.broadcast_to(x, shape)
        # What NumPy's broadcast_to gives cannot be written, and takes three times as long.
        pairs = zip(x.strides, x.shape, shape[new:], strict=True)
        strides = (0,) * new + tuple([step if n == m else 0 for step, n, m in pairs])
        if x.flags.c_contiguous:
            return np.ndarray(shape, x.dtype, x, 0, strides)
        return np.lib.stride_tricks.as_strided(x, shape, strides)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(SumTo, g, ctx.shape)


class SumTo(Function):
    """y = x summed over the dimensions along which `shape` would be broadcast to x's shape."""

    def forward(ctx, x: Any, shape: tuple[int, ...]) -> Any:
        ctx.shape = x.shape
        return sum_to(x, shape)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


def as_shape(sizes: tuple) -> tuple[int, ...]:
    """(2, 3) from `f(2, 3)` and from `f((2, 3))`, as PyTorch takes sizes either way."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple(int(n) if isinstance(n, Tensor) else n for n in sizes)


@tensor_method("sum_to_size")
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Sums to the shape `size`, which must broadcast to the shape of `input`."""
    return SumTo.apply(input, as_shape(size))


class Clone(Function):
    """y = a copy of x with memory of its own;  dy/dx = 1. Order K keeps transposed ones so."""

    def forward(ctx, x: Any, order: str = "K") -> Any:
        return x.copy("C" if 0 in x.strides else order)  # 0 in an expanded one, not in its copy

    def backward(ctx, g: Any) -> Any:
        return g


class Transfer(Function):
    """y = x on another device. The gradient travels back to the device of x.

    With non_blocking the backend may start a copy to the device and not wait for its end.
    """

    def forward(ctx, x: Any, device: Device, non_blocking: bool = False) -> Any:
        ctx.source = ctx.device
        ctx.device, ctx.xp = device, device.xp
        host = ctx.source.backend.to_numpy(x)
        if non_blocking:
            return device.backend.send(host, device.index)
        return device.backend.from_numpy(host, device.index)

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Transfer, g, ctx.source)

    def name(ctx) -> str:
        return "ToCopyBackward0"


@tensor_method("to")
def to(self: Tensor, device: Any, non_blocking: bool = False) -> Tensor:
    """The tensor on another device: `x.to("cuda:0")`.

    Returns the tensor itself where nothing changes.
    """
    out = self
    if device is not None and as_device(device) is not out.device:
        out = Transfer.apply(out, as_device(device), non_blocking)
    return out


@tensor_method("clone")
def clone(input: Tensor) -> Tensor:
    """A copy with memory of its own; the gradient flows through."""
    return Clone.apply(input)


@tensor_method("cpu")
def cpu_copy(self: Tensor) -> Tensor:
    return to(self, device="cpu")


@tensor_method("cuda")
def cuda_copy(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    return to(self, device="cuda" if device is None else device, non_blocking=non_blocking)


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

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a + b

    def backward(ctx, g: Any) -> Any:
        return g, g


class Mul(Function):
    """c = a * b;   dc/da = b,   dc/db = a."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        edge_a, edge_b = ctx.edges  # None where no gradient is needed: then its factor is not kept
        ctx.saved = (None if edge_b is None else a, None if edge_a is None else b)
        return a * b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        return None if b is None else g * b, None if a is None else g * a


class Neg(Function):
    """y = -x;   dy/dx = -1."""

    def forward(ctx, x: Any) -> Any:
        return -x

    def backward(ctx, g: Any) -> Any:
        return -g


class Sub(Function):
    """c = a - b;   dc/da = 1,   dc/db = -1."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        return a - b

    def backward(ctx, g: Any) -> Any:
        return g, None if ctx.edges[1] is None else -g


class Div(Function):
    """c = a / b;   dc/da = 1 / b,   dc/db = -a / b^2 = -c / b."""

    elementwise = True

    def forward(ctx, a: Any, b: Any) -> Any:
        ctx.saved = (None if ctx.edges[1] is None else a, b)
        return a / b

    def backward(ctx, g: Any) -> Any:
        a, b = ctx.saved
        ga = g / b
        return ga, None if a is None else -ga * (a / b)


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


@tensor_method("neg", "negative", "__neg__")
def neg(input: Tensor) -> Tensor:
    """-input."""
    return Neg.apply(input)


@tensor_method("sub", "subtract", "__sub__")
def sub(input: Tensor, other: Any) -> Tensor:
    """input - other."""
    return Sub.apply(input, other)


@tensor_method("__truediv__")
def true_divide(input: Tensor, other: Any) -> Tensor:
    """input / other."""
    return Div.apply(input, other)


@tensor_method("__rsub__")
def rsub(self: Tensor, other: Any) -> Tensor:
    return sub(other, self)


@tensor_method("__rtruediv__")
def rdiv(self: Tensor, other: Any) -> Tensor:
    return true_divide(other, self)


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":

    class SumAndDifference(Function):
        """s = a + b, d = a - b"""

        def forward(ctx, a, b):
            return a + b, a - b

        def backward(ctx, gs, gd):
            return gs + gd, gs - gd

    class Largest(Function):
        """The largest element, and where it is."""

        def forward(ctx, x):
            ctx.i, ctx.n = x.argmax(), x.size
            return x.max(), ctx.i

        def backward(ctx, g, _):
            one = ctx.device.xp.zeros(ctx.n, np.float32)
            one[ctx.i] = 1.0
            return g * one

    a, b = tensor([1.0, 2.0], requires_grad=True), tensor([3.0, 5.0], requires_grad=True)
    ones = tensor([1.0, 1.0])
    s, d = SumAndDifference.apply(a, b)
    print(s, d, s.output_nr, d.output_nr)  # -> tensor([4.0, 7.0]) tensor([-2.0, -3.0]) 0 1
    (s * d).backward(ones)  # a^2 - b^2
    print(a.grad, b.grad)  # -> tensor([2.0, 4.0]) tensor([-6.0, -10.0])
    a.grad = b.grad = None
    SumAndDifference.apply(a, b)[1].backward(ones)
    print("the sum is not used:", a.grad, b.grad)
    # -> the sum is not used: tensor([1.0, 1.0]) tensor([-1.0, -1.0])
    value, place = Largest.apply(b)
    print(place, place.dtype, place.requires_grad)  # -> tensor(1) tinytorch.int64 False

    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    z = y * y
    y.array[...] = 100.0  # the graph does not see this: x.grad would be 200 instead of 2 x
    z.backward(ones)
    print("unseen, and wrong:", x.grad)  # -> unseen, and wrong: tensor([200.0, 200.0])
    z = y * y
    y.array[...] = 1.0
    count_write(y.array)
    try:
        z.backward(ones)
    except RuntimeError as reason:
        print(str(reason).partition(" operation")[0])
        # -> one of the variables needed for gradient computation has been modified by an inplace
