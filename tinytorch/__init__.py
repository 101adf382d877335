"""tinytorch: a small PyTorch, of which every line is built in a numbered step of `steps/`."""

from math import e, inf, nan, pi

from numpy import newaxis

from tinytorch import (
    accelerator,
    autograd,
    backends,
    cuda,
    datasets,
    kernels,
    nn,
    optim,
    random,
    utils,
)
from tinytorch.autograd.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from tinytorch.core.device import Device as device
from tinytorch.core.device import get_default_device, set_default_device
from tinytorch.core.dtype import (
    DType as dtype,
)
from tinytorch.core.dtype import (
    bfloat16,
    can_cast,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    result_type,
    set_default_dtype,
    uint8,
)
from tinytorch.core.dtype import (
    bool_ as bool,
)
from tinytorch.core.dtype import (
    float16 as half,
)
from tinytorch.core.dtype import (
    float32 as float,
)
from tinytorch.core.dtype import (
    float64 as double,
)
from tinytorch.core.dtype import (
    int16 as short,
)
from tinytorch.core.dtype import (
    int32 as int,
)
from tinytorch.core.dtype import (
    int64 as long,
)
from tinytorch.core.limits import finfo, iinfo
from tinytorch.core.memory import freed_memory_is_kept
from tinytorch.core.printing import set_printoptions
from tinytorch.core.tensor import Size, Tensor, as_tensor, from_numpy, is_tensor, tensor
from tinytorch.linalg import inv as inverse
from tinytorch.ops.arithmetic import add, mul, neg, positive, sub
from tinytorch.ops.arithmetic import mul as multiply
from tinytorch.ops.arithmetic import neg as negative
from tinytorch.ops.arithmetic import sub as subtract
from tinytorch.ops.broadcast import broadcast_shapes, broadcast_tensors, broadcast_to
from tinytorch.ops.comparison import (
    allclose,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    clamp,
    clamp_max,
    clamp_min,
    eq,
    equal,
    ge,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    le,
    lerp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    ne,
    where,
)
from tinytorch.ops.comparison import (
    clamp as clip,
)
from tinytorch.ops.comparison import (
    ge as greater_equal,
)
from tinytorch.ops.comparison import (
    gt as greater,
)
from tinytorch.ops.comparison import (
    le as less_equal,
)
from tinytorch.ops.comparison import (
    lt as less,
)
from tinytorch.ops.comparison import (
    ne as not_equal,
)
from tinytorch.ops.conversion import clone
from tinytorch.ops.creation import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from tinytorch.ops.cumulative import cumsum, prod
from tinytorch.ops.einsum import einsum, trace
from tinytorch.ops.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmod,
    frac,
    hypot,
    log,
    log1p,
    log2,
    log10,
    maximum,
    minimum,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from tinytorch.ops.elementwise import (
    abs as absolute,
)
from tinytorch.ops.elementwise import (
    acos as arccos,
)
from tinytorch.ops.elementwise import (
    acosh as arccosh,
)
from tinytorch.ops.elementwise import (
    asin as arcsin,
)
from tinytorch.ops.elementwise import (
    asinh as arcsinh,
)
from tinytorch.ops.elementwise import (
    atan as arctan,
)
from tinytorch.ops.elementwise import (
    atan2 as arctan2,
)
from tinytorch.ops.elementwise import (
    atanh as arctanh,
)
from tinytorch.ops.elementwise import (
    div as divide,
)
from tinytorch.ops.elementwise import (
    div as true_divide,
)
from tinytorch.ops.elementwise import (
    sign as sgn,
)
from tinytorch.ops.elementwise import (
    trunc as fix,
)
from tinytorch.ops.extremes import amax, amin, argmax, argmin, max, min
from tinytorch.ops.finite import nan_to_num
from tinytorch.ops.gather import (
    gather,
    index_add,
    index_select,
    masked_fill,
    repeat_interleave,
    scatter,
    scatter_add,
)
from tinytorch.ops.indexing import masked_select, nonzero
from tinytorch.ops.indexing import nonzero as argwhere
from tinytorch.ops.joining import (
    cat,
    chunk,
    split,
    stack,
    unbind,
)
from tinytorch.ops.joining import (
    cat as concat,
)
from tinytorch.ops.joining import (
    cat as concatenate,
)
from tinytorch.ops.legacy import (
    FloatTensor,
    LongTensor,
)
from tinytorch.ops.matmul import (
    addmm,
    bmm,
    dot,
    matmul,
    mm,
    mv,
    outer,
)
from tinytorch.ops.matmul import (
    dot as vdot,
)
from tinytorch.ops.matmul import (
    outer as ger,
)
from tinytorch.ops.methods import detach, is_complex, is_floating_point, numel
from tinytorch.ops.multinomial import multinomial
from tinytorch.ops.norm import count_nonzero, norm
from tinytorch.ops.parts import (
    diag,
    diag_embed,
    diagonal,
    flip,
    roll,
    select,
    tile,
    tril,
    triu,
)
from tinytorch.ops.random import (
    Generator,
    initial_seed,
    manual_seed,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
    seed,
)
from tinytorch.ops.reduction import all, any, mean, std, sum, var
from tinytorch.ops.sampling import bernoulli
from tinytorch.ops.shape import (
    flatten,
    movedim,
    permute,
    ravel,
    reshape,
    squeeze,
    t,
    transpose,
    unflatten,
    unsqueeze,
)
from tinytorch.ops.shape import movedim as moveaxis
from tinytorch.ops.shape import transpose as swapaxes
from tinytorch.ops.shape import transpose as swapdims
from tinytorch.ops.softmax import log_softmax, logsumexp, softmax
from tinytorch.ops.sorting import (
    argsort,
    bincount,
    sort,
    topk,
    unique,
)
from tinytorch.ops.storage import as_strided, narrow
from tinytorch.random import get_rng_state, set_rng_state
from tinytorch.serialization import load, save
from tinytorch.threads import get_num_threads, set_num_threads
from tinytorch.version import __version__
