"""Step rules12: AdamW in the package's dress

Step 45d built AdamW: the decay is taken directly, apart from the gradient, since what is added to g
is divided by sqrt(v). Here it is an option of Adam, decoupled_weight_decay, and AdamW is Adam with
the option set, as in PyTorch. The demo compares both on two weights of 10 with decay 0.1 and rate
0.1, after 100 steps: added to g, the one with gradients of 1000 is at 9.8, the one with gradients
of 0.01 at 2.2.

The trap: a state_dict of Adam has decoupled_weight_decay = False, and the saved options win (step
optimizer14). Loaded into AdamW, it would turn it back into Adam. So AdamW sets the option again in
__setstate__, which runs at the end of loading.

Changed: Adam, FlatOptimizer.update. New: AdamW.
Try: remove AdamW.__setstate__. What does the demo's last line print?
"""

import importlib
import itertools
import math
from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

import numpy as np

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
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


class Adam(FlatOptimizer):
    """m and v are running means of the gradient and of its square; both start at zero, and are
    divided by 1 - beta^step to make up for it.

        m = beta1 * m + (1 - beta1) * g                  v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)

    weight_decay adds weight_decay * p to g; decoupled_weight_decay takes lr * weight_decay * p from
    p instead.
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
        weight_decay: float = 0,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
    ):
        options = checked(locals())
        for number, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {number}: {beta}")
        super().__init__(params, options)

    def state_names(self, group: dict[str, Any]) -> list[str]:
        return ["step", "exp_avg", "exp_avg_sq"]

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        m, v, step = state["exp_avg"], state["exp_avg_sq"], state["step"]
        lr, eps, (beta1, beta2) = group["lr"], group["eps"], group["betas"]
        if group["decoupled_weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        # `out=t` computes in memory that is there already: new arrays instead would make a step of
        # a small network a tenth slower.
        xp, t = state["xp"], state["scratch"]
        m *= beta1
        m += xp.multiply(g, 1 - beta1, out=t)
        v *= beta2
        xp.multiply(g, math.sqrt(1 - beta2), out=t)
        v += xp.multiply(t, t, out=t)
        # The unbiased m and v are m / (1 - beta1^step) and v / (1 - beta2^step). Here the numbers
        # change lr and eps instead of whole arrays, as section 2 of the paper recommends.
        root = (1 - beta2**step) ** 0.5
        xp.sqrt(v, out=t)
        t += eps * root
        xp.divide(m, t, out=t)
        t *= lr * root / (1 - beta1**step)
        p -= t


class AdamW(Adam):
    """Adam with decoupled weight decay: p = p - lr * weight_decay * p, apart from the gradient.

    Source: Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
    ):
        super().__init__(**checked(locals()), params=params, decoupled_weight_decay=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # also where the state is Adam's
            group["decoupled_weight_decay"] = True


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor

    # Two weights, with large and with small gradients: there and back again.
    def pulled(make):
        weights = [tensor([10.0], requires_grad=True) for _ in range(2)]
        optimizer = make(weights, lr=0.1, weight_decay=0.1)
        for number in range(100):
            for weight, size in zip(weights, (1000.0, 0.01), strict=True):
                weight.grad = tensor([size * (-1) ** number])
            optimizer.step()
        return [round(weight.item(), 1) for weight in weights]

    print("Adam ", pulled(Adam))  # -> Adam  [9.8, 2.2]
    print("AdamW", pulled(AdamW))  # -> AdamW [3.6, 3.6]
    print("by hand:", round(10 * (1 - 0.1 * 0.1) ** 100, 1))  # -> by hand: 3.7

    # Without decay they are the same.
    def first_step(make, gradient, **options):
        p = tensor([10.0], requires_grad=True)
        p.grad = tensor([gradient])
        make([p], lr=0.1, **options).step()
        return round(p.item(), 4)

    print([first_step(make, 5.0, weight_decay=0) for make in (Adam, AdamW)])  # -> [9.9, 9.9]
    print(first_step(AdamW, 0.0), first_step(AdamW, -5.0))  # -> 9.99 10.09

    # A state of Adam, loaded into AdamW.
    p = tensor([1.0], requires_grad=True)
    optimizer = AdamW([p])
    optimizer.load_state_dict(Adam([p]).state_dict())
    print(optimizer.param_groups[0]["decoupled_weight_decay"])  # -> True
