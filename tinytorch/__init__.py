"""tinytorch: a small PyTorch, of which every line is built in a numbered step of `steps/`."""

# One import for each module, with the names that it offers here.
# fmt: off

import importlib
from math import e, inf, nan, pi

from numpy import newaxis

from tinytorch import (
    accelerator, amp, autograd, backends, cuda, distributed, func, jit, kernels, multiprocessing,
    nn, onnx, optim, profiler, random, sparse, special, testing, utils, xpu,
)
from tinytorch.amp.autocast_mode import autocast, get_autocast_dtype, is_autocast_enabled
from tinytorch.autograd.anomaly_mode import is_anomaly_enabled
from tinytorch.autograd.modes import (
    enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad,
    set_grad_enabled,
)
from tinytorch.backends.cuda import set_float32_matmul_precision
from tinytorch.core.deterministic import (
    are_deterministic_algorithms_enabled, is_deterministic_algorithms_warn_only_enabled,
    use_deterministic_algorithms,
)
from tinytorch.core.device import Device as device, get_default_device, set_default_device
from tinytorch.core.dtype import (
    bfloat16, bool_ as bool, can_cast, float64 as double, DType as dtype, float32 as float,
    float16, float32, float64, get_default_dtype, float16 as half, int32 as int, int16, int32,
    int64, int8, int64 as long, promote_types, result_type, set_default_dtype, int16 as short,
    uint8,
)
from tinytorch.core.limits import finfo, iinfo
from tinytorch.core.memory import freed_memory_is_kept
from tinytorch.core.printing import set_printoptions
from tinytorch.core.tensor import as_tensor, from_numpy, is_tensor, Size, Tensor, tensor
from tinytorch.func.transforms import vmap
from tinytorch.linalg import cholesky, inv as inverse
from tinytorch.nn.functional import (
    adaptive_avg_pool1d, avg_pool1d, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d,
    conv_transpose3d, cosine_similarity, group_norm, layer_norm, max_pool1d, max_pool2d, max_pool3d,
    pairwise_distance, pixel_shuffle, pixel_unshuffle, prelu, relu_, rms_norm, selu, celu,
)
from tinytorch.ops.arithmetic import (
    add, mul, mul as multiply, neg, neg as negative, positive, sub, sub as subtract,
)
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_tensors, broadcast_to
from tinytorch.ops.comparison import (
    allclose, bitwise_and, bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift,
    bitwise_xor, clamp_max, clamp_min, eq, equal,
    ge, gt as greater, ge as greater_equal, gt, isclose, isfinite, isinf, isnan, le, lerp,
    lt as less, le as less_equal, logical_and, logical_not, logical_or, logical_xor, lt, ne,
    ne as not_equal, where,
)
from tinytorch.ops.composite import (
    addcdiv, addcmul, baddbmm, cartesian_prod, cdist, cross, cumprod, diff, hstack, index_copy,
    index_fill, logaddexp, logit, masked_scatter, nan_to_num, nanmean, nansum, std_mean,
    take_along_dim, tensordot, tril_indices, triu_indices, var_mean, vstack,
)
from tinytorch.ops.conversion import clone, contiguous_format, preserve_format
from tinytorch.ops.creation import (
    arange, empty, empty_like, full, full_like, linspace, meshgrid, ones, ones_like, zeros,
    zeros_like,
)
from tinytorch.ops.cumulative import cumsum, prod
from tinytorch.ops.einsum import einsum, trace
from tinytorch.ops.elementwise import (
    acos, acosh, acos as arccos, acosh as arccosh, asin as arcsin, asinh as arcsinh,
    atan as arctan, atan2 as arctan2, atanh as arctanh, asin, asinh, atan, atan2, atanh, ceil, cos,
    cosh, exp2, expm1, trunc as fix, floor, floor_divide, fmod, frac, hypot, log10, log1p, log2,
    reciprocal, relu, remainder, round, sign as sgn, sigmoid, sign, sin, sinh, square, tan, tanh,
    trunc,
)
from tinytorch.ops.erf import erf
from tinytorch.ops.gather import (
    gather, index_add, index_select, masked_fill, repeat_interleave, scatter, scatter_add,
)
from tinytorch.ops.histogram import histc, histogram
from tinytorch.ops.indexing import nonzero as argwhere, masked_select, nonzero
from tinytorch.ops.joining import chunk, split, unbind
from tinytorch.ops.legacy import (
    BoolTensor, ByteTensor, CharTensor, DoubleTensor, FloatTensor, HalfTensor, IntTensor,
    LongTensor, set_default_tensor_type, ShortTensor,
)
from tinytorch.ops.matmul import addmm, dot, outer as ger, mv, outer, dot as vdot
from tinytorch.ops.minmax import amax, amin, argmax, argmin, max, min
from tinytorch.ops.norm import count_nonzero, norm
from tinytorch.ops.out import (
    abs, abs as absolute, bmm, cat, cat as concat, cat as concatenate, clamp, clamp as clip, div,
    div as divide, div as true_divide, exp, eye, log, maximum, mean, minimum, pow, rsqrt, sqrt,
    stack, sum,
)
from tinytorch.ops.properties import detach, is_complex, is_floating_point, numel
from tinytorch.ops.random import (
    Generator, initial_seed, manual_seed, normal, rand, rand_like, randint, randint_like, randn,
    randn_like, randperm, seed,
)
from tinytorch.ops.reduction import all, any, std, var
from tinytorch.ops.sampling import bernoulli, multinomial
from tinytorch.ops.shape import (
    flatten, movedim as moveaxis, movedim, permute, ravel, reshape, squeeze, transpose as
    swapaxes, transpose as swapdims, t, transpose, unflatten, unsqueeze,
)
from tinytorch.ops.shape_in_place import resize_as_
from tinytorch.ops.slicing import diag, diag_embed, diagonal, flip, roll, select, tile, tril, triu
from tinytorch.ops.softmax import log_softmax, logsumexp, softmax
from tinytorch.ops.sorting import (
    argsort, bincount, bucketize, kthvalue, median, quantile, searchsorted, sort, topk, unique,
)
from tinytorch.ops.storage import as_strided, narrow
from tinytorch.random import get_rng_state, set_rng_state
from tinytorch.serialization import load, save
from tinytorch.sparse import matmul, mm, mm as spmm, sparse_coo_tensor
from tinytorch.threads import get_num_threads, set_num_threads
from tinytorch.version import __version__
# fmt: on


def __getattr__(name: str) -> object:
    """Names of the package that are imported when a program first asks for them. Python calls this
    for a name that a module does not have."""
    if name == "compile":
        return importlib.import_module("tinytorch.compiler.api").compile
    if name in ("compiler", "datasets", "distributions"):
        return importlib.import_module(f"tinytorch.{name}")
    raise AttributeError(f"module 'tinytorch' has no attribute '{name}'")
