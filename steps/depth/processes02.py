"""Step processes02: Sending tensors to another process

A tensor of step processes01 is shared by processes that are forked after it was made. A tensor that
is sent later, through a pipe or a queue, or given to a process that is started by "spawn", goes as
a pickle, and pickle writes its elements. The other process gets a copy, though the memory is
shared:

    here.send(numbers)     ->     there.recv()[1] = 5.0     and numbers has no 5 in it

multiprocessing pickles with ForkingPickler, which has a table: for a type, a function that says
how its objects are sent. `sends` writes into it. For a shared tensor `reduce` sends the open file,
which one process can hand to another (Arena knows how to), with the type and the shape. `rebuild`,
in the other process, maps the file and makes the tensor.

Two traps. A view of a shared tensor is not the whole file; it is sent as a copy. And a tensor with
a history cannot be sent: the graph is not in the other process. It is refused, as in PyTorch.

New: rebuild, sends, reduce.
Try: take `@sends(Tensor, Parameter)` away. Which lines of the demo change?
"""

import importlib
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
from tinytorch.ops.random import manual_seed

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")

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


if __name__ == "__main__":
    from multiprocessing import get_context

    from tinytorch.nn.modules.linear import Linear

    importlib.import_module("tinytorch.autograd.backward")
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    here, there = get_context("fork").Pipe()

    def received(value: Any) -> Any:
        """What comes out of the pipe."""
        here.send(value)
        return there.recv()

    # Memory of its own is copied, shared memory is the same.
    numbers = Tensor([1.0, 2.0])
    received(numbers)[1] = 5.0
    print("a copy:", numbers)  # -> a copy: tensor([1., 2.])
    numbers.share_memory_()
    received(numbers)[1] = 5.0
    print("the same:", numbers)  # -> the same: tensor([1., 5.])

    model = Linear(3, 1).share_memory()
    weight = received(model.weight)
    weight.detach()[0, 0] = 7.0
    print(type(weight).__name__, weight.requires_grad, model.weight[0, 0].item())
    # -> Parameter True 7.0

    # A part of a tensor, and a tensor with a history.
    received(numbers[:1])[0] = 5.0
    print("a view is copied:", numbers.tolist())  # -> a view is copied: [1.0, 5.0]
    try:
        here.send(model.weight * 2)
    except RuntimeError as error:
        print(str(error)[:62])
    # -> Cowardly refusing to serialize non-leaf tensor which requires_
    here.close()
    there.close()
