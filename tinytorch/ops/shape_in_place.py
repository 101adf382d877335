"""Operations that give a tensor itself another shape: unsqueeze_, transpose_, resize_."""

import functools
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
