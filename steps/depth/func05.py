"""Step func05: Catalogue: names that programs look up

Skim this one: none of it computes anything new. A program may run for an hour and then stop at a
name that it only asks about, so the names that common programs ask for are here, with the answer
that is true of tinytorch:

    backends.cudnn.benchmark = True       a switch, which changes nothing here
    use_deterministic_algorithms(True)    a switch that convolutions look at (step winograd07)
    backends.mps, xpu                     is_available() is False
    onnx.is_in_onnx_export()              False, and there is no export
    multiprocessing                       Python's own
    nn.modules.batchnorm.SyncBatchNorm    a class that stands in another file here
    nn.DataParallel(model)                calls the model: there is one device
    DistributedSampler                    every n-th item, in one order for all processes
    einops.rearrange(x, "b c -> c b")     works on tensors

Two things are worth a look. nn/modules has PyTorch's files, but not each class stands in the same
one: PyTorch has MultiheadAttention in activation.py, and SyncBatchNorm in batchnorm.py. A module
may have a function `__getattr__`, which Python asks for a name that it does not find.
`look_in_others` gives one to each file that lacks a class: it finds the class in another file.

And DistributedSampler gives all processes shares of one length, some items twice if need be: if one
process had one more batch than the others, it would wait for them forever.

New: core/deterministic.py, backends/cudnn.py, mps.py, cuda.py; xpu.py, onnx.py, multiprocessing,
nn/modules/utils.py and places.py, utils/einops.py, nn/parallel/data_parallel.py,
utils/data/distributed.py.
Try: give the samplers of the demo different seeds, seed=rank. Which items does no process see?
"""

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from types import ModuleType
from typing import Any

from tinytorch.nn.modules.module import Module
from tinytorch.ops.random import Generator, randperm
from tinytorch.utils.data.sampler import Sampler

try:
    from einops._backends import TorchBackend
except ImportError:
    TorchBackend = None

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


enabled = benchmark = deterministic = allow_tf32 = False


def is_available() -> bool:
    """False: tinytorch does not use it."""
    return False


is_built = is_available


def device_count() -> int:
    """0: there are none that tinytorch uses."""
    return 0


def is_in_onnx_export() -> bool:
    """Whether a network is being written to a file: never."""
    return False


class matmul:
    """NVIDIA's library of matrix products takes its own decisions here, through CuPy."""

    allow_tf32 = False


def set_float32_matmul_precision(precision: str) -> None:
    """Allows PyTorch to compute float32 products less exactly. Here they are always exact.

    Raises:
        ValueError: `precision` is not "highest", "high" or "medium".
    """
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"{precision} is not one of 'highest', 'high' or 'medium'")


class Deterministic:
    """What use_deterministic_algorithms() was asked for, in all threads."""

    enabled = warn_only = False


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Whether operations take their plainest way.

    On the CPU all results are the same each time, with or without it. With it, convolutions leave
    out Winograd's tiles, which round more. On a GPU, sums into places that occur several times may
    still differ in their last digits; PyTorch refuses some of these, unless with `warn_only`.

    Raises:
        TypeError: `mode` is not a bool.
    """
    if not isinstance(mode, bool):
        raise TypeError(
            f"_set_deterministic_algorithms(): argument 'mode' (position 1) must be bool, not "
            f"{type(mode).__name__}"
        )
    Deterministic.enabled, Deterministic.warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """Whether use_deterministic_algorithms(True) was called last."""
    return Deterministic.enabled


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it was called with warn_only=True."""
    return Deterministic.warn_only


class DataParallel(Module):
    """Calls `module`. PyTorch's class divides each batch among the GPUs; here there is one.

    Its parameters are called "module.weight" and so on, as PyTorch's are.
    """

    def __init__(self, module: Module, device_ids=None, output_device=None, dim: int = 0):
        super().__init__()
        self.module, self.device_ids, self.output_device = module, device_ids, output_device
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


def repeated(n: int) -> Callable[[Any], tuple]:
    """The function that makes n of one number, and a tuple of what has several."""
    return lambda x: tuple(x) if isinstance(x, Iterable) else (x,) * n


_single, _pair, _triple = map(repeated, (1, 2, 3))


def __getattr__(name: str) -> type:
    """The class of this name, in whichever file of nn/modules it stands."""
    for key, module in list(sys.modules.items()):
        found = vars(module).get(name) if key.startswith("tinytorch.nn.modules.") else None
        if isinstance(found, type) and found.__module__ == key:
            return found
    raise AttributeError(f"no file of tinytorch.nn.modules has a class {name!r}")


def look_in_others(names: str) -> list[ModuleType]:
    """The files of nn/modules with these names. From now on they find the classes that PyTorch has
    in them, and tinytorch in another file."""
    modules = [importlib.import_module(f"tinytorch.nn.modules.{name}") for name in names.split()]
    for module in modules:
        module.__getattr__ = __getattr__
    return modules


PLACES = look_in_others("activation batchnorm conv linear rnn")


class DistributedSampler(Sampler):
    """Every num_replicas-th item, from item `rank` on: the share of one of num_replicas processes.

    All processes shuffle in the same way, from seed + epoch: call set_epoch before each epoch. All
    shares are equally long: some of the first items come twice, or with drop_last the last ones
    are left out.
    Raises:
        RuntimeError: without num_replicas and rank, which process groups do not give yet.
        ValueError: for a rank outside of 0 to num_replicas - 1.
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
        if num_replicas is None or rank is None:
            raise RuntimeError("Requires distributed package to be available")
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


class TinytorchBackend(TorchBackend or object):
    """How einops calls tinytorch: as it calls PyTorch. It finds this class among the subclasses of
    its own, so that defining it is enough."""

    framework_name = "tinytorch"

    def __init__(self):
        self.torch = sys.modules["tinytorch"]


if __name__ == "__main__":
    from tinytorch.nn.modules.linear import Linear
    from tinytorch.nn.modules.softmax import Softmax
    from tinytorch.ops.creation import ones

    importlib.import_module("tinytorch.core.printing")

    print(is_available(), is_built(), enabled, benchmark, matmul.allow_tf32)
    # -> False False False False False
    print(device_count(), is_in_onnx_export())  # -> 0 False
    use_deterministic_algorithms(True, warn_only=True)
    print(are_deterministic_algorithms_enabled(), is_deterministic_algorithms_warn_only_enabled())
    # -> True True

    # Names in the places where PyTorch has them.
    place = importlib.import_module("tinytorch.nn.modules.activation")
    print(place in PLACES, place.Softmax is Softmax)  # -> True True
    print(_pair(3), _triple((1, 2, 3)), _single(0))  # -> (3, 3) (1, 2, 3) (0,)
    try:
        __getattr__("Nothing")
    except AttributeError as error:
        print(error)  # -> no file of tinytorch.nn.modules has a class 'Nothing'

    # A wrapper adds a word to the names of a state_dict.
    model = DataParallel(Linear(3, 2))
    print(list(model.state_dict()), model(ones(4, 3)).shape)
    # -> ['module.weight', 'module.bias'] tinytorch.Size([4, 2])

    # Three processes share ten items: each sees four, and two items come twice.
    samplers = [DistributedSampler(range(10), 3, rank, seed=7) for rank in range(3)]
    shares = [list(sampler) for sampler in samplers]
    seen = sum(shares, [])
    print(len(seen), len(set(seen)))  # -> 12 10
    for sampler in samplers:
        sampler.set_epoch(1)
    print([list(sampler) for sampler in samplers] == shares)  # -> False
    plain = DistributedSampler(range(10), 3, 1, shuffle=False, drop_last=True)
    print(list(plain), len(plain))  # -> [1, 4, 7] 3
    set_float32_matmul_precision("high")
    mistakes = (
        lambda: set_float32_matmul_precision("low"),
        lambda: use_deterministic_algorithms(1),
        lambda: DistributedSampler(range(10), 3, 3),
        lambda: DistributedSampler(range(10)),
    )
    for mistake in mistakes:
        try:
            mistake()
        except (TypeError, ValueError, RuntimeError) as error:
            print(str(error)[:56])
    # -> low is not one of 'highest', 'high' or 'medium'
    # -> _set_deterministic_algorithms(): argument 'mode' (positi
    # -> Invalid rank 3, rank should be in the interval [0, 2]
    # -> Requires distributed package to be available

    # einops asks each backend whether a tensor is its own. This one says how to call tinytorch.
    print(TinytorchBackend().framework_name)  # -> tinytorch
