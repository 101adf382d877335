"""Step 85d: An overflow skips a step, and the scale adapts

Which scale is best? The largest with which nothing overflows. But that changes while the network
learns. Too small, and gradients become 0. Too large, and they become inf; inf - inf is nan, and a
weight that is nan once stays nan. The demo makes one such step.

An overflow can always be seen: inf and nan go along all the way to the weights' gradients, and no
division removes them. So unscale_ looks, and step decides:

    a gradient is inf or nan      no step, and S = S / 2
    all are finite                the step; after growth_interval of them in a row, S = S * 2

The scale begins too large, comes down by a few skipped steps, and tries a larger one now and then.
update() changes it, once at the end of an iteration, since several optimizers may share a scaler.

To clip gradients, call unscale_ first. _found_inf notes for which optimizer that was done, and step
does not divide again.

The trap: the loss does not show a skipped step, for it is backward that overflows.

PyTorch: the factors have names, backoff_factor and growth_factor.

Changed: GradScaler. New: GradScaler.update and get_scale.
Try: growth_interval=1. How many steps are skipped after the first good one?

In depth: amp01 to amp11.
"""

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float16
from tinytorch.ops.comparison import isfinite
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.sgd import SGD


class GradScaler:
    """Multiplies the loss by a scale that adapts, and divides the gradients by it."""

    def __init__(self, device="cuda", init_scale=2.0**16, growth_interval=2000):
        self._scale = init_scale
        self._growth_interval = growth_interval
        self._growth_tracker = 0  # how many good steps there were in a row
        self._found_inf = {}  # for each optimizer whose gradients are divided

    def scale(self, outputs):
        return outputs * self._scale

    def unscale_(self, optimizer):
        """Divide the gradients, and look whether all are finite."""
        found_inf = False
        with no_grad():
            for p in (p for group in optimizer.param_groups for p in group["params"]):
                if p.grad is not None:
                    found_inf = found_inf or not isfinite(p.grad).all().item()
                    p.grad.mul_(1 / self._scale)
        self._found_inf[optimizer] = found_inf

    def step(self, optimizer):
        """optimizer.step(), unless a gradient is not finite."""
        if optimizer not in self._found_inf:
            self.unscale_(optimizer)
        if not self._found_inf[optimizer]:
            optimizer.step()

    def update(self):
        """Adapt the scale, once at the end of an iteration."""
        if any(self._found_inf.values()):
            self._scale /= 2
            self._growth_tracker = 0
        else:
            self._growth_tracker += 1
            if self._growth_tracker == self._growth_interval:
                self._scale *= 2
                self._growth_tracker = 0
        self._found_inf.clear()

    def get_scale(self):
        return self._scale


if __name__ == "__main__":
    manual_seed(0)
    x, weight = randn(32, 4), randn(4, 1, requires_grad=True)

    def scaled_backward(weight, scaler):
        with autocast("cpu", float16):
            loss = (x @ weight).float().square().mean()
        weight.grad = None
        scaler.scale(loss).backward()
        return loss

    # A step that is done all the same.
    bad = weight.detach().clone().requires_grad_()
    scaled_backward(bad, GradScaler("cpu", 2.0**24))
    SGD([bad], 0.1).step()
    print("finite weights:", isfinite(bad).sum().item(), "of 4")  # -> finite weights: 0 of 4

    optimizer = SGD([weight], 0.1)
    scaler = GradScaler("cpu", 2.0**17, growth_interval=4)
    for number in range(8):
        loss = scaled_backward(weight, scaler)
        scaler.step(optimizer)
        scaler.update()
        print(f"{number:2}  loss {loss.item():.2f}  scale {scaler.get_scale():.0f}")
        # ->  0  loss 6.12  scale 65536
        # ->  1  loss 6.12  scale 32768
        # ->  2  loss 6.12  scale 16384
        # ->  3  loss 6.12  scale 16384
        # ->  4  loss 3.21  scale 16384
        # ->  5  loss 1.86  scale 16384
        # ->  6  loss 1.16  scale 32768
        # ->  7  loss 0.77  scale 32768
