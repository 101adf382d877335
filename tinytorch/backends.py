"""Libraries that PyTorch computes with, for programs that ask whether they are there."""


class mps:
    """Apple's GPUs, which tinytorch does not use."""

    @staticmethod
    def is_available() -> bool:
        return False

    is_built = is_available


class cudnn:
    """NVIDIA's library of layers, which tinytorch does not call: its switches change nothing."""

    enabled = benchmark = deterministic = allow_tf32 = False

    @staticmethod
    def is_available() -> bool:
        return False
