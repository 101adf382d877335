"""Step 46: Functions of your own

The package's own rules run on arrays, and are limited to what arrays and Tensors have in common. To
write one function for one model, there is an easier way: two static methods on Tensors, as in
PyTorch.

    class Cube(CustomFunction):
        @staticmethod
        def forward(ctx, x): ctx.save_for_backward(x); return x * x * x
        @staticmethod
        def backward(ctx, g): (x,) = ctx.saved_tensors; return g * 3.0 * x * x

This is one more kind of node, with on_tensors = True: the engine wraps each gradient for it into a
Tensor (general_step, step 40). forward is not recorded; backward is, if create_graph asks for it.
So a formula of Tensor operations can be differentiated twice with no further work. A saved output
is kept as an array and wrapped anew, as in step 32: kept as a Tensor, it would be a cycle.

Users make mistakes, so what backward returns is checked: one gradient for each argument of forward,
and None where there is none (a number, a flag). A gradient is summed back to the shape of its
input where that was broadcast, and cast to its type.

ctx has more to offer: mark_dirty for inputs that forward wrote into, mark_non_differentiable for
outputs without a gradient, and set_materialize_grads(False) to get None instead of the zeros for an
unused output. A static setup_context takes the ctx out of forward: PyTorch 2's form.

The trap is a tensor kept without save_for_backward, as ctx.x = x. It works, and nothing is checked:
if x is changed in place before backward, the gradient is wrong, without an error.

Outside the package the class is called autograd.Function.

New: CustomFunction.
Try: write x.detach().mul_(10.0) between Cube.apply(x) and grad: an error. Now keep x by ctx.x = x
in Cube: no error, and a wrong gradient.
"""

from typing import Any

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.engine import grad
from tinytorch.autograd.inplace import check_writable
from tinytorch.autograd.modes import call_through_modes, no_grad, open_modes, thread
from tinytorch.autograd.node import (
    NOTHING,
    Function,
    edge_of,
    give_history,
    new,
)
from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor, from_numpy, tensor, tensor_method, wrap
from tinytorch.core.version import count_write, next_order


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
    returns one for each argument of forward, None where there is none. With a static method
    setup_context(ctx, inputs, output), forward takes no ctx, as in PyTorch 2.
    """

    on_tensors = True
    plain = False
    dirty: tuple = ()
    non_differentiable: tuple = ()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        raise NotImplementedError("setup_context is not implemented")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        if open_modes and thread.modes:
            return call_through_modes(cls, args)
        ctx = new(cls)
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        ctx.input_likes = [(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in args]
        ctx.device = next((x.device for x in args if isinstance(x, Tensor)), cpu)
        ctx.xp = ctx.device.xp
        record = any(ctx.needs_input_grad) and thread.grad_enabled
        with no_grad():
            if cls.setup_context is not CustomFunction.setup_context:
                results = cls.forward(*args)
                cls.setup_context(ctx, args, results)
            else:
                results = cls.forward(ctx, *args)
        several = isinstance(results, tuple)
        outputs = [ctx.output(x, args) for x in (results if several else (results,))]
        if any(all(x is not y for y in outputs) for x in ctx.dirty):
            raise RuntimeError(
                "Some elements marked as dirty in forward were not returned as output."
            )
        if record and any(isinstance(x, Tensor) for x in outputs):
            ctx.record(outputs)
        ctx.forget_outputs(outputs, results if several else (results,))
        return tuple(outputs) if several else outputs[0]

    def output(ctx, result: Any, args: tuple) -> Any:
        """What forward returned, as a tensor of its own where it is one of the inputs."""
        if not isinstance(result, Tensor) or any(result is x for x in ctx.dirty):
            return result
        if any(result is x for x in args) or result.requires_grad:
            return result.detach()
        return result

    def record(ctx, outputs: list) -> None:
        ctx.order, ctx.several = next_order(), len(outputs) > 1
        tensors = [x if isinstance(x, Tensor) else None for x in outputs]
        ctx.outputs = [
            None if x is None else (x.array.shape, x.array.dtype, id(x.array)) for x in tensors
        ]
        for number, out in enumerate(tensors):
            if out is None or not out.dtype.is_floating_point:
                continue
            if not any(out.array is x.array for x in ctx.non_differentiable):
                give_history(out, ctx, number if ctx.several else None)

    def forget_outputs(ctx, outputs: list, results: tuple) -> None:
        """Saved outputs are kept as bare arrays, wrapped anew for backward: no cycle."""
        if ctx.saved is NOTHING:
            return
        kept = []
        for value in ctx.saved:
            for number, result in enumerate(results):
                if value is not None and value is result and outputs[number]._grad_fn is ctx:
                    value = (value.array, number)
                    break
            kept.append(value)
        ctx.saved = tuple(kept)

    # For forward and backward of a subclass.

    def save_for_backward(ctx, *tensors: Tensor | None) -> None:
        """Keeps tensors for backward, where they are `ctx.saved_tensors`."""
        for value in tensors:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type "
                    f"{type(value).__name__}"
                )
        ctx.saved, ctx.order = tensors, next_order()

    @property
    def saved_tensors(ctx) -> tuple:
        """What save_for_backward kept. RuntimeError where it is freed or was changed in place."""
        ctx.check_saved()
        return tuple(ctx.output_again(*x) if isinstance(x, tuple) else x for x in ctx.saved)

    def output_again(ctx, array: Any, number: int) -> Tensor:
        out = wrap(array, ctx.device)
        out._requires_grad, out._grad_fn = True, ctx
        out._output_nr = number if ctx.several else None
        return out

    def mark_dirty(ctx, *tensors: Tensor) -> None:
        """Tells that forward has changed these inputs in place; they have to be returned."""
        for x in tensors:
            before = thread.grad_enabled
            thread.grad_enabled = any(ctx.needs_input_grad)
            try:
                check_writable(x)
                if x._base is not None and thread.grad_enabled:
                    raise RuntimeError("a view cannot be marked as dirty: clone() it first")
            finally:
                thread.grad_enabled = before
            count_write(x.array)
        ctx.dirty = tensors

    def mark_non_differentiable(ctx, *tensors: Tensor) -> None:
        """Tells that no gradient flows through these outputs."""
        ctx.non_differentiable = tensors

    def set_materialize_grads(ctx, value: bool) -> None:
        """With False, backward gets None instead of zeros for an output that nobody used."""
        ctx.fill_missing = value

    # For the engine.

    def saved_arrays(ctx) -> list:
        return [x[0] if isinstance(x, tuple) else getattr(x, "array", None) for x in ctx.saved]

    def gradients(ctx, grads: list) -> tuple:
        """What the user's backward returns, checked: one for each input, in its shape and type."""
        results = type(ctx).backward(ctx, *grads)
        results = results if isinstance(results, tuple) else (results,)
        while len(results) > len(ctx.edges) and results[-1] is None:
            results = results[:-1]
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
        return grad if grad.dtype is dtype else grad.to(dtype)

    def name(ctx) -> str:
        return f"{type(ctx).__name__}Backward"


@tensor_method("__repr__")
def tensor_repr(self: Tensor) -> str:
    return f"tensor({self.tolist()})"


if __name__ == "__main__":

    class Cube(CustomFunction):
        """x^3, with the three steps in one."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3.0 * x * x

    def error(action, *args):
        try:
            action(*args)
        except (RuntimeError, TypeError) as reason:
            return f"{type(reason).__name__}: {reason}".splitlines()[0]

    x, ones = tensor([1.0, 2.0], requires_grad=True), tensor([1.0, 1.0])
    y = Cube.apply(x)
    print(y, y.grad_fn.name())  # -> tensor([1.0, 8.0]) CubeBackward
    (g,) = grad(y, x, ones, create_graph=True)
    (gg,) = grad(g, x, ones)
    print("3 x^2 and 6 x:", g, gg)  # -> 3 x^2 and 6 x: tensor([3.0, 12.0]) tensor([6.0, 12.0])

    class Scale(CustomFunction):
        """x * number, in PyTorch 2's form: forward knows no ctx."""

        @staticmethod
        def forward(x, number):
            return x * number

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.number = inputs[1]

        @staticmethod
        def backward(ctx, g):
            return g * ctx.number, None  # None: a number has no gradient

    (g,) = grad(Scale.apply(x, 5.0), x, ones)
    print("5, and the number needs none:", g)
    # -> 5, and the number needs none: tensor([5.0, 5.0])

    class Forgetful(Cube):
        """Returns a gradient too many."""

        @staticmethod
        def backward(ctx, g):
            return g, g

    print(error(Forgetful.apply(x).backward, ones).partition(" (")[0])
    # -> RuntimeError: function ForgetfulBackward returned an incorrect number of gradients

    class Halves(CustomFunction):
        """The halves of x, where they are above 1, and what is missing in the place of zeros."""

        @staticmethod
        def forward(ctx, x):
            half, above = x * 0.5, from_numpy(x.detach().numpy() > 2.0)
            ctx.mark_non_differentiable(above)
            ctx.set_materialize_grads(False)
            return half, x * 1.0, above

        @staticmethod
        def backward(ctx, *grads):
            print("grads:", grads)  # -> grads: (tensor([1.0, 1.0]), None, None)
            return grads[0] * 0.5

    half, copy, above = Halves.apply(x)
    print(half.requires_grad, copy.requires_grad, above.requires_grad)  # -> True True False
    half.backward(ones)
    print(x.grad)  # -> tensor([0.5, 0.5])

    class Increment(CustomFunction):
        """x + 1, written into x."""

        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.add_(1.0)

        @staticmethod
        def backward(ctx, g):
            return g

    c = x * 1.0
    Increment.apply(c)
    print(c, c.grad_fn.name(), c._version)  # -> tensor([2.0, 3.0]) IncrementBackward 2
