"""The short way through a call: what Function.apply does, for one or two plain tensors."""

from typing import Any

from tinytorch.autograd.modes import inference_seen, open_modes, thread
from tinytorch.autograd.node import Function, check_inference, follow_base, new
from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor
from tinytorch.core.version import next_order

# The classes of a second operand: none, a tensor that is no Parameter, a number.
DIRECT = {Tensor, float, int, type(None)}


def apply_directly(function: type[Function], a: Any, b: Any = None) -> Tensor:
    """function.apply(a) or function.apply(a, b), for a differentiable operation that has one result
    and makes no view. `b` may be a number.

    For plain tensors it does the same in straight lines. Of a small operation the loop over the
    arguments, their lists and the questions that are not asked here take a third of the time.
    """
    if a.__class__ is not Tensor or b.__class__ not in DIRECT:
        return function.apply(a, b)
    device, enabled = a.device, thread.grad_enabled  # asked now: it silences NumPy on a new thread
    if open_modes or (b.__class__ is Tensor and b.device is not device):
        return function.apply(a) if b is None else function.apply(a, b)
    ctx = new(function)
    if device is not cpu:
        ctx.device, ctx.xp = device, device.xp
    edge = edge_b = None
    if a._base is not None:
        follow_base(a)
    if a._requires_grad:
        edge = a if a._grad_fn is None else a._grad_fn
        if a._output_nr is not None:
            edge = (edge, a._output_nr)
    try:
        if b.__class__ is not Tensor:
            ctx.edges, rest = ((edge,), ()) if b is None else ((edge, None), (b,))
            array = function.forward(ctx, a.array, *rest)
        else:
            if b._base is not None:
                follow_base(b)
            if b._requires_grad:
                edge_b = b if b._grad_fn is None else b._grad_fn
                if b._output_nr is not None:
                    edge_b = (edge_b, b._output_nr)
            ctx.edges = (edge, edge_b)
            array = function.forward(ctx, a.array, b.array)
    except (ValueError, TypeError) as error:
        raise function.explain(error, [x.array for x in (a, b) if x.__class__ is Tensor]) from error
    array = array if array.__class__ is device.array_type else ctx.as_array(array)
    out = new(Tensor)  # and filled as by wrap
    out.array, out.device = array, device
    out._requires_grad, out._grad_fn, out._output_nr, out._base = False, None, None, None
    record = enabled and (edge is not None or edge_b is not None)
    if record:
        ctx.order = next_order()
        ctx.outputs = ((array.shape, array.dtype, id(array)),)
        out._requires_grad, out._grad_fn = True, ctx
        if b.__class__ is Tensor and a.array.shape != b.array.shape:
            ctx.note_shapes((a.array, b.array), array.shape)
    if inference_seen:
        check_inference(out, (a, b), record)
    return out
