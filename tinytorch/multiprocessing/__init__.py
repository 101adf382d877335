"""Python's multiprocessing under PyTorch's name. Tensors in shared memory are sent as they are, and
others are copied."""

from multiprocessing import *  # noqa: F403

from tinytorch.multiprocessing.shared_memory import rebuild  # noqa: F401 (registers how to send)
from tinytorch.multiprocessing.spawn import (  # noqa: F401
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
)
