"""What holds on one thread: whether operations are recorded, and which modes see them first."""

import threading
from typing import Any

from tinytorch.core.device import silence_numpy


class ThreadState(threading.local):
    """The switches of one thread. Every thread starts with its own, at these values."""

    grad_enabled = True
    inference = False
    modes: tuple[Any, ...] = ()  # the last one sees a call first

    def __init__(self):
        silence_numpy()  # here, once for each thread that calls an operation


state = ThreadState()

# The open modes of all threads. While the list is empty, no call has to look at its thread's own.
open_modes: list[Any] = []
