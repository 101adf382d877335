"""Step 77a: SGD, in pieces that fit the cache

Plain gradient descent zigzags through a valley: steps that are small enough for the steep walls are
tiny along the bottom. With momentum steps add up, as in a ball that rolls: across the valley they
cancel, along it they grow up to 1 / (1 - momentum) times as long.

    v = momentum * v + g,    p = p - lr * v         (nesterov: g + momentum * v instead of v)

weight_decay adds weight_decay * p to the gradient, which pulls all weights towards zero.

That is the class SGD, and most of its lines are options. The rest of this step is about speed. A
formula like this one does very little arithmetic, but it reads and writes each number several
times. With large arrays, the time goes into fetching numbers from main memory. With small ones it
goes into the calls: a network has dozens of small parameters, and a call costs a microsecond.

One cure helps against both. Treat parameters and gradients as flat arrays, whatever their shapes.
The small parameters are copied together into one array, and back after the step. A long array is
cut into pieces so small (256 KB) that one stays in the cache near the core while the whole formula
runs over it. All operations write in place, into memory that is already there, and whatever can be
prepared once is kept for the next step. State and copies begin at the border of a cache line
(64 bytes, step 66a), which is worth some 5 %.

    FlatParameters  the pieces; the state of all parameters lies in one block of memory, and
                    optimizer.state holds views of it (step 66a), so state_dict notices nothing
    FlatOptimizer   groups what has the same dtype, device and number of steps, and calls `move`

This is allowed because `move` treats each element on its own. On a GPU everything is one piece. And
an in-place write must be counted (step 43), or a saved tensor would not notice: see count_write.
(torch.optim.SGD has the same options. Its option `foreach` has the same aim.)

Changed: nothing. New: pieces_of, aligned_zeros, FlatParameters, FlatOptimizer, SGD.
Moved: optimizer.py.
Try: cache_elements = 10. Now the calls take far longer than the memory ever did.
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

import numpy as np

from tinytorch.core.device import as_device
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import count_write
from tinytorch.optim.optimizer import Optimizer, checked

# Importing these modules, which import the others, gives Tensor its methods.
for name in "elementwise gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Elements of a piece on the CPU: a dozen operations on it find it in the fast memory near the core.
# A GPU wants all in one piece, since each operation is a launch.
cache_elements = 65536


# Parameters of at most so many elements are copied together: that costs less than more calls.
few_elements = 8192


def pieces_of(size: int, limit: int) -> list[tuple[int, int]]:
    """`size` elements, divided evenly into pieces of at most `limit`: [(start, stop), ...].

    Each starts at a multiple of 16 elements, and `limit` is one.
    """
    each = -(-size // (16 * max(-(-size // limit), 1))) * 16
    return [(start, min(start + each, size)) for start in range(0, size, each or 1)]


def aligned_zeros(xp: Any, rows: int, size: int, dtype: Any) -> Any:
    """An array [rows, size], each row of which begins at a multiple of 64 bytes.

    The processor reads 64 bytes at once: what lies across that border, it reads twice. A GPU's
    memory begins well by itself.
    """
    width = -(-size // 64) * 64
    block = xp.zeros(rows * width + 64, dtype)
    start = -block.ctypes.data % 64 // dtype.itemsize if xp is np else 0
    return block[start : start + rows * width].reshape(rows, width)[:, :size]


class FlatParameters:
    """Parameters of one type and device, with what an optimizer keeps for each of their elements.

    The state of all lies in one block of memory; what stands in optimizer.state are views of it.
    `pieces` hands out parameters, gradients and state as flat arrays that belong together: the
    optimizer's formula runs on them, in place. With `together`, all are copied into one array first
    and back afterwards; else each must be contiguous, and is written where it is.
    """

    def __init__(
        self, params: list[Tensor], states: list[dict], names: list[str], step: int, together: bool
    ):
        self.params, self.states, self.step = params, states, step
        self.arrays, self.together = [param.array for param in params], together
        self.xp, self.dtype = params[0].device.xp, self.arrays[0].dtype
        ends = [0, *itertools.accumulate(array.size for array in self.arrays)]
        big = [name for name in names if name != "step"]
        block = aligned_zeros(self.xp, len(big), ends[-1], self.dtype)
        self.steps = np.full(len(params), step, np.float32)
        for i, state in enumerate(states):
            if "step" in names:  # in the host's memory, as PyTorch's
                state["step"] = wrap(self.steps[i, ...], as_device("cpu"))
            for row, name in enumerate(big):
                view = block[row, ends[i] : ends[i + 1]].reshape(self.arrays[i].shape)
                if state.get(name) is not None:
                    view[...] = state[name].array
                state[name] = wrap(view, params[0].device)
        self.tensors = [value for state in states for value in state.values()]
        flats = [array.reshape(-1) for array in self.arrays]
        if together:
            self.copy, self.copied_grads = aligned_zeros(self.xp, 2, ends[-1], self.dtype)
            parts = zip(self.xp.split(self.copy, ends[1:-1]), self.arrays, strict=True)
            self.parts = [part.reshape(array.shape) for part, array in parts]
            flats = [self.copy]
        limit = ends[-1] + 1 if params[0].device.type == "cuda" else cache_elements
        spare = aligned_zeros(self.xp, 2, min(limit, ends[-1]), self.dtype)
        # Of each piece: its array's number, its place there; parameters, state, spare arrays.
        self.prepared = [
            (i, slice(a, b), flat[a:b], list(block[:, start + a : start + b]), *spare[:, : b - a])
            for i, (flat, start) in enumerate(zip(flats, ends, strict=False))
            for a, b in pieces_of(flat.size, limit)
        ]

    def intact(self) -> bool:
        """Whether no parameter has got another array, and nobody else has replaced a state or set
        a count of steps."""
        arrays = [param.array for param in self.params]
        tensors = [value for state in self.states for value in state.values()]
        counted = self.steps.tolist().count(self.step) == len(self.steps)
        return counted and same(arrays, self.arrays) and same(tensors, self.tensors)

    def numbers(self, *values: float) -> Iterable:
        """The values as the array library takes them fastest: NumPy as arrays of this type."""
        return [np.array(value, self.dtype) for value in values] if self.xp is np else values

    def pieces(self, group: dict[str, Any]) -> Iterator[tuple[Any, Any, list, Any]]:
        """(parameters, gradients, [state, ...], spare) of each piece, all flat.

        The parameters may be written, the gradients not: they may be the gradients themselves.
        With maximize they are turned round; weight_decay * p is added, if it is not decoupled.
        """
        xp, uphill, decay = self.xp, group["maximize"], float(group["weight_decay"])
        decay = 0.0 if group.get("decoupled_weight_decay") else decay
        grads = [param._grad.array for param in self.params]
        if self.together:
            xp.concatenate(self.arrays, axis=None, out=self.copy)
            grads = [xp.concatenate(grads, axis=None, out=self.copied_grads)]
        grads = [grad.reshape(-1) for grad in grads]
        for number, place, p, kept, t, u in self.prepared:
            g = grads[number][place]
            if decay:
                xp.multiply(p, decay, out=u)
                g = (xp.subtract if uphill else xp.add)(u, g, out=u)
            elif uphill:
                g = xp.negative(g, out=u)
            yield p, g, kept, t
        for i, array in enumerate(self.arrays):
            if self.together:
                array[...] = self.parts[i]
            count_write(array)


def same(these: list, those: list) -> bool:
    """Whether two lists hold the very same objects."""
    return len(these) == len(those) and all(map(is_, these, those))


class FlatOptimizer(Optimizer):
    """An optimizer whose formula works on each element alone: it runs on flat pieces.

    A subclass names what it keeps for each element (`kept`), and writes `move`.
    """

    def __init__(self, params: Iterable, options: dict[str, Any]):
        self._flat: dict = {}
        super().__init__(params, options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._flat = {}

    def kept(self, group: dict[str, Any]) -> list[str]:
        """The names of the state, for these options; "step" for the count of steps."""
        raise NotImplementedError(f"{type(self).__name__} has no kept")

    def move(self, flat: FlatParameters, group: dict[str, Any]) -> None:
        """Changes the pieces of `flat`, and their state, in place: step number flat.step."""
        raise NotImplementedError(f"{type(self).__name__} has no move")

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for flat in self.flat_parameters(params, group):
            flat.step += 1
            flat.steps.fill(flat.step)
            self.move(flat, group)

    def flat_parameters(self, params: list[Tensor], group: dict) -> list[FlatParameters]:
        """The flat form of these parameters, from the last step where nothing has changed since."""
        names = self.kept(group)
        states = [self.state[param] for param in params] if names else []
        *known, flats = self._flat.get(id(group), ([], [], [], []))
        if names == known[0] and same(params, known[1]) and same(states, known[2]):
            if all(flat.intact() for flat in flats):
                return flats
        alike: dict[tuple, list[int]] = {}
        for i, param in enumerate(params):
            # PyTorch's SGD keeps no count of its steps: its first one is that without a state.
            state = states[i] if names else {}
            step = int(state.get("step", any(value is not None for value in state.values())))
            few = param.array.size <= few_elements or param.device.type == "cuda"
            together = few or not param.array.flags.c_contiguous
            alike.setdefault((param.device, param.dtype, step, together), []).append(i)
        flats = []
        for (_, _, step, together), members in alike.items():
            theirs = [params[i] for i in members], [states[i] for i in members if names]
            flats.append(FlatParameters(*theirs, names, step, together))
        self._flat[id(group)] = names, params, states, flats
        return flats


class SGD(FlatOptimizer):
    """p = p - lr * d, where d is the gradient, or what momentum makes of it.

        g = g + weight_decay * p
        v = momentum * v + (1 - dampening) * g         (v = g at the first step)
        d = v, or g + momentum * v with nesterov

    Source: Sutskever et al., On the importance of initialization and momentum, 2013. ValueError for
    a negative option, and for nesterov without momentum or with dampening.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ):
        options = checked(locals())
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, options)

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] else []

    def move(self, flat: FlatParameters, group: dict[str, Any]) -> None:
        momentum, new = group["momentum"], 1 - group["dampening"]
        rate, keep = flat.numbers(float(group["lr"]), momentum)
        multiply = flat.xp.multiply
        for p, g, kept, t in flat.pieces(group):
            if momentum:
                (v,) = kept
                if flat.step == 1:
                    v[...] = g
                else:
                    v *= keep
                    v += g if new == 1 else multiply(g, new, out=t)
                g = flat.xp.add(g, multiply(v, keep, out=t), out=t) if group["nesterov"] else v
            p -= multiply(g, rate, out=t)


if __name__ == "__main__":
    import time

    from tinytorch.autograd.modes import no_grad
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    # A valley: 50 times as steep across as along.
    def descend(**options):
        p = tensor([1.0, 1.0], requires_grad=True)
        optimizer = SGD([p], **options)
        for number in range(1, 1001):
            optimizer.zero_grad()
            (50 * p[0] ** 2 + p[1] ** 2).backward()
            optimizer.step()
            if p.detach().abs().max().item() < 0.001:
                return number
        return 1000

    plain, heavy = descend(lr=0.01), descend(lr=0.01, momentum=0.8)
    print("steps to 0.001: plain", plain, "and with momentum", heavy)
    # -> steps to 0.001: plain 342 and with momentum 55
    print("with nesterov", descend(lr=0.01, momentum=0.8, nesterov=True))  # -> with nesterov 27

    # Two steps by hand: g = 1 both times. v = 1, then 0.9 + 1.
    p = tensor([0.0], requires_grad=True)
    optimizer = SGD([p], lr=1.0, momentum=0.9)
    for _ in range(2):
        p.grad = tensor([1.0])
        optimizer.step()
        print(f"v = {optimizer.state[p]['momentum_buffer'].item():.1f}, p = {p.item():.1f}")
    # -> v = 1.0, p = -1.0
    # -> v = 1.9, p = -2.9

    # Pieces of at most 128 elements.
    print(pieces_of(300, limit=128))  # -> [(0, 112), (112, 224), (224, 300)]
    params = [randn(3, 4).requires_grad_(), randn(5).requires_grad_()]
    optimizer = SGD(params, lr=0.1, momentum=0.9)
    for param in params:
        param.grad = randn(*param.shape)
    optimizer.step()
    first, second = (optimizer.state[param]["momentum_buffer"] for param in params)
    print(first.shape, second.shape, "one memory:", first.array.base is second.array.base)
    # -> tinytorch.Size([3, 4]) tinytorch.Size([5]) one memory: True

    # A saved tensor notices the step.
    w = tensor([2.0], requires_grad=True)
    y = w * w
    w.grad = tensor([1.0])
    SGD([w], lr=0.1).step()
    try:
        y.backward()
    except RuntimeError as error:
        print(str(error).split(" by ")[0])
    # -> one of the variables needed for gradient computation has been modified

    # The formula as it stands, and in pieces: for many small parameters, and for a few large ones.
    @no_grad()
    def as_it_stands(params, velocities):
        for i, param in enumerate(params):
            velocities[i] = 0.9 * velocities[i] + param.grad
            param -= 0.01 * velocities[i]

    def milliseconds(function, *inputs):
        function(*inputs)
        start = time.perf_counter()
        for _ in range(10):
            function(*inputs)
        return (time.perf_counter() - start) / 10 * 1e3

    manual_seed(0)
    for count, size in ((200, 100), (3, 1_000_000)):
        params = [randn(size).requires_grad_() for _ in range(count)]
        for param in params:
            param.grad = randn(size)
        plain = milliseconds(as_it_stands, params, [0 * param.detach() for param in params])
        pieces = milliseconds(SGD(params, lr=0.01, momentum=0.9).step)
        print(f"{count} of {size}: as it stands {plain:.2f} ms, in pieces {pieces:.2f} ms")
        # -> ...
