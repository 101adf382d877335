"""Step custom03: Functions of your own: an input that is changed

A forward may write into an input, for example with NumPy, to save memory. Then x has new elements
and its old history: the mistake of step 66c. In the demo a doubles its elements, and its
gradient is still 1 where it should be 2. And a write by NumPy is not counted, so that a product
which has saved the old elements does not notice (step 66b).

ctx.mark_dirty(x) declares the write. It does what in-place methods do (steps 66c, inplace03):

    before    the write is checked: a leaf, or an expanded tensor, is refused
              it is counted: what has saved the old elements raises an error in backward
    after     x, which forward has to return, becomes the output: it takes the call as its history

The check runs with recording switched on, if the call will be recorded: forward runs under no_grad,
where any write is allowed. A view is refused here, because its base would have to take the history
too (step 67c), and our call is not CopySlices.

The trap is to mark x and return something else. Then x has changed, and no call says so. This is an
error.

(PyTorch: ctx.mark_dirty, and an error for the trap. It takes a view, and gives its base the
history.)

Changed: CustomFunction.apply, output. New: mark_dirty.
Try: at the end, call Doubled.apply(c) for c = x * 1.0, with and without ctx.mark_dirty(x), and
print c and grad(c, x, ones).
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
        ctx.saved = tensors

    @property
    def saved_tensors(ctx) -> tuple:
        """What save_for_backward kept."""
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
        except RuntimeError as error:
            return str(error).partition(". ")[0]
        return "no error"

    ones = tensor([1.0, 1.0])

    x = tensor([1.0, 2.0], requires_grad=True)

    class Silent(CustomFunction):
        """2 x, written into x by NumPy. Nothing is declared."""

        @staticmethod
        def forward(ctx, x):
            x.numpy()[...] *= 2.0
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    a = x * 1.0
    product = a * a  # of [1, 2], with the derivative [2, 4]
    Silent.apply(a)
    print("wrong:", a, *grad(a, x, ones, retain_graph=True))
    # -> wrong: tensor([2.0, 4.0]) tensor([1.0, 1.0])
    print("d(a * a), wrong:", *grad(product, x, ones))  # -> d(a * a), wrong: tensor([4.0, 8.0])

    class Doubled(CustomFunction):
        """2 x, written into x by NumPy."""

        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            x.numpy()[...] *= 2.0
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    a = x * 1.0
    product = a * a  # saves a
    b = Doubled.apply(a)
    print("right:", b is a, *grad(b, x, ones))  # -> right: True tensor([2.0, 2.0])
    print(message(product.backward, ones).partition(":")[0].rpartition(" has ")[2])
    # -> been modified by an inplace operation
    view = (x * 1.0).expand(2, 2)
    print(message(Doubled.apply, view).partition(":")[0])
    # -> unsupported operation

    class Lost(Doubled):
        """Says that x is dirty, and returns something else."""

        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2.0

    print(message(Lost.apply, x * 1.0))
    # -> Some elements marked as dirty in forward were not returned as output.
    print(message(Doubled.apply, (x * 1.0).expand(1, 2)))
    # -> a view cannot be marked as dirty: clone() it first
