"""Step 77g: SGD, on flat arrays in chunks

Plain gradient descent zigzags through a valley: steps that are small enough for the steep walls are
tiny along the bottom. With momentum, steps add up like those of a rolling ball: across the valley
they cancel, along it they grow up to 1 / (1 - momentum) times as long.

    v = momentum * v + g,    p = p - lr * v         (nesterov: g + momentum * v instead of v)

weight_decay adds weight_decay * p to the gradient, which pulls all weights towards zero.

SGD.update_chunk is this formula, on arrays p, g and v. The rest of this step is about speed. Such a
formula does little arithmetic, but it reads and writes each number several times. With large
arrays, the time goes into fetching numbers from main memory. With small ones it goes into the
calls: a network has dozens of small parameters, and a call costs a microsecond.

One cure helps against both. Treat parameters and gradients as flat arrays, whatever their shapes.
The small parameters are packed: copied into one array, and back after the step. A long array is cut
into chunks so small (128 KB) that one stays in the cache near the core while the whole formula runs
over it. Parameters and state are written in place, and what can be prepared once is kept for the
next step.

    FlatParameters  the chunks; the state of all parameters lies in one block of memory, and
                    optimizer.state holds views of it (step 67g), so state_dict notices nothing
    FlatOptimizer   groups what has the same dtype, device and number of steps, and calls
                    update_chunk

This is allowed because update_chunk treats each element on its own. On a GPU there is one chunk,
since each operation is a launch there: the Backend says which size is best (chunk_elements).
An in-place write must be counted (step 43), or a saved tensor would not notice: see bump_version.
(torch.optim.SGD has the same options. Its option `foreach` has the same aim.)

Changed: nothing. New: chunk_slices, FlatParameters, as_number, FlatOptimizer, SGD.
Moved: optimizer.py.
Try: backends["cpu"].chunk_elements = 10. Now the calls take far longer than the memory ever did.
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

import numpy as np

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.core.device import as_device
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version
from tinytorch.optim.optimizer import Optimizer, checked

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# Parameters of at most this many elements are packed: copying them costs less than more calls.
few_elements = 8192


def chunk_slices(size: int, limit: int | None) -> list[slice]:
    """`size` elements, divided evenly into slices of at most `limit` elements; None: no limit."""
    count = -(-size // limit) if limit else 1
    length = -(-size // count) if size else 1
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


class FlatParameters:
    """Parameters of one dtype and device, with their state, as flat arrays cut into chunks.

    The state of all parameters lies in one block of memory; the tensors in optimizer.state are
    views of it. If `packed`, the parameters are copied into one array before the formula runs, and
    back afterwards. If not, each must be contiguous, and is written where it is.
    """

    def __init__(
        self, params: list[Tensor], states: list[dict], names: list[str], step: int, packed: bool
    ):
        self.params, self.states, self.step = params, states, step
        self.arrays, self.packed = [param.array for param in params], packed
        device, dtype = params[0].device, self.arrays[0].dtype
        self.xp = device.xp
        ends = [0, *itertools.accumulate(array.size for array in self.arrays)]
        names_of_arrays = [name for name in names if name != "step"]
        block = self.xp.zeros((len(names_of_arrays), ends[-1]), dtype)
        self.steps = np.full(len(params), step, np.float32)
        for i, state in enumerate(states):
            if "step" in names:  # PyTorch keeps it on the CPU, too
                state["step"] = wrap(self.steps[i, ...], as_device("cpu"))
            for row, name in zip(block, names_of_arrays, strict=True):
                view = row[ends[i] : ends[i + 1]].reshape(self.arrays[i].shape)
                if state.get(name) is not None:
                    view[...] = state[name].array
                state[name] = wrap(view, device)
        self.tensors = [value for state in states for value in state.values()]
        flats = [array.reshape(-1) for array in self.arrays]
        if packed:
            self.copies, self.grads = self.xp.zeros((2, ends[-1]), dtype)
            parts = zip(self.xp.split(self.copies, ends[1:-1]), self.arrays, strict=True)
            self.parts = [part.reshape(array.shape) for part, array in parts]
            flats = [self.copies]
        # Of each chunk: the number of its array, its slice of that array; parameters, state.
        limit, self.prepared = device.backend.chunk_elements, []
        largest = max(flat.size for flat in flats)
        scratch = self.xp.empty(min(largest, limit or largest), dtype)
        for i, (flat, start) in enumerate(zip(flats, ends, strict=False)):
            rows = block[:, start : start + flat.size]
            for where in chunk_slices(flat.size, limit):
                p = flat[where]
                state = dict(zip(names_of_arrays, rows[:, where], strict=True))
                state.update(xp=self.xp, scratch=scratch[: p.size])
                self.prepared.append((i, where, p, state))

    def intact(self) -> bool:
        """Whether all parameters still have their arrays, and all states and step counts are ours.

        Programs may set param.data, put another tensor into the state, or load a state_dict.
        """
        arrays = [param.array for param in self.params]
        tensors = [value for state in self.states for value in state.values()]
        counted = self.steps.tolist().count(self.step) == len(self.steps)
        return counted and same(arrays, self.arrays) and same(tensors, self.tensors)

    def chunks(self) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
        """(parameters, gradients, state) of each chunk: flat arrays, and the count of steps. The
        state also has "xp", the array library, and "scratch", an array to compute in.

        Write into the parameters and the state. Treat the gradients as read-only: they may alias
        `param.grad`.
        """
        self.step += 1
        self.steps.fill(self.step)
        grads = [param._grad.array for param in self.params]
        if self.packed:
            self.xp.concatenate(self.arrays, axis=None, out=self.copies)
            grads = [self.xp.concatenate(grads, axis=None, out=self.grads)]
        grads = [grad.reshape(-1) for grad in grads]
        for i, where, p, state in self.prepared:
            state["step"] = self.step
            yield p, grads[i][where], state
        for i, array in enumerate(self.arrays):
            if self.packed:
                array[...] = self.parts[i]
            bump_version(array)


def same(these: list, those: list) -> bool:
    """Whether two lists hold the very same objects."""
    return len(these) == len(those) and all(map(is_, these, those))


def as_number(option: Any) -> Any:
    """An option's value as a Python number: it may be a Tensor, or a tuple of Tensors."""
    if isinstance(option, tuple):
        return tuple(as_number(each) for each in option)
    return option.item() if isinstance(option, Tensor) else option


class FlatOptimizer(Optimizer):
    """An optimizer whose formula treats each element alone, so that it can run on flat chunks.

    A subclass lists the names of its state (`state_names`), and writes `update_chunk`.
    """

    def __init__(self, params: Iterable, options: dict[str, Any]):
        self._flat: dict = {}
        super().__init__(params, options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._flat = {}

    def state_names(self, group: dict[str, Any]) -> list[str]:
        """The names of the state, for these options; "step" for the count of steps."""
        raise NotImplementedError(f"{type(self).__name__} has no state_names")

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step for some elements: changes the arrays `p` and those of `state` in place."""
        raise NotImplementedError(f"{type(self).__name__} has no update_chunk")

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        numbers = {name: as_number(option) for name, option in group.items() if name != "params"}
        decay = 0 if numbers.get("decoupled_weight_decay") else numbers["weight_decay"]
        for flat in self.flat_parameters(params, group):
            for p, g, state in flat.chunks():
                if numbers["maximize"]:
                    g = -g
                if decay:
                    g = g + decay * p
                self.update_chunk(p, g, state, numbers)

    def flat_parameters(self, params: list[Tensor], group: dict) -> list[FlatParameters]:
        """The flat form of these parameters, from the last step where nothing has changed since."""
        names = self.state_names(group)
        states = [self.state[param] for param in params] if names else []
        *known, flats = self._flat.get(id(group), ([], [], [], []))
        if names == known[0] and same(params, known[1]) and same(states, known[2]):
            if all(flat.intact() for flat in flats):
                return flats
        alike: dict[tuple, list[int]] = {}
        for i, param in enumerate(params):
            # PyTorch's SGD does not count its steps: its first one is that without a state.
            state = states[i] if names else {}
            step = int(state.get("step", any(value is not None for value in state.values())))
            few = param.array.size <= few_elements or param.device.backend.chunk_elements is None
            packed = few or not param.array.flags.c_contiguous
            alike.setdefault((param.device, param.dtype, step, packed), []).append(i)
        flats = []
        for (_, _, step, packed), members in alike.items():
            theirs = [params[i] for i in members], [states[i] for i in members if names]
            flats.append(FlatParameters(*theirs, names, step, packed))
        self._flat[id(group)] = names, params, states, flats
        return flats


class SGD(FlatOptimizer):
    """p = p - lr * d, where d is the gradient, or what momentum makes of it.

        g = g + weight_decay * p
        v = momentum * v + (1 - dampening) * g         (v = g at the first step)
        d = v, or g + momentum * v with nesterov

    Source: Sutskever et al., On the importance of initialization and momentum, 2013.
    Raises:
        ValueError: for a negative option, and for nesterov without momentum or with dampening.
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

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] else []

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        lr, momentum = group["lr"], group["momentum"]
        if momentum:
            v = state["momentum_buffer"]
            v *= momentum
            v += g if state["step"] == 1 else (1 - group["dampening"]) * g
            g = g + momentum * v if group["nesterov"] else v
        p -= lr * g


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

    # Chunks of at most 128 elements.
    print([(chunk.start, chunk.stop) for chunk in chunk_slices(300, limit=128)])
    # -> [(0, 100), (100, 200), (200, 300)]
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

    # The formula as it stands, and in chunks: for many small parameters, and for a few large ones.
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
        chunks = milliseconds(SGD(params, lr=0.01, momentum=0.9).step)
        print(f"{count} of {size}: as it stands {plain:.2f} ms, in chunks {chunks:.2f} ms")
        # -> ...
