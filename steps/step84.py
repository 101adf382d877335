"""Step 84: Somebody has to move the parameters

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

`step(closure)` is for rules that compute the loss themselves. A parameter without a gradient does
not move at all. A gradient of zero is something else: with momentum, the parameter still moves.
A learning rate that is too large makes the loss explode. Each step multiplies the error along
direction i by 1 - lr * c_i, where c_i is the curvature. So lr must stay below 2 / c for the
steepest direction, while the flattest one decides how long the training takes.

The constructor refuses mistakes that would never raise an error later: a set, whose order differs
from run to run (step 85 relies on the order); a tensor that is not a leaf, whose change would be
lost; a parameter in two groups, which would move twice; an option that is `required` and that no
group gives; a negative rate. (For the last, `checked` gets the constructor's locals(), its
arguments by name, so that none has to be listed twice.)
(torch.optim.Optimizer is the same class. There a subclass writes all of `step`; here it may.)

parameters_to_vector puts all parameters into one row, for methods that see one point in a space of
many dimensions, and vector_to_parameters brings a row back.

Changed: nothing. New: checked, Required, Optimizer, parameters_to_vector and back. Moved: step 83.
Try: leave zero_grad out of the loop over the hundred points. It no longer finds 3 and 2.
"""

import importlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.modes import enable_grad, no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import zero_
from tinytorch.ops.joining import cat

# Importing these modules, which import the others, gives Tensor its methods.
for name in "elementwise gather indexing matmul reduction sampling shape sorting".split():
    importlib.import_module(f"tinytorch.ops.{name}")


# The options that are numbers of at least 0, and what PyTorch's message calls them.
NOT_NEGATIVE = {
    **{name: f"{name} value" for name in ("momentum", "weight_decay", "alpha", "lr_decay")},
    "initial_accumulator_value": "initial_accumulator_value value",
    "lr": "learning rate",
    "eps": "epsilon value",
}


def checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """The options of an optimizer: its __init__ gives locals(), its arguments by their names.

    ValueError for a number below 0; RuntimeError for differentiable=True, which is not there.
    foreach, fused and capturable choose between PyTorch's implementations: here there is one.
    """
    options = {k: v for k, v in arguments.items() if k not in ("self", "params", "__class__")}
    if isinstance(options["lr"], Tensor) and options["lr"].numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    for name, says in NOT_NEGATIVE.items():
        if name in options and not options[name] >= 0:
            raise ValueError(f"Invalid {says}: {options[name]}")
    if options.get("differentiable"):
        raise RuntimeError("differentiable=True is not supported: a step is not recorded")
    if options.get("foreach") and options.get("fused"):
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    return options


class Required:
    """The default of an option that has none: each group of parameters has to give it a value."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = Required()


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
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
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
            if param_group.setdefault(name, default) is required:
                raise ValueError(f"a parameter group needs a value for {name}: it has no default")
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
                if active:
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


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters in one row; the gradient flows through."""
    return cat([param.reshape(-1) for param in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Gives each parameter its part of the vector as data. TypeError for what is no tensor."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected Tensor, but got: {type(vec).__name__}")
    start = 0
    for param in parameters:
        n = param.numel()
        param.data = vec[start : start + n].reshape(param.shape).detach()
        start += n


if __name__ == "__main__":
    from tinytorch.core.tensor import tensor
    from tinytorch.nn.linear import Linear
    from tinytorch.nn.loss import mse_loss
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

    # All parameters as one point, halfway to the origin.
    here = parameters_to_vector(second.parameters())
    vector_to_parameters(0.5 * here, second.parameters())
    print(len(here), "numbers, half as far from 0:", (second.weight / here[:2]).tolist())
    # -> 3 numbers, half as far from 0: [[0.5, 0.5]]

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
