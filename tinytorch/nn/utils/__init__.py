"""Helpers around parameters and their gradients."""

from tinytorch.nn.utils import parametrize, rnn
from tinytorch.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    get_total_norm,
)
from tinytorch.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from tinytorch.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from tinytorch.nn.utils.weight_norm import remove_weight_norm, weight_norm
