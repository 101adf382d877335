"""The array library's errors about shapes and element types, as PyTorch's errors."""

from typing import Any

# How NumPy begins what it says about shapes. It raises these as plain ValueErrors, like those that
# a programmer's own code raises, so only the text tells them apart.
SHAPE_ERRORS = (
    "operands could not be broadcast",
    "could not broadcast",
    "cannot broadcast",
    "non-broadcastable",
    "cannot reshape",
    "matmul:",
    "shapes ",
    "axes don't match",
    "repeated axis",
    "all the input array",
    "all input arrays",
    "zero-size array to reduction",
    "attempt to get arg",
    "need at least one array",
    "cannot select an axis",
    "maximum supported dimension",
    "Maximum allowed dimension",
    "input operand",
    "Integers to negative",
    "requested shape",
    "negative dimensions",
    "array is too big",
)


def translate_error(error: Exception, name: str, arrays: Any) -> Exception | None:
    """What PyTorch would raise in place of `error`, or None where it is not the array library's.

    Args:
        name: of the operation, for the message.
        arrays: the operands of the call; their shapes and types go into the message.
    """
    shapes = [tuple(x.shape) for x in arrays if hasattr(x, "shape")]
    text = str(error)
    library = type(error).__module__.partition(".")[0] in ("numpy", "cupy")
    about_shapes = text.startswith(SHAPE_ERRORS)  # asked first: some mention a "gufunc"
    about_types = "ufunc" in text or "numpy boolean" in text or text.startswith("Wrong type")
    if about_types and not about_shapes:
        dtypes = " and ".join(str(x.dtype) for x in arrays if hasattr(x, "dtype"))
        kind = RuntimeError if "boolean" in text else NotImplementedError
        return kind(f"{name.lower()}() is not implemented for {dtypes}")
    if not library and not about_shapes:
        return None
    mismatch = broadcast_mismatch(*shapes[:2]) if text.startswith("operands could") else None
    listed = " and ".join(str(list(shape)) for shape in shapes)
    return RuntimeError(mismatch or f"{name.lower()}: {text} (shapes {listed})")


def broadcast_mismatch(a: tuple = (), b: tuple = ()) -> str | None:
    """PyTorch's message for two shapes that do not broadcast, or None where they do."""
    for i in range(1, min(len(a), len(b)) + 1):
        if a[-i] != b[-i] and 1 not in (a[-i], b[-i]):
            return (
                f"The size of tensor a ({a[-i]}) must match the size of tensor b ({b[-i]}) at "
                f"non-singleton dimension {max(len(a), len(b)) - i} (shapes {list(a)} and "
                f"{list(b)})"
            )
    return None
