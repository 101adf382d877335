"""Step amp04: A block within a block, and one type for each device

Sometimes a part of a network needs float32 inside an autocast block. PyTorch writes that as a
block within the block, `with autocast(..., enabled=False)`. The mode of step amp03 has no such
option, and two nested blocks disturb each other: each call goes through both modes, so the outer
one casts again what the inner one has cast. The demo shows it: float16 inside, float32 outside,
and float32 wins.

The innermost block must decide alone. So a dictionary holds the innermost autocast for each type of
device, and a mode that is not in the dictionary passes each call on unchanged:

    with autocast("cpu", float16):              current = {"cpu": first}        first casts
        with autocast("cpu", enabled=False):    current = {"cpu": second}       first casts nothing

On its exit a block restores the dictionary that it found, also after an error. `before` is a tuple,
used as a stack, because the same object can be entered again inside itself. Each thread has its own
dictionary, as it has its own modes.

The trap: a block for the CPU must not touch tensors on the GPU, so as_type checks the device.

A disabled block does not cast anything back: a float16 tensor stays float16, so call x.float()
before a float32 product.

Changed: autocast. New: Settings, get_autocast_dtype, is_autocast_enabled.
Try: make `before` a plain value instead of a tuple. Which block is left open in the line "outside"?
"""

import importlib
import threading
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
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
    """What holds on one thread: the innermost autocast of each type of device."""

    def __init__(self):
        self.current: dict[str, autocast] = {}


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
    """

    def __init__(self, device_type: str, dtype: DType | None = None, enabled: bool = True):
        self.device_type = device_type
        self.dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self.enabled = enabled
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
        return cast(x, dtype)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    x, w = randn(4, 3), randn(3, 2)

    # What was wrong: two modes, and the outer one has the last word.
    class Both(FunctionMode):
        def call(self, function, args):
            if function.__name__ == "MatMul":
                args = [cast(a, self.dtype) for a in args]
            return function.apply(*args)

    outer, inner = Both(), Both()
    outer.dtype, inner.dtype = float32, float16
    with outer, inner:
        print("two modes:", (x @ w).dtype)  # -> two modes: tinytorch.float32

    block = autocast("cpu", float16)
    print(
        "before:", is_autocast_enabled("cpu"), get_autocast_dtype("cpu"), get_autocast_dtype("cuda")
    )  # -> before: False tinytorch.bfloat16 tinytorch.float16
    with block:
        print("outer:", (x @ w).dtype, get_autocast_dtype("cpu"))
        # -> outer: tinytorch.float16 tinytorch.float16
        with autocast("cpu", enabled=False):
            print("disabled:", (x @ w).dtype, is_autocast_enabled("cpu"))
            # -> disabled: tinytorch.float32 False
            print("halves:", (x.half() @ w.half()).exp().dtype)  # -> halves: tinytorch.float16
            try:
                x.half() @ w
            except RuntimeError as error:
                print(error)
                # -> expected m1 and m2 to have the same dtype, but got: float16 != float
            with block:  # the same object, inside itself
                print("again:", (x @ w).dtype, (x.half() @ w).exp().dtype)
                # -> again: tinytorch.float16 tinytorch.float32
        with autocast("cuda", float16):
            print("a block for another device:", (x @ w).dtype, is_autocast_enabled())
            # -> a block for another device: tinytorch.float16 True
    print("outside:", settings.current)  # -> outside: {}
    try:
        with block:
            raise ValueError("stopped")
    except ValueError:
        print("after an error:", (x @ w).dtype)  # -> after an error: tinytorch.float32
