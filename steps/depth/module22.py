"""Step module22: Forward hooks in the package's dress

Step 75d built forward hooks and pre-hooks: a hook that returns something replaces the arguments or
the output, and a handle removes it. Here most modules have no hooks. So __call__ checks for them
first, and the slower path is a method of its own. The handle is that of step 65c, which also ends
with a `with`.

The traps: net.forward(x) calls no hooks. And the loops run over a copy of the list, because a hook
may remove itself while it runs. (Names and arguments are PyTorch's.)

Changed: Module.__init__, __call__. New: make_tuple, _call_with_hooks, register_forward_pre_hook,
register_forward_hook.
Try: a hook that returns nothing but changes args[0] in place. What does the caller see?
"""

import importlib
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tinytorch.autograd.backward import backward  # noqa: F401 (attaches Tensor.backward)
from tinytorch.autograd.hooks import Hooks
from tinytorch.autograd.inplace import assign
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.tensor import Tensor, tensor
from tinytorch.nn.modules.members import Members
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty_like


def make_tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


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


def load_member(key: str, members: dict, name: str, state: Mapping, itself: bool) -> list[str]:
    """Copies state[key] into a parameter or buffer, or puts it there `itself`. What is wrong, if
    something is, is the answer."""
    member, value = members[name], state[key]
    if not isinstance(value, Tensor):
        return [f'While copying the parameter named "{key}", expected Tensor, got {type(value)}']
    if value.shape != member.shape:
        found = f"copying a param with shape {value.shape} from checkpoint"
        return [f"size mismatch for {key}: {found}, the shape in current model is {member.shape}."]
    if itself:
        if isinstance(member, Parameter):
            value = value if isinstance(value, Parameter) else Parameter(value, False)
            value.requires_grad_(member.requires_grad)
        members[name] = value
        return []
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
        for name in "forward_pre forward".split():
            self.__dict__[f"_{name}_hooks"] = Hooks()

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

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """What the module itself adds to a state_dict."""
        for members, name in self._own_state():
            destination[prefix + name] = members[name] if keep_vars else members[name].detach()

    def state_dict(self, destination=None, prefix: str = "", keep_vars: bool = False) -> dict:
        """All parameters and persistent buffers by name. They share the module's memory: clone
        what has to stay as it is. With keep_vars they are the parameters."""
        state = OrderedDict() if destination is None else destination
        self._save_to_state_dict(state, prefix, keep_vars)
        for name, module in self._modules.items():  # each is asked: a part may add to its state
            if module is not None:
                module.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        return state

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ) -> None:
        """Takes what belongs to the module itself, the names that begin with `prefix` and have no
        further point, and adds to the lists what is wrong. A subclass may rename keys before."""
        own = {name: members for members, name in self._own_state()}
        for name, members in own.items():
            if (key := prefix + name) in state_dict:
                error_msgs += load_member(key, members, name, state_dict, local_metadata["assign"])
            elif strict:
                missing_keys.append(key)
        for key in state_dict if strict else ():
            first, *more = key.removeprefix(prefix).split(".")
            if key.startswith(prefix) and first not in (self._modules if more else own):
                unexpected_keys.append(key)

    def load_state_dict(self, state_dict: Mapping, strict=True, assign=False) -> _IncompatibleKeys:
        """Copies the values of a state_dict into the parameters and buffers with the same names.

        With assign=True the tensors themselves take their place. RuntimeError that lists all
        missing and unexpected names (not with strict=False) and all shapes that differ.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        state, missing, unexpected, errors = OrderedDict(state_dict), [], [], []
        for path, module in self.named_modules(remove_duplicate=False):
            arguments = state, path and f"{path}.", {"assign": assign}, True, missing, unexpected
            module._load_from_state_dict(*arguments, errors)
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
        if self._forward_hooks or self._forward_pre_hooks:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple, kwargs: dict) -> Any:
        for hook in list(self._forward_pre_hooks.values()):
            answer = hook(self, args)
            if answer is not None:
                args = make_tuple(answer)
        output = self.forward(*args, **kwargs)
        for hook in list(self._forward_hooks.values()):
            answer = hook(self, args, output)
            output = output if answer is None else answer
        return output

    def register_forward_pre_hook(self, hook: Callable) -> Any:
        """Calls hook(module, args) before each forward; what it returns takes the place of
        args."""
        return self._forward_pre_hooks.add(hook)

    def register_forward_hook(self, hook: Callable) -> Any:
        """Calls hook(module, args, output) after each forward; what it returns is the output."""
        return self._forward_hooks.add(hook)


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

    net, x = Net(), tensor([[0.5]])

    # What every part gets and gives.
    def shapes(module, args, output):
        name = type(module).__name__
        print(f"{name}: {list(args[0].shape)} -> {list(output.shape)}, {output.item():.4f}")

    handles = [part.register_forward_hook(shapes) for part in net.children()]
    net(x)
    # -> Scale: [1, 1] -> [1, 1], 1.0000
    # -> Tanh: [1, 1] -> [1, 1], 0.7616
    # -> Scale: [1, 1] -> [1, 1], 7.6159
    for handle in handles:
        handle.remove()
    net(x)  # no hook, no output

    # Replacing: the input of the whole, the output of a part.
    with net.register_forward_pre_hook(lambda module, args: args[0] * 0):
        print("the input replaced:", net(x).item())
    # -> the input replaced: 0.0
    with net.bend.register_forward_hook(lambda module, args, output: output * 0 + 1):
        print("the output of Tanh replaced:", net(x).item())
    # -> the output of Tanh replaced: 10.0
    with net.register_forward_hook(lambda module, args, output: output * 0):
        print(f"called: {net(x).item()}, its forward called: {net.forward(x).item():.4f}")
    # -> called: 0.0, its forward called: 7.6159

    # Once, then it removes itself.
    def once(module, args):
        print("once")
        handle.remove()

    handle = net.register_forward_pre_hook(once)
    net(x)  # -> once
    print(f"{net(x).item():.4f}")  # -> 7.6159
