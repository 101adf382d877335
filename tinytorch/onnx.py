"""torch.onnx: PyTorch writes networks to files for other programs. Here only the question is there
that a network asks about it; `export` is absent."""


def is_in_onnx_export() -> bool:
    """Whether a network is being written to a file: never."""
    return False
