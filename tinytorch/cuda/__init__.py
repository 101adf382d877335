"""tinytorch on an NVIDIA GPU, through CuPy."""

from tinytorch.cuda import amp
from tinytorch.cuda.backend import device_count, is_available
from tinytorch.cuda.device import (
    current_device,
    device,
    get_device_capability,
    get_device_name,
    set_device,
    synchronize,
)
from tinytorch.cuda.memory import (
    OutOfMemoryError,
    empty_cache,
    max_memory_allocated,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    reset_peak_memory_stats,
)
from tinytorch.cuda.random import (
    get_rng_state,
    initial_seed,
    manual_seed,
    manual_seed_all,
    set_rng_state,
)
from tinytorch.cuda.streams import Event, Stream, current_stream, default_stream, stream
