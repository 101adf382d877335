"""Step philox08: Coins and dice: bernoulli and random_

A coin with the probability p is a uniform number below p: u < p happens with the probability p,
because u is spread evenly. That also holds at the ends: u is never 1, so p = 1 always gives 1; u <
0 is never true, so p = 0 never does. (With <= instead of <, p = 0 would be a 1 now and then.)
Dropout (step layers09) uses such coins.

PyTorch has it twice, and the two look alike. The trap is which tensor gives the probabilities:

    bernoulli(p)        a coin for each probability in the tensor p
    x.bernoulli_(p)     x is only the place; p is a number, or a tensor that is broadcast to it

bernoulli(x, p) is the second one in a new tensor. Probabilities that are not in [0, 1] are an
error: 1.2 would be a coin that always shows 1, and the mistake would stay hidden.

random_ fills with integers, random_(1, 7) with those of a die. Without bounds, it goes as far as
the type can: a float32 holds every integer only up to 2^24, as 2^24 + 1 has no place in its 24
bits; an integer type holds them up to its maximum. The source draws the integers as int64, whatever
the type, and check_range refuses what the type cannot hold.

New: bernoulli, random_, bernoulli_. With them, tinytorch/ops/sampling.py is finished.
Try: zeros(3).random_(0, 2**24 + 10) many times. Which numbers never come?
"""

import math
from typing import Any

import numpy as np

from tinytorch.autograd.inplace import check_writable, overwrite
from tinytorch.core.dtype import float32
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


if __name__ == "__main__":
    from tinytorch.core import printing  # noqa: F401  (how a tensor prints)
    from tinytorch.core.dtype import int64, uint8
    from tinytorch.ops import comparison, minmax, reduction  # noqa: F401  (their methods)
    from tinytorch.ops.creation import full, zeros
    from tinytorch.ops.random import manual_seed

    def attempt(action):
        try:
            return action()
        except (RuntimeError, NotImplementedError) as error:
            return error

    manual_seed(0)
    print("certain:", bernoulli(tensor([0.0, 1.0, 0.0, 1.0])).tolist())
    # -> certain: [0.0, 1.0, 0.0, 1.0]
    print(f"p = 0.3: {bernoulli(full((10_000,), 0.3)).mean().item():.1f}")  # -> p = 0.3: 0.3
    coins = zeros(2, 10_000, dtype=uint8).bernoulli_(tensor([[0.1], [0.9]]))
    print("a row each, in uint8:", [round(v, 1) for v in coins.to(float32).mean(1).tolist()])
    # -> a row each, in uint8: [0.1, 0.9]
    values = tensor([5.0, 6.0, 7.0])
    print(set(bernoulli(values, 0.5).tolist()) <= {0.0, 1.0}, values.tolist())
    # -> True [5.0, 6.0, 7.0]
    print(attempt(lambda: bernoulli(values)))
    # -> Expected p_in >= 0 && p_in <= 1 to be true, but got false.
    print(attempt(lambda: bernoulli(tensor([0, 1]))))
    # -> bernoulli is not implemented for tinytorch.int64

    print("dice:", sorted(set(zeros(1000).random_(1, 7).tolist())))
    # -> dice: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    print("below 3:", sorted(set(zeros(1000, dtype=int64).random_(3).tolist())))
    # -> below 3: [0, 1, 2]
    floats, bytes_ = zeros(10_000).random_(), zeros(10_000, dtype=uint8).random_()
    print("no bounds:", floats.max().item() < 2**24, len(set(bytes_.tolist())))
    # -> no bounds: True 256
    print(np.float32(2**24 + 1) == np.float32(2**24))  # -> True
    print(attempt(lambda: zeros(3, dtype=uint8).random_(0, 300)))
    # -> random_: no integers from 0 to 300 - 1, or none for uint8
