"""Step 52b: Functions of your own: inputs returned or changed

A forward may do three things that break the graph, each without an error so far.

It returns an input as it is. The result is then the *same* tensor, and recording the call gives the
input a history: the leaf x of the demo becomes the result of a function of itself. So an input, or
any other tensor with a history, is replaced by another tensor on the same memory (output).

It writes into an input. x then has new elements and its old history, as in step 49c; and a write by
NumPy is not counted. ctx.mark_dirty(x) declares the write: it is counted and checked as in step 49e
(with recording on for the check: forward runs under no_grad, where any write is allowed), and x,
which forward has to return, becomes the output. A view is refused, because its base would have to
take the history too (step 50d).

It returns something that has no derivative: a mask, or the positions of a maximum. For this there
is ctx.mark_non_differentiable(mask): the result then gets no history.

save_for_backward accepts only tensors and None, and notes the time. saved_tensors compares it with
the time of the last write (step 49b); forward itself may read saved_tensors, too.

The names are PyTorch's.

Changed: apply, record, save_for_backward, saved_tensors. New: mark_dirty, mark_non_differentiable,
output.
Try: at the end, call Doubled.apply(c) for c = x * 1.0, with and without ctx.mark_dirty(x), and
print c and grad(c, x, ones).
"""

from typing import Any

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.engine import edge_of, grad
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


if __name__ == "__main__":

    def message(action, *args):
        try:
            action(*args)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return str(error).partition(". ")[0]
        return "no error"

    ones = tensor([1.0, 1.0])

    class Same(CustomFunction):
        """x as it is; the gradient is doubled on its way back."""

        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 2.0

    class AsItWas(Same):
        """Same, with the result that forward has returned."""

        def output(ctx, result, args):
            return result

    x = tensor([1.0, 2.0], requires_grad=True)
    print("until now:", AsItWas.apply(x) is x, x.is_leaf)  # -> until now: True False
    x = tensor([1.0, 2.0], requires_grad=True)
    y = Same.apply(x)
    print(y is x, x.is_leaf, *grad(y, x, ones))  # -> False True tensor([2.0, 2.0])

    w = tensor([7.0, 7.0], requires_grad=True)

    class Other(Same):
        """A tensor that is not an argument, and has its own place in a graph."""

        @staticmethod
        def forward(ctx, x):
            return w

    print("another tensor:", Other.apply(x) is w, w.is_leaf)  # -> another tensor: False True

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
    print(b is a, *grad(b, x, ones))  # -> True tensor([2.0, 2.0])
    print(message(product.backward, ones).partition(":")[0].rpartition(" has ")[2])
    # -> been modified by an inplace operation
    view = (x * 1.0).expand(2, 2)
    print(message(Doubled.apply, view).partition(":")[0])
    # -> unsupported operation

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

    y = Exp2.apply(x)
    print("saved as an array:", y.grad_fn.saved[0] is y.array)  # -> saved as an array: True
    y.backward(ones)
    print(message(y.backward, ones).partition(":")[0])  # saved_tensors raises
    # -> Trying to backward through the graph a second time

    class Lost(Doubled):
        """Says that x is dirty, and returns something else."""

        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2.0

    class SavesNumber(Same):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3.0)

    print(message(Lost.apply, x * 1.0))
    # -> Some elements marked as dirty in forward were not returned as output.
    print(message(SavesNumber.apply, x))
    # -> save_for_backward can only save variables, but argument is of type float
    print(message(Doubled.apply, (x * 1.0).expand(1, 2)))
    # -> a view cannot be marked as dirty: clone() it first
