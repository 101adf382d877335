"""Step 95f: Which samples are mine: DistributedSampler

Each rank has a DataLoader that shuffles: is each sample seen once in an epoch? If each rank
shuffles with its own numbers and takes half of them, a quarter of the samples is seen by both of
two ranks, and a quarter by none. The demo counts 260 of 1,000. DistributedDataParallel does not
notice: the gradients are averaged, whatever they are of.

All ranks have to shuffle alike, and take turns in the result:

    order of all     7 2 9 0 5 3 8 1 6 4        from seed + epoch, the same in all ranks
    rank 0 of 2      7   9   5   8   6          every second one
    rank 1 of 2        2   0   3   1   4

So the first n samples of two ranks are together the first 2 n of the whole order, and an epoch of
two ranks has the batches of one. A sampler is an object that yields the numbers of the samples:
DataLoader(dataset, 32, sampler=DistributedSampler(dataset)).

The trap: the order comes from seed + epoch, and the sampler does not know the epoch. Without
sampler.set_epoch(epoch) all epochs have the order of the first.

The second trap is the last batch. 10 samples on 3 ranks are 4, 3 and 3, and a rank with a batch
more than the others waits in its all_reduce for ever. So all shares get the same length: the first
samples come a second time, or with drop_last=True the last ones are left out.

PyTorch: torch.utils.data.distributed.DistributedSampler.

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
    """Every num_replicas-th sample, beginning with number `rank`: the share of one rank."""

    def __init__(
        self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False
    ):
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        self.dataset, self.shuffle, self.seed, self.epoch = dataset, shuffle, seed, 0
        share = len(dataset) / self.num_replicas
        self.num_samples = math.floor(share) if drop_last else math.ceil(share)

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        n = len(self.dataset)
        generator = Generator().manual_seed(self.seed + self.epoch)
        order = randperm(n, generator=generator).tolist() if self.shuffle else range(n)
        for place in range(self.rank, self.num_samples * self.num_replicas, self.num_replicas):
            yield order[place % n]

    def set_epoch(self, epoch):
        self.epoch = epoch


if __name__ == "__main__":
    samples = range(1000)

    def own_numbers():
        """Half an epoch each, by a sampler that does not know of the other rank."""
        init_process_group("mpi")
        generator = Generator().manual_seed(get_rank())
        return list(RandomSampler(samples, generator=generator))[:500]

    def share(dataset, epoch, drop_last=False):
        init_process_group("mpi")
        sampler = DistributedSampler(dataset, drop_last=drop_last)
        sampler.set_epoch(epoch)
        return list(sampler)

    a, b = simulate(2, own_numbers)
    print(f"own numbers: {len({*a} & {*b})} seen twice, {1000 - len({*a, *b})} never")
    # -> own numbers: 260 seen twice, 260 never
    a, b = simulate(2, share, samples, 0)
    print(f"shared order: {len({*a} & {*b})} seen twice, {1000 - len({*a, *b})} never")
    # -> shared order: 0 seen twice, 0 never
    print("epoch 1 is in another order:", simulate(2, share, samples, 1)[0] != a)
    # -> epoch 1 is in another order: True

    (one,) = simulate(1, share, samples, 0)
    four = simulate(4, share, samples, 0)
    print("a batch of 20 is the same:", {*one[:20]} == {i for part in four for i in part[:5]})
    # -> a batch of 20 is the same: True

    for drop_last in (False, True):
        shares = simulate(3, share, range(10), 0, drop_last)
        print([len(each) for each in shares], "different:", len({i for s in shares for i in s}))
    # -> [4, 4, 4] different: 10
    # -> [3, 3, 3] different: 9
