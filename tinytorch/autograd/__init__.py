"""Differentiation: the functions, the engine that goes backward through them, and their check."""

from tinytorch.autograd import functional
from tinytorch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from tinytorch.autograd.backward import backward, grad
from tinytorch.autograd.function import Function, once_differentiable
from tinytorch.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from tinytorch.autograd.modes import (
    enable_grad,
    inference_mode,
    no_grad,
    set_grad_enabled,
)
from tinytorch.ops.legacy import variable as Variable
