"""Step nll01: one_hot: a class as a row of zeros and a one

A label such as 3 is a name, not an amount: class 4 is not a little more than class 3. So a network
gives one number for each class, and its answer is compared with a row of as many numbers, 0 at each
class and 1 at the right one:

    labels  2 0        one_hot   0 0 1
                                 1 0 0

This row is the perfect answer: all of the probability on one class. The difference between a
network's probabilities and this row is the gradient of its loss, as the next step shows.

NumPy makes it by one comparison: the labels as a column against the row 0, 1, 2, ... The result has
the labels' shape and one more dimension.

Without num_classes, the largest label says how many classes there are. That is the trap: in a batch
that lacks the last class the rows are too short. Give the number. A label outside of the classes
would be a row of zeros, which no comparison notices, so it is refused.

PyTorch: nn.functional.one_hot. The result is int64, and so has to be the input.

Changed: a new module, nn/nll.py. New: one_hot.
Try: one_hot(tensor([[1, 0], [2, 1]])). Which shape does it have?
"""

import importlib

from tinytorch.core.arguments import checked
from tinytorch.core.dtype import int64
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.ops.arguments import as_integer
from tinytorch.ops.creation import allocated

# The other operations are methods of Tensor: importing their modules brings them there.
for name in "arithmetic comparison elementwise indexing matmul reduction shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")


@checked
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class that an integer names, 0 elsewhere: [...] becomes [..., num_classes], int64.

    Without `num_classes` the largest integer decides how many there are.

    Raises:
        RuntimeError: the input is not int64, an integer is outside of 0..num_classes-1, or there is
            not as much memory.
        ValueError: `num_classes` needs more than 64 bits.
    """
    if tensor.dtype is not int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    array, xp = tensor.array, tensor.device.xp
    num_classes = as_integer(num_classes)
    if num_classes >= 2**63:
        raise ValueError(f"num_classes does not fit 64 bits: {num_classes}")
    c = int(array.max()) + 1 if num_classes == -1 and array.size else num_classes
    if c < 1 or (array.size and (array.min() < 0 or array.max() >= c)):
        low, high = (int(array.min()), int(array.max())) if array.size else (0, c - 1)
        raise RuntimeError(f"Class values must be from 0 to num_classes - 1, got {low} to {high}")
    classes = allocated(xp.arange, c)
    return wrap((array[..., None] == classes).astype(xp.int64), tensor.device)


if __name__ == "__main__":
    from tinytorch.ops.softmax import softmax

    labels = tensor([2, 0, 3])
    print(one_hot(labels).tolist(), one_hot(labels).dtype)
    # -> [[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]] tinytorch.int64
    print("ten classes:", one_hot(labels, 10).shape, one_hot(tensor(1), 3).tolist())
    # -> ten classes: tinytorch.Size([3, 10]) [0, 1, 0]
    print("none:", one_hot(tensor([]).long(), 3).shape)  # -> none: tinytorch.Size([0, 3])

    # How far is an answer from the perfect one?
    answers = softmax(tensor([[0.0, 1.0, 4.0, 0.0], [2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0]]), 1)
    print((answers - one_hot(labels)).abs().sum(1).tolist())  # -> [0.1591, 1.1192, 0.0396]

    for call in (
        lambda: one_hot(tensor([1.0])),
        lambda: one_hot(tensor([0, 3]), 3),
        lambda: one_hot(labels, 2**63),
    ):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            print(error)
            # -> one_hot is only applicable to index tensor of type LongTensor.
            # -> Class values must be from 0 to num_classes - 1, got 0 to 3
            # -> num_classes does not fit 64 bits: 9223372036854775808
