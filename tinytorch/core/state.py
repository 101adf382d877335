"""What holds on one thread: whether operations are recorded, and which modes see them first."""

import threading
from typing import Any

import numpy as np


class ThreadState(threading.local):
    """The switches of one thread. Every thread starts with its own, at these values."""

    grad_enabled = True
    inference = False
    modes: tuple[Any, ...] = ()  # the last one sees a call first

    def __init__(self):
        # 1 / 0 is inf and log(-1) is nan, without a warning, as in PyTorch. NumPy keeps this
        # setting per thread, so it is made where a thread first asks for its state.
        np.seterr(all="ignore")


state = ThreadState()

# The open modes of all threads. While the list is empty, no call has to look at its thread's own.
open_modes: list[Any] = []
