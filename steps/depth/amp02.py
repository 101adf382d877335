"""Step amp02: autocast in the package's dress

Step 85a built a mode that casts the inputs of products. LOWER names the Functions that are
products. All other calls keep their types. The gradients need no rule of their own: the cast is an
operation in the graph, and its backward casts the gradient back.

The trap: check_operands (step matmul06) compares the types before the mode sees the call. It
accepts different types if an open mode says (one_type) that it will make them equal.

New: LOWER, autocast.
Try: take Addmm out of LOWER, and run the demo again. Why does the gradient's type change, too?
"""

import importlib
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.dtype import DType, float16, float64
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.activation import Tanh
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.conversion import cast
from tinytorch.ops.creation import arange
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Products. They are added up in float32, and rounded once.
LOWER = frozenset("Addmm Convolution ConvolutionInput MatMul".split())


class autocast(FunctionMode):
    """`with autocast(float16):` casts the inputs of products to this type."""

    def __init__(self, dtype: DType):
        self.dtype = dtype

    one_type = True  # operands of different types may come: check_operands need not refuse them

    def call(self, function: type, args: tuple) -> Any:
        """Cast the arguments of what the lists name."""
        if function.__name__ in LOWER:
            args = tuple([self.as_type(x, self.dtype) for x in args])
        return function.apply(*args)

    def as_type(self, x: Any, dtype: DType) -> Any:
        """x in this type, if it is a tensor that autocast may cast; other values as they are."""
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype in (dtype, float64):
            return x
        return cast(x, dtype)


if __name__ == "__main__":
    importlib.import_module("tinytorch.core.printing")
    manual_seed(0)
    layer, x = Linear(3, 2), randn(4, 3)
    try:
        layer(x.half())
    except RuntimeError as error:
        print(error)
        # -> expected m1 and m2 to have the same dtype, but got: float16 != float != float

    with autocast(float16):
        y = layer(x.half())
        print("a product:", y.dtype, " a sum of two tensors:", (x + x).dtype)
        # -> a product: tinytorch.float16  a sum of two tensors: tinytorch.float32
        print(
            "indices and float64 stay:",
            (arange(3) @ arange(3)).dtype,
            (x.double() @ x.double().T).dtype,
        )  # -> indices and float64 stay: tinytorch.int64 tinytorch.float64

    y.float().sum().backward()
    print("weight:", layer.weight.dtype, " gradient:", layer.weight.grad.dtype)
    # -> weight: tinytorch.float32  gradient: tinytorch.float32
    print("outside:", layer(x).dtype)  # -> outside: tinytorch.float32
    print("error:", f"{(y.float() - layer(x)).abs().max().item():.4f}")  # -> error: 0.0005

    # The products change the type; what comes behind them takes it as it is.
    model = Sequential(Linear(3, 8), Tanh(), Linear(8, 1))
    with autocast(float16):
        y = x
        for part in model:
            y = part(y)
            print(type(part).__name__, y.dtype)
            # -> Linear tinytorch.float16
            # -> Tanh tinytorch.float16
            # -> Linear tinytorch.float16
