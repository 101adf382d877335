"""Step weightnorm03: Weight normalisation: a length and a direction

Batch normalisation divides what a layer computes by its standard deviation, and so needs a batch
and its running averages. A network that works on sounds, one sample after the other, can use
neither. Weight normalisation needs only the weight: each row w of the matrix is written as

    w = g * v / |v|           g: its length, one number;    v: its direction

and g and v are learned instead of w (Salimans and Kingma, 2016). The gradient of v is at right
angles to v, so a step can only turn it: how fast a row turns no longer depends on how long it is.
WaveNet, its descendants and temporal convolutions are built this way.

The layer need not know. A hook before forward (step module19) computes `weight` from the two
parameters that took its place, `weight_g` and `weight_v`, and sets it as a plain attribute.

The trap: the optimizer has to be made afterwards. One that was made before holds the old parameter,
which no layer uses any more. For use after training, remove_weight_norm makes one parameter of the
two again.

PyTorch's words: nn.utils.weight_norm; it warns that a newer form, a parametrization, exists.

`remove_hook` looks for the hook by its class, so that another kind of hook can use it too.

New: WeightNorm, weight_norm, remove_weight_norm, registered, remove_hook.
Try: make the optimizer of the demo before weight_norm is called.
"""

import importlib
import warnings
from typing import Any

from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.module import Module
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.norm import norm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    from tinytorch.autograd.backward import backward
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear

    importlib.import_module("tinytorch.core.printing")

    layer = Linear(2, 2, bias=False)
    layer.weight = Parameter(tensor([[3.0, 4.0], [0.0, 2.0]]))
    warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, and ours
    weight_norm(layer)
    print([name for name, _ in layer.named_parameters()])  # -> ['weight_g', 'weight_v']
    print(layer.weight_g.flatten().tolist(), layer.weight.tolist())
    # -> [5.0, 2.0] [[3.0, 4.0], [0.0, 2.0]]

    # The gradient of a direction is at right angles to it: v can only turn.
    backward((layer(tensor([1.0, -2.0])) ** 2).sum())
    along = (layer.weight_v.grad * layer.weight_v).sum(1).abs() < 1e-5
    print("gradients along v:", along.tolist())  # -> gradients along v: [True, True]

    # A longer v changes nothing, a longer g all.
    layer.weight_v.data *= 10
    layer.weight_g.data[1] = 6.0
    print(layer(tensor([1.0, 1.0])).tolist())  # -> [7.0, 6.0]

    whole = weight_norm(Linear(3, 2), dim=None)  # one length for the whole matrix
    print(whole.weight_g.shape, weight_norm(whole, "bias").bias_g.shape)
    # -> tinytorch.Size([]) tinytorch.Size([2])
    try:
        weight_norm(layer)
    except RuntimeError as error:
        print(error)  # -> Cannot register two weight_norm hooks on the same parameter weight
    remove_weight_norm(layer)
    print(list(layer.state_dict()), layer(tensor([1.0, 1.0])).tolist())  # -> ['weight'] [7.0, 6.0]
    try:
        remove_weight_norm(layer)
    except ValueError as error:
        print(str(error).partition(" in ")[0])  # -> weight_norm of 'weight' not found
