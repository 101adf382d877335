"""A layer that finds out by itself how many inputs it has."""

from typing import Any

from tinytorch.core.tensor import Size, Tensor
from tinytorch.nn.linear import Linear
from tinytorch.nn.parameter import Parameter


class UninitializedParameter(Parameter):
    """A parameter without elements, until somebody knows its shape. RuntimeError for `shape`.

    What is written into it before that is lost: initialise after the first input."""

    def __repr__(self) -> str:
        return "<UninitializedParameter>"

    @property
    def shape(self) -> Size:
        raise RuntimeError("a parameter has no shape yet: call its module with an input first")


class LazyLinear(Linear):
    """Linear with as many inputs as the first one that it gets has; then it becomes a Linear."""

    def __init__(self, out_features: int, bias: bool = True, device=None, dtype=None):
        super().__init__(0, out_features, bias, device, dtype)

    def _make(self, shape: tuple, bias: bool, fan_in: int, **options: Any) -> None:
        super()._make((0,), bias, fan_in, **options)
        for param in self.parameters():
            param.__class__ = UninitializedParameter

    def forward(self, input: Tensor) -> Tensor:
        self.in_features = self._fan_in = input.shape[-1]
        shapes = (self.out_features, self.in_features), (self.out_features,)
        for param, shape in zip(self.parameters(), shapes, strict=False):  # weight, if any bias
            # The same objects, since an optimizer may hold them.
            param.data, param.__class__ = param.data.new_empty(shape), Parameter
        self.__class__ = Linear
        self.reset_parameters()
        return self.forward(input)
