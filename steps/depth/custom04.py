"""Step custom04: Functions of your own: what is saved, and when it may be read

The engine compares the time of a call with the last write into what it has saved (step 66b), and
raises an error in the backward pass. But saved_tensors can be read at other times: by forward
itself, and by a program that looks at a graph, as y.grad_fn.saved_tensors. There it hands out
whatever is in the memory now: in the demo [10, 20], where [1, 2] was saved.

So saved_tensors makes the same check itself. For this a time has to be there before the call is
recorded: save_for_backward notes it.

save_for_backward accepts only tensors, and None for a value that is not there. A number has no
memory that could be checked; numbers and shapes become attributes: ctx.n = n.

The trap is ctx.x = x in place of save_for_backward(x). It works, and nothing is checked; and if x
is an output, the tensor and the call keep each other alive (step 32e).

(The names and the errors are PyTorch's.)

Changed: CustomFunction.save_for_backward, saved_tensors.
Try: leave out the time in save_for_backward. Which line of the demo fails, and why that one?
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
        if record:
            ctx.record(outputs, results)
        return tuple(outputs) if several else outputs[0]

    def output(ctx, result: Any, args: tuple) -> Any:
        """What forward returned, as a tensor of its own where it is one of the inputs."""
        if any(result is x for x in ctx.dirty):
            return result
        if any(result is x for x in args) or result.requires_grad:
            return result.detach()
        return result

    def record(ctx, outputs: list, results: tuple) -> None:
        """Make `outputs` the results of this call. A saved output is kept as a bare array, and
        wrapped anew for backward: kept as a tensor, it would close a cycle."""
        ctx.sequence_nr = next_sequence_nr()
        ctx.saves = ctx.roles_of((), results)
        ctx.record_outputs(outputs)
        ctx.several = len(outputs) > 1
        saved = zip(ctx.saved, ctx.saves, strict=True)
        ctx.saved = tuple(x if role is None else x.array for x, role in saved) or NOTHING

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

    def message(action, *args):
        try:
            action(*args)
        except (RuntimeError, TypeError) as error:
            return str(error).partition(". ")[0]
        return "no error"

    ones = tensor([1.0, 1.0])

    x = tensor([1.0, 2.0], requires_grad=True)

    class Square(CustomFunction):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, None)
            return ctx.saved_tensors[0] * x  # read before the call is recorded

        @staticmethod
        def backward(ctx, g):
            x, nothing = ctx.saved_tensors
            return g * 2.0 * x

    class Unchecked(Square):
        """Square, with the saved_tensors of step custom03."""

        saved_tensors = property(lambda ctx: tuple(map(ctx.saved_tensor, range(len(ctx.saved)))))

    for function in (Unchecked, Square):
        a = x * 1.0
        y = function.apply(a)
        a.mul_(10.0)  # after the call has saved a
        try:
            found = y.grad_fn.saved_tensors[0].tolist()
        except RuntimeError as error:
            found = str(error).partition(":")[0].rpartition(" has ")[2]
        print(function.__name__, found)
        # -> Unchecked [10.0, 20.0]
        # -> Square been modified by an inplace operation
    print("not overwritten:", *grad(Square.apply(x * 1.0), x, ones))
    # -> not overwritten: tensor([2.0, 4.0])

    class Exp2(CustomFunction):
        """e^x, which saves its output."""

        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    x = tensor([1.0, 2.0], requires_grad=True)
    y = Exp2.apply(x)
    print("saved as an array:", y.grad_fn.saved[0] is y.array)  # -> saved as an array: True
    y.backward(ones)
    print(message(y.backward, ones).partition(":")[0])  # saved_tensors raises
    # -> Trying to backward through the graph a second time

    class SavesNumber(Square):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3.0)

    print(message(SavesNumber.apply, x))
    # -> save_for_backward can only save variables, but argument is of type float
