"""Networks: modules, layers, activations and losses, as torch.nn has them."""

# fmt: off

from tinytorch.nn import functional, init, modules, parallel, utils
from tinytorch.nn.modules import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
    AdaptiveMaxPool3d, AvgPool1d, AvgPool2d, AvgPool3d, BatchNorm1d, BatchNorm2d, BatchNorm3d,
    BCELoss, BCEWithLogitsLoss, CELU, CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d,
    ConstantPad2d, ConstantPad3d, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d,
    ConvTranspose3d, CosineEmbeddingLoss, CosineSimilarity, CrossEntropyLoss, Dropout, Dropout1d,
    Dropout2d, Dropout3d, ELU, Embedding, EmbeddingBag, Flatten, Fold, GELU, GLU, GroupNorm, GRU,
    GRUCell, Hardsigmoid, Hardswish, Hardtanh, HuberLoss, Identity, InstanceNorm1d, InstanceNorm2d,
    InstanceNorm3d, KLDivLoss, L1Loss, LayerNorm, LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d,
    LazyConv1d, LazyConv2d, LazyConv3d, LazyConvTranspose1d, LazyConvTranspose2d,
    LazyConvTranspose3d, LazyLinear, LeakyReLU, Linear, LocalResponseNorm, LogSigmoid, LogSoftmax,
    LSTM, LSTMCell, MarginRankingLoss, MaxPool1d, MaxPool2d, MaxPool3d, Mish, Module, ModuleDict,
    ModuleList, MSELoss, MultiheadAttention, NLLLoss, PairwiseDistance, ParameterDict,
    ParameterList, PixelShuffle, PixelUnshuffle, PReLU, ReflectionPad1d, ReflectionPad2d,
    ReflectionPad3d, ReLU, ReLU6, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, RMSNorm,
    RNN, RNNBase, RNNCell, RNNCellBase, SELU, Sequential, Sigmoid, SiLU, SmoothL1Loss, Softmax,
    Softplus, Softsign, SyncBatchNorm, Tanh, Tanhshrink, Threshold, Transformer, TransformerDecoder,
    TransformerDecoderLayer, TransformerEncoder, TransformerEncoderLayer, TripletMarginLoss,
    Unflatten, Unfold, UninitializedParameter, Upsample, UpsamplingBilinear2d, UpsamplingNearest2d,
    ZeroPad1d, ZeroPad2d, ZeroPad3d,
)
from tinytorch.nn.parallel import DataParallel
from tinytorch.nn.parameter import Parameter
