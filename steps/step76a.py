"""Step 76a: Parameter groups: a rate for each part

The network of step 75c has a body that was loaded and a head that begins at random. The head has
far to go, and the body should hardly move. But the optimizer has one rate for all. A large one
spoils what the body knows, and a small one leaves the head where it is: with 20 images 0.003 gives
82 % of right answers, and the best one that we found, 0.01, gives 87 %.

So the parameters come in groups, each a dict with its own options. What a group does not say, the
defaults say:

    AdamW([{"params": body.parameters(), "lr": 0.003},
           {"params": head.parameters()}], lr=0.03)     two groups, each with all options

`update` gets its options from the group, and no longer from self. A list of parameters is one
group, so old programs go on. With rates of 0.003 and 0.03 it is 88 %. The key of a parameter's
state is the parameter itself (two tensors are different keys, even with equal elements).

Biases and the weights of a normalisation are mostly kept out of weight decay: that is a group with
"weight_decay": 0.

The trap: a parameter that is in no group stays as it is, without an error. Count them.

PyTorch has these groups, and an error for a parameter in two of them.

Changed: Optimizer, Adam, AdamW. Gone: the other rules, the schedule, and what saves the state.
Try: give the body a rate of 0, and of 0.1. Which is better?
"""

import pathlib
from collections import defaultdict

import numpy as np

import tinytorch.autograd.backward  # noqa: F401 (gives Tensor backward)
import tinytorch.nn.functional  # noqa: F401 (gives Tensor its operations)
import tinytorch.ops.sampling  # noqa: F401 (gives Tensor what draws weights)
from tinytorch.core.tensor import tensor
from tinytorch.nn.modules.activation import ReLU
from tinytorch.nn.modules.container import Sequential
from tinytorch.nn.modules.linear import Linear
from tinytorch.nn.modules.loss import cross_entropy
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.random import manual_seed, randperm


class Optimizer:
    """Moves parameters. A subclass says in `update` how one of them moves.

    param_groups: dicts of parameters, with the options that hold for them.
    state: for each parameter a dict with what the subclass wants to remember.
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
        """Move each parameter that has a gradient, by the options of its group."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad.array, self.state[p], group)


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
        p.array -= lr / (1 - beta1**step) * m / (root + group["eps"])


class AdamW(Adam):
    """Adam, and p = p - lr weight_decay p, apart from the gradient."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2):
        super().__init__(params, lr, betas, eps)
        for group in self.param_groups:
            group.setdefault("weight_decay", weight_decay)  # Adam's defaults do not have it

    def update(self, p, g, state, group):
        p.array *= 1 - group["lr"] * group["weight_decay"]
        super().update(p, g, state, group)


if __name__ == "__main__":
    packed = pathlib.Path(__file__).parent / "../tinytorch/datasets/digits.csv.gz"
    table = np.loadtxt(packed, delimiter=",", dtype=np.float32)
    images, digits = tensor(table[:, :64] / 16), tensor(table[:, 64].astype(np.int64))
    odd = digits % 2

    def learn(net, x, t, epochs, optimizer):
        for _ in range(epochs):
            for rows in randperm(len(x)).split(20):
                loss = cross_entropy(net(x[rows]), t[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def body_and_head(classes):
        return Sequential(Linear(64, 64), ReLU(), Linear(64, 32), ReLU()), Linear(32, classes)

    manual_seed(0)
    body, head = body_and_head(10)
    old = Sequential(body, head)
    learn(old, images[:1000], digits[:1000], 10, AdamW(old.parameters(), lr=0.003))
    known = body.state_dict()

    def share_right(body_lr, head_lr):
        """How many of 697 digits are told odd or even after 20 images: the mean of four starts."""
        right = 0
        for seed in range(4):
            manual_seed(seed)
            body, head = body_and_head(2)
            body.load_state_dict(known)
            net = Sequential(body, head)
            groups = [{"params": body.parameters(), "lr": body_lr}, {"params": head.parameters()}]
            optimizer = AdamW(groups, lr=head_lr)
            learn(net, images[1000:1020], odd[1000:1020], 20, optimizer)
            right += (net(images[1100:]).argmax(1) == odd[1100:]).sum().item()
        return f"{right / 4 / 697:.0%}"

    print("one rate: ", share_right(0.003, 0.003), share_right(0.01, 0.01), share_right(0.03, 0.03))
    # -> one rate:  82% 87% 85%
    print("two rates:", share_right(0.003, 0.03))  # -> two rates: 88%

    # Adam's first step has the length of the rate.
    a, b = Parameter(tensor([0.0])), Parameter(tensor([0.0]))
    optimizer = Adam([{"params": [a], "lr": 1.0}, {"params": [b]}], lr=0.25)
    (a + b).sum().backward()
    optimizer.step()
    print(f"{a.item():.3f} {b.item():.3f}", [group["eps"] for group in optimizer.param_groups])
    # -> -1.000 -0.250 [1e-08, 1e-08]
