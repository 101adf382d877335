"""Random numbers by probability and by weight, and methods that fill a tensor with them."""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import check_writable, overwrite
from tinytorch.core.dtype import float32, int64
from tinytorch.core.limits import finfo, iinfo
from tinytorch.core.tensor import Tensor, tensor, tensor_method, wrap
from tinytorch.ops.random import Generator, check_range, generator_for
from tinytorch.ops.scalar import checked_number


@tensor_method("bernoulli")
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that `input` gives for each element, else 0; input's type. With `p`
    that is the probability, and input gives only the shape and the type.

    Raises:
        NotImplementedError: `input` is of an integer type.
        RuntimeError: a probability is outside of [0, 1].
    """
    if p is not None:
        return input.detach().clone().bernoulli_(p, generator=generator)
    p = input.array
    if not input.is_floating_point():
        raise NotImplementedError(f"bernoulli is not implemented for {input.dtype!r}")
    if p.size and not bool(((p >= 0) & (p <= 1)).all()):
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    draws = generator_for(input.device, generator).source.uniform(p.shape, np.dtype(np.float32))
    return wrap((draws < p).astype(p.dtype), input.device)


def fill_with(self: Tensor, array: Any) -> Tensor:
    """Writes random numbers into a tensor. Its old elements have no part in the result."""
    check_writable(self)
    return overwrite(self, wrap(array.astype(self.array.dtype), self.device))


@tensor_method("uniform_")
def uniform_(
    self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, **names: Any
) -> Tensor:
    """Fills with numbers from [from, to). `from` is a Python keyword, so pass it as the first
    argument.

    Raises:
        RuntimeError: `from` is above `to`, or one of them is not finite or does not fit the type.
    """
    low, to = float(names.pop("from", from_)), float(to)
    for bound in (low, to):
        checked_number(bound, self.dtype)
    if not (math.isfinite(low) and math.isfinite(to) and low <= to):
        raise RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={low} > to={to}"
        )
    draws = generator_for(self.device, generator).source.uniform(self.array.shape, self.array.dtype)
    return fill_with(self, draws * (to - low) + low)


@tensor_method("normal_")
def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fills with normal numbers.

    Raises:
        RuntimeError: `std` is negative.
    """
    mean, std = float(mean), float(std)
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std}")
    draws = generator_for(self.device, generator).source.normal(self.array.shape, self.array.dtype)
    return fill_with(self, draws * std + mean)


@tensor_method("exponential_")
def exponential_(self: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Fills with waiting times, 1 / lambd on average. They are drawn in float64, where the
    probability of a 0, whose logarithm is infinite, is negligible.

    Raises:
        RuntimeError: `lambd` is not above 0, or the type is an integer type.
    """
    if not lambd > 0 or not self.is_floating_point():
        raise RuntimeError(f"exponential_ expects lambda > 0.0 and floats, but found {lambd}")
    source, wide = generator_for(self.device, generator).source, np.dtype(np.float64)
    return fill_with(self, -self.device.xp.log1p(-source.uniform(self.array.shape, wide)) / lambd)


@tensor_method("random_")
def random_(self: Tensor, *bounds: int, generator: Generator | None = None) -> Tensor:
    """Fills with integers: random_(from, to) up to to - 1, random_(to) from 0 on, and random_() up
    to the largest number below which the type holds every integer.

    Raises:
        RuntimeError: there are no such integers, or the type cannot hold them.
    """
    source, d = generator_for(self.device, generator).source, self.dtype
    bounds = bounds or [2 / finfo(d).eps if self.is_floating_point() else iinfo(d).max + 1]
    low, high = (0, *map(int, bounds))[-2:]
    check_range(low, high, self.array.dtype)
    return fill_with(self, source.integers(low, high, self.array.shape, self.array.dtype))


@tensor_method("bernoulli_")
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fills with ones, with probability p (a number or a tensor), and zeros."""
    p = p if isinstance(p, Tensor) else tensor(p, dtype=float32, device=self.device)
    chances = p.detach().to(float32).expand(self.array.shape)
    return fill_with(self, bernoulli(chances, generator=generator).array)


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
