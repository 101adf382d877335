"""Python's multiprocessing under PyTorch's name. The tensors that it sends are copied."""

from multiprocessing import *  # noqa: F403
