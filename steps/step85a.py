"""Step 85a: autocast: a mode that casts products

A GPU multiplies halves several times as fast as float32. Can a whole network be float16? Step 61f
trained one. But near 1 the next float16 is 0.001 away, and an update of 0.0001 is lost, however
often it is repeated.

So the two are mixed. Products, which take the time, run in halves: each element is added up in
float32, and rounded once (step 61f). Weights and updates stay float32. Written by hand, that is a
.half() before each product. A mode (step 65d) can cast the arguments of each call, and no layer
changes:

    linear(x, w, b)  ->  Addmm(x, w, b)  ->  mode: Addmm(half(x), half(w), half(b))  ->  forward

LOWER names the products. All other operations take their inputs as they come.

Gradients need no rule. A cast is an operation in the graph, and its backward casts back (step 61e).
The weight is the float32 input of that cast, so its gradient and the update are float32, too.

The trap: a product compares the types of its operands before the mode sees the call. `one_type`
tells it that an open mode will make them equal.

PyTorch: torch.autocast(device_type, dtype). It casts tensors of that device, and never float64.

New: LOWER, autocast.
Try: take Addmm out of LOWER. Which line of the demo changes, and why does it matter?
"""

import tinytorch.ops.sampling  # noqa: F401 (so that the layers can draw their weights)
from tinytorch.autograd.backward import backward  # noqa: F401 (gives Tensor backward)
from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.dtype import float16, float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.functional import mse_loss  # noqa: F401 (gives Tensor its methods)
from tinytorch.nn.modules.linear import Linear
from tinytorch.ops.conversion import cast
from tinytorch.ops.random import manual_seed, randn

# Products, by the names of their Functions: added up in float32, and rounded once.
LOWER = ("Addmm", "Convolution", "MatMul")


class autocast(FunctionMode):
    """`with autocast("cpu", float16):` casts the inputs of products to this type."""

    one_type = True  # operands of different types may come

    def __init__(self, device_type, dtype):
        self.device_type, self.dtype = device_type, dtype

    def call(self, function, args):
        if function.__name__ in LOWER:
            args = [self.as_type(x, self.dtype) for x in args]
        return function.apply(*args)

    def as_type(self, x, dtype):
        """x in this type, if it is a tensor that may be cast; other values as they are."""
        number = isinstance(x, Tensor) and x.is_floating_point() and x.dtype is not float64
        return cast(x, dtype) if number and x.device.type == self.device_type else x


if __name__ == "__main__":
    weight = tensor([1.0]).half()
    for _ in range(1000):
        weight = weight - 0.0001
    print(f"1 - 1000 * 0.0001 = {weight.item()}")  # -> 1 - 1000 * 0.0001 = 1.0

    manual_seed(0)
    layer, x = Linear(3, 2), randn(4, 3)
    try:
        layer(x.half())
    except RuntimeError:
        print("a half and a float32 do not multiply")  # -> a half and a float32 do not multiply

    with autocast("cpu", float16):
        y = layer(x.half())
        print("product:", y.dtype)  # -> product: tinytorch.float16
        print("a sum of tensors:", (x + x).dtype)  # -> a sum of tensors: tinytorch.float32
        print("float64:", (x.double() @ x.double().T).dtype)  # -> float64: tinytorch.float64

    y.float().sum().backward()
    print("weight:", layer.weight.dtype)  # -> weight: tinytorch.float32
    print("its gradient:", layer.weight.grad.dtype)  # -> its gradient: tinytorch.float32
    error = (y.float() - layer(x)).abs().max().item()
    print("off by one rounding:", error < 0.001)  # -> off by one rounding: True
