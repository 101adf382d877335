"""A dataset divided among processes."""

import math
from collections.abc import Iterator, Sized

from tinytorch.distributed.group import get_rank, get_world_size
from tinytorch.ops.random import Generator, randperm
from tinytorch.utils.data.sampler import Sampler


class DistributedSampler(Sampler):
    """Every num_replicas-th item, from item `rank` on: the share of one of num_replicas processes.

    All processes shuffle in the same way, from seed + epoch: call set_epoch before each epoch. All
    shares are equally long: some of the first items come twice, or with drop_last the last ones
    are left out.
    Raises:
        ValueError: for a rank outside of 0 to num_replicas - 1; without a process group, which
            gives num_replicas and rank where they are not given.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ):
        num_replicas = get_world_size() if num_replicas is None else num_replicas
        rank = get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last, self.epoch = shuffle, seed, drop_last, 0
        shares = len(dataset) / num_replicas
        self.num_samples = math.floor(shares) if drop_last else math.ceil(shares)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        generator = Generator().manual_seed(self.seed + self.epoch)
        order = randperm(n, generator=generator).tolist() if self.shuffle else range(n)
        for place in range(self.rank, self.total_size, self.num_replicas):
            yield order[place % n]

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
