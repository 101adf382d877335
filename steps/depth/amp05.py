"""Step amp05: A parameter is cast once in a block

A recurrent network uses the same weight at every step, and autocast casts it each time. The demo
counts twelve steps and twelve casts of the weight; and in backward, twelve gradients are cast back
to float32 and added there.

A parameter does not change inside a block, since the optimizer comes after the forward pass. So the
cast is kept until the outermost block ends, and later uses take the same tensor:

    w (float32)  ->  Cast  ->  w16  ->  product 1        the gradients of the products are added up
                                    ->  product 2        at w16, in float16, and cast back once
                                    ->  ...

The kept tensor has a history, so the gradient still reaches w. Only casts of leaves that require a
gradient are kept. These are the parameters; other tensors are mostly used once.

Two traps. A cast made under no_grad has no history. If it were kept, the weight would get no
gradient in the next forward pass, so nothing is kept there. And a block around the whole training
loop would use the old weights after optimizer.step(): open a block for each forward pass.

PyTorch calls this the weight cache; cache_enabled=False switches it off.

Changed: Settings, autocast.__init__, __exit__, as_type.
Try: remove `state.grad_enabled` from as_type, and run the demo again.
"""

import importlib
import threading
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import FunctionMode, no_grad
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.ops.conversion import cast
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Products. They are added up in float32, and rounded once.
LOWER = frozenset("Addmm Convolution ConvolutionInput MatMul".split())
# What has another size than its input, or adds up many numbers.
FLOAT32 = frozenset(
    """Acos Asin BinaryCrossEntropy BinaryCrossEntropyWithLogits Cosh Cumsum Exp Expm1 GruLoop
    HuberLoss Log Log10 Log1P Log2 LogSoftmax Logsumexp LstmLoop MseLoss NativeGroupNorm
    NativeLayerNorm NllLoss Norm Pow Prod Reciprocal ReluLoop Rsqrt Sinh SmoothL1Loss Softmax
    SoftplusActivation Solve Sum Tan TanhLoop""".split()
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
    for products to `dtype`, for losses and the like to float32.

    Args:
        dtype: float16 or bfloat16; None for get_autocast_dtype(device_type).
        enabled: False in a nested block to cast nothing in it.
        cache_enabled: keep the cast of a parameter until the outermost block ends (the default).
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        self.device_type = device_type
        self.dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.enabled, self.cache_enabled = enabled, cache_enabled is not False
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

    @property
    def one_type(self) -> bool:
        """Whether this block decides: an inner one, also one that is not enabled, decides alone.
        Then operands of different types may come, and check_operands need not refuse them."""
        return settings.current.get(self.device_type) is self

    @property
    def wide(self) -> frozenset:
        """The operations on halves whose result stays in float32."""
        return FLOAT32 if self.one_type else frozenset()

    def call(self, function: type, args: tuple) -> Any:
        """Cast the arguments of what the lists name."""
        if self.one_type:
            name = function.__name__
            if name in FLOAT32:
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

    class CountCasts(FunctionMode):
        """Counts the casts that run below it."""

        count = 0

        def call(self, function, args):
            self.count += function.__name__ == "Cast"
            return function.apply(*args)

    manual_seed(0)
    weight, x = (randn(8, 8) / 3).requires_grad_(), randn(2, 8).half()

    def steps(y):
        for _ in range(12):
            y = y @ weight
        return y

    for cache_enabled in (False, True):
        with CountCasts() as casts, autocast("cpu", float16, cache_enabled=cache_enabled):
            y = steps(x)
        weight.grad = None
        y.float().sum().backward()
        print("casts:", casts.count, " gradient:", weight.grad.dtype, weight.grad.shape)
        # -> casts: 12  gradient: tinytorch.float32 tinytorch.Size([8, 8])
        # -> casts: 1  gradient: tinytorch.float32 tinytorch.Size([8, 8])
    print("nothing is kept outside:", settings.casts)  # -> nothing is kept outside: {}

    # The gradient is the one of float32, up to the rounding of halves.
    mixed = weight.grad
    weight.grad = None
    steps(x.float()).sum().backward()
    print("close:", ((mixed - weight.grad).abs().max() < 0.01 * weight.grad.abs().max()).item())
    # -> close: True

    # A cast without history is not kept.
    weight.grad = None
    with autocast("cpu", float16):
        with no_grad():
            steps(x)
        print("history:", steps(x).requires_grad)  # -> history: True
