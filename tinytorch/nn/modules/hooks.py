"""What module hooks need: gates that show the gradients of a module's inputs and outputs."""

from collections.abc import Callable
from typing import Any

from tinytorch.autograd.hooks import Hooks
from tinytorch.autograd.node import Function
from tinytorch.core.tensor import Tensor


class Gate(Function):
    """Passes tensors on unchanged. On the way back `watch` sees all their gradients at once, at
    their `places` among n values, and answers with those that go on."""

    takes_tensors = True
    plain = False
    materialize_grads = False

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


class Gates:
    """The two gates around one call of a module that has backward hooks."""

    def __init__(self, module: Any):
        # What arrived at the outputs waits until the gradients of the inputs are known.
        self.module, self.arrived = module, []

    def enter(self, args: tuple) -> tuple:
        """The inputs, behind the first gate."""
        passed = through_gate(args, self.at_inputs)
        self.closed = len(args) if passed is args else None  # no input requires a gradient
        return passed

    def leave(self, output: Any) -> Any:
        """The output, behind the second gate."""
        passed = through_gate(make_tuple(output), self.at_outputs)
        make = getattr(type(output), "_make", tuple)  # a named tuple stays one
        return make(passed) if isinstance(output, tuple) else passed[0]

    def at_outputs(self, grads: tuple) -> tuple:
        grads = self.ask(self.module._backward_pre_hooks, grads)
        self.arrived.append(grads)
        if self.closed is not None:  # nothing will arrive there, and nothing can go on
            if any(grad is not None for grad in self.at_inputs((None,) * self.closed)):
                raise RuntimeError("no input requires a gradient: the hook has to return None")
        return grads

    def at_inputs(self, grads: tuple) -> tuple:
        # Nothing arrives if the output is neither a tensor nor a tuple: as in PyTorch, no hooks.
        arrived = [self.arrived.pop()] if self.arrived else []
        return self.ask(self.module._backward_hooks if arrived else {}, grads, *arrived)

    def ask(self, hooks: Hooks, grads: tuple, *more: tuple) -> tuple:
        """The gradients, or what the hooks make of them. Raises RuntimeError for a wrong number."""
        for hook in list(hooks.values()):
            answer = hook(self.module, grads, *more)
            before, grads = len(grads), grads if answer is None else make_tuple(answer)
            if len(grads) != before:
                raise RuntimeError(f"a hook returned {len(grads)} gradients, not {before}")
        return grads
