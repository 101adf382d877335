"""Wrappers with which programs spread a network over several devices."""

from typing import Any

from tinytorch.nn.module import Module


class DataParallel(Module):
    """Calls `module`. PyTorch's class divides each batch among the GPUs; here is one device.

    Its parameters are called "module.weight" and so on, as PyTorch's are.
    """

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0):
        super().__init__()
        self.module, self.device_ids, self.output_device = module, device_ids, output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(Module):
    """It is there to be named. Making one raises ValueError: there are no process groups yet."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise ValueError("Default process group has not been initialized: there are none yet")
