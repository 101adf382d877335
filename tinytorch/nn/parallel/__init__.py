"""Wrappers with which programs spread a network over several devices or processes."""

from tinytorch.nn.parallel.data_parallel import DataParallel
from tinytorch.nn.parallel.distributed import DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel"]
