"""Step custom01: Functions of your own: wrong gradients

Since step 64b a program can write its own rules. Rules have mistakes, and a wrong gradient is
passed on until something far away fails, or until nothing fails and the numbers are wrong:

    backward returns one gradient for two arguments     the second one silently gets none
    it returns the gradient of the broadcast result     .grad gets another shape than its tensor
    it returns an array, or float64 for float32         the next rule fails, or computes in float64

The engine knows what each argument looked like, so apply notes shape and dtype (input_likes), and
what backward returns is compared with it: the number of gradients, then each one's type, shape and
dtype.

Two differences are repaired, as PyTorch repairs them. A gradient with a broadcast shape is summed
back to the shape of the argument. One of another dtype is cast. Everything else is an error which
names the function and the argument. (In PyTorch the name of such a node ends without a 0:
ShiftBackward.)

The part of apply that records moves into a method of its own, which the next step changes.

Changed: CustomFunction.apply, gradients. New: record, checked, name.
Try: return (g, g, None) from Shift.backward. PyTorch accepts that; which line would have to change
here?
"""

from typing import Any

import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.modes import no_grad
from tinytorch.autograd.node import NOTHING, Function, new, sum_to
from tinytorch.core.device import cpu
from tinytorch.core.dtype import int64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.core.version import next_sequence_nr
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
        if record:
            ctx.record(results)
        return results if several else results[0]

    def record(ctx, outputs: tuple) -> None:
        """Make `outputs` the results of this call. A saved output is kept as a bare array, and
        wrapped anew for backward: kept as a tensor, it would close a cycle."""
        ctx.sequence_nr = next_sequence_nr()
        ctx.saves = ctx.roles_of((), outputs)
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
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return str(error).partition(". ")[0]

    class Shift(CustomFunction):
        """x + b. What its backward returns is set from outside."""

        answer = staticmethod(lambda g: (g, g))

        @staticmethod
        def forward(ctx, x, b):
            return x + b

        @staticmethod
        def backward(ctx, g):
            return Shift.answer(g)

    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    b = tensor([10.0, 20.0], requires_grad=True)

    class Unchecked(Shift):
        """Shift, with CustomFunction.gradients as it was."""

        def gradients(ctx, grads):
            return type(ctx).backward(ctx, *grads)

    Unchecked.apply(x, b).sum().backward()
    print("unchecked:", list(b.shape), "has a gradient of shape", list(b.grad.shape))
    # -> unchecked: [2] has a gradient of shape [2, 2]
    x.grad = b.grad = None
    Shift.apply(x, b).sum().backward()
    print("summed back:", b.grad)  # b was broadcast
    # -> summed back: tensor([2.0, 2.0])

    print(Shift.apply(x, b).grad_fn.name())  # -> ShiftBackward

    Shift.answer = staticmethod(lambda g: (g.double(), None))
    print("cast:", grad(Shift.apply(x, b).sum(), x)[0].dtype)  # -> cast: tinytorch.float32

    for answer in (
        lambda g: g,
        lambda g: (g, 1.0),
        lambda g: (g.sum(), g),
    ):
        Shift.answer = staticmethod(answer)
        print(message(Shift.apply(x, b).sum().backward).partition(" returned ")[2])
    # -> an incorrect number of gradients (expected 2, got 1)
    # -> a float as gradient 1, not a Tensor or None
    # -> an invalid gradient at index 0 - got [] but expected shape compatible with [2, 2]

    class Exp2(CustomFunction):
        """e^x, from its own result: what is saved is an output."""

        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    s = tensor(1.0, requires_grad=True)
    (first,) = grad(Exp2.apply(s), s, create_graph=True)
    print(f"{first.item():.5f} {grad(first, s)[0].item():.5f}")  # -> 2.71828 2.71828

    class Split(CustomFunction):
        """x and 2 x: several outputs."""

        @staticmethod
        def forward(ctx, x):
            return x * 1.0, x * 2.0

        @staticmethod
        def backward(ctx, g1, g2):
            return g1 + g2 * 2.0

    one, two = Split.apply(s)
    print(*grad(one * two, s))  # -> tensor(4.0)
