"""Step amp10: The older names: cuda.amp.autocast and cuda.amp.GradScaler

Mixed precision began on GPUs, and many programs still say

    with torch.cuda.amp.autocast():
        ...
    scaler = torch.cuda.amp.GradScaler()

These names still work, with a FutureWarning that says what to write instead. A class with one
method is enough for each: it warns, and passes "cuda" as the device.

The trap: the order of the arguments differs. The old autocast takes `enabled` first, because it has
no argument for the device.

With stacklevel=2 the warning names the line of the user's program that contains the old name.

New: autocast and GradScaler of tinytorch.cuda.amp.
Try: stacklevel=1. Which line does the demo print now?
"""

import importlib
import warnings
from typing import Any

from tinytorch.amp.autocast_mode import autocast as amp_autocast
from tinytorch.amp.grad_scaler import GradScaler as AmpGradScaler
from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.dtype import float16

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    import linecache

    importlib.import_module("tinytorch.core.printing")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        block, scaler = autocast(dtype=float16), GradScaler(init_scale=4.0)
        print(block.device_type, block.dtype, isinstance(scaler, AmpGradScaler))
        # -> cuda tinytorch.float16 True
    for warning in said:
        if warning.category is FutureWarning:
            print(warning.message)
            # -> `cuda.amp.autocast(args...)` is deprecated. Please use `amp.autocast('cuda', a...
            # -> `cuda.amp.GradScaler(args...)` is deprecated. Please use `amp.GradScaler('cuda...
            print(linecache.getline(warning.filename, warning.lineno).strip())
            # -> block, scaler = autocast(dtype=float16), GradScaler(init_scale=4.0)
            # -> block, scaler = autocast(dtype=float16), GradScaler(init_scale=4.0)
