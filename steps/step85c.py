"""Step 85c: Loss scaling: gradients that underflow

Why does the first layer of the demo learn nothing in mixed precision? Its gradients are exactly 0.
Forward computes in halves, so backward does too, and what is below 6e-8 becomes 0. Activations have
the size of 1 or so; gradients are far smaller.

Backward is linear: each gradient is a multiple of the one that it begins with. If the loss is
multiplied by S, all gradients are S times as large, and do not underflow on their way. The weights'
own gradients are float32 (step 85a), so there the S can be divided away:

    loss  --* S-->  backward in halves, all S times as large  -->  w.grad, float32  --/ S-->  w.grad

S is a power of two, 2**16, so that it changes the exponent only and rounds nothing.

    scaler.scale(loss).backward()        loss * S
    scaler.step(optimizer)               w.grad / S, then optimizer.step()

The trap: after backward the gradients are S times too large for all who look at them, as clipping
does (step 46a). The next step has a remedy.

The finished autocast, imported here, is that of step 85b with a list for each kind of device.

PyTorch: torch.amp.GradScaler. The device is given as for autocast; nothing here depends on it.

New: GradScaler.
Try: a scale of 2.0**40 instead of 2.0**16. Which gradients does the first layer get?
"""

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float16
from tinytorch.nn.functional import mse_loss
from tinytorch.ops.creation import full
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.sgd import SGD


class GradScaler:
    """Multiplies the loss by a scale, and divides the gradients by it."""

    def __init__(self, device="cuda", init_scale=2.0**16):
        self._scale = init_scale

    def scale(self, outputs):
        return outputs * self._scale

    def unscale_(self, optimizer):
        """Divide the gradients by the scale."""
        with no_grad():
            for p in (p for group in optimizer.param_groups for p in group["params"]):
                if p.grad is not None:
                    p.grad.mul_(1 / self._scale)

    def step(self, optimizer):
        """optimizer.step(), with gradients that are divided by the scale."""
        self.unscale_(optimizer)
        optimizer.step()


if __name__ == "__main__":

    def train(mixed, init_scale):
        """One step of a network of two layers; the first layer's gradient."""
        manual_seed(0)
        first = randn(4, 8, requires_grad=True)
        second = (randn(8, 1) * 1e-5).requires_grad_()
        x, target = randn(64, 4), full((64, 1), 0.01)
        with autocast("cpu", float16, enabled=mixed):
            loss = mse_loss((x @ first).relu() @ second, target)
        optimizer, scaler = SGD([first, second], 0.1), GradScaler("cpu", init_scale)
        scaler.scale(loss).backward()
        largest = first.grad.abs().max().item()
        scaler.step(optimizer)
        zeros = (first.grad == 0).sum().item()
        print(f"arrives {largest:.1e}, then {first.grad.abs().max().item():.1e}, {zeros} zeros")

    train(False, 1.0)  # -> arrives 1.7e-07, then 1.7e-07, 0 zeros
    train(True, 1.0)  # -> arrives 0.0e+00, then 0.0e+00, 32 zeros
    train(True, 2.0**16)  # -> arrives 1.1e-02, then 1.7e-07, 0 zeros
