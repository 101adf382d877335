"""Step 95f: Which samples are mine: DistributedSampler

Each rank has a DataLoader that shuffles: is each sample seen once in an epoch? If each of two ranks
shuffles with its own numbers and takes half of them, a quarter of the samples is seen by both, and
a quarter by none: 260 of 1,000 in the demo.

All ranks have to shuffle alike, and take turns in the result:

    order of all     7 2 9 0 5 3 8 1 6 4        from seed + epoch, the same in all ranks
    rank 0 of 2      7   9   5   8   6          every second one
    rank 1 of 2        2   0   3   1   4

So the first n samples of two ranks are together the first 2 n of the whole order: the two train
with the batches of one. The loader gets it as a sampler (step 77a).

The trap: the sampler does not know the epoch. Without sampler.set_epoch(epoch) all epochs have the
order of the first.

The second trap: 10 samples on 3 ranks are 4, 3 and 3, and a rank with a batch more than the others
waits in its all_reduce for ever. So all shares get the same length: the first samples come a second
time, or with drop_last=True the last ones are left out.

PyTorch: torch.utils.data.distributed.DistributedSampler, which can also be told the rank.

New: DistributedSampler.
Try: let each rank add its rank to the seed. How many samples are never seen?
"""

import math

import tinytorch.nn.functional  # noqa: F401 (gives Tensor its methods)
from tinytorch.distributed.group import get_rank, get_world_size, init_process_group
from tinytorch.distributed.simulator import simulate
from tinytorch.ops.random import Generator, randperm
from tinytorch.utils.data.sampler import RandomSampler, Sampler


class DistributedSampler(Sampler):
    """The share of this rank: every num_replicas-th sample, beginning with number `rank`."""

    def __init__(self, dataset, seed=0, drop_last=False):
        self.dataset, self.seed, self.epoch = dataset, seed, 0
        self.rank, self.num_replicas = get_rank(), get_world_size()
        share = len(dataset) / self.num_replicas
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        n, generator = len(self.dataset), Generator().manual_seed(self.seed + self.epoch)
        order = randperm(n, generator=generator).tolist()
        for place in range(self.rank, self.num_samples * self.num_replicas, self.num_replicas):
            yield order[place % n]  # behind the end, the first ones again

    def set_epoch(self, epoch):
        self.epoch = epoch


if __name__ == "__main__":

    def own_numbers():
        """Half an epoch, by a sampler that does not know of the other rank."""
        init_process_group("mpi")
        generator = Generator().manual_seed(get_rank())
        return list(RandomSampler(range(1000), generator=generator))[:500]

    def share(epoch=0, samples=1000, drop_last=False):
        init_process_group("mpi")
        sampler = DistributedSampler(range(samples), drop_last=drop_last)
        sampler.set_epoch(epoch)
        return list(sampler)

    for program in (own_numbers, share):
        a, b = simulate(2, program)
        print(f"{len({*a} & {*b})} seen twice, {1000 - len({*a, *b})} never")
    # -> 260 seen twice, 260 never
    # -> 0 seen twice, 0 never
    print("epoch 1 has another order:", simulate(2, share, 1)[0] != a)
    # -> epoch 1 has another order: True
    for drop_last in (False, True):
        print("10 samples:", [len(each) for each in simulate(3, share, 0, 10, drop_last)])
    # -> 10 samples: [4, 4, 4]
    # -> 10 samples: [3, 3, 3]
