"""Step optimizer14: Optimizer.state_dict in the package's dress

Step 48c saved the state of an optimizer, so that a training goes on bit for bit. Here the form is
PyTorch's, with groups. The keys of `state` are the tensors themselves, and the next process has
other tensors. What stays the same is their order:

    {"state": {0: {"momentum_buffer": tensor}, 1: {...}},
     "param_groups": [{"lr": 0.1, "params": [0, 1]}]}

This is why a group whose parameters are a set, which has no order, is refused (step optimizer03).
The options are saved too, because a schedule may have changed them; the saved ones replace those of
the constructor.

Entries of `state` whose keys are not tensors are saved under the same keys.

The trap: the numbers do not name the layers. If two layers of equal size have changed places in the
program, each gets the velocity of the other, without an error.

(The form is PyTorch's. As there, the dict has the optimizer's own tensors, not copies of them.)

New: Optimizer.state_dict, Optimizer.load_state_dict.
Try: let the demo load half of it: call optimizer.state.clear() after load_state_dict.
"""

import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.tensor import Tensor
from tinytorch.ops.creation import zero_

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

    def step(self) -> None:
        """Moves the parameters once, along the gradients that they have now."""
        with no_grad():
            for group in self.param_groups:
                active = [param for param in group["params"] if param._grad is not None]
                if len(set(active)) < len(active):  # one that stands there twice moves twice
                    for param in active:
                        self.update([param], group)
                elif active:
                    self.update(active, group)

    def update(self, params: list[Tensor], group: dict[str, Any]) -> None:
        """Moves these parameters of one group. Subclasses write it, or a `step` of their own."""
        raise NotImplementedError(f"{type(self).__name__} has no update")

    def state_dict(self) -> dict[str, Any]:
        """{"state": {number of the parameter: its state}, "param_groups": [options, ...]}.

        The tensors in it are the optimizer's own, as in PyTorch: copy them to keep them.
        """
        numbers: dict[int, int] = {}
        for group in self.param_groups:
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
        groups = []
        for group in self.param_groups:
            groups.append({name: value for name, value in group.items() if name != "params"})
            groups[-1]["params"] = [numbers[id(param)] for param in group["params"]]
        state = {numbers.get(id(key), key): kept for key, kept in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes over a state_dict."""
        saved, here = state_dict["param_groups"], self.param_groups
        params, groups = {}, []
        for theirs, ours in zip(saved, here, strict=True):
            params.update(zip(theirs["params"], ours["params"], strict=True))
            options = {name: value for name, value in theirs.items() if name != "params"}
            groups.append({**options, "params": ours["params"]})
        state: dict = defaultdict(dict)
        for key, kept in state_dict["state"].items():
            state[params.get(key, key)] = kept
        self.__dict__.update({"state": state, "param_groups": groups})

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for number, group in enumerate(self.param_groups):
            text += f"\nParameter Group {number}\n"
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
        return text + ")"


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


if __name__ == "__main__":
    import copy

    from tinytorch.ops.random import manual_seed, randn

    def train(optimizer, steps):
        """Steps on the sum of all squares."""
        params = optimizer.param_groups[0]["params"]
        for _ in range(steps):
            optimizer.zero_grad()
            sum((p * p).sum() for p in params).backward()
            optimizer.step()

    def fresh(values):
        return [value.detach().clone().requires_grad_() for value in values]

    manual_seed(0)
    start = [randn(2), randn(3)]

    # Twenty steps in one go.
    whole = fresh(start)
    train(SGD(whole, lr=0.1, momentum=0.9), 20)

    # Ten steps, and then everything is written down.
    params = fresh(start)
    optimizer = SGD(params, lr=0.1, momentum=0.9)
    optimizer.state["note"] = {"from": "the demo"}
    train(optimizer, 10)
    saved = copy.deepcopy(optimizer.state_dict())
    print(saved["param_groups"][0]["params"])  # -> [0, 1]
    print({number: list(state) for number, state in saved["state"].items()})
    # -> {'note': ['from'], 0: ['momentum_buffer'], 1: ['momentum_buffer']}

    # Another process has other tensors. Ten more steps, without and with the memory.
    for with_memory in (False, True):
        other = fresh(params)
        optimizer = SGD(other, lr=7.0 if with_memory else 0.1, momentum=0.9)  # the saved rate wins
        if with_memory:
            optimizer.load_state_dict(saved)
        train(optimizer, 10)
        same = all(bool((a == b).all()) for a, b in zip(other, whole, strict=True))
        print("with memory" if with_memory else "without", "- as in one go:", same)
    # -> without - as in one go: False
    # -> with memory - as in one go: True
