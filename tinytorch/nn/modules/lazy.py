"""Layers that learn the size of their input from the first batch: LazyLinear, LazyConv2d, ..."""

from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules import batchnorm, conv
from tinytorch.nn.modules.conv import ConvLayer
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty, empty_like


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
        affine: whether it has a weight.
    """

    becomes: type
    affine = True

    def wait(self, bias: bool, options: dict) -> None:
        """Puts parameters without elements in the place of weight and bias."""
        if self.affine:
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
    for name, old in module._buffers.items():
        if prefix + name in state and old is not None and old.shape == (0,):
            module._buffers[name] = empty_like(state[prefix + name], device=old.device)


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


class LazyBatchNorm(LazyModule):
    """A batch normalisation whose num_features are the channels of the first input."""

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        options = {"device": device, "dtype": dtype}
        super().__init__(0, eps, momentum, False, track_running_stats, **options)
        self.affine = affine
        self.wait(True, options)

    def infer(self, input: Tensor) -> None:
        self.num_features = input.shape[1]
        if self.track_running_stats and self.running_mean.shape == (0,):
            self.running_mean = self.running_mean.new_zeros(self.num_features)
            self.running_var = self.running_var.new_ones(self.num_features)
        self.materialize(self.num_features, self.num_features)


def lazy(base: type, of: type) -> type:
    """LazyConv2d from LazyConv and Conv2d."""
    name = f"Lazy{of.__name__}"
    members = {"becomes": of, "__module__": __name__, "__doc__": f"{of.__name__}: {base.__doc__}"}
    return type(name, (base, of), members)


LazyConv1d, LazyConv2d, LazyConv3d = (lazy(LazyConv, getattr(conv, f"Conv{n}d")) for n in (1, 2, 3))


LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    lazy(LazyConv, getattr(conv, f"ConvTranspose{n}d")) for n in (1, 2, 3)
)


LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    lazy(LazyBatchNorm, getattr(batchnorm, f"BatchNorm{n}d")) for n in (1, 2, 3)
)
