"""Step 65o: A network that reads digits

Everything is there: tensors that differentiate themselves, products, reductions, indexing, random
numbers. This step puts them to work on 1,797 digits, written by hand and scanned at 8 by 8 pixels
each. A network of two hidden layers

    h1 = relu(x W1 + b1)      h2 = relu(h1 W2 + b2)      logits = h2 W3 + b3

gives ten numbers for an image, one for each digit. The loss is the cross entropy: the mean of
-log p, where p is the probability that the network gave to the right digit. Then come the four
moves that all of deep learning repeats: forward, backward, a step down the slope, forget the
gradient.

The probabilities are exp(logit) / sum of exp. Written like that, float32 fails at a logit of 89:
exp(89) is larger than `finfo(float32).max`. log_softmax subtracts the largest logit first
(step 60g), and a logit of 1,000 does no harm. What is nan or inf already, nan_to_num replaces.

The gradient of all this is so simple that it is worth one Function, NllLoss, instead of four:

    l = log(exp(x_1) + ... + exp(x_c)) - x_t         dl/dx_i = softmax(x)_i - [i = t]

The prediction minus the target. (On Tensors backward computes the softmax once more, as
a function of x: step 33 explains the two kinds of backward.)

Did the network learn, or only memorize? 360 digits are held out, and it never sees them in
training. Only they count in the end.

Training makes and frees the same large arrays again and again. The C library returns each of them
to the system, which must then provide fresh pages of memory (page faults). `keep_freed_memory`
tells the library to reuse the memory instead.

A Parameter is a tensor that is to be learned: it has a class of its own. So far no code asks for
it; stage 12 does.

(In PyTorch this loop looks the same. Its nn and optim shorten it; stages 12 and 13 build them.)

New: load_digits, keep_freed_memory, finfo, iinfo, nan_to_num, one_hot, NllLoss, Parameter. The demo
trains.
Try: leave out `p.grad = None`. The gradients of all steps so far pile up: watch the loss.
"""

import ctypes
import functools
import gzip
import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from tinytorch.autograd.node import Function
from tinytorch.core import tensor as neighbour
from tinytorch.core.dtype import DType, bfloat16, get_default_dtype, int64
from tinytorch.core.printing import format_tensor
from tinytorch.core.tensor import Tensor, from_numpy, tensor, wrap
from tinytorch.ops.comparison import isnan, where
from tinytorch.ops.conversion import clone
from tinytorch.ops.elementwise import attach
from tinytorch.ops.reduction import sum_rows, wide
from tinytorch.ops.softmax import Softmax, minus_max

# The other operations are methods of Tensor: importing their modules brings them there.
for name in "arithmetic comparison elementwise indexing matmul reduction shape".split():
    importlib.import_module(f"tinytorch.ops.{name}")

# The data lie beside the package's modules. Any of them tells where that is.
data_folder = Path(neighbour.__file__).parent.parent / "datasets"


def load_digits() -> tuple[Tensor, Tensor]:
    """All digits: images of shape [1797, 8, 8], float32 from 0 to 1, and labels [1797], int64."""
    with gzip.open(data_folder / "digits.csv.gz", "rt", encoding="ascii") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int64)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 8, 8)
    return from_numpy(images), from_numpy(table[:, 64].copy())


def keep_freed_memory() -> bool:
    """Tells glibc to keep the memory of freed arrays. Returns whether that worked.

    A training step makes the same large arrays again and again. By default glibc maps each of them
    anew and unmaps it when it is freed, and the kernel has to provide, and zero, every page of
    4 KiB at its first touch: a page fault. Here arrays below 32 MiB come from the heap, and the
    heap does not shrink. See `man 3 mallopt`. Other C libraries have no mallopt: nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    trim_threshold, mmap_threshold = -1, -3  # their numbers in malloc.h
    return bool(mallopt(mmap_threshold, 32 << 20) and mallopt(trim_threshold, 512 << 20))


freed_memory_is_kept = keep_freed_memory()


class finfo:
    """The limits of a floating point type: bits, eps, max, min, tiny, smallest_normal."""

    def __init__(self, dtype: DType | None = None):
        dtype = get_default_dtype() if dtype is None else dtype
        if not dtype.is_floating_point:
            raise TypeError(f"finfo() takes a floating point type, not {dtype!r}: use iinfo")
        self.dtype, self.bits = dtype.name, dtype.itemsize * 8
        if dtype is bfloat16:  # 8 bits of mantissa, float32's exponent
            self.eps, self.tiny = 2.0**-7, 2.0**-126
            self.max = (2.0 - 2.0**-7) * 2.0**127
        else:
            info = np.finfo(dtype.numpy)
            self.eps, self.tiny, self.max = float(info.eps), float(info.tiny), float(info.max)
        self.min, self.smallest_normal, self.resolution = (
            -self.max,
            self.tiny,
            10.0 ** -int(np.floor(-np.log10(self.eps))),
        )

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        limits = ", ".join(f"{name}={getattr(self, name):g}" for name in names)
        return f"finfo({limits}, dtype={self.dtype})"


class iinfo:
    """The limits of an integer type: bits, max, min."""

    def __init__(self, dtype: DType):
        if dtype.category != 1:
            raise TypeError(f"iinfo() takes an integer type, not {dtype!r}: use finfo")
        info = np.iinfo(dtype.numpy)
        self.bits, self.max, self.min = info.bits, info.max, info.min


@attach("nan_to_num")
def nan_to_num(input: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Tensor:
    """A copy with numbers in place of nan (0, if none is given), inf and -inf (the largest and the
    smallest of the type). Integers stay as they are."""
    if not input.is_floating_point():
        return clone(input)
    limits = finfo(input.dtype)
    out = where(isnan(input), nan or 0.0, input)
    out = where(input == math.inf, limits.max if posinf is None else posinf, out)
    return where(input == -math.inf, limits.min if neginf is None else neginf, out)


class Parameter(Tensor):
    """A tensor that a Module registers when it becomes one of its attributes.

    `Parameter(data)` shares the memory of the tensor `data`, as a leaf that requires a gradient.
    Raises:
        RuntimeError: for integer data, unless requires_grad=False.
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> "Parameter":
        data = tensor([]) if data is None else data
        self = wrap(data.array.view(), data.device, cls)
        self.requires_grad = requires_grad
        return self

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True):
        pass  # __new__ has done everything: Tensor's own __init__ would make another array

    def __repr__(self) -> str:
        return "Parameter containing:\n" + format_tensor(self, "tensor")

    def __deepcopy__(self, memo: dict) -> "Parameter":  # without the gradient, as in PyTorch
        return memo.setdefault(id(self), type(self)(self.data.clone(), self.requires_grad))


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the class that an integer names, 0 elsewhere: [...] becomes [..., num_classes], int64.

    Without `num_classes` the largest integer decides how many there are.

    Raises:
        RuntimeError: the input is not int64, or an integer is outside of 0..num_classes-1.
    """
    if tensor.dtype is not int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    array, xp = tensor.array, tensor.device.xp
    c = int(array.max()) + 1 if num_classes == -1 and array.size else num_classes
    if c < 1 or (array.size and (array.min() < 0 or array.max() >= c)):
        low, high = (int(array.min()), int(array.max())) if array.size else (0, c - 1)
        raise RuntimeError(f"Class values must be from 0 to num_classes - 1, got {low} to {high}")
    return wrap((array[..., None] == xp.arange(c)).astype(xp.int64), tensor.device)


@functools.singledispatch
def nll_gradient(g: Any, ctx: Function) -> Any:
    """The gradient of `NllLoss` on arrays: forward has computed softmax(x) - one_hot(t) already."""
    if not ctx.logs:
        return ctx.slope * g
    slope = ctx.xp.zeros(ctx.saved[0].shape, g.dtype)
    slope.reshape(-1)[ctx.positions] = -g.reshape(-1)
    return slope


@nll_gradient.register(Tensor)
def nll_gradient_of_tensor(g: Tensor, ctx: Function) -> Tensor:
    """The gradient on Tensors: to be differentiated again, it must be a function of x."""
    x, index, _ = ctx.saved
    classes = wrap(ctx.device.xp.arange(x.array.shape[1]), ctx.device)
    right = (index.reshape(-1, 1) == classes) * g
    return -right if ctx.logs else ctx.call(Softmax, x, (1,)) * g - right


class NllLoss(Function):
    """The negative log likelihood of class t for each row x: l = log(sum of exp(x_i)) - x_t, times
    the weight of the row (`counts`); or the sum of all l, or their mean, divided by all weights.

        dl/dx_i = softmax(x)_i - [i = t]

    Softmax, logarithm, choice and mean in one: stable, as the maximum is taken out first, and only
    one exp. The gradient is prediction minus target: softmax(x) - one_hot(t). With `logs` the rows
    are logarithms of probabilities already, and l = -x_t. A row of weight 0 is left out.
    """

    saves = 0, 1, None

    def forward(
        ctx, x: Any, index: Any, counts: Any, reduction: str, shape: tuple, logs: bool
    ) -> Any:
        xp, n, z, total, share = ctx.xp, len(x), wide(x), 1, 1.0
        positions = index + xp.arange(0, x.size, x.shape[1] or 1)  # of x_t in x.reshape(-1)
        if logs:
            losses = -z.take(positions)
        else:
            z = minus_max(z, (1,), xp)
            e = xp.exp(z)
            sums = sum_rows(e, True)
            losses = xp.log(sums).reshape(n) - z.take(positions)
            e /= sums
            e.reshape(-1)[positions] -= 1
            ctx.slope = e.astype(x.dtype, copy=False)
        if reduction == "mean":
            total, share = n if counts is None else wide(counts).sum(), 1 / max(n, 1)
        if counts is not None:  # weights of 0: no 0 * inf, and no 0 / 0
            losses = xp.where(counts == 0, xp.zeros_like(losses), losses * counts)
            share = xp.where(counts == 0, counts, counts / total)
            share = share.astype(x.dtype, copy=False).reshape(-1, 1)
        ctx.save_for_backward(x, index, share)
        ctx.logs, ctx.shape, ctx.positions = logs, shape, positions
        losses = losses.reshape(shape) if reduction == "none" else losses.sum() / total
        return losses.astype(x.dtype, copy=False)

    def backward(ctx, g: Any) -> Any:
        return nll_gradient(g.reshape(-1, 1) * ctx.saved[2], ctx)

    def name(ctx) -> str:
        return "NllLoss2DBackward0" if len(ctx.shape) > 1 else "NllLossBackward0"


if __name__ == "__main__":
    import argparse
    import importlib.util
    import subprocess
    import sys
    import time

    from tinytorch.autograd.engine import grad
    from tinytorch.autograd.modes import no_grad
    from tinytorch.core.dtype import float32, int8
    from tinytorch.ops.comparison import allclose
    from tinytorch.ops.creation import arange, zeros
    from tinytorch.ops.extremes import argmax
    from tinytorch.ops.random import manual_seed, randn, randperm
    from tinytorch.ops.softmax import log_softmax

    importlib.import_module("tinytorch.core.printing")

    flags = argparse.ArgumentParser()
    flags.add_argument("--epochs", type=int, default=20, help="how often to see each digit")
    epochs = flags.parse_args().epochs

    images, labels = load_digits()
    print(images.shape, images.dtype)  # -> tinytorch.Size([1797, 8, 8]) tinytorch.float32
    print("of each digit", [int((labels == digit).sum()) for digit in range(10)])
    # -> of each digit [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    for row in images[3].tolist():
        print("".join(" .:-=+*#%@"[int(pixel * 9)] for pixel in row))  # -> ...
    print("this one is a", labels[3].item())  # -> this one is a 3

    # Why log_softmax, and not the logarithm of the probabilities.
    limits = finfo(float32)
    print("float32 ends at", limits.max, "and 1 +", limits.eps, "is the number after 1")
    # -> float32 ends at 3.4028234663852886e+38 and 1 + 1.1920928955078125e-07 is the number after 1
    print("int8 goes from", iinfo(int8).min, "to", iinfo(int8).max)  # -> int8 goes from -128 to 127
    large = Tensor([1000.0, 0.0])
    print("exp(88) and exp(89):", Tensor([88.0, 89.0]).exp().tolist())
    # -> exp(88) and exp(89): [1.651636e+38, inf]
    print("as it is written:", (large.exp() / large.exp().sum()).log())
    # -> as it is written: tensor([nan, -inf])
    print("nan_to_num:", nan_to_num(Tensor([float("nan"), float("-inf")])).tolist())
    # -> nan_to_num: [0.0, -3.402823e+38]
    print("log_softmax:     ", log_softmax(large, dim=0))
    # -> log_softmax:      tensor([    0., -1000.])

    # Four arrays of 16 MiB, twenty times over. The same lines run in a new process, with the C
    # library's defaults, and here, where this file has asked it to keep what is freed.
    count = """
import numpy, resource
for _ in range(2):  # the first time, the memory has to be fetched in any case
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        arrays = [numpy.ones(4 << 20, numpy.float32) for _ in range(4)]
        del arrays
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""
    if importlib.util.find_spec("resource") is None:
        print("this system does not count page faults")
    else:
        command = [sys.executable, "-c", count + "print(faults)"]
        as_it_comes = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        here = {}
        exec(count, here)
        print("page faults by default:  ", as_it_comes.strip())  # -> ...
        print("page faults, memory kept:", here["faults"])  # -> ...
    print("the C library was asked, and agreed:", freed_memory_is_kept)  # -> ...

    # Held out: 360 digits, chosen at random.
    manual_seed(0)
    order = randperm(len(labels))
    x, t = images.reshape(-1, 64)[order[360:]], labels[order[360:]]
    x_test, t_test = images.reshape(-1, 64)[order[:360]], labels[order[:360]]

    # Weights start at random: large enough that a signal neither dies out nor explodes on its way
    # through relu (He et al. 2015, standard deviation sqrt(2 / inputs)); biases start at zero.
    parameters = []
    for n_in, n_out in ((64, 128), (128, 64), (64, 10)):
        parameters.append(Parameter(randn(n_in, n_out) * (2 / n_in) ** 0.5))
        parameters.append(Parameter(zeros(n_out)))
    print(sum(p.numel() for p in parameters), "numbers to learn")  # -> 17226 numbers to learn

    def network(x):  # [batch, 64] -> [batch, 10]
        w1, b1, w2, b2, w3, b3 = parameters
        return ((x @ w1 + b1).relu() @ w2 + b2).relu() @ w3 + b3

    def in_parts(logits, labels):
        return -log_softmax(logits, dim=1)[arange(len(labels)), labels].mean()

    def cross_entropy(logits, labels):
        return NllLoss.apply(logits, labels, None, "mean", (), False)

    def accuracy(x, labels):
        with no_grad():
            return (argmax(network(x), dim=1) == labels).sum().item() / len(labels)

    losses = cross_entropy(network(x), t), in_parts(network(x), t)
    grads = [grad(loss, parameters[0])[0] for loss in losses]
    print("one Function, the same loss:", abs((losses[0] - losses[1]).item()) < 1e-5)
    # -> one Function, the same loss: True
    print("and gradient:", (grads[0] - grads[1]).abs().max().item() < 1e-5)
    # -> and gradient: True
    logits = network(x[:3]).detach().requires_grad_()
    cross_entropy(logits, t[:3]).backward()
    prediction_minus_target = logits.detach().softmax(1) - one_hot(t[:3], 10)
    print("prediction minus target:", allclose(3 * logits.grad, prediction_minus_target, atol=1e-6))
    # -> prediction minus target: True
    before = accuracy(x_test, t_test)
    print(f"before: loss {losses[0].item():.1f}, right: {before:.1%}")  # -> ...
    print("no better than guessing:", before < 0.2)  # -> no better than guessing: True
    start = time.perf_counter()
    for epoch in range(1, epochs + 1):
        total = 0.0
        for batch in randperm(len(t)).reshape(-1)[: len(t) // 32 * 32].reshape(-1, 32):
            loss = cross_entropy(network(x[batch]), t[batch])
            loss.backward()
            with no_grad():
                for p in parameters:
                    p.sub_(p.grad, alpha=0.1)
                    p.grad = None
            total += loss.item()
        if epoch in (1, 2, 5) or epoch % 10 == 0:
            mean, right = total / (len(t) // 32), accuracy(x_test, t_test)
            print(f"epoch {epoch:2}   loss {mean:.4f}   held-out digits right: {right:.1%}")
            # -> ...
    print(f"{time.perf_counter() - start:.1f} seconds")  # -> ...
    reached = accuracy(x_test, t_test)
    print("at least 95 % of the held-out digits:", reached >= 0.95)
    # -> at least 95 % of the held-out digits: True
    assert reached >= 0.95, f"only {reached:.1%} of the held-out digits are right"
