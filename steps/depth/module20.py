"""Step module20: load_state_dict: reporting all mismatches

A state from another program rarely fits at the first attempt: a layer has another name, a size has
changed. load_state_dict of step module19 stops with a KeyError at the first missing name. It
ignores names that the network does not have. And for a value of another shape the error does not
name the parameter. The demo begins with these three cases.

So the walk raises nothing. It collects the faults, and at the end one error lists them all:

    missing       the network has the name, the state does not
    unexpected    the state has the name, the network does not
    mismatch      both have it, with different shapes; or the value is not a tensor

With strict=False missing and unexpected names are not errors; they are returned. So a network with
a new last layer can load all the others. Shapes that differ are always an error.

The trap: the values that fit are loaded even if the call raises an error. (PyTorch does the same,
with the same messages.)

Changed: Module.load_state_dict. New: load_member, _IncompatibleKeys.
Try: change the order of the two words in `for keys, word in ...`, and look at the message.
"""

import importlib
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.inplace import assign
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.members import Members
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty_like


def module_text(module: "Module", parts: list[tuple[str, str]]) -> str:
    """Name(...) with what the module shows of itself and, indented, its parts."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    if len(lines) == 1 and not parts:
        return f"{type(module).__name__}({extra})"
    lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in parts]
    inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{type(module).__name__}({inside})"


def converter(to: DType | str) -> Callable[["Module"], "Module"]:
    """The method that brings a module to a type or a device, such as module.double()."""
    return lambda self: self.to(to)


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The result of load_state_dict: names without a value, and values without a name."""

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


def load_member(key: str, members: dict, name: str, state: Mapping) -> list[str]:
    """Copies state[key] into a parameter or buffer. What is wrong, if something is, is the
    answer."""
    member, value = members[name], state[key]
    if not isinstance(value, Tensor):
        return [f'While copying the parameter named "{key}", expected Tensor, got {type(value)}']
    if value.shape != member.shape:
        found = f"copying a param with shape {value.shape} from checkpoint"
        return [f"size mismatch for {key}: {found}, the shape in current model is {member.shape}."]
    with no_grad():
        assign(member, value.to(device=member.device, dtype=member.dtype))
    return []


class Module(Members):
    """A part of a network. A subclass makes its parameters and parts in `__init__`, after
    `super().__init__()`, and says in `forward` what it computes."""

    training: bool

    def __init__(self):
        super().__init__()
        self.training = True

    # What is done to all of it.

    def apply(self, fn: Callable[["Module"], None]) -> "Module":
        """Calls fn with each part, the inner ones first, and with this module last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> "Module":
        """Tells this module and its parts that they are in training: Dropout drops only then."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():  # each is asked: a part may have a train of its own
            module.train(mode)
        return self

    def eval(self) -> "Module":
        """The opposite of train(): the network is used, not trained."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Freezes all parameters (False), or lets them learn again."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters: to None, or to zeros."""
        for param in self.parameters():
            if set_to_none:
                param.grad = None
            elif param.grad is not None:
                param.grad.detach_().zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Module":
        """Replaces the data of each parameter, gradient and buffer. The parameters stay the same
        objects, so that an optimizer that has them goes on working."""
        for module in self.children() if recurse else ():
            module._apply(fn)
        with no_grad():
            for param in self.parameters(recurse=False):
                param.data = fn(param.data)
                if param.grad is not None:
                    param.grad = fn(param.grad.detach())
            for name, buffer in self._buffers.items():
                self._buffers[name] = None if buffer is None else fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> "Module":
        """Moves the module to a device, or to a float type, with the arguments of Tensor.to.

        Unlike Tensor.to it changes the module itself. Integer buffers keep their type.
        Raises:
            TypeError: for a type that is not a float type.
        """

        def convert(t: Tensor) -> Tensor:
            moved = t.to(*args, **kwargs)
            if t.is_floating_point() and not moved.is_floating_point():
                raise TypeError(f"Module.to only accepts floating point, not {moved.dtype!r}")
            return moved if t.is_floating_point() else t.to(moved.device)

        return self._apply(convert)

    def to_empty(self, *, device: Any, recurse: bool = True) -> "Module":
        """Moves the module to a device; what its members were is lost."""
        return self._apply(lambda t: empty_like(t, device=device), recurse)

    def type(self, dst_type: Any) -> "Module":
        """Makes all members of one type, integers too."""
        return self._apply(lambda t: t.type(dst_type))

    float = converter(float32)
    double = converter(float64)
    half = converter(float16)
    bfloat16 = converter(bfloat16)
    cpu = converter("cpu")

    def cuda(self, device: Any = None) -> "Module":
        return self.to("cuda" if device is None else device)

    # Its state, as names and values.

    def _own_state(self) -> Iterator[tuple[dict, str]]:
        """(parameters or buffers, name there) of all that the module itself is to keep."""
        left_out = self._non_persistent - self._parameters.keys()
        for members in (self._parameters, self._buffers):
            for name, member in members.items():
                if member is not None and name not in left_out:
                    yield members, name

    def state_dict(self) -> dict:
        """All parameters and persistent buffers by name. They share the module's memory: clone
        what has to stay as it is."""
        state = {}
        for path, module in self.named_modules(remove_duplicate=False):
            for members, name in module._own_state():
                state[f"{path}.{name}" if path else name] = members[name].detach()
        return state

    def load_state_dict(self, state_dict: Mapping, strict=True) -> _IncompatibleKeys:
        """Copies the values of a state_dict into the parameters and buffers with the same names.

        RuntimeError that lists all missing and unexpected names (not with strict=False) and all
        shapes that differ.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors = [], list(state_dict), []
        for path, module in self.named_modules(remove_duplicate=False):
            for members, name in module._own_state():
                if (key := f"{path}.{name}" if path else name) in state_dict:
                    errors += load_member(key, members, name, state_dict)
                    unexpected.remove(key)
                else:
                    missing.append(key)
        for keys, word in ((unexpected, "Unexpected"), (missing, "Missing")):
            if strict and keys:
                listed = ", ".join(f'"{key}"' for key in keys)
                errors.insert(0, f"{word} key(s) in state_dict: {listed}. ")
        if errors:
            start = f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
            raise RuntimeError(start + "\n\t".join(errors))
        return _IncompatibleKeys(missing, unexpected)

    # Its text.

    def extra_repr(self) -> str:
        """What a subclass wants to show of itself between the brackets."""
        return ""

    def __repr__(self) -> str:
        return module_text(self, [(n, repr(module)) for n, module in self._modules.items()])

    # Its call, and the hooks around it.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes. Every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)


if __name__ == "__main__":
    # Importing the modules of the operations brings their methods to Tensor.
    for name in ("arithmetic", "comparison", "creation", "elementwise", "reduction"):
        importlib.import_module(f"tinytorch.ops.{name}")

    class Scale(Module):
        """y = factor * x."""

        def __init__(self, factor):
            super().__init__()
            self.factor = Parameter(tensor([factor]))

        def forward(self, x):
            return x * self.factor

    class Tanh(Module):
        def forward(self, x):
            return x.tanh()

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.a, self.bend, self.b = Scale(2.0), Tanh(), Scale(10.0)

        def forward(self, x):
            return self.b(self.bend(self.a(x)))

    class Wide(Net):
        def __init__(self):
            super().__init__()
            self.a.factor = Parameter(tensor([1.0, 2.0, 3.0]))

    # The walk of step module19, by hand: a name that is missing, one too many, and another shape.
    def copied(net, state):
        for name, param in net.named_parameters():
            with no_grad():
                assign(param, state[name])
        return "no complaint"

    state = Net().state_dict()
    for net, tried in ((Net(), {}), (Net(), state | {"c": 0}), (Wide(), state)):
        try:
            answer = copied(net, tried)
        except (KeyError, RuntimeError) as error:
            answer = f"{type(error).__name__}: {error}"
        print(answer)
    # -> KeyError: 'a.factor'
    # -> no complaint
    # -> RuntimeError: output with shape [3] doesn't match the broadcast shape [1]

    net = Net()
    print(net.load_state_dict(state))  # -> <All keys matched successfully>
    state["c.factor"] = state.pop("a.factor")
    print(net.load_state_dict(state, strict=False))
    # -> _IncompatibleKeys(missing_keys=['a.factor'], unexpected_keys=['c.factor'])
    state["b.factor"] = tensor([1.0, 2.0])
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        print(error)
    # -> Error(s) in loading state_dict for Net:
    # ->     Missing key(s) in state_dict: "a.factor".
    # ->     Unexpected key(s) in state_dict: "c.factor".
    # ->     size mismatch for b.factor: copying a param with shape tinytorch.Size([2]) from ...
    for wrong in ([1.0], {"a.factor": 1.0, "b.factor": tensor([5.0])}):
        try:
            net.load_state_dict(wrong)
        except (TypeError, RuntimeError) as error:
            print(str(error).splitlines()[-1].strip())
    # -> Expected state_dict to be dict-like, got <class 'list'>.
    # -> While copying the parameter named "a.factor", expected Tensor, got <class 'float'>
    print("what fits is loaded all the same:", net.b.factor.item())
    # -> what fits is loaded all the same: 5.0
