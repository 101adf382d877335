"""Step 79a: A GPU is another array library

What has to change in a network so that it runs on a GPU? No operation: since step 63b each takes
the functions of its array library, ctx.xp, from the device of its arrays. And CuPy is a library
with NumPy's functions under NumPy's names, for arrays in the memory of an NVIDIA GPU. It only has
to be registered: the module, the class of its arrays, and the two copies, there and back.

A GPU is a second computer with memory of its own. Its processors read that memory at terabytes per
second; the bus to the CPU's memory is some fifty times slower. So what matters is what crosses the
bus. PyTorch never copies by itself: x.to("cuda") copies, and x + y of two devices is an error. A
training step should copy its batch over, or nothing, and at most one number back.

    parameters, once  ->  GPU: forward, backward, update  ->  loss.item(), now and then

The trap: CuPy can be installed where there is no GPU. `import cupy` succeeds, with a warning, and
the first array fails. So one asks cupy.cuda.is_available(), and not whether the import works.

Without a GPU the demo simulates one: arrays of a class of their own, made by NumPy's functions, and
a count of what crosses the bus. For tinytorch that is as much another device as a real one.

From here on, steps import finished modules. Device and Backend are those of step 63a; the finished
ones also know several GPUs, and copies that go on while the CPU works.

New: load_cupy, register.
Try: move `.to("cuda")` of the images into the loop. What crosses the bus now?
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
        lambda array, index: cupy.array(array),
        cupy.asnumpy,
        index_of=lambda array: array.device.id,
    )
    register_backend("cuda", backend)


if __name__ == "__main__":
    import types

    import numpy as np

    from tinytorch.autograd import engine  # noqa: F401  (backward)
    from tinytorch.datasets.digits import load_digits
    from tinytorch.nn.activation import ReLU
    from tinytorch.nn.class_loss import cross_entropy
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Linear
    from tinytorch.optim.sgd import SGD
    from tinytorch.ops import indexing, matmul, sampling, shape  # noqa: F401  (methods)
    from tinytorch.ops.random import manual_seed

    class Simulated(np.ndarray):
        """The arrays of a simulated GPU."""

        device = types.SimpleNamespace(id=0)

        def item(self):
            cupy.bus.append(self.nbytes)
            return super().item()

    class SimulatedCupy:
        """NumPy's functions. Their results are arrays of the simulated GPU."""

        ndarray = Simulated
        bus = []  # the bytes of each copy

        def array(self, array):
            if type(array) is np.ndarray:  # else it is there already
                self.bus.append(array.nbytes)
            return np.array(array).view(Simulated)

        def asnumpy(self, array):
            self.bus.append(array.nbytes)
            return np.array(array)

        def __getattr__(self, name):
            function = getattr(np, name)
            if isinstance(function, (type, np.ufunc)):
                return function

            def on_gpu(*args, **options):
                out = function(*args, **options)
                return out.view(Simulated) if type(out) is np.ndarray else out

            return on_gpu

    cupy = SimulatedCupy()  # load_cupy() on a machine with a GPU
    register(cupy)

    images, labels = load_digits()
    images, labels = images[:256].reshape(256, 64), labels[:256]
    try:
        images.to("cuda") + images
    except RuntimeError as error:
        print(str(error)[:51])  # -> Expected all tensors to be on the same device, but

    for device in ("cpu", "cuda"):
        manual_seed(0)
        model = Sequential(Linear(64, 32), ReLU(), Linear(32, 10)).to(device)
        optimizer = SGD(model.parameters(), lr=0.5)
        x, y = images.to(device), labels.to(device)
        cupy.bus.clear()
        for _ in range(40):
            loss = cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss.device, f"{loss.item():.4f}", "bytes over the bus:", cupy.bus)
        # -> cpu 0.2920 bytes over the bus: []
        # -> cuda:0 0.2920 bytes over the bus: [4]
    weight = model[0].weight
    print(type(weight.array).__name__, (weight.grad @ weight.T).device)  # -> Simulated cuda:0
