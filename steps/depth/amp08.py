"""Step amp08: Skipped steps and a scale that adapts, in the package's dress

Step 85d built it: a step with inf or nan is skipped and halves the scale, and a row of finite ones
doubles it. Here the checks run over all groups and devices of an optimizer, and PyTorch's names and
defaults come in: backoff_factor 1/2, growth_factor 2, growth_interval 2000.

The trap: a scheduler that counts steps counts the skipped ones, too. And the loss does not reveal a
skipped step: only backward overflows.

Changed: GradScaler. New: GradScaler.update, get_scale.
Try: growth_interval=1. How many of the steps are skipped now?
"""

import importlib
from typing import Any

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float16
from tinytorch.core.tensor import Tensor
from tinytorch.ops.comparison import isfinite
from tinytorch.ops.random import manual_seed, randn
from tinytorch.ops.reduction import all as all_of
from tinytorch.optim.sgd import SGD

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class GradScaler:
    """Multiplies the loss by `scale`, divides the gradients by it, and skips a step whose gradients
    are not finite:

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    After a skipped step the scale is multiplied by backoff_factor, after growth_interval good ones
    in a row by growth_factor: it stays just below what overflows.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ):
        self._scale = float(init_scale)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._growth_tracker = 0  # how many good steps there were in a row
        self._found_inf: dict[Any, bool] = {}  # for each optimizer whose gradients are divided

    def scale(self, outputs: Tensor) -> Tensor:
        """A tensor times the scale."""
        return outputs * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients by the scale and look whether all are finite. step() does it by
        itself; call it before step() in order to clip the gradients."""
        found_inf = False
        with no_grad():
            for group in optimizer.param_groups:
                for grad in (p.grad for p in group["params"] if p.grad is not None):
                    # An element that is not finite is found before the division.
                    found_inf = found_inf or not all_of(isfinite(grad)).item()
                    grad.mul_(1 / self._scale)
        self._found_inf[optimizer] = found_inf

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(*args, **kwargs), unless a gradient is not finite."""
        if optimizer not in self._found_inf:
            self.unscale_(optimizer)
        return None if self._found_inf[optimizer] else optimizer.step(*args, **kwargs)

    def update(self) -> None:
        """Adapt the scale, once at the end of an iteration."""
        if any(self._found_inf.values()):
            self._scale *= self._backoff_factor
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= self._growth_factor
                self._growth_tracker = 0
        self._found_inf.clear()

    def get_scale(self) -> float:
        return self._scale


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    # What was wrong: a scale that is too large, and a step that is done all the same.
    def batch(weight, scaler):
        with autocast("cpu", float16):
            loss = (x @ weight).square().mean()
        weight.grad = None
        scaler.scale(loss).backward()
        return loss

    manual_seed(0)
    x, weight = randn(32, 4), randn(4, 1).requires_grad_()
    scaler = GradScaler("cpu", 2.0**24)
    loss = batch(weight, scaler)
    print(f"loss: {loss.item():.3f}  gradient: {weight.grad[0].item()}")
    # -> loss: 6.121  gradient: nan
    bad = weight.detach().clone().requires_grad_()
    bad.grad = weight.grad.clone()
    SGD([bad], 0.1).step()
    print("after an ordinary step:", (bad - bad)[0].item())  # -> after an ordinary step: nan

    # The scaler skips it, and finds its size.
    optimizer = SGD([weight], 0.1)
    scaler = GradScaler("cpu", 2.0**24, growth_interval=4)
    for number in range(16):
        before = weight.detach().clone()
        loss = batch(weight, scaler)
        if number == 10:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        done = bool((weight != before).any().item())
        scaler.update()
        what = "step" if done else "skipped"
        print(f"{number:2}  loss {loss.item():.3f}  {what:7}  {scaler.get_scale():.0f}")
        # -> 0  loss 6.121  skipped  8388608
        # -> 1  loss 6.121  skipped  4194304
        # -> 2  loss 6.121  skipped  2097152
        # -> 3  loss 6.121  skipped  1048576
        # -> 4  loss 6.121  skipped  524288
        # -> 5  loss 6.121  skipped  262144
        # -> 6  loss 6.121  skipped  131072
        # -> 7  loss 6.121  skipped  65536
        # -> 8  loss 6.121  skipped  32768
        # -> 9  loss 6.121  skipped  16384
        # -> 10  loss 6.121  step     16384
        # -> 11  loss 3.207  step     16384
        # -> 12  loss 1.856  step     16384
        # -> 13  loss 1.162  step     32768
        # -> 14  loss 0.767  step     32768
        # -> 15  loss 0.525  step     32768
