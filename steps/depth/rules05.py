"""Step rules05: Optimizers on flat arrays: FlatOptimizer

FlatParameters (step rules04) is a tool, and no optimizer uses it yet. SGD.update still has its loop
over tensors; to write the gathering into each rule would repeat it.

So there is one more class between Optimizer and the rules. A rule says which names its state has,
and writes its formula for some elements:

    state_names(group)                      ["momentum_buffer"]
    update_chunk(p, g, state, group)        v *= momentum; v += g; p -= lr * v

and FlatOptimizer.update does the rest. It also adds the weight decay, which is the same for all.
The formula gets arrays, not tensors: no graph, no dispatch, and no_grad does not matter. It writes
in place, for p and v are views of the flat memory.

The trap: `v = momentum * v + g` makes a new array. The formula would be right for this step, and
the state would still be zero in the next one.

Changed: SGD; its update became update_chunk. New: FlatOptimizer.
Try: v = v * momentum + g in update_chunk. Which of the promises breaks?
"""

import importlib
import itertools
from collections.abc import Iterable, Iterator
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
        self.params = params
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
        self.state = dict(zip(names, block, strict=True))
        self.copies, self.grads = self.xp.zeros((2, ends[-1]), dtype)
        parts = zip(self.xp.split(self.copies, ends[1:-1]), self.arrays, strict=True)
        self.parts = [part.reshape(array.shape) for part, array in parts]

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


class FlatOptimizer(Optimizer):
    """An optimizer whose formula treats each element alone, so that it can run on flat arrays.

    A subclass lists the names of its state (`state_names`), and writes `update_chunk`.
    """

    def state_names(self, group: dict[str, Any]) -> list[str]:
        """The names of the state, for these options."""
        raise NotImplementedError(f"{type(self).__name__} has no state_names")

    def update_chunk(self, p: Any, g: Any, state: dict[str, Any], group: dict[str, Any]) -> None:
        """One step for some elements: changes the arrays `p` and those of `state` in place."""
        raise NotImplementedError(f"{type(self).__name__} has no update_chunk")

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        names, decay = self.state_names(group), group["weight_decay"]
        states = [self.state[param] for param in params] if names else []
        for p, g, state in FlatParameters(params, states, names).chunks():
            if decay:
                g = g + decay * p
            self.update_chunk(p, g, state, group)


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

    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    # Two steps by hand: g = 1 both times. v = 1, then 0.9 + 1.
    p = tensor([0.0], requires_grad=True)
    optimizer = SGD([p], lr=1.0, momentum=0.9)
    for _ in range(2):
        p.grad = tensor([1.0])
        optimizer.step()
        print(f"v = {optimizer.state[p]['momentum_buffer'].item():.1f}, p = {p.item():.1f}")
    # -> v = 1.0, p = -1.0
    # -> v = 1.9, p = -2.9

    # Parameters of any shape, as a transposed one: each with decay and a look ahead.
    manual_seed(0)
    start = [randn(2, 3), randn(3, 2).T, randn(4)]
    params = [value.detach().clone().requires_grad_() for value in start]
    optimizer = SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True)
    for param in params:
        param.grad = 0 * param.detach() + 1
    optimizer.step()
    right = []
    for param, value in zip(params, start, strict=True):
        g = 1 + 0.01 * value
        right.append(bool((param - (value - 0.1 * (g + 0.9 * g))).abs().max().item() < 1e-6))
    print(right)  # -> [True, True, True]

    # Saved and loaded as before: the state is a dict of tensors in the shapes of the parameters.
    saved = optimizer.state_dict()
    print([state["momentum_buffer"].shape[0] for state in saved["state"].values()])  # -> [2, 2, 4]
    other = SGD([value.detach().clone().requires_grad_() for value in params], momentum=0.9)
    other.load_state_dict(copy.deepcopy(saved))
    for each in (optimizer, other):
        for param in each.param_groups[0]["params"]:
            param.grad = 0 * param.detach() + 1
        each.step()
    pairs = zip(params, other.param_groups[0]["params"], strict=True)
    print("goes on:", all(bool((one == two).all()) for one, two in pairs))  # -> goes on: True

    class Without(FlatOptimizer):
        def state_names(self, group):
            return [] if group["names"] else super().state_names(group)

    for names in (True, False):
        try:
            Without([p], {"weight_decay": 0, "names": names}).step()
        except NotImplementedError as error:
            print(error)
    # -> Without has no update_chunk
    # -> Without has no state_names
