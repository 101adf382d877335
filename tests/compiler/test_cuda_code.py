"""The generated CUDA, without a GPU: NVIDIA's compiler takes it, and a CPU that plays the GPU's
threads computes with it what NumPy computes."""

import ctypes
import subprocess

import numpy as np
import pytest

from tests.compiler.native import Build, run_schedule
from tests.compiler.test_c_code import random_program
from tests.kernels import emulator
from tests.kernels.test_kernels import nvrtc
from tinytorch.compiler.cuda_code import cuda_source, launch_of
from tinytorch.compiler.fuse import fuse
from tinytorch.compiler.kernel import Kernel

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
rng = np.random.default_rng(0)


class OnEmulator:
    """Schedules of many graphs, whose kernels are CUDA, in one program for the CPU's threads."""

    def __init__(self, programs: dict, folder):
        self.schedules = {}
        for number, (name, (b, outputs)) in enumerate(programs.items()):
            self.schedules[name] = fuse(b.graph(*outputs))
            for unit in self.schedules[name]:
                if isinstance(unit, Kernel):
                    unit.name = f"p{number}_{unit.name}"
        units = (unit for schedule in self.schedules.values() for unit in schedule)
        self.kernels = [unit for unit in units if isinstance(unit, Kernel)]
        self.source = cuda_source(self.kernels)
        program = emulator.PRELUDE + self.source
        for name in {kernel.name for kernel in self.kernels}:
            head = self.source[self.source.index(f"void {name}(") :]
            parameters = head[head.index("(") + 1 : head.index(")")]
            names = [part.split()[-1].lstrip("*") for part in parameters.split(",")]
            filled = {"parameters": parameters, "arguments": ", ".join(names), "name": name}
            program += (emulator.LAUNCHER % filled).replace(" launch(", f" launch_{name}(")
        path = folder / "kernels.cc"
        path.write_text(program)
        command = [emulator.COMPILER, "-std=c++20", "-O0", "-shared", "-fPIC", "-pthread"]
        subprocess.run([*command, path, "-o", path.with_suffix(".so")], check=True)
        self.library = ctypes.CDLL(str(path.with_suffix(".so")))

    def run(self, name: str, b: Build, outputs: list) -> list:
        values = dict(zip(b.inputs, b.arrays, strict=True))

        def launch(kernel: Kernel, pointers: list) -> None:
            blocks, threads = launch_of(kernel)
            sizes = [ctypes.c_uint(n) for n in (blocks, 1, threads, 1)]
            self.library[f"launch_{kernel.name}"](*sizes, *pointers)

        run_schedule(self.schedules[name], values, launch)
        return [values[node] for node in outputs]


def programs() -> dict:
    """Graphs with each kind of kernel: name -> (Build, outputs)."""
    array = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    found = {}
    b = Build(array(7, 40), array(40))
    found["elements"] = b, [b.exp(b.multiply(*b.inputs)), b.floor_divide(*b.inputs)]
    b = Build(array(3, 5, 300))
    (x,) = b.inputs
    e = b.exp(b.subtract(x, b.reduce("max", x, 2, keepdims=True)))
    found["softmax"] = b, [b.divide(e, b.reduce("sum", e, 2, keepdims=True))]
    b = Build(array(30, 70), array(30, 70))
    x, g = b.inputs
    t = b.multiply(g, b.subtract(1.0, b.square(x)))
    found["columns"] = b, [t, b.reduce("sum", t, 0), b.subtract(t, b.reduce("mean", t, 0))]
    b = Build(array(2, 4, 5, 6), array(4))
    x, w = b.inputs
    d = b.subtract(x, b.reduce("mean", x, 0, 2, 3, keepdims=True))
    v = b.sqrt(b.add(b.reduce("mean", b.square(d), 0, 2, 3, keepdims=True), 1e-5))
    found["batch norm"] = b, [b.multiply(b.divide(d, v), b.reshape(w, (1, 4, 1, 1)))]
    b = Build(array(600), np.where(rng.random(600) < 0.01, np.nan, 1).astype(np.float32))
    x, y = b.inputs
    found["one row"] = b, [b.reduce(op, z, 0) for z in (x, y) for op in ("sum", "max", "min")]
    found["one row"][1].extend(b.reduce(op, b.greater(x, 2), 0) for op in ("any", "all", "sum"))
    return found


PROGRAMS = programs() | {f"random {seed}": random_program(seed) for seed in range(100, 105)}


def test_a_name_has_one_launch():
    """The text for a row does not say how many rows there are."""
    x, y, z = (rng.normal(size=(rows, 300)).astype(np.float32) for rows in (3, 5, 3))
    b = Build(x, y, z)
    kernels = fuse(b.graph(*(b.reduce("sum", node, 1) for node in b.inputs)))
    source = cuda_source(kernels)
    assert [kernel.name for kernel in kernels] == ["k0", "k1", "k0"]
    assert [launch_of(kernel)[0] for kernel in kernels] == [3, 5, 3]
    assert source.count("__global__") == 2


@pytest.mark.parametrize("architecture", ["compute_75", "compute_90"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nvidias_compiler_takes_the_source(name, architecture):
    compiler = nvrtc()
    if compiler is None:
        pytest.skip("NVRTC is not here: pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12")
    b, outputs = PROGRAMS[name]
    kernels = [unit for unit in fuse(b.graph(*outputs)) if isinstance(unit, Kernel)]
    program = compiler.createProgram(cuda_source(kernels), "kernels.cu", (), ())
    try:
        compiler.compileProgram(program, (f"--gpu-architecture={architecture}",))
        assert all(kernel.name in compiler.getPTX(program).decode() for kernel in kernels)
    except compiler.NVRTCError as error:
        raise AssertionError(compiler.getProgramLog(program)) from error
    finally:
        compiler.destroyProgram(program)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    if reason := emulator.why_not(folder):
        pytest.skip(reason)
    return OnEmulator(PROGRAMS, folder)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_right_numbers(name, emulated):
    b, outputs = PROGRAMS[name]
    for node, got in zip(outputs, emulated.run(name, b, outputs), strict=True):
        want = b.values[node]
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, 2e-4, 2e-4, err_msg=node.op)
