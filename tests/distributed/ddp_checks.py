"""What DistributedDataParallel and its kin promise, as functions that every rank calls.

`python -m tests.distributed.ddp_checks` under mpiexec runs them all; tests/distributed/test_ddp.py
also calls them on simulated ranks. Each leaves the process group as it was.
"""

import contextlib
import copy
import sys

import numpy as np

import tinytorch
import tinytorch.distributed as dist
from tinytorch import nn
from tinytorch.distributed.megatron import ColumnParallelLinear, RowParallelLinear
from tinytorch.distributed.optim import ZeroRedundancyOptimizer
from tinytorch.nn.functional import cross_entropy
from tinytorch.nn.parallel import DistributedDataParallel
from tinytorch.optim import SGD, Adam
from tinytorch.utils.data.distributed import DistributedSampler

STEPS, BATCH = 20, 24  # a batch can be divided among 1, 2, 3 and 4 processes


class Mlp(nn.Module):
    classes, shape = 5, (6,)

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5)
        )

    def forward(self, x):
        return self.layers(x)


class Cnn(nn.Module):
    """With SyncBatchNorm, whose statistics are those of the whole batch."""

    classes, shape = 4, (2, 6, 6)

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Gpt(nn.Module):
    """A block of attention over 5 characters, and a last layer that shares the embedding."""

    classes, shape = 7, (5,)

    def __init__(self):
        super().__init__()
        self.embedding, self.position = nn.Embedding(7, 8), nn.Embedding(5, 8)
        self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)])
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.head = nn.Linear(8, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(tinytorch.arange(5))
        h, mask = self.norms[0](x), tinytorch.ones(5, 5).tril() == 0
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        x = x + self.mlp(self.norms[1](x))
        return self.head(self.norms[2](x)).transpose(1, 2)


def network(kind, seed=0):
    tinytorch.manual_seed(seed)
    return kind().double()


def batches(kind):
    numbers = np.random.default_rng(1)
    shape = (STEPS, BATCH, *kind.shape)
    if kind is Gpt:
        inputs, targets = numbers.integers(0, 7, shape), numbers.integers(0, 7, shape)
    else:
        inputs, targets = numbers.normal(size=shape), numbers.integers(0, 4, shape[:2])
    return [
        (tinytorch.tensor(x), tinytorch.tensor(y)) for x, y in zip(inputs, targets, strict=True)
    ]


def my_part(batch):
    rank, size = dist.get_rank(), dist.get_world_size()
    return [part[rank * BATCH // size : (rank + 1) * BATCH // size] for part in batch]


def train(model, data, accumulate=1, scaler=None, optimizer=None):
    """The losses of each step. With `accumulate`, a batch is taken in so many parts."""
    optimizer = optimizer or Adam(model.parameters(), lr=0.01)
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        total = 0.0
        for i, (a, b) in enumerate(zip(x.chunk(accumulate), y.chunk(accumulate), strict=True)):
            if isinstance(model, DistributedDataParallel):  # as nanoGPT does it
                model.require_backward_grad_sync = i == accumulate - 1
            loss = cross_entropy(model(a), b) / accumulate
            (loss if scaler is None else scaler.scale(loss)).backward()
            total += loss.item()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        losses.append(total)
    return losses


def mean_of_all(values):
    total = tinytorch.tensor(values, dtype=tinytorch.float64)
    dist.all_reduce(total, dist.ReduceOp.AVG)
    return total.tolist()


def same(a, b, tolerance=1e-9):
    a, b = [x.detach().numpy() if hasattr(x, "detach") else x for x in (a, b)]
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def same_parameters(a, b):
    for mine, theirs in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
        same(mine, theirs)


def raises(kind, text, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}")


def check_processes_equal_one_with_the_whole_batch():
    for kind in (Mlp, Cnn, Gpt):
        data = batches(kind)
        one = network(kind)
        expected = train(one, data)
        for options in (
            {},
            {"bucket_cap_mb": 0.0005, "gradient_as_bucket_view": True},
            {"bucket_cap_mb": 0, "static_graph": True, "find_unused_parameters": True},
        ):
            model = network(kind, seed=dist.get_rank())  # rank 0 has the seed 0, and sends it
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
            ddp = DistributedDataParallel(model, **options)
            losses = train(ddp, [my_part(batch) for batch in data])
            same(mean_of_all(losses), expected)
            same_parameters(model, one)
        assert len(ddp.buckets) == len(list(model.parameters()))  # each is full at once


def check_gradients_accumulate():
    data = batches(Mlp)
    for view in (False, True):
        one = network(Mlp)
        expected = train(one, data)
        ddp = DistributedDataParallel(network(Mlp), gradient_as_bucket_view=view)
        losses = train(ddp, [my_part(batch) for batch in data], accumulate=2)
        same(mean_of_all(losses), expected)
        same_parameters(ddp.module, one)

    # Inside no_sync, gradients are this process's own; the first call after it averages the sums.
    ddp = DistributedDataParallel(network(Mlp))
    x, y = my_part(data[0])
    weight = ddp.module.layers[0].weight
    with ddp.no_sync():
        cross_entropy(ddp(x), y).backward()
    own = weight.grad.clone()
    alone = network(Mlp)
    cross_entropy(alone(x), y).backward()
    same(own, alone.layers[0].weight.grad)
    cross_entropy(ddp(x), y).backward()
    mean = own.clone()
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    same(weight.grad, 2 * mean)
    # Two calls, then two backward passes; and a call without gradients between.
    weight.grad = None
    first, second = ddp(x), ddp(x)
    with tinytorch.no_grad():
        ddp(x)
    cross_entropy(first, y).backward()
    cross_entropy(second, y).backward()
    same(weight.grad, 2 * mean)


def check_scaler():
    data = batches(Mlp)
    one, scaler = network(Mlp), tinytorch.amp.GradScaler("cpu", 1024.0)
    expected = train(one, data, scaler=scaler)
    ddp = DistributedDataParallel(network(Mlp))
    mine = tinytorch.amp.GradScaler("cpu", 1024.0)
    same(mean_of_all(train(ddp, [my_part(b) for b in data], scaler=mine)), expected)
    same_parameters(ddp.module, one)
    # What is not finite in one process is not finite in any: all skip the step.
    before = copy.deepcopy(ddp.module)
    x, y = my_part(data[0])
    if dist.get_rank() == dist.get_world_size() - 1:
        x = x * float("inf")
    train(ddp, [(x, y)], scaler=mine, optimizer=SGD(ddp.parameters(), lr=1.0))
    same_parameters(ddp.module, before)
    assert mine.get_scale() == 512


class Branches(nn.Module):
    """One layer is used by even ranks, one by odd ones, and one by none."""

    def __init__(self):
        super().__init__()
        tinytorch.manual_seed(0)
        self.first, self.even, self.odd, self.never = [nn.Linear(3, 3) for _ in range(4)]

    def forward(self, x, odd):
        return {"out": [(self.odd if odd else self.even)(self.first(x))]}


def check_unused_parameters():
    rank, size = dist.get_rank(), dist.get_world_size()
    x = tinytorch.full((2, 3), rank + 1.0)
    whole = Branches()
    losses = [whole(tinytorch.full((2, 3), r + 1.0), r % 2)["out"][0].sum() for r in range(size)]
    (sum(losses) / size).backward()
    ddp = DistributedDataParallel(Branches(), find_unused_parameters=True)
    for _ in range(2):
        ddp.zero_grad()
        ddp(x, rank % 2)["out"][0].sum().backward()
        for mine, theirs in zip(ddp.module.parameters(), whole.parameters(), strict=True):
            assert (mine.grad is None) == (theirs.grad is None)
            if mine.grad is not None:
                same(mine.grad, theirs.grad, 1e-6)

    # A layer that was used in no_sync only, in one process: its gradient is averaged too.
    ddp = DistributedDataParallel(Branches(), find_unused_parameters=True)
    with ddp.no_sync():
        ddp(x, rank == 0)["out"][0].sum().backward()
    ddp(x, False)["out"][0].sum().backward()
    whole = Branches()
    whole(tinytorch.ones(2, 3), True)["out"][0].sum().backward()
    same(ddp.module.odd.weight.grad, whole.odd.weight.grad / size, 1e-6)
    assert ddp.module.never.weight.grad is None

    # Without it, the next call tells: the others are never complete.
    ddp = DistributedDataParallel(Branches(), bucket_cap_mb=0)
    ddp(x, True)["out"][0].sum().backward()
    text = f"did not receive grad for rank {rank}: 2 3 6 7"
    raises(RuntimeError, "Expected to have finished reduction in the prior", ddp, x, True)
    raises(RuntimeError, text, ddp, x, True)
    with tinytorch.no_grad():
        ddp(x, True)  # nothing will be reduced
    # A graph behind the last result's back.
    ddp = DistributedDataParallel(Branches(), find_unused_parameters=True)
    y = ddp(x, True)["out"][0].sum() + ddp.module.never(x).sum()
    raises(RuntimeError, "Expected to mark a variable ready only once", y.backward)


def check_state():
    rank, size = dist.get_rank(), dist.get_world_size()
    raises(RuntimeError, "is not needed when a module", DistributedDataParallel, nn.ReLU())
    if size > 1:
        wide = nn.Linear(3, 5 if rank == size - 1 else 4)
        text = f"[{size - 1}]: params[0] in this process with sizes [5, 3] appears not to match"
        raises(RuntimeError, text, DistributedDataParallel, wide)
        wide = nn.Linear(3, 4, bias=rank < size - 1)
        text = f"while rank {size - 1} has inconsistent 1 params"
        raises(RuntimeError, text, DistributedDataParallel, wide)

    # Parameters at the start, buffers before each call are those of rank 0.
    tinytorch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model[0].bias.requires_grad_(False)
    ddp = DistributedDataParallel(model)
    assert list(ddp.state_dict())[:2] == ["module.0.weight", "module.0.bias"]
    tinytorch.manual_seed(0)
    for mine, theirs in zip(model[0].parameters(), nn.Linear(3, 3).parameters(), strict=True):
        same(mine, theirs)
    x = tinytorch.tensor(np.random.default_rng(rank).normal(size=(4, 3)), dtype=tinytorch.float32)
    for _ in range(2):
        ddp(x).sum().backward()
        assert model[0].bias.grad is None
    dist.broadcast(mean := model[1].running_mean.clone(), 0)
    assert size == 1 or rank == 0 or not tinytorch.equal(mean, model[1].running_mean)
    seen = []
    model[0].register_forward_pre_hook(lambda *_: seen.append(model[1].running_mean.clone()))
    ddp(x)
    same(seen[0], mean)
    raises(TypeError, "take .module", copy.deepcopy, ddp)
    assert copy.deepcopy(ddp.module)(x).shape == (4, 3)
    # A wrapper that is gone does nothing.
    del ddp
    model.zero_grad()
    model(x * (rank + 1)).square().sum().backward()


def check_messages_start_while_backward_runs():
    model = network(Mlp)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0)
    launched = []
    h = x = tinytorch.ones(2, 6, dtype=tinytorch.float64)
    for layer in model.layers:
        h = layer(h)
        h.register_hook(lambda grad: launched.append(ddp.launched))
    ddp(x)  # to say that the next gradients are to be averaged
    h.sum().backward()
    assert launched == [0, 2, 2, 4, 4], launched
    assert ddp.launched == 0  # all are complete


def check_types_have_buckets_of_their_own():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).double(), nn.Linear(3, 3).half())
    ddp = DistributedDataParallel(model)
    assert [(b.flat.dtype, len(b.params)) for b in ddp.buckets] == [
        (tinytorch.float16, 2), (tinytorch.float64, 2), (tinytorch.float32, 2)
    ]  # fmt: skip
    ddp.reducing = True
    sum(p.double().sum() * (dist.get_rank() + 1) for p in model.parameters()).backward()
    mean = (dist.get_world_size() + 1) / 2
    for param in model.parameters():
        same(param.grad, np.full(param.shape, mean), 1e-3)


def check_sync_batch_norm():
    """Shares of different sizes, in types of one and of three dimensions; both derivatives."""
    rank, size = dist.get_rank(), dist.get_world_size()
    lengths = [r + 1 for r in range(size)]
    start = sum(lengths[:rank])
    for shape, kind in (
        ((3,), nn.BatchNorm1d),
        ((3, 4), nn.BatchNorm1d),
        ((3, 2, 2), nn.BatchNorm2d),
    ):
        for far in (0, 100):
            if size == 1 and len(shape) == 1:
                continue
            numbers = np.random.default_rng(0).normal(far, 1, (sum(lengths), *shape))
            x = tinytorch.tensor(numbers, requires_grad=True)
            mine = tinytorch.tensor(numbers[start : start + lengths[rank]], requires_grad=True)
            whole = kind(3, momentum=None).double()
            sync = nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole))
            with tinytorch.no_grad():
                for model in (whole, sync):
                    model.weight.copy_(tinytorch.tensor([1.0, 2.0, 3.0]))
            y, z = whole(x), sync(mine)
            part = slice(start, start + lengths[rank])
            same(z, y[part])
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                same(getattr(sync, name), getattr(whole, name))
            gx, gw = tinytorch.autograd.grad((y**3).sum(), (x, whole.weight), create_graph=True)
            hx, hw = tinytorch.autograd.grad((z**3).sum(), (mine, sync.weight), create_graph=True)
            same(hx, gx[part])
            dist.all_reduce(total := hw.detach().clone())
            same(total, gw)
            (gx**2).sum().backward()
            (hx**2).sum().backward()
            same(mine.grad, x.grad[part], 1e-7)
            sync.eval(), whole.eval()
            same(sync(mine), whole(x)[part])
    raises(ValueError, "expected at least 2D input (got 1D input)", sync, tinytorch.ones(3))
    if size > 1:
        raises(ValueError, "each process needs a part", sync.train(), tinytorch.ones(0, 3))


def check_zero_equals_adam():
    rank, size = dist.get_rank(), dist.get_world_size()
    data = [my_part(batch) for batch in batches(Mlp)]
    models = [DistributedDataParallel(network(Mlp)) for _ in range(2)]

    def groups(model):
        first, *others = model.parameters()
        return [{"params": [first], "lr": 0.02}, {"params": others}]

    plain = Adam(groups(models[0]), lr=0.01)
    zero = ZeroRedundancyOptimizer(groups(models[1]), Adam, lr=0.01)
    for optimizer, model in zip((plain, zero), models, strict=True):
        scheduler = tinytorch.optim.lr_scheduler.StepLR(optimizer, 5)
        for i in range(0, STEPS, 5):
            train(model, data[i : i + 5], optimizer=optimizer)
            scheduler.step()
    same_parameters(models[0], models[1])
    assert [g["lr"] for g in zero.param_groups] == [g["lr"] for g in plain.param_groups]
    # Each parameter's state is in one process.
    kept = sum(s["exp_avg"].numel() for s in zero.optim.state.values())
    assert kept == zero.sizes[rank] and sum(zero.sizes) == sum(p.numel() for p in zero.owners)

    raises(RuntimeError, f"`consolidate_state_dict(to={rank})` on all ranks", zero.state_dict)
    zero.consolidate_state_dict(to=size - 1)
    state = [zero.state_dict() if rank == size - 1 else None]
    if rank == size - 1:
        expected = plain.state_dict()
        assert state[0]["param_groups"] == expected["param_groups"]
        assert state[0]["state"].keys() == expected["state"].keys()
        for number, values in expected["state"].items():
            for name, value in values.items():
                same(state[0]["state"][number][name], value)
    # Loaded into a new one, and into an Adam, training goes on as it would have.
    dist.broadcast_object_list(state, size - 1)
    again = ZeroRedundancyOptimizer(groups(models[1]), Adam, lr=0.5)
    again.load_state_dict(state[0])
    for optimizer, model in ((plain, models[0]), (again, models[1])):
        train(model, data[:5], optimizer=optimizer)
    same_parameters(models[0], models[1])
    extra = nn.Parameter(tinytorch.ones(1000))
    again.add_param_group({"params": [extra], "lr": 3.0})
    assert sum(again.sizes) == sum(p.numel() for p in again.owners)
    assert again.optim.param_groups[-1]["lr"] == 3.0
    raises(
        RuntimeError,
        "overlap_with_ddp",
        ZeroRedundancyOptimizer,
        [extra],
        SGD,
        overlap_with_ddp=True,
    )


def check_parallel_linear():
    rank, size = dist.get_rank(), dist.get_world_size()
    numbers = np.random.default_rng(0)
    inputs, factors = (
        numbers.normal(size=(2, 4, 12)),
        tinytorch.tensor(numbers.normal(size=(2, 4, 5))),
    )
    found = []
    for parallel in (False, True):
        tinytorch.manual_seed(3)
        if parallel:
            layers = [
                ColumnParallelLinear(12, 24, gather_output=False),
                RowParallelLinear(24, 12, bias=False, input_is_parallel=True),
                RowParallelLinear(12, 5),
            ]
        else:
            layers = [nn.Linear(12, 24), nn.Linear(24, 12, bias=False), nn.Linear(12, 5)]
        model = nn.Sequential(layers[0], nn.Tanh(), *layers[1:]).double()
        x = tinytorch.tensor(inputs, requires_grad=True)
        y = model(x)
        (g,) = tinytorch.autograd.grad((y * factors).sin().sum(), x, create_graph=True)
        ((g**2).sum() + y.sum()).backward()
        found.append((y, g, x.grad, layers))
    (*expected, whole), (*values, parts) = found
    for a, b in zip(values, expected, strict=True):
        same(a, b)
    for mine, linear, dim in zip(parts, whole, (0, 1, 1), strict=True):
        same(mine.weight.grad, linear.weight.grad.chunk(size, dim)[rank])
    same(parts[0].bias.grad, whole[0].bias.grad.chunk(size)[rank])
    same(parts[2].bias.grad, whole[2].bias.grad)
    # Gathered, the columns give what a Linear gives.
    tinytorch.manual_seed(3)
    same(ColumnParallelLinear(12, 24).double()(x), whole[0](x))
    if size > 1:
        raises(ValueError, "cannot be divided among", ColumnParallelLinear, 3, 12 * size + 1)
        raises(ValueError, "cannot be divided among", RowParallelLinear, 12 * size + 1, 3)
        wide = tinytorch.ones(2, 12 * size + 1)
        raises(ValueError, "cannot be divided among", RowParallelLinear(12 * size, 3), wide)


def check_sampler():
    sampler = DistributedSampler(range(10))
    assert (sampler.rank, sampler.num_replicas) == (dist.get_rank(), dist.get_world_size())
    shares = [None] * dist.get_world_size()
    dist.all_gather_object(shares, list(sampler))
    assert set().union(*shares) == set(range(10))


def check_subgroup():
    """A group of all but the first process: its own rank 0 is the one that sends."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if size < 3:
        return
    group = dist.new_group(list(range(1, size)))
    if rank:
        ddp = DistributedDataParallel(network(Mlp, seed=rank), process_group=group)
        same_parameters(ddp.module, network(Mlp, seed=1))
        ddp(tinytorch.full((2, 6), float(rank), dtype=tinytorch.float64)).sum().backward()
        zero = ZeroRedundancyOptimizer(ddp.parameters(), SGD, process_group=group, lr=0.1)
        zero.step()
        dist.all_gather_object(found := [None] * (size - 1), ddp.module.state_dict(), group)
        for state in found:
            for name, value in state.items():
                same(value, found[0][name], 0)
    dist.barrier()


def check_join():
    """Process r has 2 r + 1 batches. One process computes the same from all of them."""
    rank, size = dist.get_rank(), dist.get_world_size()
    tinytorch.manual_seed(5)
    batches = tinytorch.randn(size, 2 * size, 4, 6, dtype=tinytorch.float64)
    for by_all in (True, False):
        model, ddp = network(Mlp), DistributedDataParallel(network(Mlp), bucket_cap_mb=0.001)
        optimizers = [SGD(each.parameters(), lr=0.1) for each in (model, ddp)]
        with ddp.join(divide_by_initial_world_size=by_all):
            for x in batches[rank, : 2 * rank + 1]:
                optimizers[1].zero_grad()
                ddp(x).square().mean().backward()
                optimizers[1].step()
        for step in range(2 * size - 1):
            optimizers[0].zero_grad()
            losses = [model(batches[r, step]).square().mean() for r in range((step + 1) // 2, size)]
            (sum(losses) / (size if by_all else len(losses))).backward()
            optimizers[0].step()
        for param, expected in zip(ddp.parameters(), model.parameters(), strict=True):
            same(param, expected)
    # Buffers, accumulation and evaluation: as many messages in all processes, and one network.
    ddp = DistributedDataParallel(network(Cnn), find_unused_parameters=True)
    images = tinytorch.randn(2 * size, 4, 2, 6, 6, dtype=tinytorch.float64)
    with ddp.join():
        for i, x in enumerate(images[: 2 * rank + 1]):
            with ddp.no_sync() if i % 2 else contextlib.nullcontext():
                ddp(x + rank).square().mean().backward()
            with tinytorch.no_grad():
                ddp(x)
    dist.all_gather_object(found := [None] * size, ddp.module.state_dict())
    for state in found:
        for name, value in state.items():
            same(value, found[0][name], 0)
    if size > 1:  # after the block nothing is joined, and all processes have to raise
        try:
            with ddp.join(throw_on_early_termination=True):
                for x in images[: rank + 1]:
                    ddp(x)
        except RuntimeError as error:
            assert "exhausted inputs" in str(error)
        else:
            raise AssertionError("no error")
    with ddp.join(enable=False):
        ddp(images[0])


CHECKS = {name: value for name, value in list(globals().items()) if name.startswith("check_")}


def main():
    dist.init_process_group("mpi")
    for name, check in CHECKS.items():
        check()
        if dist.get_rank() == 0:
            print(f"ok {name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
