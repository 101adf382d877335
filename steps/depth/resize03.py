"""Step resize03: resize_: any shape, in memory that may grow

A program reads records of different length into one buffer. view_ does not exist, and reshape to a
shape with another number of elements is an error. `resize_` is an older function, and rougher: it
takes any shape, and reads the elements as they lie in memory.

    memory 0 1 2 3 4 5       resize_(2, 2):   0 1      resize_(2, 3):   0 1 2
                                              2 3                       3 4 5

A shape that needs fewer elements leaves the rest in memory, where a later resize_ finds them. One
that needs more than there are gets new memory, whose first part is a copy, and its rest has any
value.

The trap is that rest: it holds what was in memory before, and looks like numbers. It has no
derivative, so a tensor that requires gradients refuses resize_.

New: resize_, resize_as_.
Try: print all eight numbers after resize_as_ in the demo, in several runs.
"""

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.inplace import check_writable
from tinytorch.autograd.views import rebase_history
from tinytorch.core.tensor import Tensor, tensor_method, wrap
from tinytorch.core.version import bump_version
from tinytorch.ops.arguments import as_shape
from tinytorch.ops.shape import squeeze, t, transpose, unsqueeze
from tinytorch.ops.storage import memory_of, offset_of

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison elementwise indexing reduction shape storage".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def shape_in_place(view: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The in-place form of an operation that returns a view: the tensor becomes this view."""

    @functools.wraps(view)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self)
        base = self
        if self._view is None and self._edge is not None:
            # What it was stays the base: views that were made of it before must not take the new
            # shape for that of their base. They raise an error when it is written.
            base = wrap(self.array, self.device)
            rebase_history(base, self._edge)
        new = view(base, *args, **kwargs)
        if base is not self or self._view is not None:
            self._view = new._view
        self.array = new.array
        if new._edge is not None:
            self._requires_grad, self._edge = True, new._edge
        bump_version(self.array)
        return self

    method.__name__ = method.__qualname__ = f"{view.__name__}_"
    method.__doc__ = f"{view.__name__}(), of this tensor itself: its elements stay where they are."
    return method


unsqueeze_ = tensor_method("unsqueeze_")(shape_in_place(unsqueeze))
squeeze_ = tensor_method("squeeze_")(shape_in_place(squeeze))
transpose_ = tensor_method("transpose_")(shape_in_place(transpose))
swapaxes_ = tensor_method("swapaxes_")(transpose_)
t_ = tensor_method("t_")(shape_in_place(t))


@tensor_method("resize_")
def resize_(self: Tensor, *sizes: Any) -> Tensor:
    """Gives the tensor another shape. The elements stay, in the order in which they lie in memory;
    what is added at the end has any value. Memory that is too small is replaced by a copy.

    Raises:
        RuntimeError: the tensor requires gradients, or a size is negative.
    """
    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    shape = as_shape(sizes)
    if min(shape, default=0) < 0:
        raise RuntimeError(f"resize_: sizes may not be negative, but are {list(shape)}")
    start, count = offset_of(self.array), math.prod(shape)
    memory = memory_of(self.array)[start:]
    if memory.size < count:
        memory, old = self.device.xp.empty(count, memory.dtype), memory
        memory[: old.size] = old
    self.array = memory[:count].reshape(shape)
    bump_version(self.array)
    return self


@tensor_method("resize_as_")
def resize_as_(self: Tensor, the_template: Tensor) -> Tensor:
    """`resize_`, to the shape of another tensor."""
    return resize_(self, the_template.shape)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")
    importlib.import_module("tinytorch.autograd.backward")

    buffer = tensor([0, 1, 2, 3, 4, 5])
    print(buffer.resize_(2, 2).tolist(), buffer.resize_(2, 3).tolist())
    # -> [[0, 1], [2, 3]] [[0, 1, 2], [3, 4, 5]]
    print(buffer.resize_as_(tensor([0] * 8))[:6].tolist())  # -> [0, 1, 2, 3, 4, 5]

    # From the place where a view begins.
    part = tensor([0, 1, 2, 3, 4, 5])[2:4]
    print(part.resize_(3).tolist())  # -> [2, 3, 4]

    x = tensor([1.0, 2.0], requires_grad=True)
    for wrong in (lambda: x.resize_(1), lambda: buffer.resize_(-1)):
        try:
            wrong()
        except RuntimeError as error:
            print(error)
    # -> cannot resize variables that require grad
    # -> resize_: sizes may not be negative, but are [-1]
