"""Step rules06: FlatOptimizer: several dtypes, and options that are tensors

One array has one dtype and one device. In step rules05 a float64 parameter behind a float32 one
goes through a float32 array: it comes back as 0.8999999761581421 where 0.9 is right, and no error
says so. So the parameters are sorted by device and dtype, and each kind has flat memory of its own:

    (cpu, float32)   p0 p2 p3          (cpu, float64)   p1

The second case is a rate that is a tensor, which a program writes into. The formula works on
arrays, and `tensor * array` is an error. as_number converts the options once for each step; betas
are a tuple, so it converts the parts of a tuple.

The trap: item() of a tensor on a GPU waits for the GPU. A rate that is a number costs nothing.

(PyTorch sorts its parameters in the same way for its foreach and fused versions.)

Changed: FlatOptimizer.update. New: as_number, FlatOptimizer.flat_parameters.
Try: leave param.dtype out of the key. Which promise breaks?
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


def as_number(option: Any) -> Any:
    """An option's value as a Python number: it may be a Tensor, or a tuple of Tensors."""
    if isinstance(option, tuple):
        return tuple(as_number(each) for each in option)
    return option.item() if isinstance(option, Tensor) else option


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
        numbers = {name: as_number(option) for name, option in group.items() if name != "params"}
        decay = numbers["weight_decay"]
        for flat in self.flat_parameters(params, group):
            for p, g, state in flat.chunks():
                if decay:
                    g = g + decay * p
                self.update_chunk(p, g, state, numbers)

    def flat_parameters(self, params: list[Tensor], group: dict) -> list[FlatParameters]:
        """The flat form of these parameters."""
        names = self.state_names(group)
        states = [self.state[param] for param in params] if names else []
        alike: dict[tuple, list[int]] = {}
        for i, param in enumerate(params):
            alike.setdefault((param.device, param.dtype), []).append(i)
        flats = []
        for members in alike.values():
            theirs = [params[i] for i in members], [states[i] for i in members if names]
            flats.append(FlatParameters(*theirs, names))
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
    from tinytorch.core.dtype import float32, float64
    from tinytorch.core.tensor import tensor

    # Three parameters of two dtypes, in one optimizer.
    params = [
        tensor([1.0], dtype=dtype, requires_grad=True) for dtype in (float32, float64, float32)
    ]
    optimizer = SGD(params, lr=0.1, momentum=0.9)
    for param in params:
        param.grad = 0 * param.detach() + 1
    optimizer.step()
    print(params[1].item(), [param.dtype for param in params][:2])
    # -> 0.9 [tinytorch.float32, tinytorch.float64]
    flats = optimizer.flat_parameters(params, optimizer.param_groups[0])
    print([len(flat.params) for flat in flats], "parameters")  # -> [2, 1] parameters

    # A rate that is a tensor, which the program writes into.
    rate, p = tensor(1.0), tensor([0.0], requires_grad=True)
    optimizer = SGD([p], lr=rate, weight_decay=0.1)
    for new in (1.0, 0.5):
        rate.fill_(new)
        p.grad = tensor([1.0])
        optimizer.step()
        print(round(p.item(), 3))
    # -> -1.0
    # -> -1.45

    # Betas are a tuple; a tuple of tensors becomes one of numbers.
    print(as_number((tensor(0.5), 0.25)), as_number(3))  # -> (0.5, 0.25) 3
