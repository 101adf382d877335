"""Layers, activations and losses as functions: what the modules of tinytorch.nn call."""

# One import for each module, with the names that it offers here.
# fmt: off

from tinytorch.nn._reduction import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss, cross_entropy,
    kl_div, l1_loss, margin_ranking_loss, mse_loss, nll_loss, smooth_l1_loss, triplet_margin_loss,
)
from tinytorch.nn.activation import elu, gelu, leaky_relu, logsigmoid, relu, relu_, silu, softplus
from tinytorch.nn.attention import multi_head_attention_forward, scaled_dot_product_attention
from tinytorch.nn.class_loss import log_softmax, softmax
from tinytorch.nn.conv import (
    conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d,
)
from tinytorch.nn.dropout import dropout
from tinytorch.nn.embedding import embedding, embedding_bag
from tinytorch.nn.feature_dropout import dropout1d, dropout2d, dropout3d
from tinytorch.nn.fold import fold, unfold
from tinytorch.nn.grid import affine_grid, grid_sample
from tinytorch.nn.linear import linear
from tinytorch.nn.local_response import local_response_norm
from tinytorch.nn.loss import cosine_similarity, huber_loss, normalize
from tinytorch.nn.more_activations import (
    celu, glu, gumbel_softmax, hardsigmoid, hardswish, hardtanh, mish, relu6, selu, softsign,
    tanhshrink, threshold,
)
from tinytorch.nn.more_losses import pairwise_distance
from tinytorch.nn.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
from tinytorch.nn.padding import pad
from tinytorch.nn.pooling import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d,
    adaptive_max_pool2d, adaptive_max_pool3d, avg_pool1d, avg_pool2d, avg_pool3d, max_pool1d,
    max_pool2d, max_pool3d,
)
from tinytorch.nn.prelu import prelu
from tinytorch.nn.upsampling import interpolate, pixel_shuffle, pixel_unshuffle
from tinytorch.ops.elementwise import sigmoid, tanh
from tinytorch.ops.nll import one_hot
