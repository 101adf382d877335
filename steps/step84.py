"""Step 84: Somebody has to move the parameters

Every training loop so far held these lines, and each copy is a chance to forget no_grad, to forget
the gradient of the batch before, or to keep a velocity for the wrong weight:

    with no_grad():
        for p in parameters:
            p -= lr * p.grad

The rule that moves is one matter, what surrounds it another. An Optimizer is what surrounds it:

    param_groups   lists of parameters with their options, so that a layer can learn more slowly
    state          what a rule remembers for each parameter, such as a velocity
    zero_grad      gradients pile up (step 14): forget them before the next backward
    step           moves all that have a gradient, under no_grad
    state_dict     groups and state with numbers in the parameters' places, to be saved

A subclass writes `update`. Plain, below, is gradient descent in four lines, here on the straight
line y = 3 x + 2 with noise: one step by hand with the numbers printed, then the same step by it.

`step(closure)` is for rules that want to compute the loss themselves. A parameter without gradient
does not move at all: that is not the same as a gradient of zero, which with momentum still moves.
A rate that is too large does not slow learning down, it makes the loss explode: the error along
direction i is multiplied by 1 - lr * c_i in each step, with c_i the curvature. So lr must stay
below 2 / c for the steepest direction, and the flattest one decides how long it takes.

The checks at the door are there for mistakes that would never raise by themselves: a set, whose
order differs from run to run and with it the numbers in state_dict; a tensor that is no leaf, whose
change nobody would see; a parameter in two groups, which would move twice.
(torch.optim.Optimizer is the same class, and its state_dict the same dictionary.)

Changed: nothing. New: check_at_least, check_switches, Optimizer; Plain, to look at.
Try: leave zero_grad out of the loop.
"""

import copy
import importlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.engine import Hooks, RemovableHandle
from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.linear import Linear
from tinytorch.nn.loss import mse_loss
from tinytorch.ops.creation import zero_
from tinytorch.ops.random import manual_seed, rand, randn

# Importing the modules of the operations brings their methods to Tensor.
operations = "arithmetic comparison elementwise indexing reduction sampling shape sorting"
for name in operations.split():
    importlib.import_module(f"tinytorch.ops.{name}")


def check_at_least(low: float, **values: float) -> None:
    """ValueError for a value below `low`, or one that is no number."""
    for name, value in values.items():
        if not low <= value:
            raise ValueError(f"Invalid {name} value: {value}")


def check_switches(switches: dict[str, Any]) -> None:
    """Takes PyTorch's choices of an implementation, which change no number: there is one here.

    TypeError for other names, and RuntimeError for differentiable=True, which is not there.
    """
    for name in switches:
        if name not in ("foreach", "fused", "capturable", "differentiable"):
            raise TypeError(f"got an unexpected keyword argument '{name}'")
    if switches.get("differentiable"):
        raise RuntimeError("differentiable=True is not supported: a step is not recorded")


class Optimizer:
    """Base of all optimizers: it holds the parameters, a subclass says how they move.

    Args:
        params: an iterable of tensors, of (name, tensor), or of dicts, each a group with options of
            its own: [{"params": [...], "lr": 0.1}, ...].
        defaults: the options that a group gets where it has none.
    Raises TypeError for what is no iterable of tensors, ValueError for no parameter at all, one
    that is no leaf, or one that stands in two groups.
    """

    def __init__(self, params: Iterable, defaults: dict[str, Any]):
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or "
                "dicts, but got a Tensor"
            )
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self.hooks = {"before": Hooks(), "after": Hooks()}
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
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
        params = [params] if isinstance(params, Tensor) else list(params)
        named = [isinstance(param, tuple) for param in params]
        if any(named):
            if not all(named):
                raise ValueError(
                    "all optimizer params should be with/without names. "
                    "Some param names are missing"
                )
            group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        group["params"] = params
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(
                    f"optimizer can only optimize Tensors, but one of the params is {type(param)}"
                )
            if not param.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        if self.param_groups and any(named) != ("param_names" in self.param_groups[0]):
            raise ValueError("all optimizer param groups should be with/without names")
        for name, default in self.defaults.items():
            group.setdefault(name, default)
        if len({id(param) for param in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters", stacklevel=3
            )
        known = {id(param) for other in self.param_groups for param in other["params"]}
        if any(id(param) in known for param in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients: None, or zeros in the same memory with set_to_none=False."""
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is None:
                    continue
                param.grad = None if set_to_none else zero_(param.grad.detach())

    @no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Moves the parameters once, along the gradients that they have now.

        `closure`, where an optimizer is given one, computes the loss and its gradients first; its
        loss is returned.
        """
        for hook in list(self.hooks["before"].values()):
            hook(self, (closure,), {})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            active = [param for param in group["params"] if param.grad is not None]
            if active:
                self.update(active, group)
        for hook in list(self.hooks["after"].values()):
            hook(self, (closure,), {})
        return loss

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Moves these parameters of one group. Subclasses write it."""
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(optimizer, args, kwargs) before each step."""
        return self.hooks["before"].add(hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls hook(optimizer, args, kwargs) after each step."""
        return self.hooks["after"].add(hook)

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number of the parameter: its state}, "param_groups": [options, ...]}.

        The tensors in it are the optimizer's own, as in PyTorch: copy them to keep them.
        """
        numbers: dict[int, int] = {}
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
        groups = [
            {**group, "params": [numbers[id(param)] for param in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(param)]: dict(state) for param, state in self.state.items() if state}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state_dict; its tensors are cast and moved to where each parameter is.

        ValueError where the groups are not of the same number and lengths.
        """
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, "
                f"here {len(self.param_groups)}"
            )
        lengths = [
            (len(a["params"]), len(b["params"]))
            for a, b in zip(saved, self.param_groups, strict=True)
        ]
        if any(theirs != ours for theirs, ours in lengths):
            raise ValueError(
                f"loaded state dict contains a parameter group that doesn't match the size of "
                f"optimizer's group: (loaded, here) = {lengths}"
            )
        params = {}
        for theirs, ours in zip(saved, self.param_groups, strict=True):
            params.update(zip(theirs["params"], ours["params"], strict=True))
        self.state = defaultdict(dict)
        for number, state in state_dict["state"].items():
            self.state[params[number]] = {
                name: self.adopted(name, value, params[number]) for name, value in state.items()
            }
        self.param_groups = [
            {
                **copy.deepcopy({k: v for k, v in theirs.items() if k != "params"}),
                "params": ours["params"],
            }
            for theirs, ours in zip(saved, self.param_groups, strict=True)
        ]

    @staticmethod
    def adopted(name: str, value: Any, param: Tensor) -> Any:
        """A copy of a loaded value, fit for `param`; the count of steps keeps its own type."""
        if not isinstance(value, Tensor):
            return copy.deepcopy(value)
        if name == "step":
            return value.detach().clone()
        return value.detach().to(device=param.device, dtype=param.dtype).clone()

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [
                f"    {k}: {group[k]}" for k in sorted(group) if k not in ("params", "param_names")
            ]
        return "\n".join([*lines, ")"])


class Plain(Optimizer):
    """Gradient descent: p = p - lr * gradient. Step 85 has it with momentum."""

    def __init__(self, params: Iterable, lr: float):
        check_at_least(0.0, **{"learning rate": lr})
        super().__init__(params, {"lr": lr})

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        for param in params:
            param -= group["lr"] * param.grad


if __name__ == "__main__":
    # One step by hand: one point (2, 8), and the line y = w x + b through (0, 0).
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
    print(
        "found 3 and 2:", abs(slope - 3) < 0.1, abs(offset - 2) < 0.1
    )  # -> found 3 and 2: True True
    print(optimizer)
    # -> Plain (
    # -> Parameter Group 0
    # ->     lr: 0.5
    # -> )

    # The rate and the curvature: x^2 has curvature 2, so 1 - 2 lr is what one step leaves.
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
    print(
        "moved:",
        [bool((p != q).any()) for p, q in zip((first.weight, second.weight), before, strict=True)],
    )
    # -> moved: [True, False]
    print(optimizer.state_dict())
    # -> {'state': {}, 'param_groups': [{'params': [0, 1], 'lr': 0.1}, {'params': [2, 3], 'lr': 0}]}
    for wrong in ([], first.weight, [{"params": {first.weight}}], [first.weight * 2]):
        try:
            Plain(wrong, lr=0.1)
        except (TypeError, ValueError) as error:
            print(f"{type(error).__name__}: {str(error)[:60]}")
    # -> ValueError: optimizer got an empty parameter list
    # -> TypeError: params argument given to the optimizer should be an iterable
    # -> TypeError: optimizer parameters need to be organized in ordered collect
    # -> ValueError: can't optimize a non-leaf Tensor
