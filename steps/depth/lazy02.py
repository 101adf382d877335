"""Step lazy02: Lazy convolutions, and loading into a lazy layer

A file can come before the first batch: a network is made, and load_state_dict gives it the weights
of yesterday. A lazy layer has no elements to copy them into:

    copy.load_state_dict(file):  Can't access the elements of an uninitialized parameter

But a saved tensor tells a shape as well as a batch does. So a hook before the load takes the shapes
from it. The trap is what comes next: the first forward still sets in_channels, and must not draw
new weights over what was loaded. `materialize` asks whether the weight has elements.

A convolution waits for one number, the channels of its input, which is `shape[-n - 1]`: with or
without a batch in front. `lazy` makes the six classes, each from LazyConv and the layer that it
becomes.

New: take_shapes, LazyConv, lazy, LazyConv1d and its kin. Changed: LazyModule.
Try: let `materialize` draw the weights in any case, and compare the two outputs.
"""

import importlib
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules import conv
from tinytorch.nn.modules.conv import ConvLayer
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
        self.register_load_state_dict_pre_hook(take_shapes)
        self._infer_hook = self.register_forward_pre_hook(start)

    def materialize(self, weight: Any, bias: Any) -> None:
        """The elements, drawn as the ordinary layer draws them; not those that were loaded."""
        if isinstance(self.weight, UninitializedParameter):
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


def take_shapes(module: LazyModule, state: dict, prefix: str, *rest: Any) -> None:
    """The hook before a load: a saved tensor tells a shape as well as a batch does."""
    for name, param in module._parameters.items():
        if isinstance(param, UninitializedParameter) and prefix + name in state:
            param.materialize(state[prefix + name].shape)


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


class LazyConv(LazyModule, ConvLayer):
    """A convolution whose in_channels are those of the first input."""

    def __init__(
        self, out_channels: int, kernel_size: Any, *args: Any, bias: bool = True,
        device: Any = None, dtype: Any = None, **options: Any,
    ):  # fmt: skip
        super().__init__(0, 0, kernel_size, *args, bias=False, **options)
        self.out_channels = out_channels
        self.wait(bias, {"device": device, "dtype": dtype})

    def infer(self, input: Tensor) -> None:
        self.in_channels = input.shape[-self.n - 1]
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(
                f"{self.in_channels} input and {self.out_channels} output channels must be "
                f"divisible by groups={self.groups}"
            )
        channels = [self.out_channels, self.in_channels]
        first, second = channels[::-1] if self.transposed else channels
        shape = (first, second // self.groups, *self.kernel_size)
        self.materialize(shape, self.out_channels)


def lazy(base: type, of: type) -> type:
    """LazyConv2d from LazyConv and Conv2d."""
    name = f"Lazy{of.__name__}"
    members = {"becomes": of, "__module__": __name__, "__doc__": f"{of.__name__}: {base.__doc__}"}
    return type(name, (base, of), members)


LazyConv1d, LazyConv2d, LazyConv3d = (lazy(LazyConv, getattr(conv, f"Conv{n}d")) for n in (1, 2, 3))
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    lazy(LazyConv, getattr(conv, f"ConvTranspose{n}d")) for n in (1, 2, 3)
)
if __name__ == "__main__":
    from tinytorch.nn.modules.container import Sequential
    from tinytorch.nn.modules.flatten import Flatten

    manual_seed(0)

    def network() -> Sequential:
        up = LazyConvTranspose2d(2, 2, stride=2)
        return Sequential(LazyConv2d(4, 3, padding=1), up, Flatten(), LazyLinear(3))

    model, images = network(), randn(5, 3, 4, 4)
    print(model[0])  # -> LazyConv2d(0, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
    print(model(images).shape, model[3])
    # -> tinytorch.Size([5, 3]) Linear(in_features=128, out_features=3, bias=True)
    print(model[0])  # -> Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))

    copy = network()
    copy.load_state_dict(model.state_dict())
    print(type(copy[0]).__name__, copy[0].weight.shape)
    # -> LazyConv2d tinytorch.Size([4, 3, 3, 3])
    print("equal:", copy(images).equal(model(images)), type(copy[0]).__name__)
    # -> equal: True Conv2d
    try:
        LazyConv1d(4, 1, groups=2)(randn(1, 3, 5))
    except ValueError as error:
        print(error)  # -> 3 input and 4 output channels must be divisible by groups=2
