"""Tensors in memory that several processes share: share_memory_, and how they are sent."""

import math
import weakref
from collections.abc import Callable
from multiprocessing.heap import Arena
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.core.version import storage_of
from tinytorch.nn.parameter import Parameter

# id of a memory that is shared -> (weak reference to it, its file)
arenas: dict[int, tuple[weakref.ref, Arena]] = {}


def array_in(arena: Arena, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The array that lies in this file, which lives in memory and has no name."""
    owner = np.frombuffer(arena.buffer, np.uint8)
    key = id(owner)
    arenas[key] = weakref.ref(owner, lambda _: arenas.pop(key, None)), arena
    count = math.prod(shape) * np.dtype(dtype).itemsize
    return owner[:count].view(dtype).reshape(shape)


@tensor_method("is_shared")
def is_shared(self: Tensor) -> bool:
    """Whether the elements lie in memory that a process started or told later can share."""
    return id(storage_of(self.array)) in arenas


@tensor_method("share_memory_")
def share_memory_(self: Tensor) -> Tensor:
    """Moves the elements to memory that processes share. A tensor that is sent to another process,
    or given to one that is started, is there the same elements and not a copy: what one process
    writes, the others see. Views that were made before keep the old memory.

    A tensor on another device stays what it is.
    """
    if isinstance(self.array, np.ndarray) and not is_shared(self):
        array = array_in(Arena(max(self.array.nbytes, 1)), self.array.dtype, self.array.shape)
        array[...] = self.array
        self.array = array
    return self


def rebuild(cls: type, arena: Arena, dtype: Any, shape: tuple, requires_grad: bool) -> Tensor:
    """The tensor in the process that receives it."""
    tensor = Tensor()
    tensor.array = array_in(arena, dtype, shape)
    if cls is not Tensor:
        return cls(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def sends(*kinds: type) -> Callable:
    """Registers a function that tells how processes send objects of these kinds to each other."""

    def decorate(function: Callable) -> Callable:
        for kind in kinds:
            ForkingPickler.register(kind, function)
        return function

    return decorate


@sends(Tensor, Parameter)
def reduce(self: Tensor) -> tuple:
    """What is sent in the place of a tensor: its file, if it is shared and not a part of another.

    Raises:
        RuntimeError: the tensor has a history, which another process could not know.
    """
    if self.requires_grad and not self.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad: detach() it, if "
            "another process should get the elements"
        )
    _, arena = arenas.get(id(storage_of(self.array)), (None, None))
    whole = arena is not None and self.array.flags.c_contiguous
    if not whole or self.array.nbytes < storage_of(self.array).nbytes:
        return self.__reduce_ex__(2)
    return rebuild, (type(self), arena, self.array.dtype, self.array.shape, self.requires_grad)
