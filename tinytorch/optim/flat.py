"""Many parameters as a few flat pieces that fit into the cache."""

import itertools
from collections.abc import Iterator
from typing import Any

from tinytorch.core.dtype import float32
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.core.version import count_write
from tinytorch.optim.optimizer import Optimizer

# Elements of a piece on the CPU: a dozen operations on it find it in the fast memory near the core.
# A GPU wants all in one piece, since each operation is a launch.
cache_elements = 65536


def layout(sizes: list[int], limit: int) -> list[list[tuple[int, int, int]]]:
    """Divides arrays of these sizes into pieces of at most `limit` elements.

    A piece is a list of (number of the array, start, stop). Neighbours share a piece while there is
    room; an array that is larger than a piece is divided evenly, and shares with nobody.
    """
    pieces: list[list[tuple[int, int, int]]] = []
    room = 0
    for number, size in enumerate(sizes):
        if size > limit:
            parts = -(-size // limit)
            cuts = [size * i // parts for i in range(parts + 1)]
            pieces += [[(number, a, b)] for a, b in itertools.pairwise(cuts)]
            room = 0
        elif size > room:
            pieces.append([(number, 0, size)])
            room = limit - size
        elif size:
            pieces[-1].append((number, 0, size))
            room -= size
    return pieces


class FlatParameters:
    """Parameters of one type and device, with what an optimizer keeps for each of their elements.

    The state of all lies in one flat array for each name; what stands in optimizer.state are views
    of it. `pieces` hands out parameters, gradients and state as flat arrays that belong together:
    the optimizer's formula runs on them, in place.
    """

    def __init__(self, params: list[Tensor], states: list[dict[str, Any]], names: list[str]):
        self.params, self.states, self.names = params, states, names
        self.device = params[0].device
        xp, dtype = self.device.xp, params[0].array.dtype
        sizes = [param.array.size for param in params]
        limit = max(sum(sizes), 1) if self.device.type == "cuda" else cache_elements
        self.plan = layout(sizes, limit)
        longest = max((sum(b - a for _, a, b in piece) for piece in self.plan), default=0)
        self.scratch = [xp.empty(longest, dtype) for _ in range(4)]
        self.flat = {name: xp.zeros(sum(sizes), dtype) for name in names}
        start = 0
        for param, state, size in zip(params, states, sizes, strict=True):
            for name in names:
                place = self.flat[name][start : start + size].reshape(param.array.shape)
                if state.get(name) is not None:
                    place[...] = state[name].array
                state[name] = wrap(place, self.device)
            start += size

    def fits(self, params: list[Tensor], states: list[dict[str, Any]], names: list[str]) -> bool:
        """Whether this is still what is asked for: the same tensors, and no state replaced."""
        return (
            len(params) == len(self.params)
            and names == self.names
            and all(a is b for a, b in zip(params, self.params, strict=True))
            and all(a is b for a, b in zip(states, self.states, strict=True))
            and all(s[n].array.base is self.flat[n] for s in states for n in names)
        )

    def pieces(self) -> Iterator[tuple[Any, Any, list[Any], list[Any]]]:
        """(parameters, gradients, [state, ...], [scratch, scratch]) of each piece, all flat.

        The parameters may be written, the gradients not: they may be the gradients themselves.
        """
        start = 0
        for piece in self.plan:
            size = sum(b - a for _, a, b in piece)
            kept = [self.flat[name][start : start + size] for name in self.names]
            free = [scratch[:size] for scratch in self.scratch]
            direct = self.directly(*piece[0]) if len(piece) == 1 else None
            if direct is not None:
                yield *direct, kept, free[2:]
            else:
                place = 0
                for number, a, b in piece:
                    param = self.params[number]
                    free[0][place : place + b - a] = param.array.reshape(-1)[a:b]
                    free[1][place : place + b - a] = param._grad.array.reshape(-1)[a:b]
                    place += b - a
                yield free[0], free[1], kept, free[2:]
                self.put_back(piece, free[0])
            start += size
        for param in self.params:
            count_write(param.array)

    def directly(self, number: int, start: int, stop: int) -> tuple[Any, Any] | None:
        """A part of one parameter and of its gradient, as views; None where memory has gaps."""
        param = self.params[number]
        if not (param.array.flags.c_contiguous and param._grad.array.flags.c_contiguous):
            return None
        return param.array.reshape(-1)[start:stop], param._grad.array.reshape(-1)[start:stop]

    def put_back(self, piece: list[tuple[int, int, int]], values: Any) -> None:
        """Writes the new values of a piece into the parameters that it was gathered from."""
        place = 0
        for number, a, b in piece:
            array = self.params[number].array
            part = values[place : place + b - a]
            if b - a == array.size:
                array[...] = part.reshape(array.shape)
            else:  # a part of a large array whose memory has gaps
                array.flat[a:b] = part
            place += b - a


def count_step(states: list[dict[str, Any]]) -> None:
    """Counts one step in each state, in a 0-d float tensor as PyTorch keeps it.

    PyTorch's SGD counts none: a state from there has its first step behind it.
    """
    for state in states:
        if "step" not in state:
            state["step"] = tensor(1.0 if state else 0.0, dtype=float32)
        state["step"].array += 1


class FlatOptimizer(Optimizer):
    """An optimizer whose formula works on each element alone: it runs on flat pieces.

    A subclass names what it keeps for each element (`kept`), and writes `move`.
    """

    def kept(self, group: dict[str, Any]) -> list[str]:
        """The names of the state, for these options."""
        raise NotImplementedError(f"{type(self).__name__} has no kept")

    def move(
        self, p: Any, g: Any, kept: list[Any], free: list[Any], group: dict[str, Any], step: int
    ) -> None:
        """Changes the flat array p, and the state in `kept`, along the gradient g, in place.

        g must not be written. `free` are two arrays of the same size, for whatever is between.
        """
        raise NotImplementedError(f"{type(self).__name__} has no move")

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        names = self.kept(group)
        states = [self.state[param] for param in params]
        count_step(states)
        alike: dict[tuple, list[int]] = {}
        for i, (param, state) in enumerate(zip(params, states, strict=True)):
            key = (param.device, param.array.dtype.name, int(state["step"].array))
            alike.setdefault(key, []).append(i)
        for (*_, step), members in alike.items():
            flat = self.flat_parameters(
                [params[i] for i in members], [states[i] for i in members], names
            )
            for p, g, kept, free in flat.pieces():
                if group["maximize"]:
                    g = flat.device.xp.negative(g)
                self.move(p, g, kept, free, group, step)

    def flat_parameters(
        self, params: list[Tensor], states: list[dict], names: list[str]
    ) -> FlatParameters:
        """The flat form of these parameters, from the last step where nothing has changed since."""
        key = (id(params[0]), len(params))
        found = self.flat.get(key)
        if found is None or not found.fits(params, states, names):
            found = self.flat[key] = FlatParameters(params, states, names)
        return found

    @property
    def flat(self) -> dict:
        return self.__dict__.setdefault("_flat", {})
