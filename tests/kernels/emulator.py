"""Runs the package's CUDA C on the CPU: the same source, compiled by a C++ compiler.

Each thread of a block is a thread here, and the blocks take turns. It is slow, and it computes what
the GPU would compute: index arithmetic, tail masks, barriers, exchanges within a warp.
"""

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np

COMPILER = shutil.which("c++") or shutil.which("g++")

PRELUDE = r"""
#include <atomic>
#include <barrier>
#include <cmath>
#include <memory>
#include <thread>
#include <vector>
using std::exp;
struct dim3 { unsigned x = 1, y = 1, z = 1; };
static thread_local dim3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
#define __global__
#define __device__ static
#define __shared__ static  // the blocks take turns, so that they can all have the same
static unsigned thread_number() {
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static void __syncthreads() { block_barrier->arrive_and_wait(); }
template <class V> V __shfl_xor_sync(unsigned, V value, int distance) {
    static V box[1024];
    auto& warp = *warp_barriers[thread_number() / 32];
    box[thread_number()] = value;
    warp.arrive_and_wait();
    V other = box[thread_number() ^ distance];
    warp.arrive_and_wait();
    return other;
}
template <class V> void atomicAdd(V* place, V value) {
    std::atomic_ref<V>(*place).fetch_add(value);
}
"""

LAUNCHER = r"""
extern "C" void launch(unsigned gx, unsigned gy, unsigned bx, unsigned by, %(parameters)s) {
    gridDim = {gx, gy, 1};
    blockDim = {bx, by, 1};
    unsigned threads = bx * by;
    for (unsigned block = 0; block < gx * gy; block++) {
        block_barrier = std::make_unique<std::barrier<>>(threads);
        warp_barriers.clear();
        for (unsigned first = 0; first < threads; first += 32) {
            unsigned size = threads - first < 32 ? threads - first : 32;
            warp_barriers.push_back(std::make_unique<std::barrier<>>(size));
        }
        std::vector<std::thread> running;
        for (unsigned t = 0; t < threads; t++)
            running.emplace_back([=] {
                threadIdx = {t %% bx, t / bx, 0};
                blockIdx = {block %% gx, block / gx, 0};
                %(name)s(%(arguments)s);
                block_barrier->arrive_and_drop();
            });
        for (auto& thread : running) thread.join();
    }
}
"""


def why_not(folder: Path) -> str | None:
    """Why kernels cannot be emulated here, or None where they can: it takes C++ of 2020."""
    if COMPILER is None:
        return "there is no C++ compiler here"
    (folder / "prelude.cc").write_text(PRELUDE)
    command = [COMPILER, "-std=c++20", "-fsyntax-only", "-pthread", folder / "prelude.cc"]
    tried = subprocess.run(command, capture_output=True)
    return "the C++ compiler here does not know C++20" if tried.returncode else None


class Emulated:
    """A kernel of the package, compiled for the CPU; launch() takes what Kernel.launch takes."""

    def __init__(self, kernel, dtype: str, folder: Path):
        source = kernel.text(dtype)
        head = source[source.index("__global__ void " + kernel.name) :]
        parameters = head[head.index("(") + 1 : head.index(")")]
        names = [part.split()[-1].lstrip("*") for part in parameters.split(",")]
        filled = {"parameters": parameters, "arguments": ", ".join(names), "name": kernel.name}
        program = PRELUDE + source + LAUNCHER % filled
        name = f"{kernel.name}_{hashlib.sha1(program.encode()).hexdigest()[:10]}"
        library = folder / f"{name}.so"
        (folder / f"{name}.cc").write_text(program)
        command = [COMPILER, "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread"]
        subprocess.run([*command, folder / f"{name}.cc", "-o", library], check=True)
        self.library = ctypes.CDLL(str(library))

    def launch(self, grid: tuple, block: tuple, *args) -> None:
        sizes = [*grid, 1][:2] + [*block, 1][:2]
        given = [ctypes.c_uint(size) for size in sizes]
        for arg in args:
            if isinstance(arg, np.ndarray):
                given.append(ctypes.c_void_p(arg.ctypes.data))
            else:
                given.append(np.ctypeslib.as_ctypes_type(arg.dtype)(arg))
        self.library.launch(*given)
