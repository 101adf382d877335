"""Step optimizer15: Loading an optimizer's state: sizes, dtypes, old files

The file of step optimizer14 was written by the same program. A file may also be older, or come from
another program:

- With another number of parameters the error is "zip() argument 2 is shorter than argument 1". The
  message should name both sizes.
- An old file lacks an option that was added later, and the first step fails with a KeyError. The
  option should get its default.
- The parameters may have another dtype or device than those that were saved. So each tensor of the
  state is converted to the dtype and device of its parameter.
- The loaded tensors are those of the dict. If the rule writes into its state, it writes into the
  saved dict too. So everything is copied.
- A file without names (step optimizer05) would delete the names here. They stay.

`adopted` copies one value. There is an exception: a rule that counts its steps keeps the count in
the state, as "step". Converted to float16 like its parameter, it would stop at 2048, because 2049
is not a float16. So it keeps its own dtype. Old files contain a number, new ones a tensor: it
becomes a tensor. (The first such rule is Adam, in step rules03; the demo has a small one.)

The trap: a state may contain dicts of tensors. So `adopted` calls itself.

The loaded values pass through __setstate__, the method that unpickling calls, too. A subclass may
override it to add values of its own. (PyTorch treats "step" in the same way.)

Changed: Optimizer.load_state_dict. New: Optimizer.adopted, Optimizer.__setstate__.
Try: remove `and name != "step"`, and see where the demo's count stops.
"""

import copy
import importlib
import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import float32
from tinytorch.core.tensor import Tensor, tensor
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
    from tinytorch.core.dtype import float16, float64

    def after_a_step(dtype=float32, **options):
        p = tensor([1.0, 2.0], dtype=dtype, requires_grad=True)
        optimizer = SGD([("w", p)], momentum=0.9, **options)
        p.grad = tensor([1.0, 1.0], dtype=dtype)
        optimizer.step()
        return p, optimizer

    _, optimizer = after_a_step(lr=0.5)
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["nesterov"]  # as in an old file
    del saved["param_groups"][0]["param_names"]
    p, other = after_a_step(float64)
    other.load_state_dict(saved)
    other.step()
    state = other.state[p]["momentum_buffer"]
    print(state.dtype, "a copy:", state.array is not saved["state"][0]["momentum_buffer"].array)
    # -> tinytorch.float64 a copy: True
    group = other.param_groups[0]
    print(group["lr"], group["nesterov"], group["param_names"])  # -> 0.5 False ['w']

    q = tensor([1.0], requires_grad=True)
    for wrong in ([q, p], [{"params": q}, {"params": p}]):
        try:
            SGD(wrong).load_state_dict(saved)
        except ValueError as error:
            print(str(error).split("here")[-1])
    # -> ) = [(1, 2)]
    # ->  2

    # A rule that counts: its steps grow smaller. In float16, 2048 + 1 is 2048.
    class Slowing(SGD):
        def update(self, params, group):
            for param in params:
                state = self.state[param]
                state["step"] = state.get("step", 0) + 1
                param -= group["lr"] / state["step"] * param.grad

    importlib.import_module("tinytorch.core.printing")
    p = tensor([0.0], dtype=float16, requires_grad=True)
    p.grad = tensor([1.0], dtype=float16)
    old = {
        "state": {0: {"step": 2048, "notes": {"why": "a test"}}},
        "param_groups": [{"params": [0]}],
    }
    optimizer = Slowing([p])
    optimizer.load_state_dict(old)
    optimizer.step()
    print(optimizer.state[p])  # -> {'step': tensor(2049.), 'notes': {'why': 'a test'}}
    again = Slowing([p])
    again.load_state_dict(optimizer.state_dict())  # here the count is a tensor
    again.step()
    print(again.state[p]["step"].item())  # -> 2050.0
