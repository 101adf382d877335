"""Lists and dictionaries of parameters, for modules that have many of their own."""

from collections.abc import Iterable
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.container import DictContainer, ListContainer
from tinytorch.nn.parameter import Parameter


class ParameterContainer:
    """What a list and a dictionary of parameters share. Plain tensors become parameters."""

    _store = "_parameters"

    def _register(self, store: str, name: str, value: Any) -> None:
        plain = isinstance(value, Tensor) and not isinstance(value, Parameter)
        super()._register(store, name, Parameter(value) if plain else value)

    def extra_repr(self) -> str:
        lines = []
        for name, param in self._parameters.items():
            size = "x".join(map(str, param.shape))
            lines.append(f"  ({name}): Parameter containing: [{param.dtype!r} of size {size}]")
        return "\n".join(lines)


class ParameterList(ParameterContainer, ListContainer):
    """A list of parameters."""

    def __init__(self, values: Iterable[Tensor] | None = None):
        super().__init__()
        self.extend(() if values is None else values)


class ParameterDict(ParameterContainer, DictContainer):
    """Parameters by name."""

    def __init__(self, parameters: Any = None):
        super().__init__()
        self.update({} if parameters is None else parameters)
