"""In-place operations: new elements in old memory, and a history that tells the truth about it."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.modes import thread
from tinytorch.autograd.node import Function, give_history
from tinytorch.core.dtype import can_cast
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import count_write, next_order


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


def check_writable(target: Tensor) -> None:
    """RuntimeError where writing into `target` would make a gradient or an element wrong."""
    if target._inference and not thread.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed."
        )
    if thread.grad_enabled and target.requires_grad:
        if target.is_leaf:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
            )
        if target._base is not None and target._grad_fn.on_tensors:
            raise RuntimeError(
                f"Output of {target._grad_fn.name()} is a view and is being modified inplace. "
                f"Please clone() it in forward."
            )
        if target._base is not None and target._base.is_leaf:
            raise RuntimeError(
                "a view of a leaf Variable that requires grad is being used in an in-place "
                "operation."
            )
    elif thread.grad_enabled and target._base is not None and target._base.requires_grad:
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


def assign(target: Tensor, values: Tensor) -> Tensor:
    """Writes `values`, the fresh result of an operation, into the memory of `target`.

    RuntimeError where they have another shape, or a type of a higher category.
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
    record = thread.grad_enabled and (target.requires_grad or values._requires_grad)
    if record and values.dtype is not target.dtype:
        values = values.to(target.dtype)
    if record and target._base is not None:
        return overwrite(target, values)
    target.array[...] = values.array
    count_write(target.array)
    if record and values._requires_grad:
        take_over(target, values)
    return target


def into(out: Tensor, values: Tensor) -> Tensor:
    """Writes a result into the memory of `out`, and returns `out`: what `out=` asks for.

    An `out` of another shape gets new memory, with a warning where there was something in it.
    RuntimeError where a gradient would be recorded, and for a type of a higher category.
    """
    if thread.grad_enabled and (values.requires_grad or out.requires_grad):
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


def take_over(target: Tensor, values: Tensor) -> None:
    """Makes `target` the result of the call that made `values`, also where the call has saved it:
    exp_ needs its result for backward, and a later write into it has to be noticed."""
    call = values._grad_fn
    give_history(target, call, values._output_nr)
    if has_saved(call, values.array):
        call.saved = tuple(target.array if v is values.array else v for v in call.saved)
        call.order = next_order()  # after the write that made it


def has_saved(call: Function | None, array: Any) -> bool:
    return call is not None and any(value is array for value in call.saved)


def overwrite(target: Tensor, values: Any) -> Tensor:
    """Replaces the elements of `target` by `values`, a tensor of its shape and type or a number.

    What the target was before has no part in the result: its gradient is zero.
    """
    if thread.grad_enabled and (target.requires_grad or getattr(values, "requires_grad", False)):
        base, calls = (target, ()) if target._base is None else (target._base, target._view_calls)
        give_history(base, CopySlices.apply(base, values, calls)._grad_fn, None)
    else:
        target.array[...] = values.array if isinstance(values, Tensor) else values
    count_write(target.array)
    return target


def write_directly(ufunc: str, target: Tensor, other: Any, alpha: float = 1) -> bool:
    """Computes target = ufunc(target, alpha * other) without a temporary result, if it may.

    It may where nothing is recorded or watched, and both are float tensors of one type, and of one
    shape or `other` a single number.
    """
    if thread.modes or not isinstance(other, Tensor) or other.device is not target.device:
        return False
    if thread.grad_enabled and (target.requires_grad or other.requires_grad):
        return False
    a, b = target.array, other.array
    if a.dtype is not b.dtype or a.dtype.kind != "f" or (b.ndim and a.shape != b.shape):
        return False
    getattr(target.device.xp, ufunc)(a, b if alpha == 1 else b * alpha, out=a)
    count_write(a)
    return True


def in_place(function: Callable[..., Tensor], ufunc: str = "") -> Callable[..., Tensor]:
    """The in-place form of an operation whose first argument is the tensor: add -> add_.

    Where the operation is a ufunc of the array library, its name saves the temporary result.
    """

    @functools.wraps(function)
    def method(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(self)
        if ufunc and args and write_directly(ufunc, self, *args, **kwargs):
            return self
        values = function(self, *args, **kwargs)
        if has_saved(values._grad_fn, self.array):  # backward needs what is overwritten now
            values = function(self.clone(), *args, **kwargs)
        return assign(self, values)

    method.__name__ = method.__qualname__ = f"{function.__name__}_"
    method.__doc__ = f"{function.__name__}(), written into this tensor's memory."
    return method
