"""Step dataset04: Collating dicts, named tuples and strings

An item of more than two parts is better a dict or a named tuple: item["label"] says more than
item[3]. But step dataset03 returns a plain list for a named tuple, and refuses a dict. And with
texts it does not end: a text is a sequence of texts of one letter, and the first element of "n" is
"n". Python stops it with a RecursionError.

    dict           a dict of batches, one for each key
    named tuple    the same named tuple, of batches
    tuple, list    a list of batches
    text           a list of texts: there are no tensors of texts

So the result should be of the same class as the item, and `rebuilt` makes one: type(item)(parts).
The trap: some classes take other arguments. A defaultdict takes its default first. A copy of the
item has it already, so a mutable item is copied, and its values are replaced. A range cannot hold
batches at all, and becomes a list.

A plain tuple becomes a list too. This is a habit of PyTorch, which programs rely on.

Changed: default_collate. New: rebuilt.
Try: collate two items of your own class `class Sample(dict)`. Of which class is the batch?
"""

import copy
import importlib
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

from tinytorch.core.dtype import float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.joining import stack

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


def rebuilt(original: Any, parts: Any) -> Any:
    """`parts`, a list or a dict, as a container of the kind of `original`.

    As in PyTorch a tuple becomes a list, and so does what cannot be made anew, such as a range.
    """
    if isinstance(original, tuple):
        return type(original)(*parts) if hasattr(original, "_fields") else parts
    try:
        if not isinstance(original, (MutableMapping, MutableSequence)):
            return type(original)(parts)
        clone = copy.copy(original)  # there may be more to it: a defaultdict has its default
        for place, part in parts.items() if isinstance(parts, dict) else enumerate(parts):
            clone[place] = part
        return clone
    except TypeError:
        return parts


def default_collate(batch: Sequence) -> Any:
    """Samples of one kind as a batch: tensors and numbers become one tensor with a new first
    dimension, texts stay a list; dicts, tuples and lists go part by part.

    Raises:
        TypeError: for other kinds.
        RuntimeError: where the lengths or shapes differ.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(batch)
    if isinstance(first, (int, float)):
        return tensor(batch, dtype=float64 if isinstance(first, float) else None)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        parts = {key: default_collate([sample[key] for sample in batch]) for key in first}
        return rebuilt(first, parts)
    if isinstance(first, Sequence):
        if len(set(map(len, batch))) != 1:
            raise RuntimeError("each element in list of batch should be of equal size")
        return rebuilt(first, [default_collate(column) for column in zip(*batch, strict=True)])
    raise TypeError(
        f"default_collate: batch must contain tensors, numbers, dicts or lists; found {type(first)}"
    )


class Dataset:
    """Items by number. A subclass writes `__getitem__`, and `__len__` if there is an end."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")


class TensorDataset(Dataset):
    """Item i is (t[i] for each tensor).

    Raises:
        AssertionError: where the first dimensions differ.
    """

    def __init__(self, *tensors: Tensor):
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


if __name__ == "__main__":
    from collections import defaultdict, namedtuple

    # What step dataset03 does with texts: columns of letters, which are texts. This has no end.
    batch = ["nine", "four"]
    for _ in range(3):
        batch = list(zip(*batch, strict=True))[0]
        print(batch)
    # -> ('n', 'f')
    # -> ('n', 'f')
    # -> ('n', 'f')

    class Squares(Dataset):
        """Item i is i, its square, and its name."""

        def __len__(self):
            return 5

        def __getitem__(self, index):
            return {"pair": (index, float(index**2)), "name": f"number {index}"}

    print(Squares()[3])  # -> {'pair': (3, 9.0), 'name': 'number 3'}
    batch = default_collate([Squares()[3], Squares()[4]])
    print([part.tolist() for part in batch["pair"]])  # -> [[3, 4], [9.0, 16.0]]
    print(batch["name"])  # -> ['number 3', 'number 4']

    # The kind of container stays.
    Point = namedtuple("Point", "x y")
    batch = default_collate([Point(1, 2), Point(3, 4)])
    print(type(batch).__name__, batch.x.tolist(), batch.y.tolist())  # -> Point [1, 3] [2, 4]
    print(type(default_collate([(1, 2), (3, 4)])).__name__)  # -> list
    print([part.tolist() for part in default_collate([range(2), range(2)])])  # -> [[0, 0], [1, 1]]

    counts = [defaultdict(int, cats=1), defaultdict(int, cats=2)]
    try:
        type(counts[0])({})
    except TypeError as error:
        print(error)  # -> first argument must be callable or None
    batch = default_collate(counts)
    print(batch["cats"].tolist(), batch["dogs"])  # -> [1, 2] 0

    # What is refused.
    for wrong in ([[1, 2], [3]], [None, None]):
        try:
            default_collate(wrong)
        except (TypeError, RuntimeError) as error:
            print(type(error).__name__ + ":", str(error).split("; ")[-1])
    # -> RuntimeError: each element in list of batch should be of equal size
    # -> TypeError: found <class 'NoneType'>
