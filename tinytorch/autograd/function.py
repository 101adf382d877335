"""The base class of user-defined Functions, under the name of PyTorch's module."""

from tinytorch.autograd.custom import CustomFunction as Function
from tinytorch.autograd.custom import CustomFunction as FunctionCtx
from tinytorch.autograd.custom import once_differentiable

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
