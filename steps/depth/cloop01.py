"""Step cloop01: A loop in C, called through ctypes

`a + b` is one line of Python, and a million additions. Python does not do them: the demo measures
what a loop in Python takes. NumPy hands them to C, where a loop runs over bare memory: no objects,
no types to look up, no reference counts. Here is such a loop, three lines long. This step compiles
it with your own C compiler and calls it from Python.

    add.c  --- cc -O3 -shared --->  add.so  --- ctypes.CDLL --->  library.add_flat(...)

ctypes, from the standard library, opens a shared library like a file, and the functions are its
attributes. An array gives the address of its first element (array.ctypes.data).

The loop needs only addresses and a length, so it fits contiguous arrays. `restrict` promises that
the three do not overlap. Then the compiler can add 8 or 16 numbers with a single instruction
(SIMD); it finds those instructions by itself.

The trap: C does not check what it gets. `argtypes` says what to pass. Without it ctypes cuts an
address down to 32 bits, and the whole process crashes.

(PyTorch is such a library, with its loops in C++.)

Changed: nothing; the modules stay as they are. New: a C source, compile_c, CAdd.flat.
Try: pass `a.size // 2`, and see whether C notices. What is in the other half of `out`?
"""

import ctypes
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

SOURCE = """
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

    def flat(self, a, b):
        """The sums of elements at the same places in memory; a and b are of one shape, in order."""
        out = np.empty(a.shape, np.float32)
        self.library.add_flat(a.ctypes.data, b.ctypes.data, out.ctypes.data, a.size)
        return out


if __name__ == "__main__":
    import os
    import timeit

    add = CAdd(compile_c(SOURCE))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((200, 300)).astype(np.float32) for _ in range(2))
    print("same as NumPy:", (add.flat(a, b) == a + b).all())  # -> same as NumPy: True
    print("an address, a length:", a.ctypes.data % 4, a.size)  # -> an address, a length: 0 60000

    def seconds(call, number):
        return min(timeit.repeat(call, number=number, repeat=5)) / number

    times = {
        "Python": seconds(lambda: [x + y for x, y in zip(a[0], b[0], strict=True)], 5) * len(a),
        "NumPy": seconds(lambda: a + b, 20),
        "C": seconds(lambda: add.flat(a, b), 20),
    }
    for name, each in times.items():
        print(f"{name:>6}: {each * 1e6:8.0f} us, {each / times['NumPy']:6.1f} times NumPy's time")
        # -> ...
    print("C is faster than Python:", times["Python"] > 5 * times["C"])
    # -> C is faster than Python: True

    path, os.environ["PATH"] = os.environ["PATH"], ""
    print("without a compiler:", compile_c(SOURCE))  # -> without a compiler: None
    os.environ["PATH"] = path

    # It does not look at strides: a transpose is added as if it were not one.
    corner = np.ascontiguousarray(a[:, :200])
    wrong = add.flat(corner, corner.T)
    right, plain = (bool((wrong == sums).all()) for sums in (corner + corner.T, corner + corner))
    print("a + a.T is", "right" if right else "a + a" if plain else "neither a + a.T nor a + a")
    # -> a + a.T is a + a
