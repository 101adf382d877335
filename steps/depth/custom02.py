"""Step custom02: A function that returns its input

A forward may return one of its inputs as it is: a Function that changes nothing on the way there,
and scales or reverses the gradient on the way back. The result is then the *same* tensor, and step
custom01 records the call in it. So the leaf x of the demo becomes the result of a function of
itself: it is not a leaf any more, and x.grad stays None.

    until now    x = Same.apply(x)         y is x, and x.grad_fn is the call
    from now on  y, on the memory of x     y.grad_fn is the call, x is as it was

So `output` replaces an input that is returned by another tensor on the same memory. It does so for
any tensor with a history: forward may return a weight that it did not get as an argument, and that
must not lose its place in the graph either.

The trap is what the call has saved. save_for_backward(y) means the tensor that forward returned,
and roles_of looks for it among the results. So record gets both: the results, as forward returned
them, and the outputs, which the program gets.

(PyTorch returns a view of the input in this case.)

Changed: CustomFunction.apply, record. New: CustomFunction.output.
Try: leave `or result.requires_grad` out of output. Which line of the demo notices?
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
        outputs = [ctx.output(x, args) for x in results]
        if record:
            ctx.record(outputs, results)
        return tuple(outputs) if several else outputs[0]

    def output(ctx, result: Any, args: tuple) -> Any:
        """What forward returned, as a tensor of its own where it is one of the inputs."""
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

    class Tripled(Same):
        """A result that forward has made is handed on as it is."""

        @staticmethod
        def forward(ctx, x):
            return x * 3.0

    print(Tripled.apply(x), *grad(Tripled.apply(x), x, ones))
    # -> tensor([3.0, 6.0]) tensor([2.0, 2.0])

    w = tensor([7.0, 7.0], requires_grad=True)

    class Other(Same):
        """A tensor that is not an argument, and has its own place in a graph."""

        @staticmethod
        def forward(ctx, x):
            return w

    print("another tensor:", Other.apply(x) is w, w.is_leaf)  # -> another tensor: False True

    class SavesResult(Same):
        """x as it is, and saved: as an array, since this call has made it."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x

    y = SavesResult.apply(x)
    print(y.grad_fn.saves, *grad(y, x, ones))  # -> [-1] tensor([1.0, 2.0])
