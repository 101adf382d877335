"""Step custom06: Functions of your own: once_differentiable, setup_context

Some formulas cannot be differentiated again, because they compute with NumPy or another library:
x.detach().numpy(). With create_graph their gradient is right, but it is a constant: the part that
it adds to a second derivative is missing, without an error. The demo gets -1 / x^2 where 1 / x^2 is
right. @once_differentiable runs such a backward without recording, and passes the result through a
node that raises when it is differentiated: OnceDifferentiable.

The rest is PyTorch's interface, which programs use:

    setup_context(ctx, inputs, output)    forward takes no ctx and is an ordinary function; what
                                          backward needs is saved here afterwards
    ctx.set_materialize_grads(False)      backward gets None, not zeros, for an unused output
    return g, None, None                  more Nones than arguments are accepted, at the end

And a mode (step 65d) sees these calls as it sees all others. In PyTorch the class is called
torch.autograd.Function; here this name is given in autograd/function.py, which only imports.

Changed: apply, gradients. New: OnceDifferentiable, once_differentiable, setup_context. Finished:
autograd/custom.py, autograd/function.py.
Try: remove @once_differentiable from Reciprocal. Which call raises then, and why not in Silent?
"""

import functools
from collections.abc import Callable
from typing import Any

import tinytorch.autograd.hooks  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.engine import edge_of
from tinytorch.autograd.inplace import check_writable
from tinytorch.autograd.modes import FunctionMode, call_through_modes, no_grad, set_grad_enabled
from tinytorch.autograd.node import NOTHING, Function, new, sum_to
from tinytorch.core.device import cpu
from tinytorch.core.dtype import int64
from tinytorch.core.state import open_modes, state
from tinytorch.core.tensor import Tensor, from_numpy, tensor, tensor_method
from tinytorch.core.version import bump_version, next_sequence_nr
from tinytorch.ops.arithmetic import scaled
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
    returns one for each argument of forward, None where there is none. With a static method
    setup_context(ctx, inputs, output), forward takes no ctx, as in PyTorch 2.
    """

    takes_tensors = True
    dirty: tuple = ()
    non_differentiable: tuple = ()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        raise NotImplementedError("setup_context is not implemented")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        if open_modes and state.modes:
            return call_through_modes(cls, args)
        ctx = new(cls)
        ctx.edges = [edge_of(x) if isinstance(x, Tensor) else None for x in args]
        ctx.input_likes = [(x.shape, x.dtype) if isinstance(x, Tensor) else None for x in args]
        ctx.device = next((x.device for x in args if isinstance(x, Tensor)), cpu)
        ctx.xp = ctx.device.xp
        record = any(ctx.needs_input_grad) and state.grad_enabled
        with no_grad():
            if cls.setup_context is not CustomFunction.setup_context:
                results = cls.forward(*args)
                cls.setup_context(ctx, args, results)
            else:
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

    def set_materialize_grads(ctx, value: bool) -> None:
        """With False, backward gets None instead of zeros for an output that was not used."""
        ctx.materialize_grads = value

    # For the engine.

    def saved_arrays(ctx) -> list:
        return [getattr(x, "array", x) for x in ctx.saved]

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


class OnceDifferentiable(Function):
    """Pass a gradient on, and raise if it is differentiated again."""

    def forward(ctx, x: Any) -> Any:
        return x

    def backward(ctx, g: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def once_differentiable(backward: Callable) -> Callable:
    """Decorate a backward whose formula cannot be differentiated: a second derivative raises."""

    @functools.wraps(backward)
    def call(ctx, *grads: Tensor):
        with no_grad():
            results = backward(ctx, *grads)
        if not state.grad_enabled:
            return results
        results = results if isinstance(results, tuple) else (results,)
        marked = []
        for result in results:
            if isinstance(result, Tensor):
                result = OnceDifferentiable.apply(result.detach().requires_grad_())
            marked.append(result)
        return tuple(marked)

    return call


if __name__ == "__main__":

    def message(action, *args):
        try:
            action(*args)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            return str(error).partition(". ")[0]

    class Reciprocal(CustomFunction):
        """1 / x with a backward that goes through NumPy."""

        @staticmethod
        def forward(ctx, x):
            y = 1.0 / x
            ctx.save_for_backward(y)
            return y

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return from_numpy(-g.numpy() * y.numpy() ** 2)

    class Silent(Reciprocal):
        """Reciprocal without the decorator."""

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return from_numpy(-g.detach().numpy() * y.detach().numpy() ** 2)

    x = tensor([2.0, 4.0], requires_grad=True)
    ones = tensor([1.0, 1.0])
    (g,) = grad(Silent.apply(x), x, ones, create_graph=True)
    print("d(x g)/dx, should be 1 / x^2:", *grad(x * g, x, ones))
    # -> d(x g)/dx, should be 1 / x^2: tensor([-0.25, -0.0625])
    print(*grad(Reciprocal.apply(x), x, ones))  # -> tensor([-0.25, -0.0625])
    (g,) = grad(Reciprocal.apply(x), x, ones, create_graph=True)
    print(g, message(g.backward, ones).partition(" a function")[0])
    # -> tensor([-0.25, -0.0625]) trying to differentiate twice

    class Scale(CustomFunction):
        """k x and x, in PyTorch's newer style."""

        @staticmethod
        def forward(x, k):
            return x * k, x * 1.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, g, unused):
            print("unused:", unused)  # -> unused: None
            return g * ctx.k, None, None

    scaled, _ = Scale.apply(x, 3.0)
    print(*grad(scaled, x, ones))  # -> tensor([3.0, 3.0])
    print(message(CustomFunction.setup_context, None, (), None))
    # -> setup_context is not implemented

    class Names(FunctionMode):
        """Prints the name of each call."""

        def call(self, function, args):
            print("calls", function.__name__)
            return function.apply(*args)

    with Names():
        Reciprocal.apply(x)
    # -> calls Reciprocal
