"""Step amp06: Catalogue: the lists of the CPU, a decorator, refusals

This finishes the module. Skim it: a second list, a decorator, and checks of the arguments. The
lists say which operation runs in which type.

The list of step amp03 is PyTorch's for GPUs. Its list for the CPU is shorter: on the CPU, with
bfloat16 as the usual type, nothing overflows, so exp, softmax and sums stay as they are, and only
losses and a few others are computed in float32.

As a decorator, autocast opens a block for each call of the function. It enters a copy of itself,
because two threads may run the same function at once.

Like PyTorch, autocast warns and disables itself if there is no GPU for "cuda", or if the type is
neither float16 nor bfloat16. bfloat16 needs the package ml_dtypes; without it, the constructor
raises an error.

The trap: the lists contain names of our Functions. l1_loss consists of abs and mean, which programs
also use for other purposes, so it keeps its type here, while PyTorch computes it in float32.

Changed: FLOAT32, autocast. New: FLOAT32_ON_CPU, autocast.__call__.
Try: print(FLOAT32 - FLOAT32_ON_CPU), and guess for each whether it overflows in float16.
"""

import copy
import functools
import importlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.device import Device
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64, numpy_dtype
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.cuda.backend import is_available
from tinytorch.nn.modules.loss import mse_loss
from tinytorch.ops.conversion import cast
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# PyTorch's lists, by the names of our Functions. A product is safe in half the bits: it is added
# up in float32, and rounded once.
LOWER = frozenset("Addmm Convolution ConvolutionInput MatMul".split())
# What has a large range, or adds up many numbers. PyTorch's list for the CPU is short.
FLOAT32_ON_CPU = frozenset(
    """BinaryCrossEntropy BinaryCrossEntropyWithLogits GruLoop HuberLoss LstmLoop MseLoss NllLoss
    Prod ReluLoop SmoothL1Loss Solve TanhLoop""".split()
)
FLOAT32 = FLOAT32_ON_CPU | frozenset(
    """Acos Asin Cosh Cumsum Exp Expm1 Log Log10 Log1P Log2 LogSoftmax Logsumexp NativeGroupNorm
    NativeLayerNorm Norm Pow Reciprocal Rsqrt Sinh Softmax SoftplusActivation Sum Tan""".split()
)


class Settings(threading.local):
    """What holds on one thread: the innermost autocast of each type of device, and the casts of
    parameters that are kept until the outermost block ends."""

    def __init__(self):
        self.current: dict[str, autocast] = {}
        self.casts: dict[tuple, tuple] = {}


settings = Settings()


def get_autocast_dtype(device_type: str) -> DType:
    """The type that products get: that of the innermost autocast, or else bfloat16 on the CPU and
    float16 on other devices."""
    if device_type in settings.current:
        return settings.current[device_type].dtype
    return bfloat16 if device_type == "cpu" else float16


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    return device_type in settings.current and settings.current[device_type].enabled


class autocast(FunctionMode):
    """`with autocast("cpu"):` casts the inputs of operations on tensors of this type of device:
    for products to `dtype`, for losses and the like to float32. Also a decorator.

    It casts float16, bfloat16 and float32, and leaves float64 as it is. backward belongs outside:
    it computes in the types that forward has used. What a Function of your own calls is not cast.

    Args:
        dtype: float16 or bfloat16; None for get_autocast_dtype(device_type).
        enabled: False in a nested block to cast nothing in it.
        cache_enabled: keep the cast of a parameter until the outermost block ends (the default).
    Raises:
        ValueError: device_type is not a string.
        RuntimeError: there is no such type of device; or bfloat16 needs a package.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device_type = device_type
        self.dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if device_type == "cuda" and enabled and not is_available():
            warnings.warn("CUDA is not available. Disabling autocast.", stacklevel=2)
            enabled = False
        elif enabled:
            Device(device_type)
        if enabled and self.dtype not in (float16, bfloat16):
            warnings.warn(
                f"autocast supports float16 and bfloat16, not {self.dtype!r}. Disabling autocast.",
                stacklevel=2,
            )
            enabled = False
        if enabled:
            numpy_dtype(self.dtype)  # refuses bfloat16 where ml_dtypes is missing
        self.enabled, self.cache_enabled = enabled, cache_enabled is not False
        self.in_float32 = FLOAT32_ON_CPU if device_type == "cpu" else FLOAT32
        self.before: tuple = ()  # the settings outside: several, for one entered inside itself

    def __enter__(self) -> "autocast":
        self.before = (*self.before, settings.current)
        settings.current = {**settings.current, self.device_type: self}
        if self.enabled:
            FunctionMode.__enter__(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.enabled:
            FunctionMode.__exit__(self)
        settings.current, self.before = self.before[-1], self.before[:-1]
        if not settings.current:
            settings.casts.clear()

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with copy.copy(self):  # another thread may be in the same function
                return function(*args, **kwargs)

        return call

    @property
    def one_type(self) -> bool:
        """Whether this block decides: an inner one, also one that is not enabled, decides alone.
        Then operands of different types may come, and check_operands need not refuse them."""
        return settings.current.get(self.device_type) is self

    @property
    def wide(self) -> frozenset:
        """The operations on halves whose result stays in float32."""
        return self.in_float32 if self.one_type else frozenset()

    def call(self, function: type, args: tuple) -> Any:
        """Cast the arguments of what the lists name."""
        if self.one_type:
            name = function.__name__
            if name in self.in_float32:
                args = tuple([self.as_type(x, float32) for x in args])
            elif name in LOWER:
                args = tuple([self.as_type(x, self.dtype) for x in args])
        return function.apply(*args)

    def as_type(self, x: Any, dtype: DType) -> Any:
        """x in this type, if it is a tensor that autocast may cast; other values as they are."""
        if (
            not isinstance(x, Tensor)
            or not x.is_floating_point()
            or x.dtype in (dtype, float64)
            or x.device.type != self.device_type
        ):
            return x
        keep = self.cache_enabled and x.is_leaf and x.requires_grad and state.grad_enabled
        if not keep or dtype is float32:
            return cast(x, dtype)
        key = id(x), dtype
        if key not in settings.casts:
            settings.casts[key] = x, cast(x, dtype)  # x is kept too: its id is not used again
        return settings.casts[key][1]


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    x, w = randn(4, 3), randn(3, 2)
    with autocast("cpu", float16):
        y = x @ w
        print("on the CPU:", y.exp().dtype, y.softmax(-1).dtype, mse_loss(y, y).dtype)
        # -> on the CPU: tinytorch.float16 tinytorch.float16 tinytorch.float32
    print("lists:", len(FLOAT32_ON_CPU), len(FLOAT32))  # -> lists: 12 35

    @autocast("cpu", float16)
    def product():
        return x @ w

    print(product.__name__, product().dtype, (x @ w).dtype)
    # -> product tinytorch.float16 tinytorch.float32

    for arguments in ((float16,), ("nowhere",)):
        try:
            autocast(*arguments)
        except (ValueError, RuntimeError) as error:
            print(error)
            # -> Expected `device_type` of type `str`, got: `<class 'tinytorch.core.dtype.DType'>`
            # -> Expected one of cpu, cuda device type at start of device string: nowhere
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        print("float64:", autocast("cpu", float64).enabled)  # -> float64: False
        if not is_available():
            autocast("cuda")
    print(said[0].message)
    # -> autocast supports float16 and bfloat16, not tinytorch.float64. Disabling autocast.

    kept, bfloat16.numpy = bfloat16.numpy, None  # as where ml_dtypes is not installed
    try:
        autocast("cpu")
    except RuntimeError as error:
        print(error)
        # -> tinytorch.bfloat16 needs the package ml_dtypes: pip install ml_dtypes
    bfloat16.numpy = kept
