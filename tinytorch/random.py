"""The state of the random generators: keep it, set it back, leave it alone for a while."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tinytorch.core.device import cpu
from tinytorch.core.tensor import Tensor
from tinytorch.ops.random import Generator, generator_for, initial_seed, manual_seed, seed

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def get_rng_state() -> Tensor:
    """The state of the CPU's default generator."""
    return generator_for(cpu, None).get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Sets the state of the CPU's default generator."""
    generator_for(cpu, None).set_state(new_state)


@contextmanager
def fork_rng(devices: Sequence[int] | None = None, enabled: bool = True) -> Iterator[None]:
    """`with fork_rng():` what is drawn or seeded inside changes nothing for the program outside.

    It holds for the CPU and for all other devices, or for the GPUs with the numbers `devices`.
    """
    generator_for(cpu, None)
    before = {
        generator: (generator.get_state(), generator.chosen_seed)
        for device, generator in Generator.default.items()
        if enabled and (devices is None or device is cpu or device.index in devices)
    }
    try:
        yield
    finally:
        for generator, (state, chosen) in before.items():
            generator.set_state(state)
            generator.chosen_seed = chosen
