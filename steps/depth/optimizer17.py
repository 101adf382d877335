"""Step optimizer17: Optimizer hooks: subclasses and copies

Many programs define an optimizer with a `step` of its own, and the hooks of step optimizer16 are
not called there. Its author does not know of the wrapper, so the class has to see to it.

Python calls __init_subclass__ of a class for each new subclass. There we wrap the `step` that it
defines. A subclass that inherits `step` inherits the wrapped one.

Such a subclass may also not call Optimizer.__init__, or call it late. So the dict of hooks is made
in __new__, which runs before any __init__.

Copies and pickles contain the parameters, options and state, which __getstate__ returns. They do
not contain the hooks: those belong to the program that registered them, and a lambda cannot be
pickled.

The trap: `"step" in vars(cls)` asks for a step that is written in this class. hasattr would be true
for every subclass, and wrap an inherited step twice.

Changed: Optimizer.__init__. New: Optimizer.__new__, __init_subclass__, __getstate__.
Try: hasattr(cls, "step") in __init_subclass__. How often is the hook of `Quiet` called?
"""

import copy
import functools
import importlib
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.hooks import Hooks, RemovableHandle
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float32
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.ops.creation import zero_
from tinytorch.utils.hooks import add_hook

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


def with_hooks(step: Callable) -> Callable:
    """`step` with the optimizer's hooks before and after it: hook(optimizer, args, kwargs).

    A hook before it may return another (args, kwargs).
    """

    @functools.wraps(step)
    def hooked(self: "Optimizer", *args: Any, **kwargs: Any) -> Any:
        if not self._hooks:
            return step(self, *args, **kwargs)
        args, kwargs = self.call_hooks("before step", (self, *args), kwargs)
        result = step(*args, **kwargs)
        self.call_hooks("after step", args, kwargs)
        return result

    return hooked


def registers(moment: str, says: str) -> Callable:
    """A method of Optimizer that registers a hook for this moment."""

    def register(self: "Optimizer", hook: Callable, prepend: bool = False) -> RemovableHandle:
        return add_hook(self._hooks[moment], hook, prepend)

    register.__doc__ = f"Calls {says}; a hook with prepend=True comes before those there are."
    return register


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

    def __new__(cls, *args: Any, **kwargs: Any) -> "Optimizer":
        self = super().__new__(cls)
        self._hooks = defaultdict(Hooks)  # also where a subclass does not call __init__
        return self

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        if "step" in vars(cls):
            cls.step = with_hooks(cls.step)

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

    @with_hooks
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

    def call_hooks(self, moment: str, *values: Any) -> tuple:
        """Calls hook(self, *values) for each hook; what one returns takes the values' place."""
        for hook in list(self._hooks.get(moment, {}).values()):
            answer = hook(self, *values)
            if answer is not None and moment != "after step":
                if not isinstance(answer, tuple) or len(answer) != len(values):
                    raise RuntimeError(f"a hook {moment} returned {answer!r}, which it may not")
                values = answer
        return values

    register_step_pre_hook = registers("before step", "hook(optimizer, args, kwargs)")
    register_step_post_hook = registers("after step", "hook(optimizer, args, kwargs)")

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
        """Takes over a state_dict; its tensors are cast and moved to where each parameter is.

        Raises:
            ValueError: where the number of groups or their lengths differ.
        """
        saved, here = state_dict["param_groups"], self.param_groups
        if len(saved) != len(here):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, "
                f"here {len(here)}"
            )
        lengths = [(len(a["params"]), len(b["params"])) for a, b in zip(saved, here, strict=True)]
        if any(theirs != ours for theirs, ours in lengths):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of "
                f"optimizer's group: (loaded, here) = {lengths}"
            )
        params, groups = {}, []
        for theirs, ours in zip(saved, here, strict=True):
            params.update(zip(theirs["params"], ours["params"], strict=True))
            names = {name: ours[name] for name in ("param_names",) if name in ours}
            options = {name: value for name, value in theirs.items() if name != "params"}
            groups.append(
                {**self.defaults, **names, **copy.deepcopy(options), "params": ours["params"]}
            )
        state: dict = defaultdict(dict)
        for key, kept in state_dict["state"].items():
            state[params.get(key, key)] = self.adopted(kept, params.get(key))
        self.__setstate__({"state": state, "param_groups": groups})

    def adopted(self, value: Any, param: Tensor | None, name: Any = None) -> Any:
        """A copy of a loaded value, fit for `param`; the count of steps keeps its own type."""
        if isinstance(value, dict):
            return {name: self.adopted(part, param, name) for name, part in value.items()}
        if isinstance(value, Tensor) and param is not None and name != "step":
            return value.detach().to(device=param.device, dtype=param.dtype, copy=True)
        if name == "step" and not isinstance(value, Tensor):
            return tensor(float(value), dtype=float32)
        return copy.deepcopy(value)

    def __getstate__(self) -> dict[str, Any]:
        """What is copied and pickled with an optimizer: everything but the hooks."""
        return {name: getattr(self, name) for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

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
    # A subclass with a step of its own, as in many PyTorch programs, has the same hooks.
    class Signs(Optimizer):
        @no_grad()
        def step(self, size=0.5):
            for param in self.param_groups[0]["params"]:
                param -= size * param.grad.sign()

    w = tensor([1.0, 1.0], requires_grad=True)
    w.grad = tensor([100.0, -0.01])
    optimizer = Signs([w], {})
    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: print(w.tolist()))
    optimizer.step()  # -> [0.5, 1.5]

    # A copy remembers what the original does, and is independent of it.
    twin = copy.deepcopy(optimizer)
    twin.step()  # the hook stayed behind: nothing is printed
    print(twin.param_groups[0]["params"][0].tolist(), w.tolist())  # -> [0.0, 2.0] [0.5, 1.5]

    # A subclass that calls no __init__ of ours, and inherits its step.
    class Quiet(Signs):
        def __init__(self, params):
            self.param_groups = [{"params": params}]

    quiet = Quiet([w])
    quiet.register_step_post_hook(lambda *_: print("a step of", type(quiet).__name__))
    quiet.step()  # -> a step of Quiet
