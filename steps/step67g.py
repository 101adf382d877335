"""Step 67g: What is under NumPy

`a + b` is one line of Python, and a million additions. Python does not do them. NumPy hands them to
C, where a loop runs over bare memory: no objects, no types to look up, no reference counts. Here is
such a loop, 14 lines long. This step compiles it with your own C compiler and calls it from Python.

The way there is ctypes, from the standard library. It opens a shared library like a file, and the
functions are its attributes. C does not check what it gets, so `argtypes` says what to pass.
Without it ctypes cuts an address down to 32 bits, and the whole process crashes.

The loop takes strides like those of step 66g, so it can add views as they are. It takes the number
of an element apart into its index. The index times the strides gives its place in each operand:

    element 4 of shape [2, 3]:  row 1, column 1;  place = 1 * stride[0] + 1 * stride[1]

A transposed matrix works without a copy, and so does broadcasting, whose stride is 0. (A loop that
gets only addresses and a length adds the wrong elements of a transpose, and says nothing.)

Why is NumPy still faster? Our loop divides once for each element and dimension, and a division
takes longer than all the rest. NumPy moves from place to place instead. And it checks whether the
last stride is one element: then a single SIMD instruction adds 8 or 16 numbers. A second function,
without strides, shows how much that gains: the compiler finds those instructions by itself.

Changed: nothing; the modules stay as they are. New: a C source, compile_c, CAdd.
Try: let CAdd pass `b.ctypes.data + 4`, and see whether C notices that the address is wrong.
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
    """a + b for float32 arrays of any strides, by the loop in C, or in Python where C is not."""

    def __init__(self, library):
        self.library = library
        if library is not None:
            address, number = ctypes.c_void_p, ctypes.c_long
            library.add.argtypes = [address] * 3 + [number] + [address] * 3
            library.add_flat.argtypes = [address] * 3 + [number]

    def __call__(self, a, b):
        a, b = np.broadcast_arrays(a, b)
        out = np.empty(a.shape, np.float32)
        if self.library is None:
            for index in np.ndindex(a.shape):
                out[index] = a[index] + b[index]
            return out
        numbers = ctypes.c_long * a.ndim
        strides = (numbers(*(step // 4 for step in x.strides)) for x in (a, b))  # in elements
        addresses = a.ctypes.data, b.ctypes.data, out.ctypes.data
        self.library.add(*addresses, a.ndim, numbers(*a.shape), *strides)
        return out


if __name__ == "__main__":
    import timeit

    library = compile_c(SOURCE)
    print("the loop runs in", "C" if library else "Python, since there is no C compiler")  # -> ...
    add = CAdd(library)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((200, 300)).astype(np.float32) for _ in range(2))

    print("same as NumPy:", (add(a, b) == a + b).all())  # -> same as NumPy: True
    square = b[:, :200]
    print("a slice and a transpose:", (add(square, square.T) == square + square.T).all())
    # -> a slice and a transpose: True
    print("strides", square.strides, square.T.strides)  # -> strides (1200, 4) (4, 1200)
    print("every 2nd row:", (add(a[::2], b[1::2]) == a[::2] + b[1::2]).all())
    # -> every 2nd row: True
    print("a row, broadcast:", (add(a, b[0]) == a + b[0]).all())  # -> a row, broadcast: True
    print("backwards:", (add(a[::-1], b) == a[::-1] + b).all())  # -> backwards: True
    print("its strides:", np.broadcast_to(b[0], a.shape).strides)  # -> its strides: (0, 4)

    def without_strides(x, y):
        """Addresses and a length, whatever the strides are."""
        out = np.empty(x.shape, np.float32)
        if library is None:
            out.reshape(-1)[:] = x.ravel(order="K") + y.ravel(order="K")
        else:
            library.add_flat(x.ctypes.data, y.ctypes.data, out.ctypes.data, x.size)
        return out

    corner = np.ascontiguousarray(square)
    wrong = without_strides(corner, corner.T)
    print("without strides, a + a.T is", "a + a" if (wrong == corner + corner).all() else "right")
    # -> without strides, a + a.T is a + a

    times = {"NumPy": timeit.timeit(lambda: a + b, number=20) / 20}
    times["C, any strides"] = timeit.timeit(lambda: add(a, b), number=5) / 5
    times["C, no strides"] = timeit.timeit(lambda: without_strides(a, b), number=20) / 20
    loop = timeit.timeit(lambda: [x + y for x, y in zip(a[0], b[0], strict=True)], number=5) / 5
    times["Python"] = loop * len(a)
    for name, seconds in times.items():
        print(f"{name:>14}: {seconds / times['NumPy']:8.1f} times NumPy's time")
        # -> ...
