"""PyTorch's place of the functions of tinytorch.func.functional."""

from tinytorch.func.functional import hessian, hvp, jacobian, jvp, vhp, vjp

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
