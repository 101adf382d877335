"""Collectives through which gradients flow."""

from tinytorch.distributed.nn import functional
