"""Mixed precision: products in half the bits, sums and losses in float32, and a scaled loss."""

from tinytorch.amp.autocast_mode import autocast
from tinytorch.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
