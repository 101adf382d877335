"""Step 85: SGD, in pieces that fit the cache

Plain descent zigzags through a valley: steps that are small enough for the steep walls are tiny
along the bottom. Momentum lets them add up, as a ball that rolls: across the valley they cancel,
along it they grow up to 1 / (1 - momentum) times.

    v = momentum * v + g,    p = p - lr * v         (nesterov: g + momentum * v instead of v)

weight_decay adds weight_decay * p to the gradient: it pulls all weights towards zero.

That is the class SGD, and most of its lines are options. The other half of this step is about time.
A formula like this one does almost nothing to each number, but reads and writes it several times.
What costs is to fetch the numbers: from main memory, when the arrays are large; the calls, when
they are small, since a network has dozens of small parameters and a call costs a microsecond.

Both have one cure. Take parameters and gradients as flat arrays, whatever their shapes were: many
small parameters together in one piece, a large one in several pieces, each piece so small (128 KB)
that it stays in the cache near the core while the whole formula runs over it. All operations write
in place, into memory that is there already, so that none is asked for.

    layout          which parts of which parameters make up a piece
    FlatParameters  the pieces; the state of all parameters lies in one flat array, and
                    optimizer.state holds views of it (step 68), so state_dict sees nothing of it
    FlatOptimizer   groups what has the same type, device and number of steps, and calls `move`

It is allowed because `move` treats each element alone. On a GPU all is one piece. And an in-place
write must be counted (step 43), or a saved tensor would not notice: see count_write.
(torch.optim.SGD has the same options. What it calls foreach has the same aim.)

Changed: nothing. New: layout, FlatParameters, count_step, FlatOptimizer, SGD. Removed: Plain.
Try: cache_elements = 10, and then 10_000_000, and look at the time.
"""

import importlib
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float32
from tinytorch.core.tensor import Tensor, tensor, wrap
from tinytorch.core.version import count_write
from tinytorch.ops.random import manual_seed, randn
from tinytorch.optim.optimizer import Optimizer, check_at_least, check_switches

# Importing the modules of the operations brings their methods to Tensor.
operations = "arithmetic comparison elementwise extremes indexing reduction sampling shape"
for name in operations.split():
    importlib.import_module(f"tinytorch.ops.{name}")


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
        **switches: Any,
    ):
        check_switches(switches)
        check_at_least(0.0, **{"learning rate": lr})
        check_at_least(0.0, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def kept(self, group: dict[str, Any]) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] else []

    def move(
        self, p: Any, g: Any, kept: list[Any], free: list[Any], group: dict[str, Any], step: int
    ) -> None:
        t, momentum = free[0], group["momentum"]
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        if momentum:
            (v,) = kept
            if step == 1:
                v[...] = g
            else:
                v *= momentum
                v += g if not group["dampening"] else (1 - group["dampening"]) * g
            g = g + momentum * v if group["nesterov"] else v
        # t = lr * g without a new array: the first operation writes where it is told to.
        t[...] = g
        t *= group["lr"]
        p -= t


if __name__ == "__main__":
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

    # Pieces of at most 10 elements, for parameters of 4, 3, 25 and 2 elements.
    for piece in layout([4, 3, 25, 2], limit=10):
        print(piece)
    # -> [(0, 0, 4), (1, 0, 3)]
    # -> [(2, 0, 8)]
    # -> [(2, 8, 16)]
    # -> [(2, 16, 25)]
    # -> [(3, 0, 2)]
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
        print(str(error)[:68])
    # -> one of the variables needed for gradient computation has been modifi

    # As the formula stands, and in pieces: many small parameters, and a few large ones.
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
        print(
            f"{count} of {size}: as it stands {plain:.2f} ms, in pieces {pieces:.2f} ms"
        )  # -> ...
