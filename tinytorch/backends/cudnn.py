"""NVIDIA's library of layers, which tinytorch does not call: its switches change nothing."""

enabled = benchmark = deterministic = allow_tf32 = False


def is_available() -> bool:
    """False: tinytorch does not use it."""
    return False
