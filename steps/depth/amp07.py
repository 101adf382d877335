"""Step amp07: Loss scaling in the package's dress

Step 85c built it: the loss is multiplied by S = 2**16, so that small gradients do not become 0 on
their way, and the weights' gradients are divided again. Here unscale_ can be called before step,
and step() divides only if it has not been: `unscaled` holds the optimizers whose gradients are
divided already.

The trap: clipping (step optimizer06) measures the gradients. Call unscale_ first, or it clips S
times too much.

PyTorch's class is torch.amp.GradScaler.

New: GradScaler.
Try: a scale of 2.0**40 in place of 2.0**16. Which gradients does the first layer get?
"""

import importlib
from typing import Any

from tinytorch.amp.autocast_mode import autocast
from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float16
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.loss import mse_loss
from tinytorch.nn.utils.clip_grad import clip_grad_norm_
from tinytorch.ops.creation import full
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.sgd import SGD

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class GradScaler:
    """Multiplies the loss by `scale`, and divides the gradients by it:

    scaler.scale(loss).backward()
    scaler.step(optimizer)
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16):
        self._scale = float(init_scale)
        self._unscaled: set[Any] = set()  # the optimizers whose gradients are divided already

    def scale(self, outputs: Tensor) -> Tensor:
        """A tensor times the scale."""
        return outputs * self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients by the scale. step() does it by itself; call it before step() in
        order to clip the gradients."""
        with no_grad():
            for group in optimizer.param_groups:
                for grad in (p.grad for p in group["params"] if p.grad is not None):
                    grad.mul_(1 / self._scale)
        self._unscaled.add(optimizer)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(*args, **kwargs), with gradients that are divided by the scale."""
        if optimizer not in self._unscaled:
            self.unscale_(optimizer)
        self._unscaled.discard(optimizer)
        return optimizer.step(*args, **kwargs)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    def gradients(mixed, scaler):
        """The gradients of the first of two layers, after the division."""
        manual_seed(0)
        first, second = randn(4, 8).requires_grad_(), (randn(8, 1) * 1e-5).requires_grad_()
        x, target, optimizer = randn(64, 4), full((64, 1), 0.01), SGD([first, second], 0.1)
        with autocast("cpu", float16, enabled=mixed):
            loss = mse_loss((x @ first).relu() @ second, target)
        scaler.scale(loss).backward()
        print(f"the largest that arrives: {first.grad.abs().max().item():.1e}")
        # -> the largest that arrives: 1.7e-07
        # -> the largest that arrives: 0.0e+00
        # -> the largest that arrives: 1.1e-02
        scaler.unscale_(optimizer)
        return first.grad

    exact = gradients(False, GradScaler("cpu", 1.0))
    for scale in (1.0, 2.0**16):
        found = gradients(True, GradScaler("cpu", scale))
        error = (found - exact).abs().max() / exact.abs().max()
        print(f"zeros: {(found == 0).sum().item()} of 32, error: {error.item():.3f}")
        # -> zeros: 32 of 32, error: 1.000
        # -> zeros: 0 of 32, error: 0.002

    # step() divides once, also behind an unscale_() that was called in order to clip.
    weight = tensor([3.0, 4.0]).requires_grad_()
    optimizer, scaler = SGD([weight], 1.0), GradScaler("cpu", 1024.0)
    for clip in (False, True):
        weight.grad = None
        scaler.scale((weight * weight).sum() / 2).backward()
        print("before:", weight.grad.tolist())
        # -> before: [3072.0, 4096.0]
        # -> before: [1536.0, 2048.0]
        if clip:
            scaler.unscale_(optimizer)
            clip_grad_norm_([weight], 1.0)
        else:
            with no_grad():
                weight.grad /= 2
        scaler.step(optimizer)
        print("after:", [round(w, 3) for w in weight.tolist()])
        # -> after: [1.5, 2.0]
        # -> after: [0.9, 1.2]
