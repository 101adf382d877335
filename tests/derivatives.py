"""Second derivatives checked at the price of three gradients, where gradgradcheck is slow."""

import numpy as np

import tinytorch
from tinytorch import Tensor, tensor
from tinytorch.autograd import gradcheck


def second_derivatives(func, inputs, seed=2):
    """gradgradcheck along one random direction of all inputs and output gradients together.

    The gradients are checked as functions of one number t that moves everything at once: each entry
    of each second derivative takes part with random weights. That is what PyTorch calls fast_mode.
    The tolerances are narrower than gradgradcheck's, since an error of one entry is a small part of
    the sum: below a hundred-thousandth of it, an error is not seen.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    rng = np.random.default_rng(seed)

    def drawn(x):
        return tensor(rng.uniform(-1.0, 1.0, tuple(x.shape)), device=x.device)

    def results(values):
        found = func(*values)
        found = found if isinstance(found, tuple) else (found,)
        return [y for y in found if isinstance(y, Tensor) and y.requires_grad]

    starts = [x.detach() for x in inputs]
    cotangents = [drawn(y) for y in results(inputs)]
    moving = [x.requires_grad for x in inputs]
    directions = [drawn(x) if moves else None for x, moves in zip(inputs, moving, strict=True)]
    turns = [drawn(c) for c in cotangents]

    def gradients(t):
        with tinytorch.enable_grad():
            values = [
                x if way is None else x + t * way for x, way in zip(starts, directions, strict=True)
            ]
            turned = [c + t * turn for c, turn in zip(cotangents, turns, strict=True)]
            wanted = [x for x, moves in zip(values, moving, strict=True) if moves]
            return tinytorch.autograd.grad(
                results(values),
                wanted,
                turned,
                create_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )

    t = tensor(0.0, dtype=tinytorch.float64, device=inputs[0].device, requires_grad=True)
    return gradcheck(gradients, t, rtol=1e-5, atol=1e-6)
