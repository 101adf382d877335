"""Training on several machines is not there yet, and programs can ask whether it is."""


def is_available() -> bool:
    """False: tinytorch does not use it."""
    return False


is_initialized = is_available
