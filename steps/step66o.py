"""Step 66o: Changing the shape of a tensor itself

`x.unsqueeze(0)` is a new tensor, a view. Programs also write `x.unsqueeze_(0)`, and every variable
that holds x sees the new shape. No element moves: the tensor takes the array of the view, and its
place in the graph.

    x:  array [4], made by Exp              x:  array [1, 4], made by Unsqueeze
                               x.unsqueeze_(0)          |
                                                       Exp

So one function makes all of the in-place forms: call the view, become it. It counts as a write:
what backward has saved had the other shape. The trap is a view that was made before, such as the
first row of a square that is then transposed: with the base's new shape it would be a column. So
what the tensor was stays the base, and such a view raises an error.

`resize_` is older, and rougher. It takes any shape, and reads the elements as they lie in memory. A
shape that needs more than there is gets new memory, whose first part is a copy, and its rest has
any value. No derivative can be said of that: a tensor that requires gradients refuses.

New: shape_in_place, unsqueeze_, squeeze_, transpose_, swapaxes_, t_, resize_, resize_as_.
Try: leave `bump_version` out, and call backward of the sum below. What shape would be wrong?
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
from tinytorch.ops.broadcast import as_shape
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
    importlib.import_module("tinytorch.autograd.engine")

    image = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    same = image
    image.unsqueeze_(0)
    print(same.shape, same.squeeze_().t_().shape)
    # -> tinytorch.Size([1, 2, 3]) tinytorch.Size([3, 2])
    print(image.transpose_(0, 1).tolist())  # -> [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

    x = tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    y.unsqueeze_(1)
    print(y.grad_fn.name(), y.grad_fn.next_functions[0][0].name())
    # -> UnsqueezeBackward0 MulBackward0
    (y * tensor([[1.0, 10.0]])).sum().backward()
    print(x.grad)  # -> tensor([33., 33.])
    row = (x * 3).view(1, 2)[0]
    print((row.unsqueeze_(0) * 2).shape, row.is_leaf)  # -> tinytorch.Size([1, 2]) False

    square = (tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True) * 2).contiguous()
    first = square[0]
    square.t_().mul_(10)  # the first row is a column now
    try:
        first.sum().backward()
    except RuntimeError as error:
        print(str(error)[:59])
    # -> the base of a view that SelectBackward0 returned was change
    z = x.exp()
    z.unsqueeze_(0)
    try:
        z.sum().backward()
    except RuntimeError as error:
        print(str(error)[:66])
    # -> one of the variables needed for gradient computation has been modi

    buffer = tensor([0, 1, 2, 3, 4, 5])
    print(buffer.resize_(2, 2).tolist(), buffer.resize_(2, 3).tolist())
    # -> [[0, 1], [2, 3]] [[0, 1, 2], [3, 4, 5]]
    print(buffer.resize_as_(tensor([0] * 8))[:6].tolist())  # -> [0, 1, 2, 3, 4, 5]
    for wrong in (lambda: x.resize_(1), lambda: buffer.resize_(-1)):
        try:
            wrong()
        except RuntimeError as error:
            print(error)
    # -> cannot resize variables that require grad
    # -> resize_: sizes may not be negative, but are [-1]
