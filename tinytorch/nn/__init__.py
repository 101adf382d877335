"""Networks: modules, layers, activations and losses, as torch.nn has them."""

from tinytorch.nn import functional, init, utils
from tinytorch.nn.activation import (
    ELU,
    GELU,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from tinytorch.nn.container import ModuleDict, ModuleList, ParameterList, Sequential
from tinytorch.nn.dropout import Dropout
from tinytorch.nn.linear import Bilinear, Flatten, Identity, Linear, Unflatten
from tinytorch.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    KLDivLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
