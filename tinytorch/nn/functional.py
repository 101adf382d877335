"""Layers, activations and losses as functions: what the modules of tinytorch.nn call."""

from tinytorch.nn.activation import (
    elu,
    gelu,
    leaky_relu,
    logsigmoid,
    relu,
    silu,
    softplus,
)
from tinytorch.nn.dropout import dropout
from tinytorch.nn.linear import bilinear, linear
from tinytorch.nn.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    one_hot,
    smooth_l1_loss,
)
from tinytorch.ops.elementwise import sigmoid, tanh
from tinytorch.ops.gather import pad
from tinytorch.ops.softmax import log_softmax, softmax

__all__ = [
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "dropout",
    "elu",
    "gelu",
    "kl_div",
    "l1_loss",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "pad",
    "relu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "tanh",
]
