"""Step rules07: Keeping the flat memory between steps

The optimizer of step rules06 makes its FlatParameters anew in each step: 200 views, 200 wrapped
tensors, and a block into which the state of the last step is copied. The demo measures it:
preparing takes longer than all the rest of the step.

Nothing of this changes from one step to the next, as a rule. So FlatOptimizer keeps what it made
for each group. The difficulty is "as a rule". A program may do all of this between two steps:

- set param.data, so that the parameter has another array
- load a state_dict, or put another tensor into the state
- freeze a layer, whose gradient is None from then on
- change an option, so that another state is needed (momentum was 0)

Each would go unnoticed: the optimizer would go on writing into memory that nothing reads. So each
step checks whether everything is still as it was. The check is cheap, since it does not look at
numbers: it compares each array and tensor by `is`. Groups that have changed are prepared again,
from the tensors in the state.

The trap: == on lists of tensors compares elements. `same` compares identity, and map runs the loop
in C. (__setstate__, which runs after loading and copying, drops all that was kept: a copy has
other parameters.)

Changed: FlatParameters, FlatOptimizer. New: FlatParameters.intact, same.
Try: let intact return True. Which two promises break?
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


class FlatParameters:
    """Parameters of one dtype and device, with their state, as flat arrays.

    The state of all parameters lies in one block of memory; the tensors in optimizer.state are
    views of it. The parameters are copied into one array before the formula runs, and back
    afterwards.
    """

    def __init__(self, params: list[Tensor], states: list[dict], names: list[str]):
        self.params, self.states = params, states
        self.arrays = [param.array for param in params]
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
        self.state = dict(zip(names, block, strict=True))
        self.copies, self.grads = self.xp.zeros((2, ends[-1]), dtype)
        parts = zip(self.xp.split(self.copies, ends[1:-1]), self.arrays, strict=True)
        self.parts = [part.reshape(array.shape) for part, array in parts]

    def intact(self) -> bool:
        """Whether all parameters still have their arrays, and all states are ours.

        Programs may set param.data, put another tensor into the state, or load a state_dict.
        """
        arrays = [param.array for param in self.params]
        tensors = [value for state in self.states for value in state.values()]
        return same(arrays, self.arrays) and same(tensors, self.tensors)

    def chunks(self) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
        """(parameters, gradients, state): flat arrays, once. Write into the parameters and the
        state while you have them."""
        grads = [param._grad.array for param in self.params]
        self.xp.concatenate(self.arrays, axis=None, out=self.copies)
        self.xp.concatenate(grads, axis=None, out=self.grads)
        yield self.copies, self.grads, self.state
        for i, array in enumerate(self.arrays):
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
    """An optimizer whose formula treats each element alone, so that it can run on flat arrays.

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
            alike.setdefault((param.device, param.dtype), []).append(i)
        flats = []
        for members in alike.values():
            theirs = [params[i] for i in members], [states[i] for i in members if names]
            flats.append(FlatParameters(*theirs, names))
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
    import copy
    import time

    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    # What can change between two steps. Each gradient is 1, so v = 1, and then 1.9.
    def velocities(change):
        """v of two parameters after two steps, between which `change` is called."""
        p, q = tensor([0.0], requires_grad=True), tensor([0.0, 0.0], requires_grad=True)
        optimizer = SGD([p, q], lr=1.0, momentum=0.9)
        for number in range(2):
            p.grad, q.grad = tensor([1.0]), tensor([1.0, 1.0])
            if number:
                change(optimizer, p, q)
            optimizer.step()
        states = [optimizer.state[param]["momentum_buffer"] for param in (p, q)]
        return round(p.item(), 1), [round(v.tolist()[0], 1) for v in states]

    def another_array(optimizer, p, q):
        p.data = tensor([100.0])

    def another_state(optimizer, p, q):
        optimizer.state[p]["momentum_buffer"] = tensor([10.0])

    def loaded(optimizer, p, q):
        saved = copy.deepcopy(optimizer.state_dict())
        saved["state"][0]["momentum_buffer"] = tensor([10.0])
        optimizer.load_state_dict(saved)

    def frozen(optimizer, p, q):
        q.grad = None

    print("nothing       ", velocities(lambda *_: None))  # -> nothing        (-2.9, [1.9, 1.9])
    print("another array ", velocities(another_array))  # -> another array  (98.1, [1.9, 1.9])
    print("another state ", velocities(another_state))  # -> another state  (-11.0, [10.0, 1.9])
    print("a loaded state", velocities(loaded))  # -> a loaded state (-11.0, [10.0, 1.9])
    print("a frozen layer", velocities(frozen))  # -> a frozen layer (-2.9, [1.9, 1.0])

    # An option that needs a state, where none was needed before.
    p = tensor([0.0], requires_grad=True)
    p.grad = tensor([1.0])
    optimizer = SGD([p], lr=1.0)
    optimizer.step()
    optimizer.param_groups[0]["momentum"] = 0.9
    optimizer.step()
    print(p.item(), list(optimizer.state[p]))  # -> -2.0 ['momentum_buffer']

    # 200 parameters of 100 elements.
    def milliseconds(between):
        params = [randn(100).requires_grad_() for _ in range(200)]
        for param in params:
            param.grad = randn(100)
        optimizer, times = SGD(params, lr=0.01, momentum=0.9), []
        for _ in range(20):
            between(optimizer)
            start = time.perf_counter()
            optimizer.step()
            times.append(time.perf_counter() - start)
        return min(times) * 1e3

    manual_seed(0)
    anew = milliseconds(lambda optimizer: optimizer._flat.clear())
    kept = milliseconds(lambda optimizer: None)
    print(f"prepared in each step {anew:.2f} ms, kept {kept:.2f} ms")  # -> ...
    print("a third is saved:", kept < anew * 2 / 3)  # -> a third is saved: True
