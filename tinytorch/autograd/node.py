"""The Function: one call of an operation, and the node that it leaves in the graph."""

import copy
from collections.abc import Sequence
from typing import Any

from tinytorch.autograd.errors import translate_error
from tinytorch.autograd.modes import call_through_modes
from tinytorch.autograd.views import record_view
from tinytorch.core.device import Device, cpu
from tinytorch.core.state import open_modes, state
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import modified_since, next_sequence_nr, version_of

new = object.__new__
NOTHING = ()  # what a call has saved that saved nothing


def sum_to(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum `array` over the dimensions along which `shape` is broadcast to the array's shape."""
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
    writable = True  # of a view: each element shows one of the input, and no two the same one
    whole = False  # a compiler takes it as one operation, and does not look into its formulas
    takes_tensors = False  # backward takes Tensors, always (user-defined functions)

    # Of one call; most calls keep these.
    xp: Any = cpu.xp
    device: Device = cpu
    sequence_nr: int
    edges: Sequence  # for each argument (node or leaf, output number), or None without gradient
    outputs: Sequence  # (shape, dtype) of each result
    several = False  # the results came as a tuple
    saved: Any = NOTHING
    # The role of each saved value: i for input i, ~k for output k, None for a constant. A class
    # whose roles never change declares them; for the others they are found when a call is recorded.
    saves: Sequence[int | None] | None = None
    input_shapes: list | None = None  # where an input was broadcast
    hooks: dict | None = None  # {output number: hooks on the gradient of this output}
    materialize_grads = True  # backward gets zeros for an output that was not used
    plain = True  # backward takes one array, and returns what the edges need: the usual case

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward on the arrays of `args`, and record the call if a gradient may be needed."""
        if open_modes and state.modes:
            return call_through_modes(cls, args)
        ctx = new(cls)
        enabled = state.grad_enabled  # before forward: a new thread's state silences NumPy
        device = edge = edge_b = broadcast = None
        if len(args) <= 2 and isinstance(args[0], Tensor):
            # The loop below, written out: with it, a small product takes a quarter longer.
            a = args[0]
            device = a.device
            if a._view is not None:
                a._view.refresh(a)
            if a._requires_grad:
                edge = a._edge or (a, 0)
            if len(args) == 1:
                arrays, ctx.edges = (a.array,), (edge,)
            else:
                b = args[1]
                if isinstance(b, Tensor):
                    if b.device is not device:
                        return cls.apply(*on_one_device(args))
                    if b._view is not None:
                        b._view.refresh(b)
                    if b._requires_grad:
                        edge_b = b._edge or (b, 0)
                    b = b.array
                    broadcast = b.shape != a.array.shape
                arrays, ctx.edges = (a.array, b), (edge, edge_b)
            needed = edge is not None or edge_b is not None
        else:
            arrays, edges, needed, broadcast = [], [], False, True
            for x in args:
                edge = None
                if isinstance(x, Tensor):
                    if x.device is not device:
                        if device is not None:
                            return cls.apply(*on_one_device(args))
                        device = x.device
                    if x._view is not None:
                        x._view.refresh(x)
                    if x._requires_grad:
                        needed, edge = True, x._edge or (x, 0)
                    x = x.array
                arrays.append(x)
                edges.append(edge)
            ctx.edges = edges
        if device is not cpu:
            if device is None:
                name, kind = cls.__name__.lower(), type(args[0]).__name__
                raise TypeError(
                    f"{name}(): argument 'input' (position 1) must be Tensor, not {kind}"
                )
            ctx.device, ctx.xp = device, device.xp
        try:
            result = cls.forward(ctx, *arrays)
        except MemoryError as error:
            raise RuntimeError(f"can't allocate memory: {error}") from error
        except (ValueError, TypeError) as error:
            translated = cls.translate_error(error, arrays)
            if translated is None:
                raise
            raise translated from error
        record = needed and enabled and cls.differentiable
        if record:
            ctx.sequence_nr = next_sequence_nr()
        if result.__class__ is tuple:
            return ctx.several_outputs(result, record, args)
        device = ctx.device  # a transfer has changed it
        array = result if result.__class__ is device.array_type else ctx.as_array(result)
        out = new(Tensor)  # and filled as by wrap
        out.array, out.device, out._view = array, device, None
        if record:
            out._requires_grad, out._edge = True, (ctx, 0)
            ctx.outputs = ((array.shape, array.dtype),)
            if ctx.saves is None and ctx.saved is not NOTHING:
                ctx.saves = ctx.roles_of(arrays, (array,))
            if cls.elementwise and broadcast:
                ctx.note_shapes(arrays, array.shape)
        else:
            out._requires_grad, out._edge = False, None
        if cls.view:
            record_view(out, args[0], ctx.view_call(0, args))
        return out

    def save_for_backward(ctx, *values: Any) -> None:
        """Keep arrays (or numbers, or None) for backward, where they are `ctx.saved`."""
        ctx.saved = values

    def as_array(ctx, result: Any) -> Any:
        """A 0-d result as an array: NumPy gives a scalar object for it, also to what is saved."""
        array = ctx.xp.asarray(result)
        if ctx.saved is not NOTHING:
            ctx.saved = tuple(array if value is result else value for value in ctx.saved)
        return array

    def several_outputs(ctx, results: tuple, record: bool, args: tuple) -> tuple:
        """The tensors of a call with several results. Those of integer type get no gradient."""
        arrays = [ctx.as_array(result) for result in results]
        outs = [wrap(array, ctx.device) for array in arrays]
        if record:
            ctx.record_outputs(outs)
            if ctx.saves is None and ctx.saved is not NOTHING:
                inputs = [x.array if isinstance(x, Tensor) else x for x in args]
                ctx.saves = ctx.roles_of(inputs, arrays)
        if ctx.view:
            for number, out in enumerate(outs):
                record_view(out, args[0], ctx.view_call(number, args))
        return tuple(outs)

    def record_outputs(ctx, outs: Sequence) -> None:
        """Make `outs` the results of this call: tensors, or None for what is not one. Those of
        integer type get no gradient."""
        ctx.several, ctx.plain = True, False
        ctx.outputs = [None if x is None else (x.array.shape, x.array.dtype) for x in outs]
        for number, out in enumerate(outs):
            if out is not None and out.dtype.is_floating_point:
                out._requires_grad, out._edge = True, (ctx, number)

    def roles_of(ctx, inputs: Sequence, outputs: Sequence) -> list:
        """Which input or output each saved value is. All of them are alive now, so that `is` tells
        them apart; later an array may be replaced, or its id used again."""
        roles = []
        for value in ctx.saved:
            role = next((i for i, x in enumerate(inputs) if x is value), None)
            if role is None:
                role = next((~k for k, y in enumerate(outputs) if y is value), None)
            roles.append(role)
        return roles

    def view_call(ctx, number: int, args: tuple) -> tuple:
        """The (Function, parameters) that leads from the first input to view `number`."""
        return type(ctx), args[1:]

    def note_shapes(ctx, arrays: Sequence, shape: tuple[int, ...]) -> None:
        """Remember the shapes of the inputs if one that needs a gradient was broadcast."""
        for edge, x in zip(ctx.edges, arrays):  # noqa: B905 (strict= would take longer)
            if edge is not None and x.shape != shape:
                ctx.input_shapes, ctx.plain = [getattr(x, "shape", None) for x in arrays], False

    def sum_back(ctx, grads: tuple) -> list:
        """The gradients of inputs that were broadcast, summed where these were repeated."""
        sums = []
        for grad, shape in zip(grads, ctx.input_shapes, strict=False):
            if grad is not None and shape is not None and grad.shape != shape:
                as_tensor = isinstance(grad, Tensor)
                grad = grad.sum_to_size(shape) if as_tensor else sum_to(grad, shape)
            sums.append(grad)
        return sums

    @classmethod
    def translate_error(cls, error: Exception, arrays: Sequence) -> Exception | None:
        """PyTorch's error in place of one that the array library raised; None for other errors."""
        return translate_error(error, cls.__name__, arrays)

    # For forward and backward of a subclass.

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
        inner.edges = (None,) * (1 + len(parameters))
        return function.forward(inner, x, *parameters)

    def forward(ctx, *args: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no forward")

    def backward(ctx, *grads: Any) -> Any:
        raise NotImplementedError(f"{type(ctx).__name__} has no backward")

    # For the engine.

    def gradients(ctx, grads: list) -> Any:
        """What backward returns, on Tensors, with what was saved as Tensors of the graph."""
        twin = copy.copy(ctx)
        twin.xp = Tensor
        twin.saved = tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))
        return twin.backward(*grads)

    def saved_tensor(ctx, number: int) -> Any:
        """Saved value `number` as the tensor that it was. It is wrapped anew: had the call saved
        its output tensor, the two would keep each other alive."""
        value, role = ctx.saved[number], None if ctx.saves is None else ctx.saves[number]
        if not hasattr(value, "dtype"):
            return value
        out = wrap(ctx.device.xp.asarray(value), ctx.device)
        edge = None if role is None else ctx.edges[role] if role >= 0 else (ctx, ~role)
        if edge is not None:
            out._requires_grad, out._edge = True, edge
        return out

    def saved_arrays(ctx) -> Any:
        return ctx.saved

    def check_saved(ctx) -> None:
        """Raise RuntimeError if a saved array was written in place since."""
        for value in ctx.saved_arrays():
            if hasattr(value, "base") and modified_since(value, ctx.sequence_nr):
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
        return tuple(
            (None, 0) if edge is None else (as_node(edge[0]), edge[1]) for edge in ctx.edges
        )

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


def as_node(end: Any) -> Any:
    """The node at the end of an edge; a leaf is shown as AccumulateGrad."""
    return AccumulateGrad(end) if isinstance(end, Tensor) else end


def on_one_device(args: tuple) -> list:
    """Bring 0-d CPU tensors to the device of the others.

    Raises:
        RuntimeError: the tensors are on different devices otherwise.
    """
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
