"""The functions that start a backward pass: backward() and grad(), with checked arguments."""

from collections.abc import Sequence
from typing import Any

from tinytorch.autograd.engine import NodeMode, accumulate, backward_pass, edge_of
from tinytorch.autograd.hooks import run_hooks
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor_method, wrap


def starting_gradients(outputs: Sequence[Tensor], grads: Sequence[Any]) -> list[Tensor]:
    """The given gradients, checked, or ones for scalars."""
    checked = []
    for number, (output, grad) in enumerate(zip(outputs, grads, strict=True)):
        if not output.requires_grad:
            raise RuntimeError(
                f"element {number} of tensors does not require grad and does not have a grad_fn"
            )
        if grad is None:
            if output.array.size != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs, this one has the "
                    f"shape {list(output.shape)}"
                )
            ones = output.device.xp.ones(output.array.shape, output.array.dtype)
            grad = wrap(ones, output.device)
        elif not isinstance(grad, Tensor):
            raise TypeError(f"gradients are Tensors or None, but got {type(grad).__name__}")
        elif grad.shape != output.shape:
            raise RuntimeError(
                f"Mismatch in shape: grad_output[{number}] has a shape of {grad.shape} and "
                f"output[{number}] has a shape of {output.shape}."
            )
        elif grad.dtype is not output.dtype:
            grad = grad.to(output.dtype)
        checked.append(grad)
    return checked


def as_sequence(value: Any) -> tuple:
    return () if value is None else (value,) if isinstance(value, Tensor) else tuple(value)


def check_targets(targets: tuple | None) -> None:
    """Raise RuntimeError if the inputs, where any are given, cannot get a gradient."""
    if targets is not None and not targets:
        raise RuntimeError("`inputs` cannot be empty.")
    for number, target in enumerate(targets or ()):
        if not target.requires_grad:
            raise RuntimeError(
                f"One of the differentiated Tensors, at index {number}, does not require grad"
            )


def run_backward(
    tensors: Any,
    grad_tensors: Any,
    retain_graph: bool | None,
    create_graph: bool,
    inputs: Any,
) -> dict:
    """backward_pass, from arguments as people write them, with recording set to create_graph."""
    roots = as_sequence(tensors)
    given = as_sequence(grad_tensors) or (None,) * len(roots)
    if len(given) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(given)} gradients")
    check_targets(inputs)
    targets = None if inputs is None else {edge_of(target) for target in inputs}
    keep = create_graph if retain_graph is None else retain_graph
    as_tensors = create_graph or not all(isinstance(mode, NodeMode) for mode in state.modes)
    before = state.grad_enabled
    state.grad_enabled = create_graph
    try:
        grads = starting_gradients(roots, given)
        grads = grads if as_tensors else [grad.array for grad in grads]
        return backward_pass([edge_of(x) for x in roots], grads, keep, as_tensors, targets)
    finally:
        state.grad_enabled = before


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradients of `tensors` to the .grad of the leaves (or of `inputs` only).

    Args:
        tensors: the outputs to differentiate.
        grad_tensors: the gradient that arrives at each of them; None for a scalar means 1.
        retain_graph: keep the saved values, for another backward through the same graph.
        create_graph: record the backward pass, so that the gradients can be differentiated.
    Raises:
        RuntimeError: there is no graph, a non-scalar has no gradient, the graph has been freed, or
            a saved tensor was changed in place.
    """
    targets = None if inputs is None else as_sequence(inputs)
    arrived = run_backward(tensors, grad_tensors, retain_graph, create_graph, targets)
    if targets is None:
        while arrived:
            leaf, grad = arrived.popitem()
            accumulate(leaf, grad)
        return
    for target in targets:
        grad = arrived.pop(edge_of(target), None)
        if grad is not None:
            accumulate(target, grad)


@tensor_method("backward")
def tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Differentiate this tensor: see tinytorch.autograd.backward."""
    backward(self, gradient, retain_graph, create_graph, inputs)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`; no .grad is touched.

    An input that the outputs do not depend on gives None with allow_unused=True, and zeros with
    materialize_grads=True. The other arguments are those of `backward`; only_inputs is ignored, as
    in PyTorch.

    Raises:
        RuntimeError: as `backward`, or an input is unused and neither option is given.
        ValueError: materialize_grads=True with allow_unused=False.
    """
    targets = as_sequence(inputs)
    if materialize_grads and allow_unused is False:
        raise ValueError("materialize_grads fills in for unused inputs: allow_unused must be True")
    found = run_backward(outputs, grad_outputs, retain_graph, create_graph, targets)
    results = []
    for number, target in enumerate(targets):
        value = found.get(edge_of(target))
        if value is None:
            if not allow_unused and not materialize_grads:
                raise RuntimeError(
                    f"The differentiated Tensor at index {number} appears to not have been used "
                    f"in the graph. Set allow_unused=True if this is the desired behavior."
                )
            if materialize_grads:
                value = target.device.xp.zeros(target.array.shape, target.array.dtype)
        if value is not None and not isinstance(value, Tensor):
            value = wrap(target.device.xp.array(value), target.device)
        if value is not None and target.is_leaf and target._hooks:
            value = run_hooks(target._hooks, value, target.device)
        results.append(value)
    return tuple(results)
