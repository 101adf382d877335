"""The device that computes beside the CPU: CUDA, where there is a GPU."""

from tinytorch.cuda.backend import device_count, is_available
from tinytorch.cuda.device import (
    current_accelerator,
    synchronize,
)
from tinytorch.cuda.device import (
    current_device as current_device_index,
)
from tinytorch.cuda.device import (
    set_device as set_device_index,
)
