"""The switch of programs that want the same result each time, and the most exact one."""


class Deterministic:
    """What use_deterministic_algorithms() was asked for, in all threads."""

    enabled = warn_only = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether operations take their plainest way.

    On the CPU all results are the same each time, with or without it. With it, convolutions leave
    out Winograd's tiles, which round more. On a GPU, sums into places that occur several times may
    still differ in their last digits; PyTorch refuses some of these, unless with `warn_only`.

    Raises:
        TypeError: `mode` is not a bool.
    """
    if not isinstance(mode, bool):
        raise TypeError(
            f"_set_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not "
            f"{type(mode).__name__}"
        )
    Deterministic.enabled, Deterministic.warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Whether use_deterministic_algorithms(True) was called last."""
    return Deterministic.enabled


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it was called with warn_only=True."""
    return Deterministic.warn_only
