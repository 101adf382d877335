"""Step parametrize01: A parametrization: a weight that is computed whenever it is read

weight_norm and spectral_norm compute a weight in a hook before forward, and each does its own
bookkeeping. LoRA, which adds a product of two thin matrices to a weight, would need a third such
hook, and so would a matrix that has to stay symmetric. And the hook runs late: after a change of
weight_g, `layer.weight` keeps its old value until the next forward (the demo shows it first).

    layer.weight = f(original)        original: the parameter that an optimizer changes

PyTorch's parametrize makes `weight` a property, which is computed at each reading. Python looks for
properties in the class, and not in the object, so the module gets a class of its own:
ParametrizedLinear, derived from Linear. The parameter, the same object, moves to
layer.parametrizations.weight.original. f stands beside it as a module, with parameters of its own
if it has some (LoRA's thin matrices).

The trap: such a class was made for one object, and a file cannot name it. So pickling is refused
(state_dict works). copy.deepcopy would use pickle's methods, so `copied` makes the copy instead.

New: ParametrizationList, register_parametrization, is_parametrized, copied, refuse_pickle.
Try: leave `copied` out of the members of the class, and copy the layer.
"""

import copy
import importlib
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.container import ModuleDict, ModuleList
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison indexing matmul slicing reduction sampling".split():
    importlib.import_module(f"tinytorch.ops.{name}")
importlib.import_module("tinytorch.autograd.backward")


class ParametrizationList(ModuleList):
    """The functions that a tensor goes through, and `original`, what the first of them takes."""

    def __init__(self, modules: Any, original: Tensor):
        super().__init__(modules)
        self.register_parameter("original", original)

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
    """Reading computes the tensor."""

    def read(self: Module) -> Tensor:
        return self.parametrizations[name]()

    return property(read)


def register_parametrization(module: Module, tensor_name: str, parametrization: Module) -> Module:
    """Makes `module.tensor_name` the result of `parametrization`, computed when it is read.

    The module gets a class of its own, a subclass of its class, with a property of that name. A
    second parametrization of the same tensor takes the result of the first.
    Raises:
        ValueError: no such tensor.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].append(parametrization)
        return module
    stores = (module.__dict__["_parameters"], module.__dict__["_buffers"])
    original = next((s[tensor_name] for s in stores if s.get(tensor_name) is not None), None)
    if original is None:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element "
            f"with name '{tensor_name}'"
        )
    made = ParametrizationList([parametrization], original)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        cls, members = type(module), {"__getstate__": refuse_pickle, "__deepcopy__": copied}
        module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, parametrized_property(tensor_name))
    module.parametrizations[tensor_name] = made
    return module


if __name__ == "__main__":
    import pickle
    import warnings

    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.utils.weight_norm import weight_norm
    from tinytorch.ops.creation import zeros
    from tinytorch.ops.random import manual_seed

    class Symmetric(Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

    class LowRank(Module):
        def __init__(self, n, rank):
            super().__init__()
            self.a, self.b = Parameter(zeros(n, rank)), Parameter(zeros(rank, n) + 1)

        def forward(self, x):
            return x + self.a @ self.b

    manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hooked = weight_norm(Linear(3, 3))
    before = hooked.weight.tolist()
    hooked.weight_g.data *= 2
    print("the hook is late:", hooked.weight.tolist() == before)  # -> the hook is late: True

    layer = Linear(3, 3)
    weight = layer.weight
    print(is_parametrized(layer))  # -> False
    register_parametrization(layer, "weight", Symmetric())
    print(type(layer).__name__, (layer.weight == layer.weight.T).all().item())
    # -> ParametrizedLinear True
    print(layer.parametrizations["weight"].original is weight)  # -> True
    print(is_parametrized(layer, "weight"), is_parametrized(layer, "bias"))  # -> True False
    layer(tensor([[1.0, 2.0, 3.0]])).sum().backward()
    print(weight.grad.tolist())  # -> [[1.0, 3.0, 4.0], [0.0, 2.0, 5.0], [0.0, 0.0, 3.0]]

    register_parametrization(layer, "weight", LowRank(3, 1))  # a second one, of the result
    print([name.removeprefix("parametrizations.") for name in layer.state_dict()])
    # -> ['bias', 'weight.original', 'weight.1.a', 'weight.1.b']
    other = copy.deepcopy(layer)
    print(
        (other.weight == layer.weight).all().item(), other.weight is layer.weight
    )  # -> True False
    for wrong in (
        lambda: register_parametrization(layer, "wieght", Symmetric()),
        lambda: pickle.dumps(layer),
    ):
        try:
            wrong()
        except (ValueError, RuntimeError) as error:
            print(type(error).__name__, str(error)[-44:])
    # -> ValueError or a parametrized element with name 'wieght'
    # -> RuntimeError ules is only supported through state_dict().
