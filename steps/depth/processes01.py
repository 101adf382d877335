"""Step processes01: Parameters that processes share: share_memory_

Four processes are to train one network, each on its part of the data, without waiting for each
other (Hogwild). A process that is started by a fork gets pages of memory that become copies when
they are written. It trains its copy, and the network of the main process stays as it was:

    in the worker: loss 0.00        in the main process: loss 3.47, as before

Memory that is shared is a file that lives in memory, and that both map into their addresses.
Python has one without a name, `Arena`: the system removes it when no process has it open.
share_memory_ copies the elements into such a file, and makes an array of it. After a fork, the
worker has the same pages, and they are not copied.

`arenas` notes which memory is shared, by the id of the array that owns it, and forgets it with the
array: a weak reference calls a function when its object is gone. is_shared looks there for the
storage, since a view of a shared tensor is shared too.

The trap: several processes write the same parameters without a lock, and some updates are lost. SGD
forgives that; a counter would not.

share_memory of a module (step module27) calls share_memory_ for all its parameters and buffers.
(PyTorch's methods have the same names.)

New: arenas, array_in, is_shared, share_memory_.
Try: leave `model.share_memory()` out, and read the last loss.
"""

import importlib
import math
import weakref
from multiprocessing.heap import Arena
from typing import Any

import numpy as np

from tinytorch.core.tensor import Tensor, tensor_method
from tinytorch.core.version import storage_of
from tinytorch.ops.random import manual_seed, randn

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


if __name__ == "__main__":
    from multiprocessing import get_context

    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.module import Module
    from tinytorch.optim.sgd import SGD

    importlib.import_module("tinytorch.autograd.backward")
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    x = randn(20, 3)
    y = x.sum(1, keepdim=True)

    def loss_of(model: Module) -> Tensor:
        return ((model(x) - y) ** 2).mean()

    def train(model: Module) -> None:
        optimizer = SGD(model.parameters(), lr=0.05)
        for _ in range(100):
            optimizer.zero_grad()
            loss_of(model).backward()
            optimizer.step()

    def in_workers(model: Module, count: int = 2) -> float:
        workers = [get_context("fork").Process(target=train, args=(model,)) for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return loss_of(model).item()

    model = Linear(3, 1)
    before = loss_of(model).item()
    print("copies, the loss stays:", in_workers(model) == before)  # -> copies, the loss stays: True
    model.share_memory()
    print("shared:", model.weight.is_shared(), "- learned:", in_workers(model) < 1e-3)
    # -> shared: True - learned: True

    # Memory that is shared is forgotten with its tensor.
    number = Tensor([1.0, 2.0]).share_memory_()
    print(number, number[1:].is_shared(), len(arenas))  # -> tensor([1., 2.]) True 3
    del number
    print(len(arenas))  # -> 2
