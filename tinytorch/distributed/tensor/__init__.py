"""Tensors that are divided among processes."""

from tinytorch.distributed.tensor import parallel
