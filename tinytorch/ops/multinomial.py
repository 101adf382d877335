"""multinomial: indices drawn by weight."""

from typing import Any

import numpy as np

from tinytorch.core.dtype import int64
from tinytorch.core.tensor import Tensor, tensor, tensor_method
from tinytorch.ops.random import generator_for


@tensor_method("multinomial")
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Draws indices with the weights `input` [n] or [rows, n]: int64, [num_samples] or [rows,
    num_samples].

    Raises:
        RuntimeError: the weights are not floats, negative, not finite or all zero; or there are
            fewer than `num_samples` positive weights to draw from without replacement.
    """
    weights = input.device.backend.to_numpy(input.array).astype(np.float64)
    if not input.is_floating_point() or weights.ndim not in (1, 2):
        found = f"{input.dtype!r} in {input.ndim}"
        raise RuntimeError(f"multinomial: floats in 1 or 2 dims expected as weights, not {found}")
    if not np.isfinite(weights).all() or (weights < 0).any() or (weights.sum(-1) <= 0).any():
        raise RuntimeError("multinomial: weights have to be finite, not negative, and not all zero")
    most = np.inf if replacement else (weights > 0).sum(-1).min(initial=weights.shape[-1])
    if not 0 < num_samples <= most:
        raise RuntimeError(f"multinomial: cannot sample n_sample = {num_samples} of {most}")
    source = generator_for(input.device, generator).source
    rows = weights.reshape(-1, weights.shape[-1])
    shape = (len(rows), num_samples if replacement else weights.shape[-1])
    draws = input.device.backend.to_numpy(source.uniform(shape, np.dtype(np.float64)))
    if replacement:
        # Row i has its edges, of which the last is 1, between i and i + 1: one search for all rows.
        # A draw u + i is rounded, and must not become i + 1.
        edges, number = rows.cumsum(1), np.arange(len(rows)).reshape(-1, 1)
        draws = np.minimum(draws + number, np.nextafter(number + 1.0, 0))
        found = np.searchsorted((edges / edges[:, -1:] + number).ravel(), draws, "right")
        indices = found - number * rows.shape[1]
    else:
        # The smallest of -log(u) / w comes from element i with probability w_i / sum of w.
        waiting = np.where(rows > 0, -np.log1p(-draws) / np.maximum(rows, 1e-300), np.inf)
        indices = waiting.argsort(1)[:, :num_samples]
    indices = indices.reshape(*weights.shape[:-1], num_samples)
    return tensor(indices, dtype=int64, device=input.device)
