"""Helpers around parameters and their gradients."""

from tinytorch.nn.utils import rnn
from tinytorch.nn.utils.clip_grad import (
    clip_grad_norm_,
    clip_grad_value_,
    get_total_norm,
)
from tinytorch.nn.utils.convert_parameters import parameters_to_vector
