"""Step parametrize02: right_inverse: what is assigned to a parametrized weight

The property of step parametrize01 has no setter, so `layer.weight = w` is an AttributeError. And
registering f changes the weight: what was the weight is now the original. With f = exp, a weight of
3 becomes e^3 = 20.1.

    original = right_inverse(w)       so that  f(right_inverse(w)) = w

A parametrization that has such a function is asked for it when it is registered and when something
is assigned. Of several functions in a row, the last is inverted first. exp, which keeps a weight
positive, has log. A function without right_inverse can still be registered: LoRA's, for example,
starts at f(w) = w anyway.

The trap: f may give another shape or dtype than the layer was made for, and the error would come
much later, from a product in forward. So the result is compared when f is registered, unless
`unsafe=True` allows the change.

New: check_like, ParametrizationList.inverted, .right_inverse. Changed: register_parametrization.
Try: take `reversed` away in right_inverse, and assign to the twice parametrized weight.
"""

import copy
import importlib
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.container import ModuleDict, ModuleList
from tinytorch.nn.modules.module import Module

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul slicing reduction sampling".split():
    importlib.import_module(f"tinytorch.ops.{name}")
importlib.import_module("tinytorch.autograd.backward")


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
    """The functions that a tensor goes through, and `original`, what the first of them takes."""

    def __init__(self, modules: Any, original: Tensor, unsafe: bool = False):
        super().__init__(modules)
        self.unsafe = unsafe
        new = self.inverted(original)
        check_like(new, new.new_empty(new.shape, dtype=original.dtype), "original")
        like = original.detach()
        original.data = new.detach()  # the same object: optimizers and other modules may hold it
        self.register_parameter("original", original)
        if not unsafe:
            check_like(self(), like, "A parametrization")

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
        """Writes into the original what gives `value`.

        Raises:
            RuntimeError: a parametrization has no right_inverse.
            ValueError: it gives what the original cannot hold.
        """
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"parametrization {type(module).__name__} does not implement right_inverse."
                )
            value = module.right_inverse(value)
        if not isinstance(value, Tensor) or value.dtype != self.original.dtype:
            raise ValueError(f"'right_inverse' must return {self.original.dtype}. Got {value!r}")
        self.original.data = value.detach()

    def forward(self) -> Tensor:
        value = self.original
        for module in self:
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
        return self.parametrizations[name]()

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


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.flatten import Flatten
    from tinytorch.nn.modules.linear import Linear

    class Exp(Module):
        def forward(self, x):
            return x.exp()

        def right_inverse(self, x):
            return x.log()

    class Twice(Module):
        def forward(self, x):
            return 2 * x

        def right_inverse(self, x):
            return x / 2

    class Unknown(Module):
        def forward(self, x):
            return x * x

        def right_inverse(self, x):
            raise NotImplementedError

    layer = Linear(2, 1)
    weight = layer.weight
    weight.data = tensor([[3.0, 5.0]])
    register_parametrization(layer, "weight", Exp())  # starts where it was
    print(layer.weight)  # -> tensor([[3.0000, 5.0000]], grad_fn=<ExpBackward0>)
    register_parametrization(layer, "weight", Twice())
    layer.weight = tensor([[2.0, 8.0]])
    print(layer.weight.tolist(), weight.exp().tolist())  # -> [[2.0, 8.0]] [[1.0, 4.0]]

    register_parametrization(layer, "bias", Unknown())
    flat = register_parametrization(Linear(2, 1), "weight", Flatten(0), unsafe=True)
    print(flat.weight.shape)  # -> tinytorch.Size([2])
    for wrong in (
        lambda: register_parametrization(layer, "weight", Flatten(0)),
        lambda: register_parametrization(Linear(2, 1), "weight", Flatten(0)),
        lambda: setattr(layer, "weight", tensor([[2, 8]]).double()),
        lambda: setattr(flat, "weight", layer.weight),
        lambda: check_like("text", weight, "A parametrization"),
    ):
        try:
            wrong()
        except (ValueError, RuntimeError) as error:
            print(type(error).__name__, str(error)[:50])
    # -> ValueError A parametrization may not change the dtype or the
    # -> ValueError A parametrization may not change the dtype or the
    # -> ValueError 'right_inverse' must return tinytorch.float32. Got
    # -> RuntimeError parametrization Flatten does not implement right_i
    # -> ValueError A parametrization must return a tensor. Got str.
