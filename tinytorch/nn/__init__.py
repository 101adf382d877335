"""Networks: modules, layers, activations and losses, as torch.nn has them."""

from tinytorch.nn import functional, init, utils
from tinytorch.nn.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LeakyReLU,
    LogSigmoid,
    Mish,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softplus,
    Softsign,
    Tanh,
)
from tinytorch.nn.class_loss import (
    CrossEntropyLoss,
    GaussianNLLLoss,
    KLDivLoss,
    LogSoftmax,
    NLLLoss,
    Softmax,
    TripletMarginLoss,
)
from tinytorch.nn.container import ModuleDict, ModuleList, Sequential
from tinytorch.nn.dropout import Dropout
from tinytorch.nn.lazy import LazyLinear, UninitializedParameter
from tinytorch.nn.linear import Bilinear, Flatten, Identity, Linear, Unflatten
from tinytorch.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineSimilarity,
    HuberLoss,
    L1Loss,
    MSELoss,
    SmoothL1Loss,
)
from tinytorch.nn.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.parameter_containers import ParameterDict, ParameterList
from tinytorch.nn.prelu import PReLU
