"""Step cloop01: A loop in C with strides, and one without

Step 73 built a loop in C that takes any strides, so that transposes, slices and broadcast rows are
added without a copy. It is slower than NumPy's. Here a second loop stands beside it, which gets
addresses and a length, and no strides.

Why is NumPy faster? The loop with strides divides once for each element and dimension, and a
division takes longer than all the rest. NumPy moves from place to place instead. And it checks
whether the last stride is one element; then it takes a loop like the one without strides, of which
the compiler makes instructions for several elements at once. The demo compares the three.

The trap: the loop without strides adds a + a.T as if it were a + a, and says nothing. And strides
in C are in elements here, because C's a[place] multiplies by the element's size. NumPy's are in
bytes.

(PyTorch's TensorIterator does all this: it broadcasts, sorts dimensions by stride, joins those that
lie in order, and hands the rest to the inner loop.)

Changed: SOURCE, compile_c. New: CAdd.
Try: let the loop over d go from 0 up to ndim - 1. Which of the arrays are still added right?
"""

import ctypes
import pathlib
import shutil
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
            place_a += rest % shape[d] * stride_a[d];
            place_b += rest % shape[d] * stride_b[d];
            rest /= shape[d];
        }
        out[i] = a[place_a] + b[place_b];
    }
}
void add_flat(const float *restrict a, const float *restrict b, float *restrict out, long size) {
    for (long i = 0; i < size; i++) out[i] = a[i] + b[i];
}
"""


def compile_c(source):
    """The functions of a C source as a ctypes library; None where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tinytorch-"))
    (folder / "add.c").write_text(source)
    command = [compiler, "-O3", "-shared", "-fPIC", "add.c", "-o", "add.so"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "add.so"))
    shutil.rmtree(folder)  # it is loaded: the file is not needed any more
    return library


class CAdd:
    """a + b for float32 arrays, by a loop in C."""

    def __init__(self, library):
        self.library = library
        library.add_flat.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long]
        library.add.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] + [ctypes.c_void_p] * 3

    def flat(self, a, b):
        """The sums of elements at the same places in memory; a and b are of one shape, in order."""
        out = np.empty(a.shape, np.float32)
        self.library.add_flat(a.ctypes.data, b.ctypes.data, out.ctypes.data, a.size)
        return out

    def __call__(self, a, b):
        """a + b for arrays of any strides, broadcast."""
        a, b = np.broadcast_arrays(a, b)
        out = np.empty(a.shape, np.float32)
        numbers = ctypes.c_long * a.ndim
        strides = (numbers(*(step // 4 for step in x.strides)) for x in (a, b))  # in elements
        addresses = a.ctypes.data, b.ctypes.data, out.ctypes.data
        self.library.add(*addresses, a.ndim, numbers(*a.shape), *strides)
        return out


if __name__ == "__main__":
    import os
    import timeit

    add = CAdd(compile_c(SOURCE))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((200, 300)).astype(np.float32) for _ in range(2))

    print("same as NumPy:", (add(a, b) == a + b).all())  # -> same as NumPy: True
    square = b[:, :200]
    print("without strides:", (add.flat(square, square.T) == square + square.T).all())
    # -> without strides: False
    print("a slice and a transpose:", (add(square, square.T) == square + square.T).all())
    # -> a slice and a transpose: True
    print("strides", square.strides, square.T.strides)  # -> strides (1200, 4) (4, 1200)
    print("every 2nd row:", (add(a[::2], b[1::2]) == a[::2] + b[1::2]).all())
    # -> every 2nd row: True
    print("a row, broadcast:", (add(a, b[0]) == a + b[0]).all())  # -> a row, broadcast: True
    print("its strides:", np.broadcast_to(b[0], a.shape).strides)  # -> its strides: (0, 4)
    print("backwards:", (add(a[::-1], b) == a[::-1] + b).all())  # -> backwards: True

    def seconds(call, number):
        return min(timeit.repeat(call, number=number, repeat=5)) / number

    times = {
        "NumPy": seconds(lambda: a + b, 20),
        "C, no strides": seconds(lambda: add.flat(a, b), 20),
        "C, any strides": seconds(lambda: add(a, b), 5),
    }
    for name, each in times.items():
        print(f"{name:>14}: {each / times['NumPy']:6.1f} times NumPy's time")  # -> ...

    path, os.environ["PATH"] = os.environ["PATH"], ""
    print("without a compiler:", compile_c(SOURCE))  # -> without a compiler: None
    os.environ["PATH"] = path
