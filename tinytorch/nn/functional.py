"""Layers, activations and losses as functions: what the modules of tinytorch.nn call."""

from tinytorch.nn.activation import (
    celu,
    elu,
    gelu,
    glu,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    logsigmoid,
    mish,
    relu,
    relu6,
    relu_,
    selu,
    silu,
    softplus,
    softsign,
)
from tinytorch.nn.class_loss import (
    cross_entropy,
    gaussian_nll_loss,
    kl_div,
    nll_loss,
    triplet_margin_loss,
)
from tinytorch.nn.dropout import dropout
from tinytorch.nn.linear import bilinear, linear
from tinytorch.nn.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    huber_loss,
    l1_loss,
    mse_loss,
    normalize,
    pairwise_distance,
    smooth_l1_loss,
)
from tinytorch.nn.prelu import prelu
from tinytorch.ops.elementwise import sigmoid, tanh
from tinytorch.ops.gather import pad
from tinytorch.ops.nll import one_hot
from tinytorch.ops.softmax import log_softmax, softmax

__all__ = [
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "celu",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "gaussian_nll_loss",
    "gelu",
    "glu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "pairwise_distance",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "tanh",
    "triplet_margin_loss",
]
