"""Hooks: functions that see a gradient when it is computed, and may replace it."""

import weakref
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor, tensor_method, wrap

Tensor.retains_grad = False


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away again."""

    next_id = 0

    def __init__(self, hooks: dict):
        self.hooks = weakref.ref(hooks)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1

    def remove(self) -> None:
        hooks = self.hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> "RemovableHandle":
        return self

    def __exit__(self, *exception: Any) -> None:
        self.remove()


class Hooks(dict):
    """Hooks by the id of their handle, in the order of registration. Unlike a dict, it can be
    referred to weakly."""

    def add(self, hook: Callable) -> RemovableHandle:
        handle = RemovableHandle(self)
        self[handle.id] = hook
        if "retain" in self:  # retain_grad comes last: it keeps what the others have made of it
            self["retain"] = self.pop("retain")
        return handle


@tensor_method("register_hook")
def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Call hook(gradient) whenever a gradient of this tensor is computed.

    What the hook returns, if it is not None, replaces the gradient.

    Raises:
        RuntimeError: the tensor does not require a gradient.
    """
    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return hooks_of(self).add(hook)


def hooks_of(tensor: Tensor) -> Hooks:
    """The hooks on the gradient of `tensor`: a leaf has its own, others keep them at their node."""
    if tensor.is_leaf:
        tensor._hooks = Hooks() if tensor._hooks is None else tensor._hooks
        return tensor._hooks
    node, number = tensor._edge
    if node.hooks is None:
        node.hooks, node.plain = {}, False
    return node.hooks.setdefault(number, Hooks())


@tensor_method("register_post_accumulate_grad_hook")
def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Call hook(leaf) after each accumulation into leaf.grad.

    Raises:
        RuntimeError: the tensor is not a leaf that requires a gradient.
    """
    if not self.is_leaf or not self.requires_grad:
        raise RuntimeError(
            "post accumulate grad hooks can only be registered on leaf tensors that require grad"
        )
    if self._after_hooks is None:
        self._after_hooks = Hooks()
    return self._after_hooks.add(hook)


@tensor_method("retain_grad")
def retain_grad(self: Tensor) -> None:
    """Keep the gradient of a tensor that is not a leaf in its .grad too.

    Raises:
        RuntimeError: the tensor does not require a gradient.
    """
    if not self.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if self.is_leaf or self.retains_grad:
        return
    self.retains_grad = True
    tensor = weakref.ref(self)  # the node must not keep its own output alive

    def keep(grad: Tensor) -> None:
        kept = tensor()
        if kept is not None:
            kept._grad = grad if kept._grad is None else kept._grad + grad

    hooks_of(self)["retain"] = keep


def call_hooks(node: Function, grad: Any) -> Any:
    """Show the gradients of a node's outputs to the hooks on them, which may replace them."""
    grads = grad if node.several else [grad]
    for number, hooks in node.hooks.items():
        if grads[number] is not None:
            grads[number] = run_hooks(hooks, grads[number], node.device)
    return grads if node.several else grads[0]


def run_hooks(hooks: dict, grad: Any, device: Any) -> Any:
    """Call each hook with the gradient as a Tensor; what a hook returns replaces it."""
    as_array = not isinstance(grad, Tensor)
    tensor = wrap(device.xp.asarray(grad), device) if as_array else grad
    for hook in list(hooks.values()):
        answer = hook(tensor)
        if answer is not None:
            if not isinstance(answer, Tensor):
                raise TypeError(f"a hook returns None or a Tensor, not {type(answer).__name__}")
            if answer.shape != tensor.shape:
                raise RuntimeError(
                    f"a hook has changed the shape of a gradient, {list(tensor.shape)}, to "
                    f"{list(answer.shape)}"
                )
            tensor = answer
    return tensor.array if as_array else tensor
