"""Step 76g: The optimizer: groups, steps and clipping

So far every training loop has held these lines. Each copy is a chance to forget no_grad, to forget
to clear the gradients of the last batch, or to pair a velocity with the wrong weight:

    with no_grad():
        for p in parameters:
            p -= lr * p.grad

The rule that moves a parameter is one thing; what surrounds the rule is the same for all of them.
An Optimizer is what surrounds it:

    param_groups   lists of parameters with their options, so that one layer can learn more slowly
    state          what the rule remembers for each parameter, such as a velocity
    zero_grad      clears the gradients before the next backward, since they add up (step 14)
    step           moves every parameter that has a gradient, under no_grad

A subclass writes `update`. The demo's Plain is gradient descent in a few lines. It first takes one
step that is also worked out by hand, and then fits the straight line y = 3 x + 2 to noisy points.

Between backward and step is the place to look at the gradients. One strange batch can give a huge
one, and a single step then throws the network so far that it never comes back. clip_grad_norm_
treats all gradients as one vector: if it is longer than max_norm, it is shortened, and keeps its
direction.

`step(closure)` is for rules that compute the loss themselves. A parameter without a gradient does
not move at all. A gradient of zero is something else: with momentum, the parameter still moves.
A learning rate that is too large makes the loss explode: each step multiplies the error along a
direction of curvature c by 1 - lr * c, so lr must stay below 2 / c for the steepest direction.

The constructor refuses mistakes that would never raise an error later: a set, whose order differs
from run to run (step 76n relies on the order); a tensor that is not a leaf, whose change would be
lost; a parameter in two groups, which would move twice; a negative rate. (For the last, `checked`
gets the constructor's locals(), its arguments by name, so that none has to be listed twice.)
(torch.optim.Optimizer is the same class. There a subclass writes all of `step`; here it may.)

New: checked, Optimizer; clipping. Moved: step 75g.
Try: leave zero_grad out of the loop over the hundred points. It no longer finds 3 and 2.
"""

import importlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.engine import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.creation import zero_
from tinytorch.ops.joining import stack
from tinytorch.ops.norm import norm

# Importing these modules, which import the others, gives Tensor its methods.
for name in "comparison gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# The options that are numbers of at least 0, and what PyTorch's message calls them.
NOT_NEGATIVE = {
    **{name: f"{name} value" for name in ("momentum", "weight_decay", "alpha", "lr_decay")},
    "initial_accumulator_value": "initial_accumulator_value value",
    "lr": "learning rate",
    "eps": "epsilon value",
}


# Options of PyTorch that are not implemented: they are there for their default, False.
NOT_SUPPORTED = ("amsgrad", "centered", "differentiable")


def checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options of an optimizer: its __init__ passes locals(), its arguments by their names.

    foreach, fused and capturable choose between PyTorch's implementations. There is one here, so
    they change nothing.
    Raises:
        ValueError: for a number below 0.
        RuntimeError: for an option of NOT_SUPPORTED that is True.
    """
    options = {k: v for k, v in arguments.items() if k not in ("self", "params", "__class__")}
    if isinstance(options["lr"], Tensor) and options["lr"].numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    for name, says in NOT_NEGATIVE.items():
        if name in options and not options[name] >= 0:
            raise ValueError(f"Invalid {says}: {options[name]}")
    for name in NOT_SUPPORTED:
        if options.get(name):
            raise RuntimeError(f"{name}=True is not supported")
    return options


class Optimizer:
    """Base of all optimizers: it holds the parameters, a subclass says how they move.

    Args:
        params: an iterable of tensors, of (name, tensor), or of dicts, each a group with options of
            its own: [{"params": [...], "lr": 0.1}, ...].
        defaults: the options that a group gets where it has none.
    Raises:
        TypeError: for what is not an iterable of tensors.
        ValueError: for an empty list, and for a parameter that is not a leaf or is in two groups.
    """

    def __init__(self, params: Iterable, defaults: dict[str, Any]):
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts"
            )
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters; what it does not say, the defaults do."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections")
        params = [params] if isinstance(params, Tensor) else list(params)
        names = [param[0] for param in params if isinstance(param, tuple)]
        if names:
            if len(names) < len(params):
                raise ValueError(
                    "all optimizer params should be with/without names. "
                    "Some param names are missing"
                )
            param_group["param_names"], params = names, [param for _, param in params]
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param)}"
                )
            if not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        if len({id(param) for param in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters", stacklevel=3
            )
        known = {id(param) for other in self.param_groups for param in other["params"]}
        if any(id(param) in known for param in params):
            raise ValueError("some parameters appear in more than one parameter group")
        if any(bool(names) != ("param_names" in other) for other in self.param_groups):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if names else 'without'} names to the optimizer"
            )
        param_group["params"] = params
        for name, default in self.defaults.items():
            param_group.setdefault(name, default)
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients: None, or zeros in the same memory with set_to_none=False."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:
                    param._grad = None
                elif param.grad is not None:
                    param.grad = zero_(param.grad.detach())

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves the parameters once, along the gradients that they have now.

        `closure`, where an optimizer is given one, computes the loss and its gradients first; its
        loss is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                active = [param for param in group["params"] if param._grad is not None]
                if len(set(active)) < len(active):  # one that stands there twice moves twice
                    for param in active:
                        self.update([param], group)
                elif active:
                    self.update(active, group)
        return loss

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Moves these parameters of one group. Subclasses write it, or a `step` of their own."""
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for number, group in enumerate(self.param_groups):
            text += f"\nParameter Group {number}\n"
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
        return text + ")"


def gradients_of(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """The gradients of a tensor, or of those of several tensors that have one."""
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [param.grad for param in parameters if param.grad is not None]


@no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors, taken as one vector.

    `foreach` selects an implementation in PyTorch. Here and below it changes nothing.
    Raises:
        RuntimeError: with error_if_nonfinite, where the norm is nan or inf.
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    norm_type = float(norm_type)  # "inf" is a number, too
    if not tensors:
        return tensor(0.0)
    total = norm(stack([norm(t, norm_type).to(tensors[0].device) for t in tensors]), norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise RuntimeError(f"the total norm of order {norm_type} is non-finite: {total.item()}")
    return total


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Shortens the gradient of all parameters, taken as one vector, to max_norm, and returns how
    long it was. The direction stays: only the length of the step changes.

    Raises:
        RuntimeError: as get_total_norm.
    """
    grads = gradients_of(parameters)
    total = get_total_norm(grads, norm_type, error_if_nonfinite)
    # Multiplied even by 1: to ask on a GPU whether it is 1 would cost more.
    factor = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(factor.to(device=grad.device, dtype=grad.dtype))
    return total


def clip_grad_value_(
    parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None
) -> None:
    """Cuts each element of the gradients to [-clip_value, clip_value]. The direction changes."""
    for grad in gradients_of(parameters):
        grad.clamp_(-clip_value, clip_value)


if __name__ == "__main__":
    from tinytorch.nn.activation import Tanh
    from tinytorch.nn.container import Sequential
    from tinytorch.nn.linear import Linear
    from tinytorch.nn.loss import mse_loss
    from tinytorch.ops.creation import linspace
    from tinytorch.ops.random import manual_seed, rand, randn

    class Plain(Optimizer):
        """p = p - lr * gradient, and nothing else."""

        def __init__(self, params, lr):
            super().__init__(params, checked(locals()))

        def update(self, params, group):
            for param in params:
                param -= group["lr"] * param.grad

    # One step by hand: the point (2, 8), and the line y = w x + b with w = 1 and b = 0.
    w, b = tensor(1.0, requires_grad=True), tensor(0.0, requires_grad=True)
    ((w * 2.0 + b - 8.0) ** 2).backward()
    print("gradients", w.grad.item(), b.grad.item())  # -> gradients -24.0 -12.0
    print(f"by hand w = {1.0 - 0.125 * -24.0}, b = {0.0 - 0.125 * -12.0}")
    # -> by hand w = 4.0, b = 1.5
    optimizer = Plain([w, b], lr=0.125)
    optimizer.step()
    print("by step w =", w.item(), "and b =", b.item())  # -> by step w = 4.0 and b = 1.5

    # A line through a hundred points.
    manual_seed(0)
    x = rand(100, 1)
    y = 3 * x + 2 + 0.1 * randn(100, 1)
    model = Linear(1, 1)
    optimizer = Plain(model.parameters(), lr=0.5)
    for _ in range(200):
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    slope, offset = model.weight.item(), model.bias.item()
    print("found 3 and 2:", abs(slope - 3) < 0.1, abs(offset - 2) < 0.1)
    # -> found 3 and 2: True True
    print(optimizer)
    # -> Plain (
    # -> Parameter Group 0
    # ->     lr: 0.5
    # -> )

    # A frozen layer gets no gradient, and a step leaves it as it is.
    frozen, trained = Linear(2, 2).requires_grad_(False), Linear(2, 1)
    optimizer = Plain([*frozen.parameters(), *trained.parameters()], lr=0.1)
    before = [p.detach().clone() for p in (frozen.weight, trained.weight)]
    trained(frozen(randn(8, 2))).square().mean().backward()
    optimizer.step()
    pairs = zip((frozen.weight, trained.weight), before, strict=True)
    print("moved:", [bool((p != q).any()) for p, q in pairs])  # -> moved: [False, True]

    # The rate and the curvature: x^2 has curvature 2, so one step multiplies x by 1 - 2 lr.
    for lr in (0.1, 0.5, 0.9, 1.1):
        p = tensor([1.0], requires_grad=True)
        optimizer = Plain([p], lr=lr)
        for _ in range(10):
            optimizer.zero_grad()
            (p**2).sum().backward()
            optimizer.step()
        print(f"lr {lr}: ten steps leave {p.item():.4f}, expected {(1 - 2 * lr) ** 10:.4f}")
    # -> lr 0.1: ten steps leave 0.1074, expected 0.1074
    # -> lr 0.5: ten steps leave 0.0000, expected 0.0000
    # -> lr 0.9: ten steps leave 0.1074, expected 0.1074
    # -> lr 1.1: ten steps leave 6.1917, expected 6.1917

    # Groups: the second layer rests, since its rate is 0.
    first, second = Linear(2, 2), Linear(2, 1)
    optimizer = Plain(
        [{"params": first.parameters()}, {"params": second.parameters(), "lr": 0}], 0.1
    )
    before = [p.detach().clone() for p in (first.weight, second.weight)]

    def closure():
        optimizer.zero_grad()
        loss = second(first(randn(8, 2))).square().mean()
        loss.backward()
        return loss

    print("the closure's loss comes back:", optimizer.step(closure).item() > 0)
    # -> the closure's loss comes back: True
    moved = [
        bool((p != q).any()) for p, q in zip((first.weight, second.weight), before, strict=True)
    ]
    print("moved:", moved)  # -> moved: [True, False]

    # What the constructor refuses.
    for wrong in (None, [], first.weight, [{"params": {first.weight}}], [first.weight * 2]):
        try:
            Plain(wrong, lr=0.1 if wrong is not None else -0.1)
        except (TypeError, ValueError) as error:
            print(f"{type(error).__name__}: {str(error).split(',')[0]}")
    # -> ValueError: Invalid learning rate: -0.1
    # -> ValueError: optimizer got an empty parameter list
    # -> TypeError: params argument given to the optimizer should be an iterable of Tensors or dicts
    # -> TypeError: optimizer parameters need to be organized in ordered collections
    # -> ValueError: can't optimize a non-leaf Tensor

    # A run that falls off a cliff: the target has one wild value.
    def run(max_norm):
        manual_seed(0)
        net = Sequential(Linear(1, 50), Tanh(), Linear(50, 1))
        x = linspace(-1, 1, 20).reshape(-1, 1)
        for step in range(300):
            target = x * 3 + (1e6 if step == 100 else 0.0)  # one bad batch
            net.zero_grad()
            loss = mse_loss(net(x), target)
            loss.backward()
            if max_norm:
                clip_grad_norm_(net.parameters(), max_norm)
            Plain(net.parameters(), lr=0.05).step()
        return mse_loss(net(x), x * 3).item()

    fallen, saved = run(None), run(1.0)
    print(f"one bad batch in 300: loss {fallen:.3g}, with clipping {saved:.3g}")  # -> ...
    print("the run is saved:", saved < 0.05 and not fallen < 100)  # -> the run is saved: True
    weights = [tensor([0.0]), tensor([0.0, 0.0])]
    weights[0].grad, weights[1].grad = tensor([3.0]), tensor([0.0, 4.0])
    print("length", clip_grad_norm_(weights, 1.0).item())  # -> length 5.0
    print([[round(value, 3) for value in w.grad.tolist()] for w in weights])
    # -> [[0.6], [0.0, 0.8]]
    clip_grad_value_(weights, 0.7)  # element by element: the direction changes
    print([[round(value, 3) for value in w.grad.tolist()] for w in weights])
    # -> [[0.6], [0.0, 0.7]]
