"""Many parameters as a few flat pieces that fit into the cache."""

import itertools
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

import numpy as np

from tinytorch.core.device import as_device
from tinytorch.core.tensor import Tensor, wrap
from tinytorch.core.version import bump_version
from tinytorch.optim.optimizer import Optimizer

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
            bump_version(array)


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
