"""Step 68c: gradgradcheck: the second derivative

The demo has a cube whose backward computes with NumPy, as forward of Round does in step 64b.
gradcheck says True, and it is. But what NumPy computes is not recorded. With create_graph=True the
gradient is a constant for the graph, and the derivative of x f'(x) lacks a term: 3 x^2 comes out,
and 9 x^2 is right. There is no error.

No new check is needed, for the gradient is a function too, of the inputs and of v:

    gradgradcheck(f, x)   =   gradcheck of   (x, v) -> grad(f(x), x, v, create_graph=True)

v is checked as well, since a backward has to be linear in it. materialize_grads is needed again:
the gradient of a sum does not depend on x.

The trap: numerical_jacobian calls its function under no_grad, where f leaves no graph to take a
gradient of. So the inner function records all the same, as a view does in step 67b.

PyTorch: the same name and defaults. Its once_differentiable makes an error of the silent mistake.

What you have now: functions of your own, gradients on demand, memory that is freed in time, hooks
and modes, writes that the graph follows or refuses, and a check for all of it. What PyTorch has
beside it: derivatives in the direction of forward, an engine with threads, and a mode that finds
where nan began. Next come shapes, memory, and families of operations.

New: gradgradcheck.
Try: leave out set_grad_enabled(True). What does the first gradgradcheck say?
In depth: gradcheck01.
"""

import numpy as np

import tinytorch.ops.indexing  # noqa: F401 (table[key])
import tinytorch.ops.reduction  # noqa: F401 (x.sum)
from tinytorch.autograd.backward import grad
from tinytorch.autograd.custom import CustomFunction as Function  # PyTorch's name for it
from tinytorch.autograd.modes import no_grad, set_grad_enabled
from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.joining import cat, stack


def as_tuple(x):
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def joined_outputs(func, inputs):
    """All elements of the results of func(*inputs), one after the other, in one vector."""
    return cat([y.reshape(-1) for y in as_tuple(func(*inputs))])


def numerical_jacobian(func, inputs, x, eps=1e-6):
    """J[i][j] = dy_i / dx_j by central differences. x is one of the inputs, y all outputs."""
    values = x.detach()  # on the memory of x: what is written here moves x
    columns = []
    for place in np.ndindex(*x.shape):
        start = values[place].item()
        ends = []
        for moved in (start + eps, start - eps):
            values[place] = moved
            with no_grad():
                ends.append(joined_outputs(func, inputs))
        values[place] = start
        columns.append((ends[0] - ends[1]) / (2 * eps))
    return stack(columns, 1)


class GradcheckError(RuntimeError):
    """Backward and differences disagree."""


def gradcheck(func, inputs, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True):
    """Whether v^T J by backward is that by differences, for a random v and each checked input."""
    inputs = as_tuple(inputs)
    checked = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    y = joined_outputs(func, inputs)
    v = tensor(np.random.default_rng(0).uniform(-1.0, 1.0, y.shape))
    found = grad(y, checked, v, allow_unused=True, materialize_grads=True)
    for number, (x, by_backward) in enumerate(zip(checked, found, strict=True)):
        analytical = by_backward.numpy().reshape(-1)
        numerical = v.numpy() @ numerical_jacobian(func, inputs, x, eps).numpy()
        if not np.allclose(analytical, numerical, rtol=rtol, atol=atol):
            if not raise_exception:
                return False
            raise GradcheckError(
                f"Jacobian mismatch for input {number}, times a random v:\n"
                f"numerical: {numerical}\nanalytical: {analytical}"
            )
    return True


def gradgradcheck(
    func, inputs, grad_outputs=None, *, eps=1e-6, atol=1e-5, rtol=1e-3, raise_exception=True
):
    """gradcheck of the gradient: of (inputs, v) -> v^T J. v is random without grad_outputs."""
    inputs = as_tuple(inputs)
    if grad_outputs is None:
        rng = np.random.default_rng(1)
        shapes = [y.shape for y in as_tuple(func(*inputs))]
        grad_outputs = [tensor(rng.uniform(-1.0, 1.0, s), requires_grad=True) for s in shapes]
    grad_outputs = as_tuple(grad_outputs)

    def gradient(*args):
        given, v = args[: len(inputs)], args[len(inputs) :]
        checked = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
        with set_grad_enabled(True):
            y = as_tuple(func(*given))
            return grad(y, checked, v, create_graph=True, materialize_grads=True)

    limits = {"eps": eps, "atol": atol, "rtol": rtol}
    return gradcheck(gradient, (*inputs, *grad_outputs), raise_exception=raise_exception, **limits)


if __name__ == "__main__":

    class Cube(Function):
        """x^3. Its backward leaves the graph."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * tensor(3.0 * x.detach().numpy() ** 2)

    x = tensor([0.5, -1.5], dtype=float64, requires_grad=True)
    print("first derivative:", gradcheck(Cube.apply, x))  # -> first derivative: True
    for f in (Cube.apply, lambda x: x * x * x):
        (slope,) = grad(f(x).sum(), x, create_graph=True)
        (g,) = grad((x * slope).sum(), x)
        print(g.tolist(), "second:", gradgradcheck(f, x, raise_exception=False))
        # -> [0.75, 6.75] second: False
        # -> [2.25, 20.25] second: True

    def write(table, w):
        """Leaves a CopySlices in the graph (step 67c), whose backward is a CopySlices too."""
        out = table * 1.0
        out[:, 0].mul_(w)
        return out, out.sum()

    table = tensor([[1.0, 2.0], [3.0, 4.0]], dtype=float64, requires_grad=True)
    print("CopySlices:", gradgradcheck(write, (table, x)))  # -> CopySlices: True
    v = tensor([1.0, -2.0], dtype=float64, requires_grad=True)
    print("with a v of your own:", gradgradcheck(lambda x: x * x, x, v))
    # -> with a v of your own: True
