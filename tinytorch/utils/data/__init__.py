"""From a dataset to batches: datasets, samplers, and the loader that puts them together."""

from tinytorch.utils.data.collate import default_collate, default_convert
from tinytorch.utils.data.dataloader import DataLoader
from tinytorch.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from tinytorch.utils.data.distributed import DistributedSampler
from tinytorch.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from tinytorch.utils.data.worker import WorkerInfo, get_worker_info
