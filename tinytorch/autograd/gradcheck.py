"""The gradient check: backward against differences, for a whole function at once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinytorch.autograd.backward import grad
from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.tensor import Tensor, tensor


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


def check_size(number: int, gradient: Tensor | None, x: Tensor) -> None:
    """Raise GradcheckError if a gradient does not have the shape of its input."""
    if gradient is not None and gradient.shape != x.shape:
        raise GradcheckError(
            f"Analytical gradient has incorrect size: {list(gradient.shape)} for input {number} of "
            f"size {list(x.shape)}"
        )


def compare_gradients(
    function: Callable,
    inputs: tuple,
    checked: list[Tensor],
    eps: float,
    atol: float,
    rtol: float,
    seed: int,
) -> None:
    """Raise GradcheckError if a gradient of one of the `checked` inputs is wrong."""
    rng = np.random.default_rng(seed)
    with enable_grad():
        outputs = differentiable_outputs(function, inputs)
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
        check_size(number, analytical, x)
        numerical = numerical_product(function, inputs, x, cotangents, eps)
        if analytical is None:
            got = np.zeros(x.array.shape)
        else:
            got = x.device.backend.to_numpy(analytical.array).astype(np.float64)
        if not np.allclose(got, numerical, rtol=rtol, atol=atol, equal_nan=True):
            raise GradcheckError(
                f"Jacobian mismatch for input {number}, with a random cotangent:\n"
                f"numerical:{numerical}\nanalytical:{got}\n"
                f"largest difference {np.abs(got - numerical).max()}"
            )


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
    """Compare backward with central differences for every element of every input.

    Both sides are the product of the Jacobian with one random cotangent v: v^T J. A wrong entry of
    J is missed only by chance of measure zero, and one backward pass is enough.

    Args:
        func: takes `inputs`, returns a tensor or a tuple of tensors.
        inputs: those that require grad are checked; they have to be float64 for the default eps.
        options: others of PyTorch's, as far as they change nothing here.

    Returns:
        True; False where a gradient is wrong and raise_exception is False.

    Raises:
        GradcheckError: a gradient is wrong, or does not have the shape of its input.
        TypeError: an option asks for a check that is not here.
        ValueError: no input requires a gradient.
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
    try:
        compare_gradients(func, inputs, checked, eps, atol, rtol, seed)
    except GradcheckError:
        if raise_exception:
            raise
        return False
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
            gradients = grad(
                results,
                [outer[i] for i in checked],
                args[len(inputs) :],
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
        for number, result in zip(checked, gradients, strict=True):
            check_size(number, result, outer[number])
        return gradients

    return gradcheck(
        gradient,
        (*inputs, *grad_outputs),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        **options,
    )
