"""Step lazy01: Lazy layers: the size of the input is known at the first batch

Linear(?, 10) after three convolutions and two poolings: somebody has to work out that ? is 16 * 5 *
5, and again after every change. But the first batch tells it. LazyLinear(10) waits:

    made:           weight is a parameter without elements; the optimizer may already hold it
    first forward:  a hook sees the input, sets in_features, gives the parameters their elements
    after that:     the same object, whose class is Linear

Both changes are made to the object itself: `materialize` gives the parameter an array and makes it
an ordinary Parameter (`self.__class__ = Parameter`), so that the optimizer's list stays right, and
the hook does the same to the layer. No later call pays for the wait.

`model.to("cuda")` may come before the first batch. It replaces the `data` of each parameter, which
here is a tensor of size 0 with the type and the device that the elements will have.

The trap: until then there is nothing to look at. An empty tensor in its place would go on silently,
with a mean of nan or a sum of 0. So the array of a parameter without elements is a property that
raises an error.

PyTorch's words: LazyLinear, UninitializedParameter.

New: UninitializedParameter, LazyModule, start, LazyLinear.
Try: give LazyLinear's weight another object in `materialize`, and train.
"""

import importlib
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty
from tinytorch.ops.random import manual_seed, randn

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class UninitializedParameter(Parameter):
    """A parameter without elements yet. An optimizer may hold it: `materialize` makes the same
    object a Parameter.

    Raises:
        RuntimeError: its elements, shape or type are asked for.
    """

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        self = object.__new__(cls)
        self.data, self._requires_grad = empty(0, device=device, dtype=dtype), requires_grad
        return self

    def __init__(self, *args: Any, **kwargs: Any):
        pass  # as in Parameter

    @property
    def array(self) -> Any:
        raise RuntimeError(
            "Can't access the elements of an uninitialized parameter: its shape is known after the "
            "first forward of its module, or after load_state_dict()"
        )

    @array.setter
    def array(self, elements: Any) -> None:
        vars(self)["array"] = elements

    @property
    def data(self) -> Tensor:
        """A tensor of size 0, with the type and the device that the elements will have."""
        return self.prototype

    @data.setter
    def data(self, prototype: Tensor) -> None:  # as Module.to does
        self.prototype, self.device = prototype, prototype.device

    def materialize(self, shape: Any) -> None:
        """Gives the parameter uninitialized elements of this shape."""
        self.array = vars(self).pop("prototype").new_empty(shape).array
        self.__class__ = Parameter

    def __repr__(self) -> str:
        return "<UninitializedParameter>"


class LazyModule(Module):
    """Base of the lazy layers, written before the layer among the bases. Its forward hook asks
    `infer` for the sizes at the first call; then the object is an ordinary layer.

    Attributes:
        becomes: the class of the ordinary layer.
    """

    becomes: type

    def wait(self, bias: bool, options: dict) -> None:
        """Puts parameters without elements in the place of weight and bias."""
        self.weight = UninitializedParameter(**options)
        self.bias = UninitializedParameter(**options) if bias else None
        self._infer_hook = self.register_forward_pre_hook(start)

    def materialize(self, weight: Any, bias: Any) -> None:
        """The elements, drawn as the ordinary layer draws them."""
        self.weight.materialize(weight)
        if self.bias is not None:
            self.bias.materialize(bias)
        self.reset_parameters()

    def infer(self, input: Tensor) -> None:
        """Sets the sizes that `input` tells, and calls `materialize`."""
        raise NotImplementedError


def start(module: LazyModule, args: tuple) -> None:
    """The hook before the first forward."""
    module.infer(*args)
    module._infer_hook.remove()
    del module._infer_hook
    module.__class__ = module.becomes


class LazyLinear(LazyModule, Linear):
    """Linear, whose in_features is the last size of the first input."""

    becomes = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.wait(bias, {"device": device, "dtype": dtype})

    def infer(self, input: Tensor) -> None:
        self.in_features = input.shape[-1]
        self.materialize((self.out_features, self.in_features), self.out_features)


if __name__ == "__main__":
    importlib.import_module("tinytorch.autograd.backward")
    from tinytorch.nn.modules.activation import ReLU
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.optim.sgd import SGD

    manual_seed(0)
    model = Sequential(LazyLinear(4), ReLU(), LazyLinear(2, bias=False))
    optimizer = SGD(model.parameters(), lr=0.1)
    print(model[0], model[0].weight)
    # -> LazyLinear(in_features=0, out_features=4, bias=True) <UninitializedParameter>
    try:
        print(model[0].weight.shape)
    except RuntimeError as error:
        print(str(error)[:62])
    # -> Can't access the elements of an uninitialized parameter: its s

    print(model.double()[0].weight.data.dtype, model.float()[0].weight.data.dtype)
    # -> tinytorch.float64 tinytorch.float32

    output = model(randn(5, 3))
    print(model[0], model[2].in_features)
    # -> Linear(in_features=3, out_features=4, bias=True) 4
    before = model[0].weight.clone()
    output.square().sum().backward()
    optimizer.step()
    print("trained:", not model[0].weight.equal(before))  # -> trained: True
    try:
        LazyModule().infer(output)
    except NotImplementedError:
        print("LazyModule is a base")  # -> LazyModule is a base
