"""Intel's GPUs, which tinytorch does not use."""


def is_available() -> bool:
    """False: tinytorch does not use it."""
    return False


def device_count() -> int:
    """0: there are none that tinytorch uses."""
    return 0
