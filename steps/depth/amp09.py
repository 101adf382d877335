"""Step amp09: Catalogue: the rest of GradScaler

This finishes the module. Skim it: refusals, a state that can be saved, and options by name.

In each iteration an optimizer goes through three stages, READY, UNSCALED and STEPPED, and update()
starts again. A second unscale_() would divide twice, and a second step() would use the same
gradients again: both are errors. So is a step if no parameter has a gradient, because there is
nothing to check for inf.

scale() also takes a list of losses. update(new_scale) sets the scale. With enabled=False, the
scaler only calls optimizer.step(), so the same program works with and without mixed precision.

Parameters of type float16 are refused: their updates would be lost, as in step amp01. The
parameters stay in float32, and autocast casts them.

The trap: save the scaler's state_dict() with the checkpoint. Without it, a resumed training starts
with the initial scale, and skips its first steps again.

Changed: GradScaler. New: OptimizerState, and the methods behind update.
Try: call scaler.step(optimizer) twice without an update.
"""

import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float16, float32
from tinytorch.core.tensor import Tensor
from tinytorch.cuda.backend import is_available
from tinytorch.ops.comparison import isfinite
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import ones
from tinytorch.ops.reduction import all as all_of
from tinytorch.optim.sgd import SGD

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Where an optimizer stands in this iteration.
READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"


class OptimizerState:
    """What has happened to one optimizer since the last update()."""

    def __init__(self):
        self.stage = READY
        self.found_inf: bool | None = None  # None: it had no gradients to look at


class GradScaler:
    """Multiplies the loss by `scale`, divides the gradients by it, and skips a step whose gradients
    are not finite:

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    After a skipped step the scale is multiplied by backoff_factor, after growth_interval good ones
    in a row by growth_factor: it stays just below what overflows.

    With enabled=False, all of this does nothing but call optimizer.step().

    Raises:
        AssertionError: growth_factor <= 1, or backoff_factor >= 1.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if enabled and device == "cuda" and not is_available():
            warnings.warn(
                "GradScaler is enabled, but CUDA is not available. Disabling.", stacklevel=2
            )
            enabled = False
        if enabled and growth_factor <= 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and backoff_factor >= 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._enabled = enabled
        self._scale = float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0  # how many good steps there were in a row
        self._used = False  # whether scale() was called
        self._states: dict[Any, OptimizerState] = defaultdict(OptimizerState)

    def scale(self, outputs: Tensor | Iterable) -> Any:
        """A tensor times the scale, or each tensor of an iterable.

        Raises:
            ValueError: it is neither.
        """
        if not self._enabled:
            return outputs
        self._used = True
        if isinstance(outputs, Tensor):  # in float32, for a scale above 65504 is inf in float16
            half = outputs.dtype.itemsize == 2
            scaled = (cast(outputs, float32) if half else outputs) * self._scale
            return cast(scaled, outputs.dtype) if half and outputs.ndim else scaled
        if not isinstance(outputs, Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = map(self.scale, outputs)
        return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else scaled

    def check_used(self, caller: str) -> None:
        if not self._used:
            raise AssertionError(
                f"Attempted {caller} but _scale is None.  This may indicate your script did not "
                f"use scaler.scale(loss or outputs) earlier in the iteration."
            )

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients by the scale and look whether all are finite. step() does it by
        itself; call it before step() in order to clip the gradients.

        Raises:
            RuntimeError: called twice, or after step().
            ValueError: a gradient is of type float16: parameters should be float32.
            AssertionError: scale() was not called.
        """
        if not self._enabled:
            return
        self.check_used("unscale_")
        state = self._states[optimizer]
        if state.stage is UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state.stage is STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        with no_grad():
            for group in optimizer.param_groups:
                for grad in (p.grad for p in group["params"] if p.grad is not None):
                    if grad.dtype is float16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    # An element that is not finite is found before the division.
                    state.found_inf = bool(state.found_inf) or not all_of(isfinite(grad)).item()
                    grad.mul_(1 / self._scale)
        state.stage = UNSCALED

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(*args, **kwargs), unless a gradient is not finite.

        Raises:
            RuntimeError: called twice since the last update(), or with a closure.
            AssertionError: no parameter has a gradient, or scale() was not called.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self.check_used("step")
        state = self._states[optimizer]
        if state.stage is STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state.stage is READY:
            self.unscale_(optimizer)
        if state.found_inf is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None if state.found_inf else optimizer.step(*args, **kwargs)
        state.stage = STEPPED
        return result

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Adapt the scale, once at the end of an iteration; or set it to `new_scale`.

        Raises:
            AssertionError: no gradients were looked at since the last call, scale() was not called,
                or new_scale is not a number or a tensor of one element that needs no gradient.
        """
        if not self._enabled:
            return
        self.check_used("update")
        if new_scale is not None:
            if isinstance(new_scale, Tensor) and (
                new_scale.numel() != 1 or new_scale.requires_grad
            ):
                raise AssertionError(
                    "new_scale should be a float or a 1-element tensor with requires_grad=False."
                )
            self._scale = float(new_scale)
        else:
            found = [s.found_inf for s in self._states.values() if s.found_inf is not None]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._growth_tracker = 0 if any(found) else self._growth_tracker + 1
            if any(found):
                self._scale *= self._backoff_factor
            elif self._growth_tracker == self._growth_interval:
                grown = self._scale * self._growth_factor
                self._scale = grown if grown < 3.4e38 else self._scale  # as float32, not inf
                self._growth_tracker = 0
        self._states.clear()

    def get_scale(self) -> float:
        """The scale, or 1.0 if scaling is disabled."""
        return self._scale if self._enabled else 1.0

    def is_enabled(self) -> bool:
        return self._enabled

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale, its options and the number of good steps; {} if scaling is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self._scale,
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state_dict.

        Raises:
            RuntimeError: it is empty.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled "
                "instance of GradScaler."
            )
        for name, value in state_dict.items():
            setattr(self, f"_{name.lstrip('_')}", value)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    def refused(function, *arguments, **options):
        try:
            function(*arguments, **options)
        except (AssertionError, RuntimeError, ValueError) as error:
            print(type(error).__name__, error)
            # -> AssertionError Attempted step but _scale is None.  This may indicate your scri...
            # -> ValueError outputs must be a Tensor or an iterable of Tensors
            # -> AssertionError No inf checks were recorded prior to update.
            # -> RuntimeError unscale_() has already been called on this optimizer since the la...
            # -> RuntimeError step() has already been called since the last update().
            # -> RuntimeError unscale_() is being called after step().
            # -> RuntimeError Closure use is not currently supported if GradScaler is enabled.
            # -> RuntimeError The source state dict is empty, possibly because it was saved fro...
            # -> AssertionError new_scale should be a float or a 1-element tensor with requires...
            # -> AssertionError No inf checks were recorded for this optimizer.
            # -> ValueError Attempting to unscale FP16 gradients.
            # -> AssertionError The growth factor must be > 1.0.
            # -> AssertionError The backoff factor must be < 1.0.

    weight = ones(2).requires_grad_()
    optimizer, scaler = SGD([weight], 1.0), GradScaler("cpu", 8.0, growth_interval=1)
    refused(scaler.step, optimizer)
    first, [second] = scaler.scale((weight.sum(), [weight.sum() * 0]))
    print("scaled:", first.item(), second.item())  # -> scaled: 16.0 0.0
    refused(scaler.scale, 1.0)
    refused(scaler.update)
    (first + second).backward()
    scaler.unscale_(optimizer)
    refused(scaler.unscale_, optimizer)
    scaler.step(optimizer)
    print("moved:", weight.tolist())  # -> moved: [0.0, 0.0]
    refused(scaler.step, optimizer)
    refused(scaler.unscale_, optimizer)
    refused(scaler.step, optimizer, closure=None)
    scaler.update()
    print("grown:", scaler.get_scale())  # -> grown: 16.0
    scaler.scale(weight * float("inf")).sum().backward()
    print("skipped:", scaler.step(optimizer), weight.tolist())  # -> skipped: None [0.0, 0.0]
    scaler.update()

    other = GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    print({name: value for name, value in other.state_dict().items() if "factor" not in name})
    # -> {'scale': 8.0, 'growth_interval': 1, '_growth_tracker': 0}
    refused(other.load_state_dict, {})
    scaler.update(2.5)
    print("set:", scaler.get_scale())  # -> set: 2.5
    refused(scaler.update, ones(2))
    refused(scaler.step, SGD([ones(1).requires_grad_()], 1.0))

    half = ones(2).half().requires_grad_()
    scaler.scale(half.sum()).backward()
    refused(scaler.unscale_, SGD([half], 1.0))
    refused(GradScaler, "cpu", growth_factor=1.0)
    refused(GradScaler, "cpu", backoff_factor=1.0)

    off = GradScaler("cpu", enabled=False)
    weight.grad = None
    off.scale(weight.sum()).backward()
    off.unscale_(optimizer)
    off.step(optimizer)
    off.update()
    off.load_state_dict({})
    print("off:", weight.tolist(), off.get_scale(), off.state_dict(), off.is_enabled())
    # -> off: [-1.0, -1.0] 1.0 {} False
    for name, value in (("growth_factor", 3.0), ("backoff_factor", 0.25), ("growth_interval", 7)):
        getattr(scaler, f"set_{name}")(value)
        print(name, getattr(scaler, f"get_{name}")())
        # -> growth_factor 3.0
        # -> backoff_factor 0.25
        # -> growth_interval 7
