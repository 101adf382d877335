"""Switches of PyTorch's matrix products on a GPU. They change nothing."""


class matmul:
    """NVIDIA's library of matrix products takes its own decisions here, through CuPy."""

    allow_tf32 = False


def set_float32_matmul_precision(precision: str) -> None:
    """Allows PyTorch to compute float32 products less exactly. Here they are always exact.

    Raises:
        ValueError: `precision` is not "highest", "high" or "medium".
    """
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"{precision} is not one of 'highest', 'high' or 'medium'")
