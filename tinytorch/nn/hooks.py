"""What module hooks need: a gate that shows the gradients of a module's inputs or outputs."""

from collections.abc import Callable
from typing import Any

from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor


class Gate(Function):
    """Passes tensors on unchanged. On the way back `watch` sees all their gradients at once, at
    their `places` among n values, and answers with those that go on."""

    on_tensors = True
    plain = False
    fill_missing = False

    def forward(ctx, watch: Callable, places: list[int], n: int, *arrays: Any) -> Any:
        ctx.watch, ctx.places, ctx.n = watch, places, n
        return arrays if len(arrays) > 1 else arrays[0]

    def backward(ctx, *grads: Any) -> tuple:
        given = dict(zip(ctx.places, grads, strict=True))
        answer = ctx.watch(tuple(given.get(place) for place in range(ctx.n)))
        return (None, None, None, *(answer[place] for place in ctx.places))


def make_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def through_gate(values: tuple, watch: Callable[[tuple], tuple]) -> tuple:
    """The values; those that require a gradient have passed a gate."""
    places = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
    if not places:
        return values
    passed = Gate.apply(watch, places, len(values), *(values[i] for i in places))
    passed = iter(make_tuple(passed))
    return tuple(next(passed) if i in places else x for i, x in enumerate(values))
