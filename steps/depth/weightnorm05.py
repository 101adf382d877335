"""Step weightnorm05: remove_spectral_norm: the normalised weight becomes a parameter

A critic that is trained, or half of a trained network that goes into another one, should be an
ordinary layer again: no hook before each forward, no buffers in its file, and a `weight` that
another program finds under its name. remove_hook of step weightnorm03 does this for any kind of
hook: it computes the weight a last time, and makes it the one parameter. All that it needs are the
hook's name, the ends of the names to take away, and `current`, the weight as it is now.

The trap is "a last time". A forward in training first moves u and v; here that must not happen, or
the layer afterwards would not compute what it computed before. So `current` tells compute_weight
not to iterate.

New: remove_spectral_norm, SpectralNorm.current. Changed: SpectralNorm.
Try: do_power_iteration=True in `current`, and compare the two outputs of the demo.
"""

import importlib
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tinytorch.nn.modules.loss import normalize
from tinytorch.nn.modules.module import Module
from tinytorch.nn.utils.weight_norm import registered, remove_hook
from tinytorch.ops.matmul import dot, mv
from tinytorch.ops.shape import movedim, reshape

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class SpectralNorm:
    """A hook before forward: weight = weight_orig / s, s its largest singular value. weight_u and
    weight_v are followed by power iteration, while the module trains."""

    says, ends = "spectral_norm", ("_orig", "_u", "_v")

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float):
        self.name, self.n_power_iterations = name, n_power_iterations
        self.dim, self.eps = dim, eps

    def matrix(self, weight: Tensor) -> Tensor:
        """The slices of dimension `dim` as rows."""
        weight = movedim(weight, self.dim, 0)
        return reshape(weight, (weight.shape[0], -1))

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        weight, u, v = (getattr(module, self.name + end) for end in self.ends)
        matrix = self.matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(normalize(mv(matrix, v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next call will write, backward wants these
        return weight / dot(u, mv(matrix, v))

    def current(self, module: Module) -> Tensor:
        return self.compute_weight(module, do_power_iteration=False)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divides the parameter `name` by its largest singular value, before each forward.

    Source: Miyato et al., Spectral Normalization for Generative Adversarial Networks, 2018.
    Raises:
        ValueError: fewer than one iteration.
        RuntimeError: it has a spectral_norm already.
    """
    if n_power_iterations <= 0:
        raise ValueError(f"n_power_iterations has to be positive, not {n_power_iterations}")
    if registered(module, SpectralNorm, name):
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    if dim is None:
        kinds = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, kinds) else 0
    hook, weight = SpectralNorm(name, n_power_iterations, dim, eps), getattr(module, name)
    rows, columns = hook.matrix(weight.detach()).shape
    u, v = (weight.detach().new_empty(size).normal_(0, 1) for size in (rows, columns))
    delattr(module, name)
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.detach())
    module.register_buffer(name + "_u", normalize(u, dim=0, eps=eps))
    module.register_buffer(name + "_v", normalize(v, dim=0, eps=eps))
    module.register_forward_pre_hook(hook)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes the weight one parameter again. Raises ValueError if it has no spectral_norm."""
    return remove_hook(module, SpectralNorm, name)


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed

    manual_seed(0)
    layer = spectral_norm(Linear(4, 3)).eval()
    x = tensor([[1.0, 2.0, 3.0, 4.0]])
    before = layer(x)
    remove_spectral_norm(layer)
    print(list(layer.state_dict()), (layer(x) == before).all().item())
    # -> ['bias', 'weight'] True
    try:
        remove_spectral_norm(layer)
    except ValueError as error:
        print(str(error).partition(" in ")[0])  # -> spectral_norm of 'weight' not found
