"""The module: a part of a network, which knows its parameters and its parts."""

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tinytorch.autograd.engine import Hooks, RemovableHandle
from tinytorch.autograd.inplace import assign
from tinytorch.autograd.modes import no_grad, thread
from tinytorch.core.dtype import DType, bfloat16, float16, float32, float64
from tinytorch.core.tensor import Tensor
from tinytorch.nn.hooks import Gates, add_hook, make_tuple
from tinytorch.nn.members import Members
from tinytorch.nn.parameter import Parameter


def module_text(module: "Module", parts: list[tuple[str, str]]) -> str:
    """Name(...) with what the module shows of itself and, indented, its parts."""
    extra = module.extra_repr()
    lines = extra.split("\n") if extra else []
    if len(lines) == 1 and not parts:
        return f"{type(module).__name__}({extra})"
    lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in parts]
    inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{type(module).__name__}({inside})"


def converter(dtype: DType) -> Callable[["Module"], "Module"]:
    """The method that makes all floats of a module `dtype`, such as module.double()."""
    return lambda self: self.to(dtype)


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What load_state_dict answers: names without a value, and values without a name."""

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()


def load_member(key: str, members: dict, name: str, value: Any, itself: bool) -> list[str]:
    """Copies `value` into a parameter or buffer, or puts it there `itself`. What is wrong, if
    something is, is the answer."""
    member = members[name]
    if not isinstance(value, Tensor):
        return [f'While copying the parameter named "{key}", expected Tensor, got {type(value)}']
    if value.shape != member.shape:
        return [
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {member.shape}."
        ]
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
        self._forward_pre_hooks, self._forward_hooks = Hooks(), Hooks()
        self._backward_pre_hooks, self._backward_hooks = Hooks(), Hooks()

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

    def _convert(self, convert: Callable[[Tensor], Tensor]) -> "Module":
        """Replaces the data of each parameter, gradient and buffer. The parameters stay the same
        objects, so that an optimizer that has them goes on working."""
        with no_grad():
            for param in self.parameters():
                param.data = convert(param.data)
                if param.grad is not None:
                    param.grad = convert(param.grad.detach())
            for module in self.modules():
                for name, buffer in module._buffers.items():
                    module._buffers[name] = None if buffer is None else convert(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> "Module":
        """Moves the module to a device, or to a float type, with the arguments of Tensor.to.

        Unlike Tensor.to it changes the module itself. Integer buffers keep their type. TypeError
        for a type that is no float type.
        """

        def convert(t: Tensor) -> Tensor:
            moved = t.to(*args, **kwargs)
            if not t.is_floating_point():
                return t.to(moved.device)
            if not moved.is_floating_point():
                raise TypeError(f"Module.to only accepts floating point, not {moved.dtype!r}")
            return moved

        return self._convert(convert)

    float = converter(float32)
    double = converter(float64)
    half = converter(float16)
    bfloat16 = converter(bfloat16)

    def cpu(self) -> "Module":
        return self.to("cpu")

    def cuda(self, device: Any = None) -> "Module":
        return self.to("cuda" if device is None else device)

    # Its state, as names and values.

    def _named_state(self, prefix: str) -> Iterator[tuple[str, dict, str]]:
        """(full name, parameters or buffers of a module, name there) of all that is kept."""
        for path, module in self.named_modules(None, "", remove_duplicate=False):
            start = f"{prefix}{path}." if path else prefix
            left_out = module._non_persistent - module._parameters.keys()
            for members in (module._parameters, module._buffers):
                for name, member in members.items():
                    if member is not None and name not in left_out:
                        yield start + name, members, name

    def state_dict(
        self, *, destination: dict | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Tensor]:
        """All parameters and persistent buffers by name. They show the module's memory: a copy
        that is to stay as it is has to be cloned. With keep_vars they are the parameters."""
        state = OrderedDict() if destination is None else destination
        for key, members, name in self._named_state(prefix):
            state[key] = members[name] if keep_vars else members[name].detach()
        return state

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Copies the values of a state_dict into the parameters and buffers with the same names.

        With assign=True the tensors themselves take their place. RuntimeError that lists all
        missing and unexpected names (not with strict=False) and all shapes that differ.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        errors, missing, known = [], [], set()
        for key, members, name in self._named_state(""):
            known.add(key)
            if key not in state_dict:
                missing.append(key)
                continue
            errors += load_member(key, members, name, state_dict[key], assign)
        unexpected = [key for key in state_dict if key not in known]
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

    # Its call, and those who watch it.

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
        gates = Gates(self) if watched and thread.grad_enabled else None
        args = args if gates is None else gates.enter(args)
        output = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            answer = hook(self, args, *([kwargs] if with_kwargs else []), output)
            output = output if answer is None else answer
        return output if gates is None else gates.leave(output)

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args) before each forward; what it returns takes the place of args.

        With kwargs it is hook(module, args, kwargs), and may return both. A hook that is prepended
        comes before those that are there.
        """
        return add_hook(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, args, output) after each forward; what it returns is the output.

        With kwargs it is hook(module, args, kwargs, output).
        """
        return add_hook(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable, prepend: bool = False
    ) -> RemovableHandle:
        """Calls hook(module, grad_output) when the gradients of the outputs are known; what it
        returns takes their place."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls hook(module, grad_input, grad_output) when the gradients of the inputs are known.

        Both are tuples, with None where there is no gradient; what the hook returns takes the
        place of grad_input. A forward hook, in contrast, runs after forward and sees no gradient.
        """
        return add_hook(self._backward_hooks, hook, prepend)
