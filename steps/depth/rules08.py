"""Step rules08: Chunks that fit the cache

Packing is right for 200 parameters of 100 elements. For three parameters of a million elements it
is not: the demo measures it against the same formula in chunks. There are two reasons.

A long array does not fit into the cache near the core. momentum * v goes through all of v, and when
the next operation, v += g, begins, the first elements of v have long been thrown out; they come
from the main memory again. Each operation of the formula pays this way. So cut the arrays into
chunks so small (32,768 elements, 128 KB) that a chunk stays in the cache while the whole formula
runs over it.

And copying a million numbers there and back costs more than the calls that it saves. A large
parameter is already a flat array. So only small ones are packed, and a large one is written in
place, through a view: reshape(-1) of an array whose elements lie in order does not copy.

    up to 8192 elements    packed: copied side by side, and back
    larger                 written where it is, in chunks

On a GPU each operation is a launch, and the memory is fast: there one chunk is best. The Backend
says so, with chunk_elements = None (step device04).

The trap: a large parameter may be transposed. Its elements do not lie in order, and reshape(-1)
would copy: the step would be written into the copy, and lost. Such a one is packed, whatever its
size.

Changed: FlatParameters, FlatOptimizer.flat_parameters. New: few_elements, chunk_slices.
Try: backends["cpu"].chunk_elements = 10. The calls now take far longer than the memory did before.
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
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

    def __init__(self, params: list[Tensor], states: list[dict], names: list[str], packed: bool):
        self.params, self.states = params, states
        self.arrays, self.packed = [param.array for param in params], packed
        device, dtype = params[0].device, self.arrays[0].dtype
        self.xp = device.xp
        ends = [0, *itertools.accumulate(array.size for array in self.arrays)]
        block = self.xp.zeros((len(names), ends[-1]), dtype)
        for i, state in enumerate(states):
            for row, name in zip(block, names, strict=True):
                view = row[ends[i] : ends[i + 1]].reshape(self.arrays[i].shape)
                known = state.get(name)
                if known is not None and known.array.shape != view.shape:
                    sizes = f"{list(known.array.shape)}, of a parameter {list(view.shape)}"
                    raise RuntimeError(f"the state {name!r} has the shape {sizes}")
                if known is not None:
                    view[...] = known.array
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
        for i, (flat, start) in enumerate(zip(flats, ends, strict=False)):
            rows = block[:, start : start + flat.size]
            for where in chunk_slices(flat.size, limit):
                p = flat[where]
                state = dict(zip(names, rows[:, where], strict=True))
                self.prepared.append((i, where, p, state))

    def intact(self) -> bool:
        """Whether all parameters still have their arrays, and all states are ours.

        Programs may set param.data, put another tensor into the state, or load a state_dict.
        """
        arrays = [param.array for param in self.params]
        tensors = [value for state in self.states for value in state.values()]
        return same(arrays, self.arrays) and same(tensors, self.tensors)

    def chunks(self) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
        """(parameters, gradients, state) of each chunk: flat arrays.

        Write into the parameters and the state. Treat the gradients as read-only: they may alias
        `param.grad`.
        """
        grads = [param._grad.array for param in self.params]
        if self.packed:
            self.xp.concatenate(self.arrays, axis=None, out=self.copies)
            grads = [self.xp.concatenate(grads, axis=None, out=self.grads)]
        grads = [grad.reshape(-1) for grad in grads]
        for i, where, p, state in self.prepared:
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
        """The names of the state, for these options."""
        raise NotImplementedError(f"{type(self).__name__} has no state_names")

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step for some elements: changes the arrays `p` and those of `state` in place."""
        raise NotImplementedError(f"{type(self).__name__} has no update_chunk")

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        numbers = {name: as_number(option) for name, option in group.items() if name != "params"}
        decay = numbers["weight_decay"]
        for flat in self.flat_parameters(params, group):
            for p, g, state in flat.chunks():
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
            few = param.array.size <= few_elements or param.device.backend.chunk_elements is None
            packed = few or not param.array.flags.c_contiguous
            alike.setdefault((param.device, param.dtype, packed), []).append(i)
        flats = []
        for (_, _, packed), members in alike.items():
            theirs = [params[i] for i in members], [states[i] for i in members if names]
            flats.append(FlatParameters(*theirs, names, packed))
        self._flat[id(group)] = names, params, states, flats
        return flats


class SGD(FlatOptimizer):
    """p = p - lr * d, where d is the gradient, or what momentum makes of it.

        g = g + weight_decay * p
        v = momentum * v + g         (v = g at the first step)
        d = v, or g + momentum * v with nesterov

    Source: Sutskever et al., On the importance of initialization and momentum, 2013.
    Raises:
        ValueError: for a negative option, and for nesterov without momentum.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        momentum: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        differentiable: bool = False,
    ):
        options = checked(locals())
        if nesterov and momentum <= 0:
            raise ValueError("Nesterov momentum requires a momentum")
        super().__init__(params, options)

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["momentum_buffer"] if group["momentum"] else []

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        lr, momentum = group["lr"], group["momentum"]
        if momentum:
            v = state["momentum_buffer"]
            v *= momentum
            v += g
            g = g + momentum * v if group["nesterov"] else v
        p -= lr * g


class Adagrad(Optimizer):
    """p = p - lr * g / (sqrt(s) + eps), s the sum of all g^2.

    Source: Duchi, Hazan and Singer, Adaptive Subgradient Methods, 2011.
    """

    def __init__(self, params: Iterable, lr: float = 1e-2, eps: float = 1e-10):
        super().__init__(params, checked(locals()))

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            state, g = self.state[param], param.grad
            s = state["sum"] = state.get("sum", 0 * g) + g * g
            param -= group["lr"] * g / (s**0.5 + group["eps"])


class RMSprop(Optimizer):
    """p = p - lr * g / (sqrt(s) + eps), s a running mean of g^2.

        s = alpha * s + (1 - alpha) * g^2

    Source: Hinton, Neural Networks for Machine Learning, lecture 6, 2012.
    """

    def __init__(self, params: Iterable, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8):
        super().__init__(params, checked(locals()))

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            state, g, alpha = self.state[param], param.grad, group["alpha"]
            s = alpha * state.get("square_avg", 0 * g) + (1 - alpha) * g * g
            state["square_avg"] = s
            param -= group["lr"] * g / (s**0.5 + group["eps"])


class Adam(Optimizer):
    """m and v are running means of the gradient and of its square; both start at zero, and are
    divided by 1 - beta^step to make up for it.

        m = beta1 * m + (1 - beta1) * g                  v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)

    Source: Kingma and Ba, Adam: A Method for Stochastic Optimization, 2015.
    Raises:
        ValueError: for options out of range.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ):
        options = checked(locals())
        for number, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(params, options)

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        for param in params:
            state, g = self.state[param], param.grad
            step = state["step"] = state.get("step", 0) + 1
            m = state["exp_avg"] = beta1 * state.get("exp_avg", 0 * g) + (1 - beta1) * g
            v = beta2 * state.get("exp_avg_sq", 0 * g) + (1 - beta2) * g * g
            state["exp_avg_sq"] = v
            unbiased = m / (1 - beta1**step), v / (1 - beta2**step)
            param -= lr * unbiased[0] / (unbiased[1] ** 0.5 + eps)


if __name__ == "__main__":
    import time

    from tinytorch.core.device import backends
    from tinytorch.ops.random import manual_seed, randn

    # Chunks of at most 128 elements.
    print([(chunk.start, chunk.stop) for chunk in chunk_slices(300, limit=128)])
    # -> [(0, 100), (100, 200), (200, 300)]
    print(chunk_slices(300, limit=None), chunk_slices(0, limit=128))  # -> [slice(0, 300, None)] []

    # Three parameters: a small one, a large one, and a large one that is transposed.
    manual_seed(0)
    start = [randn(100), randn(300, 300), randn(300, 200).T]
    params = [value.detach().requires_grad_() for value in start]
    start = [value.detach().clone() for value in start]
    print([param.array.flags.c_contiguous for param in params])  # -> [True, True, False]
    for param in params:
        param.grad = 0 * param.detach() + 1
    optimizer = SGD(params, lr=0.5, momentum=0.9)
    optimizer.step()
    moved = [(param - value).detach() for param, value in zip(params, start, strict=True)]
    print([bool(((way + 0.5).abs() < 1e-5).all()) for way in moved])  # -> [True, True, True]
    flats = optimizer.flat_parameters(params, optimizer.param_groups[0])
    print([(flat.packed, len(flat.params), len(flat.prepared)) for flat in flats])
    # -> [(True, 2, 2), (False, 1, 3)]

    # A few large parameters, and many small ones: in chunks, and side by side in one piece.
    def milliseconds(count, size):
        params = [randn(size).requires_grad_() for _ in range(count)]
        for param in params:
            param.grad = randn(size)
        optimizer, times = SGD(params, lr=0.01, momentum=0.9), []
        for _ in range(6):
            start = time.perf_counter()
            optimizer.step()
            times.append(time.perf_counter() - start)
        return min(times[1:]) * 1e3

    def both(count, size):
        """In chunks, and packed into one piece."""
        in_chunks = milliseconds(count, size)
        backend = backends["cpu"]
        before, backend.chunk_elements = backend.chunk_elements, None  # as on a GPU
        in_one = milliseconds(count, size)
        backend.chunk_elements = before
        return in_chunks, in_one

    for count, size in ((200, 100), (3, 1_000_000)):
        in_chunks, in_one = both(count, size)
        print(
            f"{count} of {size}: in one piece {in_one:.2f} ms, in chunks {in_chunks:.2f} ms"
        )  # -> ...
    print("faster, for large ones:", in_chunks < in_one)  # -> faster, for large ones: True
