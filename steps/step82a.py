"""Step 82a: A kernel in CUDA C, and how an operation reaches it

What does the GPU run? Not Python: the kernels of topics 80 and 81 were simulated. A GPU's kernel is
a text in CUDA C, which is C with a few more words. __global__ marks a kernel, and threadIdx,
blockIdx, blockDim and gridDim are there without being passed:

    extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {
        long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i];
    }

(extern "C" keeps the name `add` as it is, so that it is found. long long is an integer of 64 bits:
an int would overflow at 2^31 elements.) NVIDIA's compiler makes a program of the text at the first
launch; CuPy's RawKernel calls it. The next launches use the program that is there.

An operation reaches the kernel in four layers (step 63b), and names no device in any of them:

    Tensor -> Add.forward(ctx, a, b) -> add(a, b) -> the body for CuPy's arrays -> kernel.launch

The trap: a launch passes addresses. Nothing checks the number, order or type of the arguments. n
goes as np.int64, C's long long, because a Python int has no C type.

Without a GPU the demo compiles the same text with this machine's C compiler, and calls it for one
thread after the other, on the CPU. What it shows is that the text is right, not that it is fast.

New: Kernel.
Try: n = 7 in add_on_cuda, so that the last elements are not written.
In depth: kernel01 to kernel09.
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
        lambda array, index: cupy.array(array),
        cupy.asnumpy,
        index_of=lambda array: array.device.id,
    )
    register_backend("cuda", backend)


def on_cuda(generic):
    """Decorator: the function is what `generic`, a singledispatch, does for arrays of `cuda`."""

    def attach(function):
        if isinstance(backends["cuda"], Backend):
            generic.register(backends["cuda"].array_type, function)
        return function

    return attach


class Kernel:
    """A function in CUDA C, which the GPU runs in many threads at once.

    name: its name in the source.
    """

    def __init__(self, name, source):
        self.name, self.source = name, source
        self.compiled = None

    def launch(self, grid, block, *args):
        """Start grid x block threads, sizes as tuples; the text is compiled at the first launch."""
        if self.compiled is None:
            self.compiled = backends["cuda"].xp.RawKernel(self.source, self.name)
        self.compiled(grid, block, args)


if __name__ == "__main__":
    import ctypes
    import functools
    import math
    import subprocess
    import tempfile
    import types
    from pathlib import Path

    import numpy as np

    from tinytorch.autograd import engine  # noqa: F401  (backward)
    from tinytorch.autograd.node import Function
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import conversion, reduction  # noqa: F401  (to, sum)

    class Place(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint) for name in "xyz"]

    class RawKernel:
        """The same text, compiled for the CPU: threadIdx and the others are variables there."""

        head = "struct { unsigned x, y, z; } threadIdx, blockIdx, blockDim, gridDim;\n"

        def __init__(self, source, name):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "kernel.so"
                text = self.head + source.replace('extern "C" __global__', "")
                command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path]
                subprocess.run(command, input=text, text=True, check=True)
                library = ctypes.CDLL(str(path))
            self.function = getattr(library, name)
            places = "threadIdx", "blockIdx", "blockDim", "gridDim"
            self.thread, self.block, *self.sizes = (Place.in_dll(library, p) for p in places)

        def __call__(self, grid, block, args):
            launches.append((grid, block))
            self.sizes[0].x, self.sizes[1].x = *block, *grid
            in_c = [
                ctypes.c_void_p(x.ctypes.data)
                if isinstance(x, np.ndarray)
                else ctypes.c_longlong(x)
                for x in args
            ]
            for self.block.x in range(*grid):
                for self.thread.x in range(*block):
                    self.function(*in_c)

    class Simulated(np.ndarray):
        device = types.SimpleNamespace(id=0)

    def array(array):
        return np.array(array).view(Simulated)

    cupy = types.SimpleNamespace(
        ndarray=Simulated,
        array=array,
        asnumpy=np.array,
        asarray=array,
        ones=np.ones,
        RawKernel=RawKernel,
        broadcast_to=np.broadcast_to,
    )
    register(cupy)  # register(load_cupy()) on a machine with a GPU

    add_kernel = Kernel(
        "add",
        """
        extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {
            long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) c[i] = a[i] + b[i];
        }
        """,
    )

    @functools.singledispatch
    def add(a, b):
        return a + b

    @on_cuda(add)
    def add_on_cuda(a, b):
        c = cupy.array(np.zeros(a.shape, a.dtype))
        add_kernel.launch((math.ceil(a.size / 4),), (4,), a, b, c, np.int64(a.size))
        return c

    class Add(Function):
        def forward(ctx, a, b):
            return add(a, b)

        def backward(ctx, g):
            return g, g

    launches = []
    for device in ("cpu", "cuda"):
        x = tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], requires_grad=True)
        y = Add.apply(x.to(device), x.to(device))
        y.sum().backward()
        print(y.device, y.tolist(), x.grad.tolist()[:2], launches)
        # -> cpu [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0] [2.0, 2.0] []
        # -> cuda:0 [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0] [2.0, 2.0] [((3,), (4,))]
