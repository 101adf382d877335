"""Step 76b: Flat memory: all small parameters side by side

A network of many small layers has, say, 200 parameters of 100 elements each. A step of Adam takes
at least six times as long as for one parameter of 20,000. The time goes into calls: Adam's formula
is about fifteen calls of NumPy, and each takes a microsecond or so before it does anything.

Adam and AdamW treat each element alone, and need no shape. So put all elements side by side (with
axis=None, concatenate flattens them), and compute once:

    p   | weight 1 | bias 1 | weight 2 | ... |      np.concatenate(..., axis=None)
    g   | its grad | ...                     |      the same
    m v | the state, flat as well            |      stays so from step to step

Before: 200 times 15 calls. Now 15 calls, two that gather, and 200 small copies back.

The demo measures both in turns; its loop is an optimizer for each parameter. For 200 small ones it
takes about six times as long, and the weights are the same to the last bit. For four parameters of
250,000 the loop takes a third of the time or less: pieces of a megabyte stay in the processor's
cache, and to gather costs copies. So the finished Adam gathers small parameters only.

The trap: the key of the state is now the tuple of the parameters that have gradients, and equal
keys are the same parameters in the same order. Freeze a layer in between, and the key is another
one: the averages begin at zero. (The finished form carries the state of each parameter over.)

PyTorch has the same idea for the GPU: foreach=True and fused=True, where each call is a kernel to
start.

Changed: Optimizer.step gathers; Adam and AdamW write into arrays.
Try: 20 parameters of 1,000, and of 10,000. From which size on does it not pay to gather?
In depth: optimizer01 to optimizer20, rules01 to rules15, lbfgs01 to lbfgs08,
schedule01 to schedule24.
"""

import time
from collections import defaultdict

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, randn


class Optimizer:
    """Moves parameters. A subclass says in `update` how an array of elements moves.

    param_groups: dicts of parameters, with the options that hold for them.
    state: for the parameters of a group a dict with what the subclass wants to remember.
    """

    def __init__(self, params, defaults):
        groups = list(params)
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        self.param_groups = [{**defaults, **g, "params": list(g["params"])} for g in groups]
        self.state = defaultdict(dict)

    def zero_grad(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def step(self):
        """Move the parameters that have a gradient, by the options of their group, in one go."""
        for group in self.param_groups:
            params = tuple(p for p in group["params"] if p.grad is not None)
            if params:
                flat = np.concatenate([p.array for p in params], axis=None)
                g = np.concatenate([p.grad.array for p in params], axis=None)
                self.update(flat, g, self.state[params], group)
                start = 0
                for p in params:
                    p.array[...] = flat[start : start + p.numel()].reshape(p.shape)
                    start += p.numel()


class Adam(Optimizer):
    """m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2;
    p = p - lr m' / (sqrt(v') + eps) with m' = m / (1 - beta1^step), v' = v / (1 - beta2^step)."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def update(self, p, g, state, group):
        lr, (beta1, beta2) = group["lr"], group["betas"]
        step = state["step"] = state.get("step", 0) + 1
        m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
        root = np.sqrt(v / (1 - beta2**step))
        p -= lr / (1 - beta1**step) * m / (root + group["eps"])


class AdamW(Adam):
    """Adam, and p = p - lr weight_decay p, apart from the gradient."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, lr, betas, eps)
        for group in self.param_groups:
            group.setdefault("weight_decay", weight_decay)  # Adam's defaults do not have it

    def update(self, p, g, state, group):
        p *= 1 - group["lr"] * group["weight_decay"]
        super().update(p, g, state, group)


if __name__ == "__main__":

    def with_gradients(count, size):
        manual_seed(0)
        params = [Parameter(randn(size)) for _ in range(count)]
        for p in params:
            p.grad = randn(size)
        return params

    def seconds(steps):
        start = time.perf_counter()
        for step in steps:
            step()
        return time.perf_counter() - start

    for count, size in ((200, 100), (4, 250_000)):
        one, other = with_gradients(count, size), with_gradients(count, size)
        flat = [AdamW(one, lr=0.01).step]
        loop = [AdamW([p], lr=0.01).step for p in other]
        times = [(seconds(flat), seconds(loop)) for _ in range(15)][3:]  # the first ones warm up
        ratio = sorted(b / a for a, b in times)[6]
        equal = all((a == b).all().item() for a, b in zip(one, other, strict=True))
        print(f"{count} parameters of {size}: the loop takes {ratio:.1f} times as long")
        # -> 200 parameters of 100: the loop takes ... times as long
        # -> 4 parameters of 250000: the loop takes ... times as long
        print(f"equal: {equal}, the first number is {one[0][0].item():.4f}")
        # -> equal: True, the first number is 0.3216
        # -> equal: True, the first number is -1.5920
