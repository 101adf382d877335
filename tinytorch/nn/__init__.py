"""Networks: modules, layers, activations and losses, as torch.nn has them."""

# One import for each module, with the names that it offers here.
# fmt: off

from tinytorch.nn import functional, init, modules, parallel, utils
from tinytorch.nn.activation import (
    ELU, GELU, LeakyReLU, LogSigmoid, ReLU, Sigmoid, SiLU, Softplus, Tanh,
)
from tinytorch.nn.attention import MultiheadAttention
from tinytorch.nn.class_loss import CrossEntropyLoss, KLDivLoss, LogSoftmax, NLLLoss, Softmax
from tinytorch.nn.container import ModuleDict, ModuleList, Sequential
from tinytorch.nn.conv import (
    Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
)
from tinytorch.nn.dropout import Dropout
from tinytorch.nn.embedding import Embedding, EmbeddingBag
from tinytorch.nn.feature_dropout import Dropout1d, Dropout2d, Dropout3d
from tinytorch.nn.fold import Fold, Unfold
from tinytorch.nn.lazy import (
    LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d, LazyConv1d, LazyConv2d, LazyConv3d,
    LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d, LazyLinear,
    UninitializedParameter,
)
from tinytorch.nn.linear import Flatten, Identity, Linear, Unflatten
from tinytorch.nn.local_response import LocalResponseNorm
from tinytorch.nn.loss import (
    BCELoss, BCEWithLogitsLoss, CosineSimilarity, HuberLoss, L1Loss, MSELoss, SmoothL1Loss,
)
from tinytorch.nn.module import Module
from tinytorch.nn.more_activations import (
    CELU, GLU, Hardsigmoid, Hardswish, Hardtanh, Mish, ReLU6, SELU, Softsign, Tanhshrink,
    Threshold,
)
from tinytorch.nn.more_losses import (
    CosineEmbeddingLoss, MarginRankingLoss, PairwiseDistance, TripletMarginLoss,
)
from tinytorch.nn.norm_layers import (
    BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, InstanceNorm1d, InstanceNorm2d,
    InstanceNorm3d, LayerNorm, RMSNorm,
)
from tinytorch.nn.padding import (
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d,
    ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d,
    ReplicationPad3d, ZeroPad1d, ZeroPad2d, ZeroPad3d,
)
from tinytorch.nn.parallel import DataParallel
from tinytorch.nn.parameter import Parameter
from tinytorch.nn.parameter_containers import ParameterDict, ParameterList
from tinytorch.nn.pooling import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d,
)
from tinytorch.nn.prelu import PReLU
from tinytorch.nn.rnn import GRU, LSTM, RNN, RNNBase
from tinytorch.nn.rnn_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
from tinytorch.nn.sync_batchnorm import SyncBatchNorm
from tinytorch.nn.transformer import (
    Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer,
)
from tinytorch.nn.upsampling import (
    PixelShuffle, PixelUnshuffle, Upsample, UpsamplingBilinear2d, UpsamplingNearest2d,
)
