"""Process groups of one process: results, and the type of each error, are PyTorch's."""

import datetime

import pytest

import tinytorch
import tinytorch.distributed as tiny_dist
from tinytorch.distributed.simulator import simulate

torch = pytest.importorskip("torch", reason="PyTorch is not installed", exc_type=ImportError)
pytest.importorskip("ml_dtypes", reason="bfloat16 needs ml_dtypes")
torch_dist = torch.distributed
pytestmark = pytest.mark.skipif(
    not torch_dist.is_available() or not torch_dist.is_gloo_available(),
    reason="PyTorch has no gloo here",
)

# Each takes (torch or tinytorch, its distributed).
MISTAKES = {
    "a list": lambda tt, dist: dist.all_reduce([tt.ones(2)]),
    "a number": lambda tt, dist: dist.all_reduce(2.0),
    "op by name": lambda tt, dist: dist.all_reduce(tt.ones(2), "sum"),
    "op by number": lambda tt, dist: dist.all_reduce(tt.ones(2), 0),
    "bits of floats": lambda tt, dist: dist.all_reduce(tt.ones(2), dist.ReduceOp.BAND),
    "mean of booleans": lambda tt, dist: dist.all_reduce(tt.ones(2) > 0, dist.ReduceOp.AVG),
    "no list": lambda tt, dist: dist.all_gather(tt.ones(2), tt.ones(2)),
    "short list": lambda tt, dist: dist.all_gather([], tt.ones(2)),
    "shape in list": lambda tt, dist: dist.all_gather([tt.ones(3)], tt.ones(2)),
    "dtype in list": lambda tt, dist: dist.all_gather([tt.ones(2).int()], tt.ones(2)),
    "into shape": lambda tt, dist: dist.all_gather_into_tensor(tt.ones(3), tt.ones(2)),
    "into dtype": lambda tt, dist: dist.all_gather_into_tensor(tt.ones(2).int(), tt.ones(2)),
    "gather without list": lambda tt, dist: dist.gather(tt.ones(2)),
    "gather dtype": lambda tt, dist: dist.gather(tt.ones(2), [tt.ones(2).int()]),
    "scatter without list": lambda tt, dist: dist.scatter(tt.ones(2)),
    "scatter count": lambda tt, dist: dist.scatter(tt.ones(2), [tt.ones(2)] * 2),
    "scatter shape": lambda tt, dist: dist.scatter(tt.ones(2), [tt.ones(3)]),
    "reduce_scatter count": lambda tt, dist: dist.reduce_scatter(tt.ones(2), [tt.ones(2)] * 2),
    "splits": lambda tt, dist: dist.all_to_all_single(tt.ones(2), tt.ones(2), [1], [1]),
    "number of splits": lambda tt, dist: dist.all_to_all_single(
        tt.ones(2), tt.ones(2), [1, 1], [1, 1]
    ),
    "send to itself": lambda tt, dist: dist.send(tt.ones(2), 0),
    "twice": lambda tt, dist: dist.init_process_group("gloo", rank=0, world_size=1),
    "timeout": lambda tt, dist: dist.new_group([0], timeout=3),
    "rank twice": lambda tt, dist: dist.new_group([0, 0]),
    "unknown rank": lambda tt, dist: dist.new_group([0, 1]),
    "objects without list": lambda tt, dist: dist.gather_object(3),
    "objects into nothing": lambda tt, dist: dist.scatter_object_list([], [5]),
}
BEFORE = {
    "rank": lambda tt, dist: dist.get_rank(),
    "size": lambda tt, dist: dist.get_world_size(),
    "name": lambda tt, dist: dist.get_backend(),
    "barrier": lambda tt, dist: dist.barrier(),
    "all_reduce": lambda tt, dist: dist.all_reduce(tt.ones(2)),
    "destroy": lambda tt, dist: dist.destroy_process_group(),
    "new_group": lambda tt, dist: dist.new_group([0]),
}


def results(tt, dist):
    """What the calls of a correct program give."""
    found = []
    for dtype in (tt.float32, tt.float16, tt.bfloat16, tt.int64, tt.bool):
        x = tt.tensor([[1, 0], [3, 2]]).to(dtype)
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
            dist.all_reduce(x, op)
        y, outs, whole = x.T.clone(), [tt.zeros(2, 2).to(dtype)], tt.zeros(2, 2).to(dtype)
        dist.broadcast(y, 0)
        dist.all_gather(outs, x)
        dist.all_gather_into_tensor(whole, x)
        work = dist.all_reduce(y, async_op=True)
        found += [work.wait(), work.is_completed()]
        found += [each.tolist() for each in (x, y, outs[0], whole)]
    objects = [None]
    dist.all_gather_object(objects, {"a": 1})
    found += [objects, dist.get_rank(), dist.get_world_size(), dist.get_backend()]
    none = dist.GroupMember.NON_GROUP_MEMBER
    found += [dist.get_rank(none), dist.get_world_size(none), dist.barrier()]
    found += [dist.get_process_group_ranks(None), dist.get_global_rank(dist.group.WORLD, 0)]
    return found


def kind_of_error(call, tt, dist):
    try:
        call(tt, dist)
    except Exception as error:
        return next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")
    return "no error"


def everything(tt, dist, **options):
    before = {name: kind_of_error(call, tt, dist) for name, call in BEFORE.items()}
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20), **options)
    try:
        found = results(tt, dist)
        mistakes = {name: kind_of_error(call, tt, dist) for name, call in MISTAKES.items()}
    finally:
        dist.destroy_process_group()
    return before, found, mistakes


@pytest.mark.filterwarnings("ignore")
def test_one_process(tmp_path):
    init = {"init_method": f"file://{tmp_path}/store", "rank": 0, "world_size": 1}
    theirs = everything(torch, torch_dist, **init)
    (ours,) = simulate(1, lambda: everything(tinytorch, tiny_dist, **init))
    for mine, expected in zip(ours, theirs, strict=True):
        assert mine == expected
