"""Layers, activations and losses as functions: what the modules of tinytorch.nn call."""

from tinytorch.nn.activation import (
    elu,
    gelu,
    leaky_relu,
    logsigmoid,
    relu,
    relu_,
    silu,
    softplus,
)
from tinytorch.nn.class_loss import (
    cross_entropy,
    kl_div,
    log_softmax,
    nll_loss,
    softmax,
)
from tinytorch.nn.dropout import dropout
from tinytorch.nn.embedding import embedding, embedding_bag
from tinytorch.nn.linear import linear
from tinytorch.nn.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_similarity,
    huber_loss,
    l1_loss,
    mse_loss,
    normalize,
    smooth_l1_loss,
)
from tinytorch.nn.prelu import prelu
from tinytorch.ops.elementwise import sigmoid, tanh
from tinytorch.ops.gather import pad
from tinytorch.ops.nll import one_hot

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "embedding_bag",
    "gelu",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "prelu",
    "relu",
    "relu_",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "tanh",
]
