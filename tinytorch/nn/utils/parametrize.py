"""Parametrizations: a parameter that is computed from others whenever it is read."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.container import ModuleDict, ModuleList
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter

CACHE: dict[str, Any] = {"depth": 0, "values": {}}  # values: (module, name) -> tensor


def check_like(value: Any, like: Tensor, what: str) -> None:
    """Raises ValueError unless `value` is a tensor of the type and shape of `like`."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{what} must return a tensor. Got {type(value).__name__}.")
    if value.dtype != like.dtype or value.shape != like.shape:
        raise ValueError(
            f"{what} may not change the dtype or the shape of the tensor, unless the `unsafe` flag "
            f"is enabled: from {like.dtype} {tuple(like.shape)} "
            f"to {value.dtype} {tuple(value.shape)}"
        )


class ParametrizationList(ModuleList):
    """The functions that a tensor goes through, and what the first of them takes: `original`, or
    `original0`, `original1`, ... where its right_inverse gives several tensors."""

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False):
        modules = list(modules)
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        new = self.inverted(original)
        self.is_tensor = isinstance(new, Tensor)
        for i, value in enumerate([new] if self.is_tensor else new):
            if not isinstance(value, Tensor):
                raise ValueError(f"'right_inverse' must return tensors. Got {type(value).__name__}")
            name = "original" if self.is_tensor else f"original{i}"
            if self.is_tensor:  # the same object: optimizers and other modules may hold it
                check_like(value, value.new_empty(value.shape, dtype=original.dtype), name)
                original.data, value = value.detach(), original
            elif isinstance(original, Parameter):
                value = Parameter(value.detach(), original.requires_grad)
            if isinstance(value, Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value)
        self.count = 1 if self.is_tensor else len(new)
        if not unsafe:
            check_like(self(), original, "A parametrization")

    def originals(self) -> list[Tensor]:
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.count)]
        return [getattr(self, name) for name in names]

    @no_grad()
    def inverted(self, value: Tensor) -> Any:
        """What the first function takes, so that the last gives `value`; without a right_inverse,
        `value` itself."""
        for module in reversed(list(self)):
            try:
                value = module.right_inverse(value) if hasattr(module, "right_inverse") else value
            except NotImplementedError:
                pass  # PyTorch's way to say that there is none
        return value

    @no_grad()
    def right_inverse(self, value: Tensor) -> None:
        """Writes into the originals what gives `value`.

        Raises:
            RuntimeError: a parametrization has no right_inverse.
            ValueError: it gives what the originals cannot hold.
        """
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse."
                )
            value = module.right_inverse(value)
        values, kept = [value] if self.is_tensor else list(value), self.originals()
        if len(values) != len(kept):
            raise ValueError(f"'right_inverse' must return {len(kept)} tensors. Got {len(values)}.")
        for new, original in zip(values, kept, strict=True):
            if not isinstance(new, Tensor) or new.dtype != original.dtype:
                raise ValueError(f"'right_inverse' must return {original.dtype}. Got {new!r}")
            original.data = new.detach()

    def forward(self) -> Tensor:
        first, *others = self
        value = first(*self.originals())
        for module in others:
            value = module(value)
        return value


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """True if the tensor, or without a name any tensor, of the module is parametrized."""
    found = module.__dict__["_modules"].get("parametrizations")
    names = found if isinstance(found, ModuleDict) else {}
    return len(names) > 0 if tensor_name is None else tensor_name in names


def refuse_pickle(self: Module) -> None:
    """Raises RuntimeError: the class was made for one module, and no file could name it."""
    says = "Serialization of parametrized modules is only supported through state_dict()."
    raise RuntimeError(says)


def copied(self: Module, memo: dict) -> Module:
    cls = type(self)  # the copy has a class of its own, from which a property may be removed
    cls = type(cls.__name__, cls.__bases__, dict(vars(cls)))
    memo[id(self)] = new = cls.__new__(cls)
    new.__dict__ = copy.deepcopy(self.__dict__, memo)
    return new


def parametrized_property(name: str) -> property:
    """Reading computes the tensor, writing goes through right_inverse."""

    def read(self: Module) -> Tensor:
        key = self, name  # the module is kept, so that another one cannot get its id
        if not CACHE["depth"]:
            return self.parametrizations[name]()
        if key not in CACHE["values"]:
            CACHE["values"][key] = self.parametrizations[name]()
        return CACHE["values"][key]

    def write(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes `module.tensor_name` the result of `parametrization`, computed when it is read.

    The module gets a class of its own, a subclass of its class, with a property of that name. A
    second parametrization of the same tensor takes the result of the first.
    Args:
        unsafe: it may change dtype and shape; nothing is checked.
    Raises:
        ValueError: no such tensor, or a parametrization that changes its dtype or shape.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            now = getattr(module, tensor_name)
            check_like(parametrization(now), now, "A parametrization")
        module.parametrizations[tensor_name].append(parametrization)
        module.parametrizations[tensor_name].unsafe |= unsafe
        return module
    stores = (module.__dict__["_parameters"], module.__dict__["_buffers"])
    original = next((s[tensor_name] for s in stores if s.get(tensor_name) is not None), None)
    if original is None:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    made = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        cls, members = type(module), {"__getstate__": refuse_pickle, "__deepcopy__": copied}
        module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, parametrized_property(tensor_name))
    module.parametrizations[tensor_name] = made
    return module


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Makes the tensor an ordinary one again: with the value that it has now, or the original.

    Raises:
        ValueError: it is not parametrized; or there is no one original to go back to.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    made = module.parametrizations[tensor_name]
    original = made.originals()[0]
    if leave_parametrized:
        with no_grad():
            value = getattr(module, tensor_name)
        if made.is_tensor:
            original.data = value.detach()
        else:
            is_parameter = isinstance(original, Parameter)
            original = Parameter(value, original.requires_grad) if is_parameter else value
    elif not made.is_tensor:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is "
            "parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    return module


@contextmanager
def cached() -> Iterator[None]:
    """Within it, each parametrized tensor is computed once, however often it is read."""
    CACHE["depth"] += 1
    try:
        yield
    finally:
        CACHE["depth"] -= 1
        if not CACHE["depth"]:
            CACHE["values"] = {}


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had before its first parametrization."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)
