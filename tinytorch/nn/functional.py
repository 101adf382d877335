"""Layers, activations and losses as functions: what the modules of tinytorch.nn call."""

# One import for each module, with the names that it offers here.
# fmt: off

from tinytorch.nn._reduction import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cosine_embedding_loss, cross_entropy,
    kl_div, l1_loss, margin_ranking_loss, mse_loss, nll_loss, smooth_l1_loss, triplet_margin_loss,
)
from tinytorch.nn.grid import affine_grid, grid_sample
from tinytorch.nn.modules.activation import (
    celu, elu, gelu, glu, gumbel_softmax, hardsigmoid, hardswish, hardtanh, leaky_relu, logsigmoid,
    mish, prelu, relu, relu6, relu_, selu, silu, softplus, softsign, tanhshrink, threshold,
)
from tinytorch.nn.modules.attention import (
    multi_head_attention_forward, scaled_dot_product_attention,
)
from tinytorch.nn.modules.conv import (
    conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d,
)
from tinytorch.nn.modules.dropout import dropout, dropout1d, dropout2d, dropout3d
from tinytorch.nn.modules.fold import fold, unfold
from tinytorch.nn.modules.linear import linear
from tinytorch.nn.modules.loss import cosine_similarity, huber_loss, normalize, pairwise_distance
from tinytorch.nn.modules.normalization import local_response_norm
from tinytorch.nn.modules.padding import pad
from tinytorch.nn.modules.pixelshuffle import pixel_shuffle, pixel_unshuffle
from tinytorch.nn.modules.pooling import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d,
    adaptive_max_pool2d, adaptive_max_pool3d, avg_pool1d, avg_pool2d, avg_pool3d, max_pool1d,
    max_pool2d, max_pool3d,
)
from tinytorch.nn.modules.softmax import log_softmax, softmax
from tinytorch.nn.modules.sparse import embedding, embedding_bag
from tinytorch.nn.modules.upsampling import interpolate
from tinytorch.nn.nll import one_hot
from tinytorch.ops.elementwise import sigmoid, tanh
from tinytorch.ops.normalization import batch_norm, group_norm, instance_norm, layer_norm, rms_norm
