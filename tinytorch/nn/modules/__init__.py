"""Modules of networks: layers, activations and losses, each in the file where PyTorch has it."""

# One import for each module, with the names that it offers here.
# fmt: off

from tinytorch.nn.modules import places, utils
from tinytorch.nn.modules.activation import (
    CELU, ELU, GELU, GLU, Hardsigmoid, Hardswish, Hardtanh, LeakyReLU, LogSigmoid, Mish, PReLU,
    ReLU, ReLU6, SELU, Sigmoid, SiLU, Softplus, Softsign, Tanh, Tanhshrink, Threshold,
)
from tinytorch.nn.modules.attention import MultiheadAttention
from tinytorch.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from tinytorch.nn.modules.container import (
    ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential,
)
from tinytorch.nn.modules.conv import (
    Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d,
)
from tinytorch.nn.modules.dropout import Dropout, Dropout1d, Dropout2d, Dropout3d
from tinytorch.nn.modules.flatten import Flatten, Unflatten
from tinytorch.nn.modules.fold import Fold, Unfold
from tinytorch.nn.modules.instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from tinytorch.nn.modules.lazy import (
    LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d, LazyConv1d, LazyConv2d, LazyConv3d,
    LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d, LazyLinear,
    UninitializedParameter,
)
from tinytorch.nn.modules.linear import Identity, Linear
from tinytorch.nn.modules.loss import (
    BCELoss, BCEWithLogitsLoss, CosineEmbeddingLoss, CosineSimilarity, CrossEntropyLoss, HuberLoss,
    KLDivLoss, L1Loss, MarginRankingLoss, MSELoss, NLLLoss, PairwiseDistance, SmoothL1Loss,
    TripletMarginLoss,
)
from tinytorch.nn.modules.module import Module
from tinytorch.nn.modules.normalization import GroupNorm, LayerNorm, LocalResponseNorm, RMSNorm
from tinytorch.nn.modules.padding import (
    CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d,
    ReflectionPad1d, ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d,
    ReplicationPad3d, ZeroPad1d, ZeroPad2d, ZeroPad3d,
)
from tinytorch.nn.modules.pixelshuffle import PixelShuffle, PixelUnshuffle
from tinytorch.nn.modules.pooling import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d,
)
from tinytorch.nn.modules.rnn import GRU, LSTM, RNN, RNNBase
from tinytorch.nn.modules.rnn_cells import GRUCell, LSTMCell, RNNCell, RNNCellBase
from tinytorch.nn.modules.softmax import LogSoftmax, Softmax
from tinytorch.nn.modules.sparse import Embedding, EmbeddingBag
from tinytorch.nn.modules.sync_batchnorm import SyncBatchNorm
from tinytorch.nn.modules.transformer import (
    Transformer, TransformerDecoder, TransformerDecoderLayer, TransformerEncoder,
    TransformerEncoderLayer,
)
from tinytorch.nn.modules.upsampling import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d
