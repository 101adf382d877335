"""Step custom05: Functions of your own: results without a derivative

Not each result of a forward can have a gradient: a mask, the positions of a maximum, a text that
says what happened. So far all results of a recorded call get its history. A mask then requires a
gradient, and programs that look at it carry a graph on; and a text is an error, since a text cannot
hold a history.

    ctx.mark_non_differentiable(mask)    the mask is a result without history
    a result that is not a tensor        is handed on as it is

backward still gets one gradient for each result, in order: zeros or None for those without one.

The trap is a mask that is saved as well. A saved result is kept as an array, and gets its history
back when it is read (step 32e). A result without history has none to get back, so it is kept as the
tensor that it is.

(PyTorch: ctx.mark_non_differentiable. It hands on what is not a tensor, too.)

Changed: CustomFunction.apply, output, record. New: mark_non_differentiable.
Try: in Halves mark `half` as well. What does grad(half, x, ones) say then?
"""

from typing import Any

import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.inplace import check_writable
from tinytorch.autograd.modes import no_grad, set_grad_enabled
from tinytorch.autograd.node import NOTHING, Function, new, sum_to
from tinytorch.core.device import cpu
from tinytorch.core.dtype import int64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import bump_version, next_sequence_nr
from tinytorch.ops.broadcast import Expand
from tinytorch.ops.conversion import cast


class Exp(Function):
    """y = e^x;   dy/dx = y."""

    def forward(ctx, x: Any) -> Any:
        y = ctx.xp.exp(x)
        ctx.save_for_backward(y)
        return y

    def backward(ctx, g: Any) -> Any:
        return g * ctx.saved[0]


@tensor_method("exp")
def exp(input: Tensor) -> Tensor:
    return Exp.apply(input)


class Sum(Function):
    """y = x_1 + ... + x_n;   dy/dx_i = 1: the gradient is repeated."""

    def forward(ctx, x: Any) -> Any:
        ctx.shape = x.shape
        return sum_to(x, ())

    def backward(ctx, g: Any) -> Any:
        return ctx.call(Expand, g, ctx.shape)


@tensor_method("sum")
def sum(input: Tensor) -> Tensor:
    """The sum of all elements; integers and booleans are added up as int64."""
    return Sum.apply(input if input.dtype.is_floating_point else cast(input, int64))


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


class CustomFunction(Function):
    """Base of user-defined differentiable functions; its public name is autograd.Function.

        class Exp(Function):
            @staticmethod
            def forward(ctx, x):
                y = x.exp()
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx, grad):
                (y,) = ctx.saved_tensors
                return grad * y

        y = Exp.apply(x)

    Both work on Tensors; forward is not recorded. backward gets one gradient for each output and
    returns one for each argument of forward, None where there is none.
    """

    takes_tensors = True
    dirty: tuple = ()
    non_differentiable: tuple = ()

    @classmethod
    def apply(cls, *args: Any) -> Any:
        ctx = new(cls)
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        ctx.input_likes = [(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in args]
        ctx.device = next((x.device for x in args if isinstance(x, Tensor)), cpu)
        ctx.xp = ctx.device.xp
        record = any(ctx.needs_input_grad) and state.grad_enabled
        with no_grad():
            results = cls.forward(ctx, *args)
        several = isinstance(results, tuple)
        results = results if several else (results,)
        outputs = [ctx.output(x, args) for x in results]
        if any(all(x is not y for y in outputs) for x in ctx.dirty):
            raise RuntimeError(
                "Some elements marked as dirty in forward were not returned as output."
            )
        if record and any(isinstance(x, Tensor) for x in outputs):
            ctx.record(outputs, results)
        return tuple(outputs) if several else outputs[0]

    def output(ctx, result: Any, args: tuple) -> Any:
        """What forward returned, as a tensor of its own where it is one of the inputs."""
        if not isinstance(result, Tensor) or any(result is x for x in ctx.dirty):
            return result
        if any(result is x for x in args) or result.requires_grad:
            return result.detach()
        return result

    def record(ctx, outputs: list, results: tuple) -> None:
        """Make `outputs` the results of this call. A saved output is kept as a bare array, and
        wrapped anew for backward: kept as a tensor, it would close a cycle."""
        ctx.sequence_nr = next_sequence_nr()
        ctx.saves = ctx.roles_of((), results)
        ctx.record_outputs([x if isinstance(x, Tensor) else None for x in outputs])
        for x in outputs:
            if any(x is y for y in ctx.non_differentiable):
                x._requires_grad, x._edge = False, None
        ctx.several = len(outputs) > 1
        saved = list(ctx.saved)
        for number, role in enumerate(ctx.saves):
            if role is not None and saved[number] is not None and outputs[~role]._edge is not None:
                saved[number] = saved[number].array
        ctx.saved = tuple(saved) or NOTHING

    # For forward and backward of a subclass.

    def save_for_backward(ctx, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, where they are `ctx.saved_tensors`."""
        for value in tensors:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type "
                    f"{type(value).__name__}"
                )
        ctx.saved, ctx.sequence_nr = tensors, next_sequence_nr()

    @property
    def saved_tensors(ctx) -> tuple:
        """What save_for_backward kept.

        Raises:
            RuntimeError: the values have been freed, or were changed in place since.
        """
        ctx.check_saved()
        return tuple(ctx.saved_tensor(i) for i in range(len(ctx.saved)))

    def saved_tensor(ctx, number: int) -> Any:
        """A saved output comes from this node; other saved tensors are as the user saved them."""
        value = ctx.saved[number]
        return value if isinstance(value, Tensor) else Function.saved_tensor(ctx, number)

    def mark_dirty(ctx, *tensors: Tensor) -> None:
        """Declare that forward has changed these inputs in place; it has to return them."""
        for x in tensors:
            with set_grad_enabled(any(ctx.needs_input_grad)):
                check_writable(x)
                if x._view is not None and state.grad_enabled:
                    raise RuntimeError("a view cannot be marked as dirty: clone() it first")
            bump_version(x.array)
        ctx.dirty = tensors

    def mark_non_differentiable(ctx, *tensors: Tensor) -> None:
        """Declare that no gradient flows through these outputs."""
        ctx.non_differentiable = tensors

    # For the engine.

    def saved_arrays(ctx) -> list:
        return [getattr(x, "array", x) for x in ctx.saved]

    def gradients(ctx, grads: list) -> tuple:
        """What the user's backward returns, checked: one for each input, in its shape and type."""
        results = type(ctx).backward(ctx, *grads)
        results = results if isinstance(results, tuple) else (results,)
        if len(results) != len(ctx.edges):
            raise RuntimeError(
                f"function {ctx.name()} returned an incorrect number of gradients (expected "
                f"{len(ctx.edges)}, got {len(results)})"
            )
        return tuple(ctx.checked(i, result) for i, result in enumerate(results))

    def checked(ctx, number: int, grad: Any) -> Tensor | None:
        if grad is None or ctx.edges[number] is None:
            return None
        if not isinstance(grad, Tensor):
            raise RuntimeError(
                f"function {ctx.name()} returned a {type(grad).__name__} as gradient {number}, "
                f"not a Tensor or None"
            )
        shape, dtype = ctx.input_likes[number]
        if grad.shape != shape:
            try:
                grad = grad.sum_to_size(shape)
            except RuntimeError:
                raise RuntimeError(
                    f"Function {ctx.name()} returned an invalid gradient at index {number} - got "
                    f"{list(grad.shape)} but expected shape compatible with {list(shape)}"
                ) from None
        return grad.to(dtype)

    def name(ctx) -> str:
        return f"{type(ctx).__name__}Backward"


if __name__ == "__main__":
    ones = tensor([1.0, 1.0])

    x = tensor([1.0, 2.0], requires_grad=True)

    class Clipped(CustomFunction):
        """x below a limit, and a mask of ones and zeros that says where."""

        @staticmethod
        def forward(ctx, x, limit):
            mask = tensor([float(value < limit) for value in x.tolist()])
            ctx.save_for_backward(mask, None)
            ctx.mark_non_differentiable(mask)
            return x * ctx.saved_tensors[0], mask, "a note"

        @staticmethod
        def backward(ctx, g, g_mask, g_note):
            mask, nothing = ctx.saved_tensors
            return g * mask, None

    kept, mask, note = Clipped.apply(x, 1.5)
    print(kept.requires_grad, mask.requires_grad, note)  # -> True False a note
    print(*grad(kept, x, ones))  # -> tensor([1.0, 0.0])

    class Careless(Clipped):
        """Clipped, with a mask that is a result like any other."""

        def mark_non_differentiable(ctx, *tensors):
            pass

    print("careless:", Careless.apply(x, 1.5)[1].requires_grad)  # -> careless: True

    class Halves(CustomFunction):
        """x / 2, and its sign, which is saved."""

        @staticmethod
        def forward(ctx, x):
            half, sign = x * 0.5, tensor([float(value > 0) for value in x.tolist()])
            ctx.save_for_backward(half, sign)
            ctx.mark_non_differentiable(sign)
            return half, sign

        @staticmethod
        def backward(ctx, g, g_sign):
            half, sign = ctx.saved_tensors
            return g * 0.5 * sign

    half, sign = Halves.apply(x)
    kept = [type(value).__name__ for value in half.grad_fn.saved]
    print(kept, *grad(half, x, ones))  # -> ['ndarray', 'Tensor'] tensor([0.5, 0.5])
