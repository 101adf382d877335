"""Apple's GPUs, which tinytorch does not use."""


def is_available() -> bool:
    """False: tinytorch does not use it."""
    return False


is_built = is_available
