"""Step 79a: A GPU is another array library

What has to change in a network so that it runs on a GPU? No operation: since step 63b each takes
the functions of its array library, ctx.xp, from the device of its arrays. CuPy is a library with
NumPy's functions under NumPy's names, for arrays in the memory of an NVIDIA GPU. It only has to be
registered: the module, the class of its arrays, the two copies, there and back, and index_of, which
tells on which of several GPUs an array lies. (Backend is that of step 63a, finished.)

A GPU has memory of its own. The bus to the CPU's memory is some fifty times slower than that
memory, and no operation crosses it by itself: x + y of two devices is an error. x.to("cuda")
copies, and so do tolist() and print, back. A training step should copy its batch over, or nothing:

    parameters, once  ->  GPU: forward, backward, update  ->  loss.item(), now and then

The trap: CuPy can be installed where there is no GPU. `import cupy` succeeds, with a warning, and
the first array fails. So ask cupy.cuda.is_available().

Without a GPU the demo simulates one: arrays of a class of their own, made by NumPy's functions, and
a list of what crosses the bus.

New: load_cupy, register.
Try: print w.tolist() in each step. What crosses the bus then?
In depth: backend01 to backend07.
"""

import warnings

from tinytorch.core.device import Backend, register_backend


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


if __name__ == "__main__":
    import types

    import numpy as np

    from tinytorch.autograd import inplace  # noqa: F401  (backward, w -= ...)
    from tinytorch.autograd.backward import backward  # noqa: F401  (backward, w -= ...)
    from tinytorch.autograd.modes import no_grad
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import matmul, reduction  # noqa: F401  (@, mean)

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU."""

        device = types.SimpleNamespace(id=0)

    class SimulatedCupy:
        ndarray, bus = Simulated, []  # bus: the bytes of each copy

        def array(self, array):
            if type(array) is np.ndarray:  # else it is there already
                self.bus.append(array.nbytes)
            return np.array(array).view(Simulated)

        def asnumpy(self, array):
            self.bus.append(array.nbytes)
            return np.array(array)

        def __getattr__(self, name):
            return getattr(np, name)

    cupy = SimulatedCupy()  # load_cupy() on a machine with a GPU
    register(cupy)
    x = tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    y = x @ tensor([3.0, 2.0])

    for device in ("cpu", "cuda"):
        x, y = x.to(device), y.to(device)
        w = tensor([0.0, 0.0], device=device, requires_grad=True)
        cupy.bus.clear()
        for _ in range(100):
            ((x @ w - y) ** 2).mean().backward()
            with no_grad():
                w -= 0.2 * w.grad
            w.grad = None
        result = [round(v, 4) for v in w.tolist()]  # a copy of two float32
        print(w.device, result, "over the bus:", cupy.bus)
        # -> cpu [3.0, 2.0] over the bus: []
        # -> cuda:0 [3.0, 2.0] over the bus: [8]
