"""Views: tensors that show another tensor's memory, and that follow when it gets a new history."""

from typing import Any

from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import storage_of


class View:
    """How a view came from its base.

    Attributes:
        base: the tensor that owns the memory; never a view itself.
        base_edge: the base's place in the graph when the view was made or refreshed.
        path: (path of the view that it was made from, call); that of the base is None. To
            copy all calls into a tuple would make a chain of n views take n^2 steps.
    """

    def __init__(self, base: Tensor, path: tuple):
        self.base, self.base_edge, self.path = base, base._edge, path

    @property
    def calls(self) -> list:
        """The (Function, parameters) that lead from the base to the view."""
        calls, path = [], self.path
        while path is not None:
            path, call = path
            calls.append(call)
        return calls[::-1]

    def refresh(self, view: Tensor) -> None:
        """Give `view` the history that its base has received from in-place writes since."""
        if self.base._edge is not self.base_edge:
            refresh_view_grad_fn(view)


def record_view(out: Tensor, source: Tensor, call: tuple) -> None:
    """Note that `out` was made from `source` by `call`, unless the call had to copy."""
    whole = source.array  # most often the owner of the memory, which NumPy notes as the base
    if out.array.base is whole or storage_of(out.array) is storage_of(whole):
        view = source._view
        base, path = (source, None) if view is None else (view.base, view.path)
        out._view = View(base, (path, call))


def refresh_view_grad_fn(tensor: Tensor) -> None:
    """Repeat the calls that made a view, on its base as it is in the graph now.

    Raises:
        RuntimeError: the view came from a user's Function.
    """
    view = tensor._view
    reshaped = view.base._view is not None  # in place, so the calls would not fit any more
    if reshaped or (tensor._edge is not None and tensor._edge[0].takes_tensors):
        name = "a function" if tensor._edge is None else tensor._edge[0].name()
        raise RuntimeError(
            f"the base of a view that {name} returned was changed in place. "
            f"Please clone() the result in its forward."
        )
    before = state.grad_enabled
    state.grad_enabled = True
    try:
        again = view.base
        for function, parameters in view.calls:
            again = function.apply(again, *parameters)
    finally:
        state.grad_enabled = before
    view.base_edge = view.base._edge
    if again._edge is not None:
        rebase_history(tensor, again._edge)


def rebase_history(tensor: Tensor, edge: Any) -> None:
    """Make `tensor` the result of another call: edge is (node, output number)."""
    tensor._requires_grad, tensor._edge = True, edge
