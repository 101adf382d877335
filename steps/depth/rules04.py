"""Step rules04: Flat memory in the package's dress: FlatParameters

Step 76b put all small parameters side by side and computed once. Here the parameters stay where
they are, since the program holds these tensors. They are copied into the flat array before, and
back after the formula: a copy is one call for all of them.

The state does not have to be copied. It lives in the block all the time, and the tensors in
optimizer.state are views of their part of it (step 69b). So state_dict notices nothing. A
state that was loaded is copied in once. That of another network has another shape, and NumPy would
broadcast it without a word if it could, so the shapes are compared.

`chunks` is a generator that yields once. The code before the yield gathers, the caller computes,
and the code after it puts the numbers back.

The trap: array[...] = part goes past the tensor, so nothing counts the write. A saved value would
not notice that it has been overwritten (step 66b), and a gradient would silently be wrong. So
bump_version counts it. (torch.optim has an option for the same aim, `foreach`.)

New: FlatParameters.
Try: leave bump_version out. Which promise breaks?
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


class SGD(Optimizer):
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

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            g = param.grad
            if group["weight_decay"]:
                g = g + group["weight_decay"] * param
            if group["momentum"]:
                state = self.state[param]
                v = state.get("momentum_buffer", 0 * g)
                v = state["momentum_buffer"] = group["momentum"] * v + g
                g = g + group["momentum"] * v if group["nesterov"] else v
            param -= group["lr"] * g


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

    from tinytorch.autograd.modes import no_grad
    from tinytorch.core.tensor import tensor
    from tinytorch.ops.random import manual_seed, randn

    def momentum(p, g, v):
        """The formula, for tensors and for arrays."""
        v *= 0.9
        v += g
        p -= 0.01 * v

    # Three parameters of different shapes, and their velocities.
    manual_seed(0)
    params = [
        randn(3, 4).requires_grad_(),
        randn(5).requires_grad_(),
        randn(2, 2, 2).requires_grad_(),
    ]
    for param in params:
        param.grad = randn(*param.shape)
    expected = [(param - 0.01 * (0.9 * 2 + param.grad)).detach() for param in params]
    states = [{"v": 0 * param.detach() + 2} for param in params]  # each v is 2 everywhere
    flat = FlatParameters(params, states, ["v"])
    for p, g, state in flat.chunks():
        print(p.shape, g.shape, state["v"].shape)  # -> (25,) (25,) (25,)
        momentum(p, g, state["v"])
    pairs = list(zip(params, expected, strict=True))
    print([param.shape == e.shape and bool((param == e).all()) for param, e in pairs])
    # -> [True, True, True]
    first, second, _ = (state["v"] for state in states)
    print(first.shape, second.shape, "one memory:", first.array.base is second.array.base)
    # -> tinytorch.Size([3, 4]) tinytorch.Size([5]) one memory: True

    # The state of another network: NumPy would give each of the five rows the same velocities.
    try:
        FlatParameters([randn(5, 4).requires_grad_()], [{"v": randn(4)}], ["v"])
    except RuntimeError as error:
        print(error)  # -> the state 'v' has the shape [4], of a parameter [5, 4]

    # A saved tensor notices the write.
    w = tensor([2.0], requires_grad=True)
    y = w * w
    w.grad = tensor([1.0])
    for p, _, _ in FlatParameters([w], [], []).chunks():
        p += 1
    try:
        y.backward()
    except RuntimeError as error:
        print(str(error).split(" by ")[0])
    # -> one of the variables needed for gradient computation has been modified

    # 200 parameters of 100 elements.
    params = [randn(100).requires_grad_() for _ in range(200)]
    for param in params:
        param.grad = randn(100)
    velocities = [0 * param.detach() for param in params]
    flat = FlatParameters(params, [{} for _ in params], ["v"])

    @no_grad()
    def one_by_one():
        for param, v in zip(params, velocities, strict=True):
            momentum(param, param.grad, v)

    def on_arrays():
        for param, v in zip(params, velocities, strict=True):
            momentum(param.array, param.grad.array, v.array)

    def side_by_side():
        for p, g, state in flat.chunks():
            momentum(p, g, state["v"])

    def milliseconds(function):
        times = []
        for _ in range(20):
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
        return min(times) * 1e3

    slow, arrays, fast = map(milliseconds, (one_by_one, on_arrays, side_by_side))
    print(f"one by one: tensors {slow:.2f} ms, arrays {arrays:.2f} ms, side by side {fast:.2f} ms")
    # -> one by one: ...
    print("at least twice as fast as tensors:", 2 * fast < slow)
    # -> at least twice as fast as tensors: True
