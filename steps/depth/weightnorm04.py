"""Step weightnorm04: Spectral normalisation: a bound on the steepness of a layer

A critic that tells drawn pictures from real ones may become as steep as it likes, and the painter
then gets gradients that are huge here and zero there. Miyato and others (2018) bound the steepness
of each layer: its matrix is divided by its largest singular value s, the largest factor by which it
makes any vector longer. After the division, that factor is 1.

Power iteration finds s without decomposing the matrix at each step. Multiply a vector by W and its
transpose in turn, and set its length to 1 each time. It turns to the direction that W stretches
most:

    v = W^T u / |W^T u|,     u = W v / |W v|,     s = u^T W v

The weight changes little from step to step, so the u of the last step is nearly right for this one,
and one iteration is enough. u and v are buffers: they belong to the state, but are not learned.
In the derivative they are constants. That is right: s is at its maximum there, so a small change of
u or v does not change it.

The traps: u and v are written in place, while a graph may still need their values (two passes of
the critic, then backward): so the graph gets copies. And they stand still in eval().

New: SpectralNorm, spectral_norm. Reused: the hook of step weightnorm03.
Try: leave the two `clone()` out, and read the error.
"""

import importlib
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tinytorch.nn.modules.loss import normalize
from tinytorch.nn.modules.module import Module
from tinytorch.nn.utils.weight_norm import registered
from tinytorch.ops.matmul import dot, mv
from tinytorch.ops.shape import movedim, reshape

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


class SpectralNorm:
    """A hook before forward: weight = weight_orig / s, s its largest singular value. weight_u and
    weight_v are followed by power iteration, while the module trains."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float):
        self.name, self.n_power_iterations = name, n_power_iterations
        self.dim, self.eps = dim, eps

    def matrix(self, weight: Tensor) -> Tensor:
        """The slices of dimension `dim` as rows."""
        weight = movedim(weight, self.dim, 0)
        return reshape(weight, (weight.shape[0], -1))

    def compute_weight(self, module: Module, do_power_iteration: bool) -> Tensor:
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = self.matrix(weight)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(normalize(mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(normalize(mv(matrix, v), dim=0, eps=self.eps))
            u, v = u.clone(), v.clone()  # the next call will write, backward wants these
        return weight / dot(u, mv(matrix, v))

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


if __name__ == "__main__":
    import numpy as np

    from tinytorch.autograd.backward import backward
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.modules.conv import Conv2d
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.ops.random import manual_seed

    importlib.import_module("tinytorch.core.printing")

    manual_seed(0)
    layer = Linear(4, 3)
    layer.weight.data *= 10
    largest = np.linalg.svd(layer.weight.detach().numpy())[1][0]
    spectral_norm(layer)
    print(
        [name for name, _ in layer.named_parameters()], [name for name, _ in layer.named_buffers()]
    )
    # -> ['bias', 'weight_orig'] ['weight_u', 'weight_v']

    x = tensor([[1.0, 2.0, 3.0, 4.0]])
    for _ in range(50):
        layer(x)
    s = (layer.weight_orig / layer.weight)[0, 0].item()
    print("the largest singular value:", abs(s / largest - 1) < 1e-5)
    # -> the largest singular value: True
    print(f"{np.linalg.svd(layer.weight.detach().numpy())[1][0]:.4f}")  # -> 1.0000

    backward((layer(x) + layer(x)).sum())  # two passes, one backward
    print(layer.weight_orig.grad.shape)  # -> tinytorch.Size([3, 4])
    before = layer.weight_u.clone()
    layer.eval()(x)
    print((before == layer.weight_u).all().item())  # -> True

    print(spectral_norm(Conv2d(2, 5, 3)).weight_v.shape)  # -> tinytorch.Size([18])
    print(spectral_norm(ConvTranspose2d(2, 5, 3)).weight_u.shape)  # -> tinytorch.Size([5])
    for wrong in (lambda: spectral_norm(layer, n_power_iterations=0), lambda: spectral_norm(layer)):
        try:
            wrong()
        except (ValueError, RuntimeError) as error:
            print(error)
    # -> n_power_iterations has to be positive, not 0
    # -> Cannot register two spectral_norm hooks on the same parameter weight
