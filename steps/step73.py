"""Step 73: A loop in C

a + b is one line of Python and 60,000 additions. A loop in Python takes hundreds of times as long
as NumPy, whose loop is written in C: it runs over bare memory, without objects, types to look up
and references to count. Your own machine can compile such a loop:

    code.c  -- cc -O3 -shared -->  code.so  -- ctypes.CDLL -->  library.add(...)

ctypes opens a shared library, and its functions become attributes. -fPIC makes code that works at
any address.

What does C need to know? What step 69a says: the address of the first element of each array, the
shape and the strides. The loop takes the number i of an element apart into its index, from the last
dimension to the first, and index times stride is the place, in each operand:

    element 4 of shape [2, 3]:   4 % 3 = 1, 4 / 3 = 1   row 1, column 1
                                 place = 1 * stride[0] + 1 * stride[1]

So a transpose, a slice and every second row are added without a copy, and a broadcast row by a
stride of 0. A loop without strides would read memory in its order, and add a + a for a + a.T.

The traps. C checks nothing: with a wrong size it reads beyond the array. Without argtypes ctypes
cuts an address down to 32 bits, and the process crashes. And NumPy's strides are in bytes.

PyTorch's TensorIterator is such a loop. It also joins dimensions that lie in memory like one (step
69d), and is faster than ours, which divides for each element.

New: SOURCE, compile_c, library, add.
Try: let the loop over d run upward, from 0 to ndim - 1. Which of the sums are still right?

In depth: cloop01.
"""

import ctypes
import pathlib
import subprocess
import tempfile

import numpy as np

SOURCE = """
void add(const float *a, const float *b, float *out, long ndim, const long *shape,
         const long *stride_a, const long *stride_b) {
    long size = 1;
    for (long d = 0; d < ndim; d++) size *= shape[d];
    for (long i = 0; i < size; i++) {
        long rest = i, place_a = 0, place_b = 0;
        for (long d = ndim - 1; d >= 0; d--) {
            long index = rest % shape[d];
            rest /= shape[d];
            place_a += index * stride_a[d];
            place_b += index * stride_b[d];
        }
        out[i] = a[place_a] + b[place_b];
    }
}
"""


def compile_c(source):
    """The functions of a C source, as a ctypes library."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "code.c").write_text(source)
        command = ["cc", "-O3", "-shared", "-fPIC", "code.c", "-o", "code.so"]
        subprocess.run(command, cwd=folder, check=True)
        return ctypes.CDLL(f"{folder}/code.so")  # it is loaded: the files may go


library = compile_c(SOURCE)
library.add.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] + [ctypes.c_void_p] * 3


def add(a, b):
    """a + b of float32 arrays of any strides, broadcast."""
    a, b = np.broadcast_arrays(a, b)
    out = np.empty(a.shape, np.float32)
    longs = ctypes.c_long * a.ndim  # an array type of C: that many long
    stride_a, stride_b = (longs(*(step // 4 for step in x.strides)) for x in (a, b))
    addresses = a.ctypes.data, b.ctypes.data, out.ctypes.data
    library.add(*addresses, a.ndim, longs(*a.shape), stride_a, stride_b)
    return out


if __name__ == "__main__":
    import time

    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((200, 300)).astype(np.float32) for _ in range(2))
    square = b[:, :200]
    pairs = {
        "contiguous": (a, b),
        "a slice and its transpose": (square, square.T),
        "every second row": (a[::2], b[1::2]),
        "a column and a row": (a[:, :1], b[0]),
    }
    for name, (x, y) in pairs.items():
        print(f"{name:26}", (add(x, y) == x + y).all())
        # -> contiguous                 True
        # -> a slice and its transpose  True
        # -> every second row           True
        # -> a column and a row         True

    def seconds(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    python = seconds(lambda: [x + y for x, y in zip(a.flat, b.flat, strict=True)])
    c = min(seconds(lambda: add(a, b)) for _ in range(10))
    print("C is faster than Python:", python > 4 * c)  # -> C is faster than Python: True
