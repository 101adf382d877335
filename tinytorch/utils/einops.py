"""einops on tensors: rearrange(x, "b c h w -> b (h w) c"), where that package is installed."""

import sys

try:
    from einops._backends import TorchBackend
except ImportError:
    TorchBackend = None


class TinytorchBackend(TorchBackend or object):
    """How einops calls tinytorch: as it calls PyTorch. It finds this class among the subclasses of
    its own, so that defining it is enough."""

    framework_name = "tinytorch"

    def __init__(self):
        self.torch = sys.modules["tinytorch"]
