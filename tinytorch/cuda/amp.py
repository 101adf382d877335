"""autocast and GradScaler under the names that they had before there was `amp`."""

import warnings
from typing import Any

from tinytorch.amp.autocast_mode import autocast as amp_autocast
from tinytorch.amp.grad_scaler import GradScaler as AmpGradScaler


class autocast(amp_autocast):
    """amp.autocast("cuda", dtype, enabled, cache_enabled)."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True):
        warnings.warn(
            "`cuda.amp.autocast(args...)` is deprecated. Please use `amp.autocast('cuda', args...)`"
            " instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cuda", dtype, enabled, cache_enabled)


class GradScaler(AmpGradScaler):
    """amp.GradScaler("cuda", ...)."""

    def __init__(self, *args: Any, **kwargs: Any):
        warnings.warn(
            "`cuda.amp.GradScaler(args...)` is deprecated. Please use "
            "`amp.GradScaler('cuda', args...)` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__("cuda", *args, **kwargs)
