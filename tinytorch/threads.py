"""How many threads NumPy's BLAS library uses for a product of matrices."""

from typing import Any


def load_threadpoolctl() -> Any:
    """threadpoolctl, which can talk to all BLAS libraries, or None where it is not installed. It is
    imported when it is needed: with it, `import tinytorch` would take longer."""
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl


def blas_libraries() -> Any:
    """The loaded BLAS libraries, as threadpoolctl controls them.

    Raises:
        ImportError: where threadpoolctl is not installed.
    """
    threadpoolctl = load_threadpoolctl()
    if threadpoolctl is None:
        raise ImportError(
            "the number of threads is read and set by threadpoolctl, which is not installed: "
            "pip install threadpoolctl"
        )
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


def get_num_threads() -> int:
    """The number of threads that a product of matrices on the CPU may use.

    Raises:
        ImportError: where threadpoolctl is not installed.
    """
    return max((library["num_threads"] for library in blas_libraries().info()), default=1)


def set_num_threads(num: int) -> None:
    """Sets the number of threads that a product of matrices on the CPU may use.

    Raises:
        ImportError: where threadpoolctl is not installed.
        RuntimeError: for anything but a positive integer.
    """
    if not isinstance(num, int):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(num).__name__}")
    if num < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    blas_libraries().limit(limits=num)
