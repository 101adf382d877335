"""In-place operations: new elements in the same memory, and the history that goes with them."""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.autograd.views import rebase_history
from tinytorch.core.arguments import wrong_argument
from tinytorch.core.dtype import can_cast
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import bump_version, next_sequence_nr


class CopySlices(Function):
    """base = base with the part that a view shows replaced by `values`, in place.

    The view is given by the calls that lead from the base to it. The gradient of the values is
    that part of the gradient; the gradient of what the base was before is zero there.
    """

    def forward(ctx, base: Any, values: Any, view_calls: tuple, order: Any = None) -> Any:
        ctx.view_calls, ctx.order_of_dims = view_calls, order
        if order is None:
            ctx.order_of_dims = sorted(range(base.ndim), key=lambda dim: -base.strides[dim])
        else:  # a copy that lies in memory as the base does: else the part may be no view of it
            base = ctx.xp.asarray(base).transpose(order).copy()  # a 0-d gradient may be a scalar
            base = base.transpose([order.index(dim) for dim in range(base.ndim)])
        ctx.part_of(base)[...] = values
        return base

    def part_of(ctx, whole: Any) -> Any:
        for function, parameters in ctx.view_calls:
            if not function.writable:
                raise RuntimeError(
                    f"a view made by {function.__name__} cannot be written in place where "
                    f"gradients are recorded: its elements overlap, or lie outside of its base. "
                    f"Please clone() the tensor before performing the operation."
                )
            whole = ctx.call(function, whole, *parameters)
        return whole

    def backward(ctx, g: Any) -> Any:
        rest = ctx.call(CopySlices, g, 0.0, ctx.view_calls, ctx.order_of_dims)
        return rest, ctx.part_of(g)

    def name(ctx) -> str:
        return "CopySlices"


def check_writable(target: Tensor) -> bool:
    """Whether a write into `target` is recorded.

    Raises:
        RuntimeError: the write would make a gradient or an element wrong.
    """
    recorded = state.grad_enabled and target.requires_grad
    if recorded:
        if target.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        if target._view is not None and target.grad_fn.takes_tensors:
            raise RuntimeError(
                f"Output of {target.grad_fn.name()} is a view and is being modified inplace. "
                f"Please clone() it in forward."
            )
        if target._view is not None and target._view.base.is_leaf:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )
    elif state.grad_enabled and target._view is not None and target._view.base.requires_grad:
        raise RuntimeError(
            "A view was created in no_grad mode and is being modified inplace with grad mode "
            "enabled. Make the view outside of no_grad(), or detach() it."
        )
    strides, shape = target.array.strides, target.array.shape
    repeated = 0 in strides and 0 not in shape  # of an expanded tensor, if there is more than one
    if repeated and any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True)):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )
    return recorded


def assign(target: Tensor, values: Tensor) -> Tensor:
    """Write `values`, the new result of an operation, into the memory of `target`.

    Raises:
        RuntimeError: the shapes differ, or the result has a type of a higher category.
    """
    if values.array.shape != target.array.shape:
        raise RuntimeError(
            f"output with shape {list(target.array.shape)} doesn't match the broadcast shape "
            f"{list(values.array.shape)}"
        )
    if not can_cast(values.dtype, target.dtype):
        raise RuntimeError(
            f"result type {values.dtype!r} can't be cast to the desired output type "
            f"{target.dtype!r}"
        )
    record = state.grad_enabled and (target.requires_grad or values._requires_grad)
    if record and values.dtype is not target.dtype:
        values = values.to(target.dtype)
    if record and (target._view is not None or not values._requires_grad):
        return overwrite(target, values)
    target.array[...] = values.array
    bump_version(target.array)
    if record and values._requires_grad:
        take_history(target, values)
    return target


def into(out: Tensor, values: Tensor) -> Tensor:
    """Write a result into the memory of `out` and return `out`, for operations with `out=`.

    An `out` of another shape gets new memory, with a warning if it was not empty.

    Raises:
        RuntimeError: a gradient would be recorded, or the result has a type of a higher category.
    """
    if state.grad_enabled and (values.requires_grad or out.requires_grad):
        raise RuntimeError(
            "functions with out=... arguments don't support automatic differentiation, but one of "
            "the arguments requires grad."
        )
    if out.array.shape != values.array.shape:
        if out.array.size:
            warnings.warn(
                f"An output with one or more elements was resized: {out.shape} to {values.shape}",
                stacklevel=3,
            )
        out.array = out.device.xp.empty(values.array.shape, out.array.dtype)
    check_writable(out)
    return assign(out, values)


def with_out(function: Callable) -> Callable:
    """The function with an argument `out`: a tensor that takes the result, and is returned.

    Raises:
        RuntimeError: as of `into`.
    """
    inner = getattr(function, "__wrapped__", function)  # of a checked one: one call less

    @functools.wraps(function)
    def call(*args: Any, out: Tensor | None = None, **kwargs: Any) -> Any:
        try:
            result = inner(*args, **kwargs)
        except Exception as error:
            wrong = None if inner is function else wrong_argument(inner, args, kwargs)
            if wrong is None:
                raise
            raise wrong from error
        return result if out is None else into(out, result)

    call.__module__ = sys._getframe(1).f_globals["__name__"]  # where pickle finds it
    return call


def take_history(target: Tensor, values: Tensor) -> None:
    """Make `target` the result of the call that made `values`. If the call saved this result (exp_
    needs it for backward), it keeps the memory of `target` instead, and the second array can go."""
    call = values._edge[0]
    rebase_history(target, values._edge)
    if has_saved(call, values.array):
        call.saved = tuple(target.array if v is values.array else v for v in call.saved)
        call.sequence_nr = next_sequence_nr()  # after the write that made it


def has_saved(call: Function | None, array: Any) -> bool:
    return call is not None and any(value is array for value in call.saved)


def overwrite(target: Tensor, values: Any) -> Tensor:
    """Replace the elements of `target` by `values`, a tensor of its shape and type or a number.

    What the target was before has no part in the result: its gradient is zero.
    """
    if state.grad_enabled and (target.requires_grad or getattr(values, "requires_grad", False)):
        view = target._view
        base, calls = (target, ()) if view is None else (view.base, view.calls)
        rebase_history(base, CopySlices.apply(base, values, calls)._edge)
    else:
        target.array[...] = values.array if isinstance(values, Tensor) else values
    bump_version(target.array)
    return target


def direct_operand(target: Tensor, other: Any, alpha: float = 1) -> Any:
    """The array (or number) alpha * other, for an operation in the memory of `target`; None where
    the operation has to take the long way.

    The short way is for floats of one type, of one shape or with a number as `other`, which needs
    no gradient. It saves a temporary result and a copy.
    """
    a, b = target.array, other
    if isinstance(other, Tensor):
        b = other.array
        if (state.grad_enabled and other.requires_grad) or other.device is not target.device:
            return None
        if a.dtype is not b.dtype or (b.ndim and a.shape != b.shape):
            return None
    if a.dtype.kind != "f" or not isinstance(other, (Tensor, float)):
        return None
    alpha = alpha.item() if isinstance(alpha, Tensor) else alpha  # else b * alpha were a Tensor
    return b if alpha == 1 else b * alpha


def in_place(
    function: Callable[..., Tensor], operation: Callable[[Any, Any], Any] | None = None
) -> Callable[..., Tensor]:
    """The in-place form of an operation whose first argument is the tensor: add -> add_.

    `operation`, such as operator.iadd, does the same to an array: see direct_operand. It is used
    where nothing is recorded and no mode has to see the call.
    """

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        recorded = check_writable(self)
        if operation is not None and len(args) == 1 and not (recorded or state.modes):
            other = direct_operand(self, *args, **kwargs)
            if other is not None:
                operation(self.array, other)
                bump_version(self.array)
                return self
        values = function(self, *args, **kwargs)
        if has_saved(values.grad_fn, self.array):  # backward needs what is overwritten now
            values = function(self.clone(), *args, **kwargs)
        return assign(self, values)

    method.__name__ = method.__qualname__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}(), written into this tensor's memory."
    return method
