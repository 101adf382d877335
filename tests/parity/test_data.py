"""utils.data against PyTorch's: what comes out, of what type, and which error is raised."""

import collections
import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")


import tinytorch  # noqa: E402

Pair = collections.namedtuple("Pair", "x y")
OrderedDict, defaultdict, deque = (
    collections.OrderedDict,
    collections.defaultdict,
    collections.deque,
)


def shown(value, library):
    """A value by its types and contents, so that those of two libraries can be compared."""
    if isinstance(value, library.Tensor):
        return "Tensor", str(value.dtype).split(".")[-1], tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, [(key, shown(part, library)) for key, part in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return type(value).__name__, [shown(part, library) for part in value]
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.tolist()
    return type(value).__name__, value


def outcome(function, library):
    try:
        return shown(function(library, library.utils.data), library)
    except Exception as error:
        return "error", type(error).__name__


def compare(function):
    assert outcome(function, tinytorch) == outcome(function, torch)


NAMES = """Dataset IterableDataset TensorDataset Subset ConcatDataset ChainDataset random_split
Sampler SequentialSampler RandomSampler SubsetRandomSampler WeightedRandomSampler BatchSampler
DataLoader default_collate default_convert get_worker_info""".split()


@pytest.mark.parametrize("name", NAMES)
def test_signatures(name):
    def parameters(library):
        found = inspect.signature(getattr(library.utils.data, name)).parameters.values()
        return [(each.name, each.kind, each.name == "generator" or each.default) for each in found]

    assert parameters(tinytorch) == parameters(torch)


BATCHES = {
    "ints": [1, 2],
    "floats": [1.0, 2.0],
    "bools": [True, False],
    "int and float": [1, 2.5],
    "float and int": [1.5, 2],
    "bool and int": [True, 2],
    "texts": ["a", "b"],
    "bytes": [b"a", b"b"],
    "nothing": [None, None],
    "float32": [np.float32(1), np.float32(2)],
    "float64": [np.float64(1), np.float64(2)],
    "int32": [np.int32(1), np.int32(2)],
    "numpy bool": [np.bool_(1), np.bool_(0)],
    "int64 and float32": [np.int64(1), np.float32(2)],
    "numpy text": [np.str_("a")],
    "arrays": [np.ones(2), np.zeros(2)],
    "arrays of two types": [np.ones(2, np.float32), np.zeros(2)],
    "arrays of two shapes": [np.ones(2), np.zeros(3)],
    "arrays of texts": [np.array(["a"])],
    "arrays of objects": [np.array([None])],
    "0-d arrays": [np.array(1.0), np.array(2.0)],
    "tuples": [(1, "a"), (2, "b")],
    "a tuple of tuples": ((1, 2), (3, 4)),
    "lists": [[1, "a"], [2, "b"]],
    "two lengths": [[1], [1, 2]],
    "nested": [{"a": (1, [2]), "b": "x"}, {"a": (3, [4]), "b": "y"}],
    "OrderedDict": [OrderedDict(a=1), OrderedDict(a=2)],
    "defaultdict": [defaultdict(int, a=1)],
    "namedtuple": [Pair(1, "a"), Pair(2, "b")],
    "range": [range(2), range(2)],
    "deque": [deque([1, 2])],
    "set": [{1}],
    "object": [object()],
    "empty": [],
    "empty tuples": [(), ()],
    "a key is missing": [{"a": 1}, {"b": 2}],
    "a key too much": [{"a": 1}, {"a": 1, "b": 2}],
    "bytearray": [bytearray(b"ab")],
    "date": [np.datetime64("2020")],
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_collate_and_convert(batch):
    compare(lambda library, data: data.default_collate(batch))
    compare(lambda library, data: data.default_convert(batch))


class Odd:
    """Item 1 is missing."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 1:
            raise ValueError("no item 1")
        return index


def at_once(data):
    class AtOnce(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index

        def __getitems__(self, indices):
            return [10 * index for index in indices]

    return AtOnce()


def stream(data, length=None):
    class Stream(data.IterableDataset):
        def __iter__(self):
            return iter(range(5))

    if length is not None:
        Stream.__len__ = lambda self: length
    return Stream()


def goes_on(loader):
    """What comes, also behind an error."""
    batches, came = iter(loader), []
    for _ in range(6):
        try:
            came.append(next(batches).tolist())
        except StopIteration:
            came.append("end")
        except ValueError:
            came.append("error")
    return came


def facts(loader, names):
    return [(name, getattr(loader, name)) for name in names.split()]


FACTS = """batch_size num_workers pin_memory drop_last timeout worker_init_fn prefetch_factor
persistent_workers generator multiprocessing_context in_order pin_memory_device"""

# In each, L is the library and D its utils.data.
CASES = {
    "tensors": lambda L, D: D.default_collate([L.ones(2), L.zeros(2)]),
    "tensors of two types": lambda L, D: D.default_collate([L.ones(2).long(), L.zeros(2)]),
    "tensors of two shapes": lambda L, D: D.default_collate([L.ones(2), L.zeros(3)]),
    "tensor and number": lambda L, D: D.default_collate([L.ones(2), 1]),
    "array and tensor": lambda L, D: D.default_collate([np.ones(2, np.float32), L.ones(2)]),
    "a gradient": lambda L, D: D.default_collate([L.ones(2, requires_grad=True)]).requires_grad,
    "fractions": lambda L, D: list(map(len, D.random_split(range(10), [0.35, 0.35, 0.3]))),
    "thirds": lambda L, D: list(map(len, D.random_split(range(10), [1 / 3] * 3))),
    "lengths": lambda L, D: list(map(len, D.random_split(range(10), [3, 7]))),
    "wrong lengths": lambda L, D: D.random_split(range(10), [3, 8]),
    "wrong fractions": lambda L, D: D.random_split(range(10), [1.5, -0.5]),
    "too little": lambda L, D: D.random_split(range(10), [0.5, 0.4]),
    "one item": lambda L, D: list(map(len, D.random_split(range(1), [1]))),
    "other sizes": lambda L, D: D.TensorDataset(L.ones(2), L.ones(3)),
    "no tensors": lambda L, D: len(D.TensorDataset()),
    "an item": lambda L, D: D.TensorDataset(L.arange(3), L.arange(3))[1],
    "a slice": lambda L, D: D.TensorDataset(L.arange(3), L.arange(3))[0:2],
    "a list": lambda L, D: D.TensorDataset(L.arange(3))[[0, 2]],
    "behind the end": lambda L, D: D.TensorDataset(L.arange(3))[3],
    "subset": lambda L, D: D.Subset([10, 20, 30], [2, 0])[1],
    "subset, a list": lambda L, D: D.Subset(D.TensorDataset(L.arange(3)), [2, 0])[[0, 1]],
    "subset, items": lambda L, D: D.Subset([10, 20, 30], [2, 0]).__getitems__([1, 0]),
    "concat": lambda L, D: [D.ConcatDataset([[1, 2], [3]])[i] for i in (0, 1, 2, -1, -3)],
    "concat, too large": lambda L, D: D.ConcatDataset([[1, 2], [3]])[3],
    "concat, too small": lambda L, D: D.ConcatDataset([[1, 2], [3]])[-4],
    "concat, none": lambda L, D: D.ConcatDataset([]),
    "concat, sizes": lambda L, D: D.ConcatDataset(iter([[1], [2]])).cumulative_sizes,
    "chain, no stream": lambda L, D: list(D.ChainDataset([[1]])),
    "chain, length": lambda L, D: len(D.ChainDataset([[1]])),
    "streams added": lambda L, D: list(D.DataLoader(stream(D) + stream(D), 4)),
    "no __getitem__": lambda L, D: D.Dataset()[0],
    "no __len__": lambda L, D: len(D.Dataset()),
    "no __iter__": lambda L, D: iter(D.Sampler()),
    "with types": lambda L, D: bool([D.Dataset[int], D.Sampler[int], D.DataLoader[int]]),
    "shuffled": lambda L, D: sorted(D.RandomSampler(range(5))),
    "shuffled, more": lambda L, D: len(list(D.RandomSampler(range(5), num_samples=12))),
    "shuffled, none": lambda L, D: D.RandomSampler([]),
    "shuffled, of none": lambda L, D: list(D.RandomSampler([], num_samples=3)),
    "shuffled, 1.5": lambda L, D: D.RandomSampler([1], num_samples=1.5),
    "replacement=1": lambda L, D: D.RandomSampler([1], replacement=1),
    "replaced": lambda L, D: len(list(D.RandomSampler(range(5), True, 100))),
    "weights": lambda L, D: D.WeightedRandomSampler([1, 2], 1).weights,
    "weights, 2-d": lambda L, D: D.WeightedRandomSampler([[1.0]], 1),
    "weights, none": lambda L, D: D.WeightedRandomSampler([1.0], 0),
    "weights, negative": lambda L, D: list(D.WeightedRandomSampler([1.0, -1.0], 3)),
    "weights, zero": lambda L, D: list(D.WeightedRandomSampler([0.0, 0.0], 3)),
    "batches": lambda L, D: list(D.BatchSampler(range(5), 2, False)),
    "batches, dropped": lambda L, D: list(D.BatchSampler(range(5), 2, True)),
    "batches of True": lambda L, D: D.BatchSampler([1], True, False),
    "drop_last=0": lambda L, D: D.BatchSampler([1], 1, 0),
    "loader": lambda L, D: list(D.DataLoader([(1, "a"), (2, "b"), (3, "c")], 2)),
    "loader, nothing": lambda L, D: list(D.DataLoader([], 2)),
    "loader, shuffle nothing": lambda L, D: list(D.DataLoader([], 2, shuffle=True)),
    "loader, batches of 0": lambda L, D: D.DataLoader([1], 0),
    "loader, batches of 1.5": lambda L, D: D.DataLoader([1], 1.5),
    "loader, a tensor": lambda L, D: list(D.DataLoader(L.arange(3), 2)),
    "loader, a dict": lambda L, D: list(D.DataLoader({"a": 1, "b": 2}, sampler=["b", "a"])),
    "loader, sampler": lambda L, D: list(D.DataLoader([1, 2, 3], 2, sampler=[2, 2, 0])),
    "loader, tensors": lambda L, D: list(
        D.DataLoader(D.TensorDataset(L.arange(4)), 2, sampler=L.tensor([3, 1, 0]))
    ),
    "loader, a sampler of lists": lambda L, D: list(
        D.DataLoader(D.TensorDataset(L.arange(4)), None, sampler=D.BatchSampler(range(4), 3, False))
    ),
    "loader, no length": lambda L, D: len(D.DataLoader([1], 2, sampler=iter([0]))),
    "loader, batch_sampler": lambda L, D: list(
        D.DataLoader([1, 2, 3], batch_sampler=[[2], [0, 1]])
    ),
    "loader, no batches": lambda L, D: list(D.DataLoader([np.ones(2), {"a": np.ones(1)}], None)),
    "loader, collate": lambda L, D: list(D.DataLoader([1, 2, 3], 2, collate_fn=sum)),
    "loader, converted": lambda L, D: list(D.DataLoader([1, 2], None, collate_fn=lambda x: x + 1)),
    "loader, length": lambda L, D: len(iter(D.DataLoader([1, 2, 3], 2))),
    "loader, facts": lambda L, D: facts(D.DataLoader([1, 2, 3], 2), FACTS),
    "workers, facts": lambda L, D: facts(
        D.DataLoader([1], 2, num_workers=1), "batch_size prefetch_factor"
    ),
    "batch_sampler, facts": lambda L, D: facts(
        D.DataLoader([1], batch_sampler=[[0]]), "batch_sampler batch_size drop_last"
    ),
    "loader, num_workers set": lambda L, D: setattr(D.DataLoader([1]), "num_workers", 3),
    "timeout, no workers": lambda L, D: list(D.DataLoader([1], timeout=1)),
    "a context, no workers": lambda L, D: D.DataLoader([1], multiprocessing_context="fork"),
    "no such context": lambda L, D: D.DataLoader([1], num_workers=1, multiprocessing_context="x"),
    "no context": lambda L, D: D.DataLoader([1], num_workers=1, multiprocessing_context=3),
    "prefetch -1": lambda L, D: D.DataLoader([1], num_workers=1, prefetch_factor=-1),
    "nothing to drop": lambda L, D: D.DataLoader([1], None, drop_last=True),
    "stream, shuffled": lambda L, D: D.DataLoader(stream(D), shuffle=True),
    "stream, sampler": lambda L, D: D.DataLoader(stream(D), sampler=[]),
    "stream, batch_sampler": lambda L, D: D.DataLoader(stream(D), batch_sampler=[]),
    "stream, batches of 0": lambda L, D: D.DataLoader(stream(D), 0),
    "stream, length": lambda L, D: len(D.DataLoader(stream(D, 5), 2)),
    "stream, length of items": lambda L, D: len(D.DataLoader(stream(D, 5), None)),
    "stream, no length": lambda L, D: len(D.DataLoader(stream(D), 2)),
    "stream, length of a loop": lambda L, D: len(iter(D.DataLoader(stream(D, 5), 2))),
}
# The same with processes and without.
LOADED = {
    "map": lambda L, D, n: list(D.DataLoader(list(range(7)), 2, num_workers=n)),
    "stream": lambda L, D, n: list(D.DataLoader(stream(D), 2, num_workers=n)),
    "stream, dropped": lambda L, D, n: list(
        D.DataLoader(stream(D), 2, drop_last=True, num_workers=n)
    ),
    "stream, items": lambda L, D, n: list(D.DataLoader(stream(D), None, num_workers=n)),
    "items at once": lambda L, D, n: list(D.DataLoader(at_once(D), 2, num_workers=n)),
    "a subset of them": lambda L, D, n: list(
        D.DataLoader(D.Subset(at_once(D), [1, 3]), 2, num_workers=n)
    ),
    "behind an error": lambda L, D, n: goes_on(D.DataLoader(Odd(), num_workers=n)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_datasets_samplers_and_loaders(case):
    compare(case)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", LOADED.values(), ids=LOADED)
def test_what_a_loader_gives(case, workers):
    compare(lambda library, data: case(library, data, workers))


def test_an_empty_split_is_worth_a_warning():
    for library in (tinytorch, torch):
        with pytest.warns(UserWarning, match="Length of split at index 1 is 0"):
            library.utils.data.random_split(range(1), [0.5, 0.5])


@pytest.mark.skipif(
    tinytorch.cuda.is_available() or torch.cuda.is_available(), reason="there is a GPU"
)
@pytest.mark.parametrize("persistent", [False, True])
def test_pinned_memory_without_a_gpu_warns(persistent):
    messages = []
    for library in (torch, tinytorch):
        options = {"num_workers": 1, "persistent_workers": True} if persistent else {}
        loader = library.utils.data.DataLoader([1, 2], pin_memory=True, **options)
        with pytest.warns(UserWarning, match="no accelerator is found") as caught:
            assert [batch.tolist() for batch in loader] == [[1], [2]]
        messages.append([str(warning.message) for warning in caught])
    assert messages[0] == messages[1]
