"""Step 47: Is the formula right?

A rule that you wrote runs, and returns numbers of the right shape. Is the formula right? Step 10
compared backward with differences, one number at a time. Now a function has many inputs with many
elements, and its derivative is a table J, the Jacobian: all dy_i/dx_j.

To compare all of J takes one backward pass for each output element. gradcheck takes a single one:
it draws a random vector v, called a cotangent, and computes the same numbers in two ways:

    v^T J                                     backward, started with v
    (v . f(x + e) - v . f(x - e)) / (2 e)     for each element of each input, moved by e

A wrong entry of J can hide only if another error cancels it for just this v. With v = 1 that does
happen: a backward that mixes up the places still has the right sums. The demo has an example.

The difference of two almost equal numbers loses digits: with e = 1e-6, float64 keeps about ten of
its sixteen, float32 hardly one of its seven. So the inputs have to be float64.

The gradient is a function as well, of the inputs and of v. gradgradcheck hands this function to
gradcheck: a check of the second derivative needs no more.

The trap is a backward that leaves the Tensors, for NumPy, say. Its first derivative is right, but
the second is silently 0, since the graph has not seen the formula. gradgradcheck finds it, and
@once_differentiable makes it an error.

What a user needs is public under PyTorch's names, in a module that only imports:
autograd/function.py has Function, FunctionCtx and once_differentiable.

New: gradcheck, gradgradcheck, once_differentiable. Modules finished: autograd/gradcheck.py,
autograd/custom.py, autograd/function.py.
Try: forget the factor 3 in Cube.backward and read what gradcheck says.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tinytorch.ops.arithmetic  # noqa: F401 (it attaches methods to Tensor)
import tinytorch.ops.broadcast  # noqa: F401 (it attaches methods to Tensor)
from tinytorch.autograd.engine import grad
from tinytorch.autograd.inplace import check_writable
from tinytorch.autograd.modes import call_through_modes, enable_grad, no_grad, open_modes, thread
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


class OnceDifferentiable(Function):
    """Passes a gradient on, and raises where somebody wants to differentiate it again."""

    def forward(ctx, x: Any) -> Any:
        return x

    def backward(ctx, g: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


def once_differentiable(backward: Callable) -> Callable:
    """Decorates a backward whose formula cannot be differentiated: a second derivative raises."""

    @functools.wraps(backward)
    def call(ctx, *grads: Tensor):
        with no_grad():
            results = backward(ctx, *grads)
        if not thread.grad_enabled:
            return results
        results = results if isinstance(results, tuple) else (results,)
        marked = []
        for result in results:
            if isinstance(result, Tensor):
                result = OnceDifferentiable.apply(result.detach().requires_grad_())
            marked.append(result)
        return tuple(marked)

    return call


class GradcheckError(RuntimeError):
    """Backward and numerical gradient differ; the message says where and by how much."""


def as_tuple(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def differentiable_outputs(function: Callable, inputs: tuple) -> list[Tensor]:
    outputs = [x for x in as_tuple(function(*inputs)) if isinstance(x, Tensor)]
    return [x for x in outputs if x.dtype.is_floating_point]


def numerical_product(
    function: Callable, inputs: tuple, x: Tensor, cotangents: list[np.ndarray], eps: float
) -> np.ndarray:
    """d(sum of cotangent * output)/dx by central differences, one element of x after the other."""
    to_numpy = x.device.backend.to_numpy
    start = to_numpy(x.array).copy()
    result = np.zeros(start.shape)

    def total() -> float:
        with no_grad():
            outputs = differentiable_outputs(function, inputs)
        pairs = zip(outputs, cotangents, strict=True)
        return sum(float((to_numpy(y.array) * c).sum()) for y, c in pairs)

    for index in np.ndindex(start.shape):
        values = []
        for step in (eps, -eps):
            moved = start.copy()
            moved[index] += step
            x.array[...] = x.device.backend.from_numpy(moved, x.device.index)
            values.append(total())
        result[index] = (values[0] - values[1]) / (2 * eps)
    x.array[...] = x.device.backend.from_numpy(start, x.device.index)
    return result


# PyTorch's options that change nothing here: each check is a fast one, of nothing but backward.
NO_DIFFERENCE = "fast_mode masked nondet_tol check_undefined_grad check_backward_ad".split()


def gradcheck(
    func: Callable,
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    seed: int = 0,
    **options: Any,
) -> bool:
    """Compares backward with central differences for every element of every input.

    Both sides are the product of the Jacobian with one random cotangent v: v^T J. A wrong entry of
    J is missed only by chance of measure zero, and one backward pass is enough.

    Args:
        func: takes `inputs`, returns a tensor or a tuple of tensors.
        inputs: those that require grad are checked; they have to be float64 for the default eps.
        options: others of PyTorch's; TypeError for one that asks for a check that is not here.
    Returns True, or raises GradcheckError (returns False with raise_exception=False).
    """
    for name, value in options.items():
        if name not in NO_DIFFERENCE and (value or not name.startswith("check_")):
            raise TypeError(f"gradcheck has no option {name}={value}")
    inputs = as_tuple(inputs)
    checked = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )
    rng = np.random.default_rng(seed)
    with enable_grad():
        outputs = differentiable_outputs(func, inputs)
    cotangents = [rng.uniform(-1.0, 1.0, y.array.shape) for y in outputs]
    pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if pairs:
        found = grad(
            [y for y, _ in pairs],
            checked,
            [tensor(c, dtype=y.dtype, device=y.device) for y, c in pairs],
            allow_unused=True,
        )
    else:
        found = [None] * len(checked)
    for number, (x, analytical) in enumerate(zip(checked, found, strict=True)):
        numerical = numerical_product(func, inputs, x, cotangents, eps)
        if analytical is None:
            got = np.zeros(x.array.shape)
        else:
            got = x.device.backend.to_numpy(analytical.array).astype(np.float64)
        if not np.allclose(got, numerical, rtol=rtol, atol=atol, equal_nan=True):
            if not raise_exception:
                return False
            raise GradcheckError(
                f"Jacobian mismatch for input {number}, with a random cotangent:\n"
                f"numerical:{numerical}\nanalytical:{got}\n"
                f"largest difference {np.abs(got - numerical).max()}"
            )
    return True


def gradgradcheck(
    func: Callable,
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    seed: int = 1,
    **options: Any,
) -> bool:
    """gradcheck of the gradient: of (inputs, grad_outputs) -> gradients of func.

    grad_outputs are random where they are not given. Arguments and errors as in `gradcheck`.
    """
    inputs = as_tuple(inputs)
    checked = [i for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    with enable_grad():
        outputs = [y for y in differentiable_outputs(func, inputs) if y.requires_grad]
    if grad_outputs is None:
        rng = np.random.default_rng(seed)
        grad_outputs = []
        for y in outputs:
            values = rng.uniform(-1.0, 1.0, y.array.shape)
            grad_outputs.append(tensor(values, dtype=y.dtype, device=y.device, requires_grad=True))
    grad_outputs = as_tuple(grad_outputs)

    def gradient(*args: Any) -> tuple:
        with enable_grad():
            outer = args[: len(inputs)]
            results = [y for y in differentiable_outputs(func, outer) if y.requires_grad]
            return grad(
                results,
                [outer[i] for i in checked],
                args[len(inputs) :],
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )

    return gradcheck(
        gradient,
        (*inputs, *grad_outputs),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        **options,
    )


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

    class Turned(CustomFunction):
        """Turns a vector around. Its backward forgets to do so."""

        @staticmethod
        def forward(ctx, x):
            return from_numpy(x.detach().numpy()[::-1].copy())

        @staticmethod
        def backward(ctx, g):
            return g

    a = tensor(np.array([0.5, 1.5]), requires_grad=True)
    b = tensor(np.array([[2.0], [3.0]]), requires_grad=True)
    print(gradcheck(Cube.apply, a), gradgradcheck(Cube.apply, a))  # -> True True
    print(gradcheck(lambda a, b: a * b / (a + b) - b, (a, b)))  # -> True
    print(gradgradcheck(lambda a, b: a * b / (a + b) - b, (a, b)))  # -> True

    (g,) = grad(Turned.apply(a), a, tensor(np.ones(2)))
    by_differences = numerical_product(Turned.apply, (a,), a, [np.ones(2)], 1e-6)
    print("v = 1 sees nothing:", np.allclose(g.numpy(), by_differences))
    # -> v = 1 sees nothing: True
    print(error(gradcheck, Turned.apply, a))
    # -> GradcheckError: Jacobian mismatch for input 0, with a random cotangent:
    print(gradcheck(Turned.apply, a, raise_exception=False))  # -> False

    single = tensor([0.5, 1.5], requires_grad=True)
    print("float32:", gradcheck(Cube.apply, single, raise_exception=False))  # -> float32: False
    errors = {}
    for eps in (1e-3, 1e-6, 1e-12):
        found = numerical_product(Cube.apply, (a,), a, [np.ones(2)], eps)
        errors[eps] = abs(found[1] - 3 * 1.5**2)
        print(f"e = {eps:.0e}: off by {errors[eps]:.0e}")  # -> ...
    print(f"best of the three: {min(errors, key=errors.get):.0e}")  # -> best of the three: 1e-06

    class Reciprocal(CustomFunction):
        """1 / x with a backward that goes through NumPy."""

        @staticmethod
        def forward(ctx, x):
            y = 1.0 / x
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return from_numpy(-g.detach().numpy() * y.detach().numpy() ** 2)

    class Honest(Reciprocal):
        """Reciprocal, and it says what it cannot do."""

        backward = staticmethod(once_differentiable(Reciprocal.backward))

    print(gradcheck(Reciprocal.apply, a), gradcheck(Honest.apply, a))  # -> True True
    print("second:", gradgradcheck(Reciprocal.apply, a, raise_exception=False))  # -> second: False
    (g,) = grad(Honest.apply(a), a, tensor(np.ones(2)), create_graph=True)
    print(error(g.backward, tensor(np.ones(2))).partition(" a function")[0])
    # -> RuntimeError: trying to differentiate twice
