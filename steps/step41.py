"""Step 41: Views, and operands of two shapes

Since step 38 operations broadcast inside: NumPy repeats, and the engine sums. Often it has to be
written out before, by name: this row, for each line of that table.

    x.expand(2, 3)             x seen in another shape, its dimensions of size 1 repeated
    x.expand(-1, 3)            -1: as it is; x.expand_as(y): in the shape of y
    broadcast_shapes(a, b)     the shape that would come out; no numbers are touched
    broadcast_tensors(x, y)    both in that shape

None of them copies: a million lines of one row take the memory of one row. A result that shows the
memory of its input is a view, and its Function declares it: view = True. The view remembers its
base, the tensor whose memory it is, and the calls that lead from the base to it. Why? Because soon
somebody will write into the base. The view then shows new numbers, while its grad_fn still
describes the old ones. follow_base compares: if the base has a new history, it repeats the calls on
the base, and the view takes over the history of their result. PyTorch does the same.

give_history makes a tensor the output of a call that produced another one, for step 43: it computes
elsewhere and copies the numbers into the old memory. The demo does it by hand.

The trap is to write into an expanded tensor: one number in memory stands for many elements. Step 43
refuses it but for parts without repetitions. (writable = False is for views like those of step
66b.)

Changed: Function.apply, sum_to_size. New: note_view, follow_base, give_history, expand, expand_as,
broadcast_to, broadcast_shapes, broadcast_tensors. Gone: exp. Module finished: autograd/node.py.
Try: return at once from follow_base. Which two answers at the end of the demo change?
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
from tinytorch.core.tensor import Size, Tensor, tensor, tensor_method, wrap
from tinytorch.core.version import Writes, next_order, storage_of, version_of, written_since

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
    view = False  # the result shows the memory of the first input
    writable = True  # of a view: each element shows one of the input, and no two the same
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
                if x._base is not None and x._base._grad_fn is not x._base_fn:
                    follow_base(x)
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
        if cls.view:
            ctx.note_view(out, args)
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

    def note_view(ctx, out: Tensor, args: tuple) -> None:
        """Remembers how the view `out` comes from its base, for in-place operations."""
        seen = args[0]
        if storage_of(out.array) is not storage_of(seen.array):  # forward had to copy
            return
        base = seen if seen._base is None else seen._base
        out._base, out._base_fn = base, base._grad_fn
        out._view_calls = (*seen._view_calls, (type(ctx), args[1:]))

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


def give_history(tensor: Tensor, function: Function, number: int | None) -> None:
    """Makes `tensor` output `number` of a call that was recorded with another tensor."""
    tensor._requires_grad, tensor._grad_fn, tensor._output_nr = True, function, number
    outputs = list(function.outputs)
    outputs[number or 0] = (*outputs[number or 0][:2], id(tensor.array))
    function.outputs = outputs


@tensor_method("_follow_base")
def follow_base(view: Tensor) -> None:
    """Gives a view the history that its base has got by an in-place operation since."""
    base = view._base
    if base._grad_fn is view._base_fn:
        return
    if view._grad_fn is not None and view._grad_fn.on_tensors:
        raise RuntimeError(
            f"the base of a view that {view._grad_fn.name()} returned was changed in place. Please "
            f"clone() the result in its forward."
        )
    if base._base is not None:
        raise RuntimeError("the base of a view was given another shape in place: clone() the view")
    before = thread.grad_enabled
    thread.grad_enabled = True
    try:
        again = base
        for function, parameters in view._view_calls:
            again = function.apply(again, *parameters)
    finally:
        thread.grad_enabled = before
    view._base_fn = base._grad_fn
    if again._grad_fn is not None:
        give_history(view, again._grad_fn, again._output_nr)


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

    view = True

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


@tensor_method("expand")
def expand(input: Tensor, *sizes: Any) -> Tensor:
    """A view in which dimensions of size 1 are repeated to `sizes`; -1 keeps a size.

    RuntimeError where another size would have to change, or where there are too few sizes.
    """
    sizes, shape = as_shape(sizes), input.array.shape
    new = len(sizes) - len(shape)
    if new < 0:
        raise RuntimeError(
            f"expand({list(shape)}, size={list(sizes)}): the number of sizes provided "
            f"({len(sizes)}) must be greater or equal to the number of dimensions in the tensor "
            f"({len(shape)})"
        )
    target = list(sizes)
    for i, size in enumerate(sizes):
        old = shape[i - new] if i >= new else None
        if size == -1 and old is not None:
            target[i] = old
        elif size < 0 or (old not in (None, 1, size)):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({old}) "
                f"at non-singleton dimension {i}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(shape)}"
            )
    return Expand.apply(input, tuple(target))


@tensor_method("expand_as")
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """A view of `input` in the shape of `other`."""
    return expand(input, other.array.shape)


@tensor_method("broadcast_to")
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """A view of `input` broadcast to the shape `size`."""
    return expand(input, size)


@tensor_method("sum_to_size")
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """Sums to the shape `size`, which must broadcast to the shape of `input`: RuntimeError."""
    size, shape = as_shape(size), input.array.shape
    extra = len(shape) - len(size)
    if extra < 0 or any(n not in (1, shape[extra + i]) for i, n in enumerate(size)):
        raise RuntimeError(f"size {list(size)} is not expandable to size {list(shape)}.")
    return SumTo.apply(input, size)


def broadcast_shapes(*shapes: Any) -> Size:
    """The shape to which all `shapes` are broadcast; RuntimeError where they do not fit."""
    shapes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    result = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for i in range(1, len(shape) + 1):
            if shape[-i] != 1 and result[-i] not in (1, shape[-i]):
                raise RuntimeError(
                    f"Shape mismatch: objects cannot be broadcast to a single shape: "
                    f"{', '.join(str(list(s)) for s in shapes)}"
                )
            result[-i] = shape[-i] if shape[-i] != 1 else result[-i]
    return Size(result)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors as views of one common shape."""
    shape = broadcast_shapes(*(tensor.array.shape for tensor in tensors))
    return tuple(expand(tensor, shape) for tensor in tensors)


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

    def error(action, *args):
        try:
            action(*args)
        except RuntimeError as reason:
            return str(reason)

    column = tensor([[1.0], [2.0]], requires_grad=True)
    table = column.expand(-1, 3)
    print(table, table._base is column)
    # -> tensor([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]) True
    print("strides:", table.array.strides)  # -> strides: (4, 0)
    (table * tensor([1.0, 2.0, 3.0])).backward(tensor([[1.0] * 3] * 2))
    print(column.grad)  # -> tensor([[6.0], [6.0]])

    row = tensor([1.0, 2.0, 3.0])
    many = row.expand(1_000_000, 3)
    print(many.numel(), "numbers in", row.nbytes, "bytes:", many._base is row)
    # -> 3000000 numbers in 12 bytes: True
    print(row.expand_as(table).shape, row.broadcast_to((2, 2, 3)).shape)
    # -> tinytorch.Size([2, 3]) tinytorch.Size([2, 2, 3])

    print(broadcast_shapes((2, 1), (3,), 1))  # -> tinytorch.Size([2, 3])
    print([tuple(x.shape) for x in broadcast_tensors(column, row, tensor(1.0))])
    # -> [(2, 3), (2, 3), (2, 3)]
    print(many.sum_to_size(1, 3))  # -> tensor([[1000000.0, 2000000.0, 3000000.0]])

    print(error(column.expand, 5, 3).partition(" at")[0])
    # -> The expanded size of the tensor (5) must match the existing size (2)
    print(error(column.expand, 3).partition(":")[0])  # -> expand([2, 1], size=[3])
    print(error(row.sum_to_size, 2))  # -> size [2] is not expandable to size [3].
    print(error(broadcast_shapes, (2, 3), (4,)))
    # -> Shape mismatch: objects cannot be broadcast to a single shape: [2, 3], [4]

    class RowsFrom(Function):
        """The rows of a table from number i on, as a view."""

        view = True

        def forward(ctx, x, i):
            return x[i:]

        def backward(ctx, g):
            raise NotImplementedError("an index gets its gradient in a later step")

    table = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) * 1.0
    row = RowsFrom.apply(table, 1)
    element = RowsFrom.apply(row, 0)
    print("one memory:", np.shares_memory(row.array, table.array), row._base is table)
    # -> one memory: True True
    print("a view of a view:", element._base is table, len(element._view_calls))
    # -> a view of a view: True 2
    before = row.grad_fn
    new_values = table * 10.0
    table.array[...] = new_values.array  # what an in-place product does, by hand
    give_history(table, new_values.grad_fn, None)
    print("the view follows:", row, row.grad_fn is before)
    # -> the view follows: tensor([[30.0, 40.0]]) False
    print(row.grad_fn.edges[0] is table.grad_fn)  # -> True
