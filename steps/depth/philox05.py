"""Step philox05: Philox in one kernel

philox on whole arrays has a price. Each `*`, `>>`, `&` and `^` reads and writes an array in main
memory: the demo counts the operations, and there are more than a hundred for 4 words. On a GPU that
is a hundred launches, and memory is what is slow there.

A thread that does all ten rounds for one i keeps its words in registers, and writes only the result
to memory. PHILOX is the same algorithm in CUDA C, where unsigned int has 32 bits and overflows as
we want it to: what the & LOW does in Python happens by itself.

CuPy's ElementwiseKernel writes the rest of such a kernel: the loop over i, and `counter`, which is
counters[i]. `raw` words are not taken element by element; the text finds its four places itself.
The text is compiled once, at the first use (functools.cache), and not at all without a GPU.

philox becomes a singledispatch, and philox_on_cuda is its body for CuPy's arrays, as `add` has one
in step kernel06. PhiloxSource does not change: it calls philox.

The trap: two versions of one algorithm may differ in one sign or constant, and their numbers look
equally random. So the demo compares them word by word. It compiles the C text with the machine's
own C compiler, where there is one, and puts the loop around it.

Changed: philox. New: PHILOX, philox_kernel, philox_on_cuda.
Try: `key += 0x9E3779B8u` in PHILOX. Would you have seen it without the comparison?
"""

import functools
import math
import struct
from typing import Any

import numpy as np

from tinytorch.core.device import Device, device_of
from tinytorch.cuda.backend import cupy, on_cuda
from tinytorch.ops.random import box_muller

LOW = 0xFFFFFFFF  # the lower 32 bits


@functools.singledispatch
def philox(counters: Any, seed: int) -> Any:
    """Four random 32-bit words for each counter: (n,) uint64 -> (n, 4) uint32.

    Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
    (2011): ten rounds of multiplying, exchanging halves and mixing in a key.
    """
    xp = device_of(counters).xp
    a, b = counters & LOW, counters >> 32
    c = d = xp.zeros_like(counters)
    key, other_key = seed & LOW, seed >> 32
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ key, q & LOW, (p >> 32) ^ d ^ other_key, p & LOW
        key, other_key = (key + 0x9E3779B9) & LOW, (other_key + 0xBB67AE85) & LOW
    return xp.stack([a, b, c, d], axis=-1).astype(xp.uint32)


PHILOX = """
    unsigned int a = counter, b = counter >> 32, c = 0, d = 0, key = seed, other_key = seed >> 32;
    for (int round = 0; round < 10; round++) {
        unsigned long long p = 0xD2511F53ull * a, q = 0xCD9E8D57ull * c;
        a = (unsigned int)(q >> 32) ^ b ^ key, b = (unsigned int)q;
        c = (unsigned int)(p >> 32) ^ d ^ other_key, d = (unsigned int)p;
        key += 0x9E3779B9u, other_key += 0xBB67AE85u;
    }
    words[4 * i] = a, words[4 * i + 1] = b, words[4 * i + 2] = c, words[4 * i + 3] = d;
"""


@functools.cache
def philox_kernel() -> Any:
    """CuPy writes the rest of the kernel: the loop over i, and where `counter` comes from."""
    arguments = "uint64 counter, uint64 seed", "raw uint32 words"
    return cupy.ElementwiseKernel(*arguments, PHILOX, "philox")


@on_cuda(philox)
def philox_on_cuda(counters: Any, seed: int) -> Any:
    words = cupy.empty((counters.size, 4), cupy.uint32)
    philox_kernel()(counters, np.uint64(seed), words, size=counters.size)
    return words


class PhiloxSource:
    """The random numbers of a device, made there. Its state is two numbers: seed and counter."""

    bits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}  # of a mantissa

    def __init__(self, device: Device):
        self.device = device
        self.seed(0)

    def seed(self, seed: int) -> None:
        self.key, self.counter = seed, 0

    def get_state(self) -> bytes:
        return struct.pack("<QQ", self.key, self.counter)

    def set_state(self, state: bytes) -> None:
        self.key, self.counter = struct.unpack("<QQ", state)

    def words(self, n: int) -> Any:
        """n random numbers of 64 bits; the next call goes on after them."""
        xp, count = self.device.xp, (n + 1) // 2
        words = philox(xp.arange(count, dtype=xp.uint64) + self.counter, self.key)
        self.counter += count
        return words.view(xp.uint64).reshape(-1)[:n]

    def mantissa(self, dtype: np.dtype) -> int:
        if dtype.name not in self.bits:
            raise NotImplementedError(f"random numbers of type {dtype}: ask for a float type")
        return self.bits[dtype.name]

    def uniform(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        bits = self.mantissa(dtype)
        words = self.words(math.prod(shape)) >> (64 - bits)
        return (words.astype(dtype) * dtype.type(2.0**-bits)).reshape(shape)

    def normal(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        self.mantissa(dtype)
        n, wide = math.prod(shape), np.dtype(np.float64 if dtype == np.float64 else np.float32)
        u, v = (self.uniform(((n + 1) // 2,), wide) for _ in range(2))
        pairs = box_muller(self.device.xp, u, v)
        return pairs.reshape(-1)[:n].astype(dtype).reshape(shape)

    def integers(self, low: int, high: int, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        words, span = self.words(math.prod(shape)), high - low
        words = words % span if span < 1 << 64 else words
        return (words.astype(np.int64) + low).astype(dtype).reshape(shape)

    def permutation(self, n: int) -> Any:
        return self.device.xp.argsort(self.words(n))


if __name__ == "__main__":
    import ctypes
    import shutil
    import subprocess
    import tempfile
    from pathlib import Path

    from tinytorch.core.device import array_types

    class Counted(np.ndarray):
        """An array that counts the operations on whole arrays."""

        operations = 0

        def __array_ufunc__(self, ufunc, method, *inputs, **options):
            Counted.operations += 1
            inputs = [x.view(np.ndarray) if isinstance(x, Counted) else x for x in inputs]
            return getattr(ufunc, method)(*inputs, **options).view(Counted)

    counters = np.arange(1000, dtype=np.uint64)
    generic = philox.dispatch(object)
    array_types[Counted] = "cpu"
    generic(counters.view(Counted), 7)
    print("operations on whole arrays:", Counted.operations)  # -> operations on whole arrays: 102

    class SimulatedCupy:
        """The part of CuPy that philox_on_cuda needs, with a C compiler and a loop for the GPU."""

        empty, uint32 = staticmethod(np.empty), np.uint32

        @staticmethod
        def ElementwiseKernel(arguments, results, text, name):
            source = f"""
                void {name}(const unsigned long long* counters, unsigned long long seed,
                            unsigned int* words, long long size) {{
                    for (long long i = 0; i < size; i++) {{
                        unsigned long long counter = counters[i];
                        {text}
                    }}
                }}"""
            folder = tempfile.TemporaryDirectory()
            file, library = Path(folder.name, "kernel.c"), Path(folder.name, "kernel.so")
            file.write_text(source)
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, file], check=True)
            function = getattr(ctypes.CDLL(str(library)), name)

            def kernel(counters, seed, words, size):
                pointers = [ctypes.c_void_p(array.ctypes.data) for array in (counters, words)]
                wide = ctypes.c_ulonglong(int(seed)), ctypes.c_longlong(size)
                function(pointers[0], wide[0], pointers[1], wide[1])
                folder.cleanup()

            return kernel

    seed = 2**40 + 7  # both halves of the seed, and of the counter
    counters += np.uint64(2**33 - 500)
    if cupy is not None and cupy.cuda.is_available():
        made = cupy.asnumpy(philox(cupy.asarray(counters), seed))
        report = "on the GPU"
    elif shutil.which("cc"):
        cupy = SimulatedCupy
        made, report = philox_on_cuda(counters, seed), "by a C compiler, as no GPU is here"
    else:
        made, report = None, "left out, for want of a GPU and of a C compiler"
    print("the text in C, run", report)  # -> ...
    same = made is None or np.array_equal(made, generic(counters, seed))
    print("word for word the same:", same)  # -> word for word the same: True
