"""DataParallel, for programs that were written for several GPUs in one process."""

from typing import Any

from tinytorch.nn.modules.module import Module


class DataParallel(Module):
    """Calls `module`. PyTorch's class divides each batch among the GPUs; here there is one.

    Its parameters are called "module.weight" and so on, as PyTorch's are.
    """

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0):
        super().__init__()
        self.module, self.device_ids, self.output_device = module, device_ids, output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)
