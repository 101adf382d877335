"""Step syncnorm01: DistributedSampler asks the group

Step 95f built the sampler: all processes shuffle alike, and take turns in the result.
DistributedSampler of step func05 does this, if it is told how many processes there are and which
one this is. The process group knows both.

The trap: the order of an epoch comes from seed + epoch, and the sampler does not know the epoch.
Without sampler.set_epoch(epoch), each epoch has the order of the first.

The second trap is the last batch. 10 samples on 3 processes are 4, 3 and 3. A process with a batch
more than the others waits in its all_reduce for ever, so shares are made equal: some samples come
twice, or with drop_last some are left out.

Changed: DistributedSampler, which takes what it is not told from the group.
Try: give the ranks different seeds. How many samples does no process see?
"""

import importlib
import math
from collections.abc import Iterator, Sized

from tinytorch.distributed.group import get_rank, get_world_size
from tinytorch.ops.random import Generator, randperm
from tinytorch.utils.data.sampler import Sampler

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul norm sampling shape softmax sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


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


if __name__ == "__main__":
    from tinytorch.distributed.group import init_process_group
    from tinytorch.distributed.simulator import simulate
    from tinytorch.utils.data.sampler import RandomSampler

    dataset = range(1000)

    def own_numbers():
        """Half an epoch each, by a sampler that does not know of the others."""
        init_process_group("mpi")
        generator = Generator().manual_seed(get_rank())
        return list(RandomSampler(dataset, generator=generator))[:500]

    a, b = simulate(2, own_numbers)
    print(f"seen twice: {len({*a} & {*b})}, never: {1000 - len({*a, *b})}")
    # -> seen twice: 260, never: 260

    def shares(epochs, drop_last=False):
        init_process_group("mpi")
        sampler = DistributedSampler(dataset, drop_last=drop_last)
        found = []
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            found.append(list(sampler))
        return found

    (a,), (b,) = simulate(2, shares, 1)
    print(f"seen twice: {len({*a} & {*b})}, never: {1000 - len({*a, *b})}")
    # -> seen twice: 0, never: 0
    first, second = simulate(2, shares, 2)[0]
    print("another order in the next epoch:", first != second)
    # -> another order in the next epoch: True

    # The batches of one process and of four hold the same samples.
    (one,) = simulate(1, shares, 1)[0]
    four = [share for (share,) in simulate(4, shares, 1)]
    print("the first 20:", {*one[:20]} == {i for share in four for i in share[:5]})
    # -> the first 20: True

    dataset = range(10)
    try:
        DistributedSampler(dataset)
    except ValueError as error:
        print(str(error)[:49])  # -> Default process group has not been initialized, p
    try:
        DistributedSampler(dataset, num_replicas=3, rank=3)
    except ValueError as error:
        print(error)  # -> Invalid rank 3, rank should be in the interval [0, 2]
    for drop_last in (False, True):
        found = [share for (share,) in simulate(3, shares, 1, drop_last)]
        print([len(share) for share in found], "different:", len({i for s in found for i in s}))
    # -> [4, 4, 4] different: 10
    # -> [3, 3, 3] different: 9
    plain = DistributedSampler(dataset, 3, 1, shuffle=False)
    print(len(plain), list(plain))  # -> 4 [1, 4, 7, 0]
