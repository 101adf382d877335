"""The module: a part of a network, which knows its parameters and its parts."""

import importlib
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tinytorch.autograd.hooks import Hooks
from tinytorch.autograd.inplace import assign
from tinytorch.autograd.modes import no_grad
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.state import state
from tinytorch.core.tensor import Tensor
from tinytorch.nn.modules.hooks import Gates, make_tuple
from tinytorch.nn.modules.members import Members
from tinytorch.nn.parameter import Parameter
from tinytorch.ops.creation import empty_like
from tinytorch.utils.hooks import add_hook


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
    `super().__init__()`, and says in `forward` what it computes:

        class Scale(Module):
            def __init__(self):
                super().__init__()
                self.factor = Parameter(tensor(1.0))

            def forward(self, x):
                return x * self.factor

    Call the module, not its forward: the hooks are in between. Attributes that are Parameters or
    Modules are registered; `parameters()` finds them, however deep. A plain tensor is not.
    """

    training: bool

    def __init__(self):
        super().__init__()
        self.training = True
        for name in "forward_pre forward backward_pre backward load_state_dict_pre".split():
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
            for hook in list(module._load_state_dict_pre_hooks.values()):
                hook(module, *arguments, errors)
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
        watched = self._backward_hooks or self._backward_pre_hooks
        if self._forward_hooks or self._forward_pre_hooks or watched:
            return self._call_with_hooks(args, kwargs, watched)
        return self.forward(*args, **kwargs)

    def _call_with_hooks(self, args: tuple, kwargs: dict, watched: Any) -> Any:
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            answer = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if answer is not None:
                args, kwargs = answer if with_kwargs else (make_tuple(answer), kwargs)
        gates = Gates(self) if watched and state.grad_enabled else None
        args = args if gates is None else gates.enter(args)
        output = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            answer = hook(self, args, *([kwargs] if with_kwargs else []), output)
            output = output if answer is None else answer
        return output if gates is None else gates.leave(output)

    def register_forward_pre_hook(self, hook: Callable, *, prepend=False, with_kwargs=False) -> Any:
        """Calls hook(module, args) before each forward; what it returns takes the place of args.

        With kwargs it is hook(module, args, kwargs), and may return both. A hook that is prepended
        comes before those that are there.
        """
        return add_hook(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook: Callable, *, prepend=False, with_kwargs=False) -> Any:
        """Calls hook(module, args, output) after each forward; what it returns is the output.

        With kwargs it is hook(module, args, kwargs, output).
        """
        return add_hook(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Calls hook(module, grad_output) when the gradients of the outputs are known; what it
        returns takes their place."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> Any:
        """Calls hook(module, grad_input, grad_output) when the gradients of the inputs are known.

        Both are tuples, with None where there is no gradient; what the hook returns takes the
        place of grad_input. A forward hook, in contrast, runs after forward and sees no gradient.
        """
        return add_hook(self._backward_hooks, hook, prepend)

    def register_backward_hook(self, hook: Callable) -> Any:
        """register_full_backward_hook, for older programs, with a warning. In PyTorch grad_input is
        what the last operation of forward passes back, which for a Linear includes its weights."""
        text = "register_backward_hook is deprecated: here it is register_full_backward_hook"
        warnings.warn(text, FutureWarning, stacklevel=2)
        return self.register_full_backward_hook(hook)

    def register_load_state_dict_pre_hook(self, hook: Callable) -> Any:
        """Calls hook(module, *arguments of _load_from_state_dict) before each load: it may give
        the keys of an older file their new names."""
        return add_hook(self._load_state_dict_pre_hooks, hook, False)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> Any:
        given = hook if with_module else lambda module, *arguments: hook(*arguments)
        return self.register_load_state_dict_pre_hook(given)

    def share_memory(self) -> "Module":
        """Moves all parameters and buffers to memory that processes share."""
        for each in (*self.parameters(), *self.buffers()):
            each.share_memory_()
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compiles the forward of this module, which stays the same object.

        The arguments are those of tinytorch.compile. Hooks run before and after the compiled code.
        A copy of the module, also one in a file, is not compiled.
        """
        forward = self.forward
        if hasattr(forward, "compiled"):  # a second time: with other options
            forward = forward.__wrapped__
        compiler = importlib.import_module("tinytorch.compiler.api")  # most programs need none
        vars(self)["forward"] = compiler.compile(forward, *args, **kwargs)

    def __getstate__(self) -> dict:
        """What a copy of the module gets: its attributes, but for a compiled forward."""
        compiled = hasattr(vars(self).get("forward"), "compiled")
        return {n: x for n, x in vars(self).items() if not (compiled and n == "forward")}
