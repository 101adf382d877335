"""The Function: one call of an operation, and the node that it leaves in the graph."""

import copy
from collections.abc import Sequence
from typing import Any

from tinytorch.autograd.modes import call_through_modes, inference_seen, open_modes, thread
from tinytorch.core.device import Device, cpu
from tinytorch.core.tensor import Tensor, tensor_method, wrap
from tinytorch.core.version import next_order, storage_of, version_of, written_since

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
