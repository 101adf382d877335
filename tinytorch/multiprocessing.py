"""Python's multiprocessing under PyTorch's name. Tensors in shared memory are sent as they are, and
others are copied."""

from multiprocessing import *  # noqa: F403

from tinytorch.shared_memory import rebuild  # noqa: F401 (importing it registers how to send)
from tinytorch.spawn import (  # noqa: F401
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
)
