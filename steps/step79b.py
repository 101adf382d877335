"""Step 79b: Another body for one function

How can a function do one thing for NumPy's arrays and another for a GPU's? Each function of CuPy
starts a program on the GPU, a kernel. (x * x).sum() starts two: the first writes a whole array to
memory, and the second reads it again. One kernel could do both.

`if isinstance(x, cupy.ndarray)` at the beginning would do. But then each such function imports
CuPy, and a new library changes all of them. Python has a table for this: functools.singledispatch
makes a function look up the class of its first argument.

    @functools.singledispatch
    def sum_of_squares(x): ...            for each class that has no body of its own

    @on_cuda(sum_of_squares)
    def sum_of_squares_on_cuda(x): ...    for the arrays of `cuda`, where such are registered

The generic body stays, and both must agree: sum_of_squares.dispatch(object) is the generic one.

The trap is the first argument. It alone decides: an array in second place, or in a list, never
reaches the other body, and there is no error.

Operations on tensors do not change: they call such a function in `forward`, with arrays. PyTorch's
table has an entry for each pair of operation and device: its dispatcher.

New: on_cuda.
Try: move register(...) below sum_of_squares_on_cuda. Which body runs, and who tells you?
"""

import warnings

from tinytorch.core.device import Backend, backends, register_backend


def load_cupy():
    """CuPy, if it is installed and finds a GPU, else None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns where it finds no GPU; that is asked below
            import cupy
    except ImportError:
        return None
    return cupy if cupy.cuda.is_available() else None


def register(cupy):
    """Make CuPy the array library of the device type `cuda`."""
    backend = Backend(
        cupy,
        cupy.ndarray,
        lambda array, index: cupy.array(array),  # index: which GPU; it is the current one
        cupy.asnumpy,
        index_of=lambda array: array.device.id,
    )
    register_backend("cuda", backend)


def on_cuda(generic):
    """Decorator: the function is what `generic`, a singledispatch, does for arrays of `cuda`."""

    def attach(function):
        if isinstance(backends["cuda"], Backend):  # None until one is registered
            generic.register(backends["cuda"].array_type, function)
        return function

    return attach


if __name__ == "__main__":
    import functools
    import types

    import numpy as np

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU. They note which kernels their operations would start."""

        kernels = []

        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            self.kernels.append(ufunc.__name__)
            inputs = [np.asarray(x) for x in inputs]
            return np.asarray(getattr(ufunc, method)(*inputs, **options)).view(Simulated)

    register(types.SimpleNamespace(ndarray=Simulated, array=np.array, asnumpy=np.array))

    @functools.singledispatch
    def sum_of_squares(x):
        return (x * x).sum()

    x = np.arange(6.0).reshape(2, 3)
    on_gpu = x.view(Simulated)
    print(float(sum_of_squares(on_gpu)), Simulated.kernels)  # -> 55.0 ['multiply', 'add']

    @on_cuda(sum_of_squares)
    def sum_of_squares_on_cuda(x):
        return x.reshape(-1) @ x.reshape(-1)

    Simulated.kernels.clear()
    print(float(sum_of_squares(on_gpu)), Simulated.kernels)  # -> 55.0 ['matmul']
    print(sum_of_squares(x), Simulated.kernels)  # -> 55.0 ['matmul']
    generic = sum_of_squares.dispatch(object)
    print(float(generic(on_gpu)), Simulated.kernels)  # -> 55.0 ['matmul', 'multiply', 'add']
