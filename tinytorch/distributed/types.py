"""The reductions and the errors of process groups."""

import enum


class ReduceOp(enum.IntEnum):
    """How all_reduce and its kin make one element of those of all processes."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7


class DistError(RuntimeError):
    """An error of the distributed package."""


class DistBackendError(DistError):
    """MPI or NCCL has failed, or other processes have not come in time."""
