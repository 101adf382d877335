"""Step amp03: What stays in float32, in the package's dress

Step 85b added the second list, FLOAT32, for losses. Here it has what PyTorch's has on a GPU: exp,
log and powers, softmax, sums and norms, and every loss. One more change is needed.

The functions of the run elementwise compute halves in float32 anyway, but round the result to
float16, and exp(12) would still be inf. So `compute` asks the open modes whether the result should
stay float32 (stays_wide, step elementwise16), and `wide` is our mode's answer.

The trap: it is the output that needs the range. Once it is inf, a cast to float32 does not help.

Changed: autocast.call. New: FLOAT32, autocast.wide.
Try: remove MseLoss from the list. Which loss does the demo print?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.dtype import DType, float16, float32, float64
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import mse_loss
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import full, zeros
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


class autocast(FunctionMode):
    """`with autocast(float16):` casts the inputs of products to this type, and those of sums,
    losses and the like to float32."""

    def __init__(self, dtype: DType):
        self.dtype = dtype

    one_type = True  # operands of different types may come: check_operands need not refuse them
    wide = FLOAT32  # the operations on halves whose result stays in float32

    def call(self, function: type, args: tuple) -> Any:
        """Cast the arguments of what the lists name."""
        name = function.__name__
        if name in FLOAT32:
            args = tuple([self.as_type(x, float32) for x in args])
        elif name in LOWER:
            args = tuple([self.as_type(x, self.dtype) for x in args])
        return function.apply(*args)

    def as_type(self, x: Any, dtype: DType) -> Any:
        """x in this type, if it is a tensor that autocast may cast; other values as they are."""
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype in (dtype, float64):
            return x
        return cast(x, dtype)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")

    def results():
        large, small, target = full((100,), 1000.0).half(), full((4,), 1e-4).half(), zeros(4)
        yield "exp(12)", full((1,), 12.0).half().exp()
        yield "sum of 100 * 1000", large.sum()
        yield "mean of squares", mse_loss(large[:4], target.half())
        yield "small errors", mse_loss(small, target.half())

    for what, y in results():
        print(f"{what:18}", y.dtype, f"{y.item():.6g}")
        # -> exp(12)            tinytorch.float16 inf
        # -> sum of 100 * 1000  tinytorch.float16 inf
        # -> mean of squares    tinytorch.float16 inf
        # -> small errors       tinytorch.float16 0
    with autocast(float16):
        for what, y in results():
            print(f"{what:18}", y.dtype, f"{y.item():.6g}")
            # -> exp(12)            tinytorch.float32 162755
            # -> sum of 100 * 1000  tinytorch.float32 100000
            # -> mean of squares    tinytorch.float32 1e+06
            # -> small errors       tinytorch.float32 1.00033e-08

    manual_seed(0)
    model, x = Sequential(Linear(8, 32), Tanh(), Linear(32, 4)), randn(16, 8)
    with autocast(float16):
        y = model(x)
        print("network:", y.dtype, " softmax:", y.softmax(-1).dtype, " tanh:", y.tanh().dtype)
        # -> network: tinytorch.float16  softmax: tinytorch.float32  tanh: tinytorch.float16
        loss = mse_loss(y, zeros(16, 4))
    exact = mse_loss(model(x), zeros(16, 4))
    print("loss:", loss.dtype, f"relative error {abs(loss.item() / exact.item() - 1):.4f}")
    # -> loss: tinytorch.float32 relative error 0.0001
