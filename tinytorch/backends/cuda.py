"""Switches of PyTorch's matrix products on a GPU. They change nothing."""


class matmul:
    """NVIDIA's library of matrix products takes its own decisions here, through CuPy."""

    allow_tf32 = False
