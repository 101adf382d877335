"""A CUDA kernel as an object: its source, and how it is compiled and launched."""

from typing import Any

from tinytorch.cuda.backend import cupy

# What the element types are called in CUDA C. Other types keep to the generic version.
C_NAMES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}


class Kernel:
    """A function in CUDA C that runs on the GPU in many threads at once.

    Args:
        name: the name of the function in the source.
        source: CUDA C, in which T stands for the element type.
        types: the element types that it is written for, by name.
    """

    def __init__(self, name: str, source: str, types: tuple[str, ...] = tuple(C_NAMES)):
        self.name, self.source, self.types = name, source, types
        self.compiled: dict[str, Any] = {}

    def text(self, dtype: str) -> str:
        """The source for one element type, as the compiler gets it."""
        return f"typedef {C_NAMES[dtype]} T;\n{self.source}"

    def fits(self, *arrays: Any) -> bool:
        """Whether the kernel can take these arrays: one type that it knows, laid out row by row."""
        dtype = arrays[0].dtype
        return dtype.name in self.types and all(
            array.dtype == dtype and array.flags.c_contiguous for array in arrays
        )

    def launch(self, dtype: Any, grid: tuple, block: tuple, *args: Any) -> None:
        """Starts grid x block threads on the current stream; compiled at the first launch."""
        if dtype.name not in self.compiled:
            self.compiled[dtype.name] = cupy.RawKernel(self.text(dtype.name), self.name)
        self.compiled[dtype.name](grid, block, args)
