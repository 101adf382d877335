"""Step 82a: A kernel in CUDA C, and how an operation reaches it

What does a GPU run? Not Python: the kernels of steps 80a to 81c were simulated. A real one is a
text in CUDA C, the `source` of the demo. __global__ marks a kernel; threadIdx, blockIdx, blockDim
and gridDim are there; extern "C" keeps the name `add` as it is. long long has 64 bits, for an int
would overflow at 2^31. NVIDIA's compiler makes a program of the text at the first launch; CuPy's
RawKernel calls it.

An operation reaches the kernel without an `if`, since singledispatch looks at the arrays:

    Tensor -> Add.forward(ctx, a, b) -> add(a, b) -> the body for CuPy's arrays -> kernel.launch

The trap: a launch passes addresses, and nothing checks the number, order or type of the arguments.
n goes as np.int64, C's long long, because a Python int has no C type.

Without a GPU, the demo compiles this text with the machine's C compiler and calls it on the CPU,
thread after thread. That shows that the text is right, and nothing about speed.

New: Kernel.
Try: np.int64(3) in place of np.int64(a.size).
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

    import numpy as np

    from tinytorch.autograd.node import Function
    from tinytorch.core.tensor import tensor
    from tinytorch.ops import conversion  # noqa: F401  (to)

    class RawKernel:
        """The same text, compiled for the CPU. There, threadIdx and the others are variables."""

        def __init__(self, source, name):
            places = "struct { unsigned x, y, z; } threadIdx, blockIdx, blockDim, gridDim; "
            text = places + source.replace('extern "C" __global__', "")
            with tempfile.NamedTemporaryFile(suffix=".so") as file:
                command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", file.name]
                subprocess.run(command, input=text, text=True, check=True)
                self.library = ctypes.CDLL(file.name)
            self.function = self.library[name]

        def __call__(self, grid, block, args):
            print("launched:", grid, block)  # -> launched: (2,) (4,)
            *arrays, n = args
            in_c = [ctypes.c_void_p(x.ctypes.data) for x in arrays]
            i, j = (ctypes.c_uint.in_dll(self.library, s) for s in ("blockIdx", "threadIdx"))
            ctypes.c_uint.in_dll(self.library, "blockDim").value = block[0]
            for i.value in range(*grid):
                for j.value in range(*block):
                    self.function(*in_c, ctypes.c_longlong(n))

    class Simulated(np.ndarray):
        device = types.SimpleNamespace(id=0)

    cupy = types.SimpleNamespace(ndarray=Simulated, RawKernel=RawKernel, asnumpy=np.array)
    cupy.array = lambda array: np.array(array).view(Simulated)
    register(cupy)  # register(load_cupy()) on a machine with a GPU

    source = """
    extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {
        long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) c[i] = a[i] + b[i];
    }
    """
    add_kernel = Kernel("add", source)
    add = functools.singledispatch(lambda a, b: a + b)

    @on_cuda(add)
    def add_on_cuda(a, b):
        c = np.zeros_like(a)
        add_kernel.launch((math.ceil(a.size / 4),), (4,), a, b, c, np.int64(a.size))
        return c

    class Add(Function):
        def forward(ctx, a, b):
            return add(a, b)

    for device in ("cpu", "cuda"):
        x = tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]).to(device)
        print(device, Add.apply(x, x).tolist())
        # -> cpu [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        # -> cuda [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
