"""Step 80u: Parameters that processes share: share_memory_

Four processes are to train one network, each on its part of the data, without waiting for each
other (Hogwild). A process that is started gets a copy of what it is given, or, after a fork, pages
that become copies when they are written. It trains its copy, and the network of the main process
stays as it was:

    in the worker: loss 0.00        in the main process: loss 3.47, as before

Memory that is shared is a file that lives in memory, and that both map into their addresses. Python
has one without a name, `Arena`: the system removes it when no process has it open. share_memory_
copies the elements into such a file, and makes an array of it. After a fork, the worker has the
same pages, and they are not copied.

A tensor that is sent through a queue, or to a process that is started by "spawn", goes as a pickle,
and pickle would write its elements. ForkingPickler has a table of types for that: `reduce` hands
over the open file (Arena knows how to), and `rebuild` maps it.

Two traps. A view of a shared tensor is sent as a copy. And a tensor with a history cannot be sent:
the graph is not in the other process. It is refused, as in PyTorch. (That several processes write
the same parameters without a lock loses some updates. SGD forgives it.)

New: arenas, array_in, is_shared, share_memory_, rebuild, sends, reduce, share_memory.
Try: leave `model.share_memory()` out, and read the last loss.
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
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
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


def share_memory(self: Module) -> Module:
    """Moves all parameters and buffers to memory that processes share."""
    for tensor in (*self.parameters(), *self.buffers()):
        share_memory_(tensor)
    return self


Module.share_memory = share_memory


if __name__ == "__main__":
    from multiprocessing import get_context

    from tinytorch.nn.linear import Linear
    from tinytorch.optim.sgd import SGD

    importlib.import_module("tinytorch.autograd.engine")
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

    here, there = get_context("fork").Pipe()
    here.send(model.weight)
    weight = there.recv()
    weight.detach()[0, 0] = 7.0
    print(type(weight).__name__, model.weight[0, 0].item())  # -> Parameter 7.0
    numbers = Tensor([1.0, 2.0]).share_memory_()
    here.send(numbers)
    there.recv()[1] = 5.0
    print(numbers)  # -> tensor([1., 5.])
    here.send(numbers[:1])
    there.recv()[0] = 5.0
    print("a view is copied:", numbers.tolist())  # -> a view is copied: [1.0, 5.0]
    try:
        here.send(model.weight * 2)
    except RuntimeError as error:
        print(str(error)[:62])
    # -> Cowardly refusing to serialize non-leaf tensor which requires_
    here.close()
    there.close()
