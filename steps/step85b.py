"""Step 85b: What has to stay in float32

A loss of the demo is inf, another is 0. Under the mode of step 85a the output of a layer is
float16, and mse_loss takes it as it is. The square of an error of 300 is 90,000, more than 65,504,
the largest float16. That of 0.0001 is 0.00000001, less than the smallest one, 6e-8.

Why does that not happen to products? The weights of a network are made so that a layer's output has
the size of its input (step 44). A square, an exponential, a sum of many numbers has not.

So there is a second list. FLOAT32 names the operations whose inputs are cast to float32: losses,
which square and add up. What is in neither list keeps the type of its inputs.

The trap: it is the result that needs the range. Once it is inf, a cast does not help.

PyTorch has such lists for each kind of device. That of the CPU is about losses; on a GPU exp, log,
pow, softmax, norms and sums stay in float32, too. The finished autocast has both.

Changed: autocast.call. New: FLOAT32.
Try: remove MseLoss from the list. Which losses does the demo print?
"""

from tinytorch.autograd.modes import FunctionMode
from tinytorch.core.dtype import float16, float32, float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.functional import mse_loss
from tinytorch.ops.conversion import cast

# Products, by the names of their Functions: added up in float32, and rounded once.
LOWER = ("Addmm", "Convolution", "MatMul")
# Losses: they square, and add up many numbers.
FLOAT32 = ("BinaryCrossEntropy", "HuberLoss", "MseLoss", "NllLoss", "SmoothL1Loss")


class autocast(FunctionMode):
    """`with autocast("cpu", float16):` products compute in this type, losses in float32."""

    one_type = True  # operands of different types may come

    def __init__(self, device_type, dtype):
        self.device_type, self.dtype = device_type, dtype

    def call(self, function, args):
        if function.__name__ in LOWER:
            args = [self.as_type(x, self.dtype) for x in args]
        elif function.__name__ in FLOAT32:
            args = [self.as_type(x, float32) for x in args]
        return function.apply(*args)

    def as_type(self, x, dtype):
        """x in this type, if it is a tensor that may be cast; other values as they are."""
        number = isinstance(x, Tensor) and x.is_floating_point() and x.dtype is not float64
        return cast(x, dtype) if number and x.device.type == self.device_type else x


if __name__ == "__main__":

    def losses():
        zero = tensor([0.0, 0.0]).half()
        yield "large errors", mse_loss(tensor([300.0, 400.0]).half(), zero)
        yield "small errors", mse_loss(tensor([1e-4, 1e-4]).half(), zero)

    for what, loss in losses():
        print(f"{what}: {loss.item():.4g}")
    # -> large errors: inf
    # -> small errors: 0
    with autocast("cpu", float16):
        for what, loss in losses():
            print(f"{what}: {loss.item():.4g}")
    # -> large errors: 1.25e+05
    # -> small errors: 1e-08
