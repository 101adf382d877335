"""Weight normalisation: the length and the direction of a weight are learned separately."""

import warnings
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.norm import norm


def registered(module: Module, kind: type, name: str) -> Any:
    """(key, hook) of the hook of this kind before forward that computes `name`, or None."""
    for key, (hook, _) in module._forward_pre_hooks.items():
        if isinstance(hook, kind) and hook.name == name:
            return key, hook
    return None


class WeightNorm:
    """A hook before forward: weight = weight_g * weight_v / |weight_v|, a length for each slice of
    dimension `dim`, or one for all if it is -1."""

    says, ends = "weight_norm", ("_g", "_v")

    def __init__(self, name: str, dim: int):
        self.name, self.dim = name, dim

    def length(self, v: Tensor) -> Tensor:
        kept = self.dim % v.ndim if self.dim != -1 else None
        dims = [dim for dim in range(v.ndim) if dim != kept]
        return norm(v, 2, dims, kept is not None) if dims else v.abs()

    def current(self, module: Module) -> Tensor:
        g, v = (getattr(module, self.name + end) for end in self.ends)
        return v * (g / self.length(v))

    def __call__(self, module: Module, inputs: Any = None) -> None:
        setattr(module, self.name, self.current(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replaces the parameter `name` by name_g, its length, and name_v, its direction.

    Source: Salimans and Kingma, Weight Normalization, 2016.
    Raises:
        RuntimeError: it has a weight_norm already.
    """
    says = "weight_norm is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`."
    warnings.warn(says, FutureWarning, stacklevel=2)
    if registered(module, WeightNorm, name):
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook, weight = WeightNorm(name, -1 if dim is None else dim), getattr(module, name)
    delattr(module, name)
    module.register_parameter(name + "_g", Parameter(hook.length(weight.detach())))
    module.register_parameter(name + "_v", Parameter(weight.detach()))
    hook(module)
    module.register_forward_pre_hook(hook)
    return module


def remove_hook(module: Module, kind: type, name: str) -> Module:
    """Takes the hook of this kind away: the weight becomes one parameter again, as it is now.

    Raises:
        ValueError: there is no such hook.
    """
    found = registered(module, kind, name)
    if not found:
        raise ValueError(f"{kind.says} of '{name}' not found in {module}")
    key, hook = found
    weight = hook.current(module).detach()
    for end in ("", *hook.ends):
        delattr(module, name + end)
    module.register_parameter(name, Parameter(weight))
    del module._forward_pre_hooks[key]
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight one parameter again. Raises ValueError if it has no weight_norm."""
    return remove_hook(module, WeightNorm, name)
