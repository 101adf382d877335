"""Step resize01: Changing the shape of a tensor itself: unsqueeze_, t_

`x.unsqueeze(0)` is a new tensor, a view. Programs also write `x.unsqueeze_(0)`, and every variable
that holds x sees the new shape. No element moves: the tensor takes the array of the view, and its
place in the graph.

    x:  array [4], made by Exp              x:  array [1, 4], made by Unsqueeze
                               x.unsqueeze_(0)          |
                                                       Exp

So one function makes all of the in-place forms: call the view, become it. A tensor that is a view
itself becomes another view of its base (`_view`, step 67a).

The trap: it counts as a write (bump_version, step 66a). What backward has saved had the other
shape, so a value that exp has saved must not be used after it.

(In PyTorch all views have such a form whose name does not need sizes.)

New: shape_in_place, unsqueeze_, squeeze_, transpose_, swapaxes_, t_.
Try: leave `bump_version` out. Which line of the demo is missing then?
"""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.inplace import check_writable
from tinytorch.core.tensor import Tensor, tensor_method
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
        new = view(self, *args, **kwargs)
        if self._view is not None:
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

    z = x.exp()
    z.unsqueeze_(0)
    try:
        z.sum().backward()
    except RuntimeError as error:
        print(str(error)[:66])
    # -> one of the variables needed for gradient computation has been modi
