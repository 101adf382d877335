"""What computes beside the CPU, whatever it is called: here it is CUDA, or nothing."""

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
