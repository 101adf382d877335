"""Step resize02: In-place shapes, and views that were made before

Take the first row of a square, and then transpose the square itself with t_ of step resize01. The
row is a view, and remembers how to make itself anew from its base: element 0 along dimension 0.
When the base is written afterwards, the row follows (step 67b), and element 0 of the transposed
square is its first column. The demo's row keeps the numbers [20, 40], but its gradient goes to the
column, and there is no error:

    d(sum of the row)/dx     should be  20 20       is  20  0
                                         0  0           20  0

So a tensor with a history is not the base of itself any more: what it was becomes a tensor of its
own, which stays the base, and the tensor becomes a view of that. The row is a view of the old
tensor, whose shape does not change.

    before    square  <-  row            after    old square  <-  row
                                                       ^
                                                     square       (its transposed view)

The trap: the row was not told that its base was written through another view. To use it after that
raises an error, as for any view whose base has changed its history in another way.

Changed: shape_in_place.
Try: leave out rebase_history. Which write of the demo is refused then?
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.inplace import check_writable
from tinytorch.autograd.views import rebase_history
from tinytorch.core.tensor import Tensor, tensor_method, wrap
from tinytorch.core.version import bump_version
from tinytorch.ops.shape import squeeze, t, transpose, unsqueeze

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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    importlib.import_module("tinytorch.core.printing")
    importlib.import_module("tinytorch.autograd.backward")

    def become_view(square):
        """t_ of step resize01."""
        new = t(square)
        square.array, square._edge = new.array, new._edge
        bump_version(square.array)

    def gradient_of_row(transpose_in_place):
        x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        square = (x * 2).contiguous()
        first = square[0]
        transpose_in_place(square)
        square.mul_(10)
        first.sum().backward()
        return x.grad.tolist()

    print(gradient_of_row(become_view))  # -> [[20.0, 0.0], [20.0, 0.0]]
    try:
        gradient_of_row(t_)
    except RuntimeError as error:
        print(str(error)[:63])
    # -> the base of a view that SelectBackward0 returned was changed in

    # A view that is made afterwards follows, and the gradient goes where it should.
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    square = (x * 2).contiguous()
    column = square.t_()[0]
    square.mul_(10)
    column.sum().backward()
    print(column.tolist(), x.grad.tolist())  # -> [20.0, 60.0] [[20.0, 0.0], [20.0, 0.0]]
